//! Writes small files for other programs, atomically and without following links.
//!
//! Where: `pid_file` and `port_file`, once, while the server starts.
//! Invariant: no program sees a half-written file, because a new file is written next to `path` and
//! renamed. No link is followed, and opening a path does not block, even if a FIFO is there.
//! Source: open(2), `O_EXCL` and `O_NOFOLLOW`.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Number of attempts to create the new file. Before each further attempt, a file at the same path
/// is removed. A killed server may have left the file, or another program may create the file
/// repeatedly.
const ATTEMPTS_MAX: usize = 3;

/// The file's mode: everybody may read it, only its owner may write it.
const MODE: u32 = 0o644;

/// Writes `text` to a new file, `path` + `ending`, and renames it to `path`. If a step fails,
/// removes the new file, and returns a text that names the step.
pub(crate) fn replace(path: &Path, ending: &str, text: &str) -> Result<(), String> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(OsStr::new(ending));
    let beside = PathBuf::from(beside);
    let mut file =
        make(&beside).map_err(|error| format!("cannot create {}: {error}", beside.display()))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        format!("cannot write {}: {error}", path.display())
    })
}

/// Creates a new file at `path`. If there is a file already, removes that file first. If the file
/// is a link, removes the link, but not the link's target.
fn make(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(MODE).custom_flags(libc::O_NOFOLLOW);
    let mut attempts = 1;
    loop {
        match options.open(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempts < ATTEMPTS_MAX => {
                fs::remove_file(path)?;
                attempts += 1;
            }
            made => return made,
        }
    }
}

/// Returns the first `bytes_max` bytes of the file at `path`, if that is a regular text file.
pub(crate) fn read(path: &Path, bytes_max: u64) -> Option<String> {
    // There may be a FIFO at this path, on which an open for reading would block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let mut text = String::new();
    file.metadata().ok()?.is_file().then_some(())?;
    file.take(bytes_max).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use testing::Folder;

    fn names(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(&folder.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_planted_links_lead_to_stays_as_it_is() {
        let folder = Folder::new();
        let [path, beside, victim] = ["it", "it.tmp", "victim"].map(|name| folder.path(name));
        fs::write(&victim, "precious").unwrap();
        for planted in [&beside, &path] {
            symlink(&victim, planted).unwrap();
            assert_eq!(read(planted, 32), None, "no link is followed to read either");
            replace(&path, ".tmp", "new").unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{planted:?}");
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(read(&path, 32).as_deref(), Some("new"));
            assert_eq!(names(&folder), ["it", "victim"]);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn nothing_is_waited_for_on_a_fifo() {
        let folder = Folder::new();
        let [path, beside] = ["it", "it.tmp"].map(|name| folder.path(name));
        for planted in [&beside, &path] {
            rustix::fs::mknodat(CWD, planted, FileType::Fifo, Mode::from(0o666), 0).unwrap();
            assert!(fs::symlink_metadata(planted).unwrap().file_type().is_fifo());
            assert_eq!(read(planted, 32), None);
            replace(&path, ".tmp", "new").unwrap();
            assert_eq!(read(&path, 32).as_deref(), Some("new"));
            assert_eq!(names(&folder), ["it"]);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_told_and_nothing_is_left() {
        let folder = Folder::new();
        let path = folder.path("it");
        fs::create_dir(&path).unwrap();
        let told = replace(&path, ".tmp", "new").unwrap_err();
        assert!(told.starts_with(&format!("cannot write {}: ", path.display())), "{told}");
        assert_eq!(names(&folder), ["it"]);
        fs::create_dir(folder.path("it.tmp")).unwrap();
        let told = replace(&path, ".tmp", "new").unwrap_err();
        assert!(told.starts_with(&format!("cannot create {}.tmp: ", path.display())), "{told}");
    }

    #[test]
    fn others_may_read_and_not_write() {
        let folder = Folder::new();
        let path = folder.path("it");
        replace(&path, ".tmp", "new").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o022, 0);
    }
}
