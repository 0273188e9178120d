//! Pins a thread to a processor, and reads the processors that a thread may run on.
//!
//! Where: called once, when a column's thread starts.
//! Invariant: only the calling thread is pinned.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Binds the calling thread to processor `cpu`. Fails if the process may not use this processor.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the processors that the calling thread may run on, ascending. Fails if the system has
/// more than `CpuSet::MAX_CPU` processors.
pub fn thread_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}
