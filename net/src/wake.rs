//! Ends a column's sleep from another thread, by an eventfd.
//!
//! Where: another thread wakes a column that has new work, or that must end.
//! Invariant: a `wake` before the sleep is not lost: the eventfd stays readable until `clear`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a thread that sleeps in `Epoll::wait`.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Waker {
    /// Makes a waker. Register the waker with `Interest::Wake` in the `Epoll` of the thread that it
    /// shall wake. Fails if no descriptor is left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Ends the thread's current sleep, or its next one. Several calls before `clear` count as one.
    pub fn wake(&self) {
        // The write fails only if the counter has its maximum; the eventfd is readable already.
        let _already_readable = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the eventfd unreadable until the next `wake`.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // The read fails if `wake` was not called; then there is no wake-up to clear.
        let _not_woken = rustix::io::read(&self.0, &mut count);
    }
}
