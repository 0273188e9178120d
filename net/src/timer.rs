//! A timer (timerfd) that ends a column's sleep once a second.
//!
//! Where: in the `Epoll` of a column that has work once a second.
//! Invariant: the kernel's timer is set only once, by `new`. With a timeout of `epoll_wait`, the
//! kernel would set a timer before each sleep and cancel the timer afterwards, which takes 0.16 us
//! of the 7.4 us that a single request takes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer that makes its descriptor readable once a second.
#[derive(Debug)]
pub struct SecondTimer(OwnedFd);

impl AsFd for SecondTimer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl SecondTimer {
    /// Makes a timer that fires at the time `first` of the monotonic clock, and every second
    /// afterwards. Register the timer with `Interest::Wake`. Fails if no descriptor is left.
    pub fn new(first: Timespec) -> io::Result<SecondTimer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Itimerspec { it_interval: second, it_value: first };
        timerfd_settime(&fd, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok(SecondTimer(fd))
    }

    /// Makes the descriptor unreadable until the timer fires again.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // The read fails if the timer has not fired; the descriptor is then unreadable already.
        let _not_fired = rustix::io::read(&self.0, &mut count);
    }
}
