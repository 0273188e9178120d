//! The resident memory of this process, as the system counts it.
//!
//! Where: opened at start; `stats memory` reads it.
//! Invariant: reading needs no new descriptor.
//! Source: proc(5), `/proc/pid/statm`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::param::page_size;

/// `/proc/self/statm`, the system's report of the process's memory. The file stays open, because
/// the process may have no descriptor left when the report is read.
#[derive(Debug)]
pub(crate) struct Statm(Option<File>);

/// Maximum bytes of the file's text, which is seven numbers.
const STATM_BYTES_MAX: usize = 256;

#[derive(Clone, Copy)]
pub(crate) struct Resident {
    pub(crate) all_bytes: u64,
    /// Bytes of the pages that are mapped from files: the program and its libraries.
    pub(crate) program_bytes: u64,
}

impl Statm {
    /// Opens the file of this process. The caller has already forked, if the process is a daemon.
    pub(crate) fn open() -> Statm {
        Statm(File::open("/proc/self/statm").ok())
    }

    /// Reads the file. `None` if there is no /proc.
    pub(crate) fn now(&self) -> Option<Resident> {
        let mut text = [0; STATM_BYTES_MAX];
        let bytes = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..bytes)?).ok()?;
        let mut pages = text.split(' ').skip(1).map_while(|pages| pages.parse::<u64>().ok());
        let mut bytes = || pages.next().map(|pages| pages * page_size() as u64);
        Some(Resident { all_bytes: bytes()?, program_bytes: bytes()? })
    }
}
