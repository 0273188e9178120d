//! The pid file (`-P`).
//!
//! Where: `main` writes the file when the server can answer, and removes it after the server ends.
//! Invariant: `replace` writes the file. A file that names another process is not removed.
//! Source: memcached 1.6.45 `save_pid`, `remove_pidfile`.

use std::fs;
use std::path::{Path, PathBuf};

use super::replace;

/// Maximum number of bytes that are read from a pid file. Every process id has fewer digits.
const PID_BYTES_MAX: u64 = 32;

/// A written pid file (`-P`).
#[derive(Debug)]
pub struct PidFile(PathBuf);

impl PidFile {
    /// Writes this process's id. Warns if the file at `path` named another process that still runs.
    ///
    /// # Errors
    /// The file cannot be written; the text says why.
    pub fn write(path: &Path) -> Result<PidFile, String> {
        if let Some(pid) = running(path) {
            log::warn!("WARNING: The pid file contained the following (running) pid: {pid}");
        }
        replace::replace(path, ".tmp", &format!("{}\n", std::process::id()))
            .map_err(|text| format!("Could not write the pid file: {text}"))?;
        Ok(PidFile(path.to_owned()))
    }

    /// Removes the file, unless the file now names another process.
    pub fn remove(self) {
        if named(&self.0).is_some_and(|pid| pid != std::process::id()) {
            return;
        }
        if let Err(error) = fs::remove_file(&self.0) {
            log::warn!("Could not remove the pid file {}: {error}", self.0.display());
        }
    }
}

fn named(path: &Path) -> Option<u32> {
    replace::read(path, PID_BYTES_MAX)?.trim().parse().ok()
}

/// Returns the process that the pid file at `path` names, if it is another running process.
fn running(path: &Path) -> Option<u32> {
    let pid = named(path)?;
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
    use testing::Folder;

    #[test]
    fn pid_file_is_written_and_removed() {
        let folder = Folder::new();
        let path = folder.path("pid");
        fs::write(&path, "1\n").unwrap();
        assert_eq!(running(&path), Some(1));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(running(&path), None);
        file.remove();
        assert!(!path.exists());
        let told = PidFile::write(Path::new("/no/such/directory/pid")).unwrap_err();
        assert!(told.contains("Could not write the pid file"), "{told}");
    }

    #[test]
    fn a_successors_pid_file_stays() {
        let folder = Folder::new();
        let path = folder.path("pid");
        let file = PidFile::write(&path).unwrap();
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
    }
}
