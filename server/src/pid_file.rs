//! The pid file (`-P`).
//!
//! Where: `main` writes the file when the server answers, and removes it when the server has
//! stopped.
//! Invariant: nobody sees a file that is half written: it is written under another name and then
//! renamed.
//! Source: memcached 1.6.45 `save_pid`, `remove_pidfile`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A written pid file (`-P`).
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes our process id to `path.tmp` and renames that to `path`. Warns if the process that
    /// `path` named before still runs. If the file cannot be written, warns and returns `None`, as
    /// memcached only warns.
    #[must_use]
    pub fn write(path: &Path) -> Option<PidFile> {
        if let Some(pid) = running(path) {
            log::warn!("WARNING: The pid file contained the following (running) pid: {pid}");
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let written = fs::write(&temporary, format!("{}\n", std::process::id()));
        if let Err(error) = written {
            log::warn!("Could not open the pid file {} for writing: {error}", temporary.display());
        } else if let Err(error) = fs::rename(&temporary, path) {
            log::warn!(
                "Could not rename the pid file from {} to {}: {error}",
                temporary.display(),
                path.display()
            );
        } else {
            return Some(PidFile(path.to_owned()));
        }
        // Nobody would remove it later. Where there is none, all is well.
        let _ = fs::remove_file(&temporary);
        None
    }

    /// Removes the file.
    pub fn remove(self) {
        if let Err(error) = fs::remove_file(&self.0) {
            log::warn!("Could not remove the pid file {}: {error}", self.0.display());
        }
    }
}

/// The process that the pid file at `path` names, if it runs and is not this one.
fn running(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    let raw = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    let alive = !matches!(
        rustix::process::test_kill_process(raw),
        Err(error) if error == rustix::io::Errno::SRCH
    );
    (alive && pid != std::process::id()).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_file_is_written_and_removed() {
        let path = std::env::temp_dir().join(format!("pid-{}", std::process::id()));
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path), Some(1));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(running(&path), None);
        file.remove();
        assert!(!path.exists());
        assert!(PidFile::write(Path::new("/no/such/directory/pid")).is_none());
    }

    #[test]
    fn a_pid_file_that_is_refused_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("pid-folder-{}", std::process::id()));
        fs::create_dir_all(folder.join("pid")).unwrap();
        // A file cannot take the place of a folder.
        assert!(PidFile::write(&folder.join("pid")).is_none());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()).collect();
        assert_eq!(left, [folder.join("pid")]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
