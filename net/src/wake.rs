//! Ending a column's sleep from another thread: an eventfd.
//!
//! Where: beside the path; used to stop a column.
//! Invariant: a wake before the sleep is not lost: the eventfd stays readable until `clear`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A doorbell.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Waker {
    /// Makes one, to be registered with `Interest::Wake`.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Rings it. Any number of rings before `clear` are one.
    pub fn wake(&self) {
        // The one failure is a full counter (2^64 - 2 rings): then it is ringing.
        let _ringing = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Ends the ringing.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // Nothing to read: nobody rang.
        let _silent = rustix::io::read(&self.0, &mut count);
    }
}
