//! Busy polling (`-o busy_poll`): a column without work polls for a while before it sleeps.
//!
//! Where: the column calls `goes_on` before each wait, and `note_work` after each wait with events.
//! Invariant: a column sleeps after it has had no work for the time that this option gives.
//! Source: `net.core.busy_poll` of Linux, extended here to everything that an epoll watches.

use net::{Timeout, monotonic_ns};

#[derive(Debug)]
pub(super) struct Spin {
    /// How long the column polls after its last work.
    spin_ns: u64,
    until_ns: u64,
    /// When `goes_on` was last called, and the total time spent in fruitless searches for work.
    asked_ns: u64,
    idle_ns: u64,
    /// True if there was work since the last call of `goes_on`.
    has_worked: bool,
}

impl Spin {
    /// Returns `None` if the column does not poll.
    pub(super) fn new(spin_us: u32) -> Option<Spin> {
        let spin_ns = u64::from(spin_us) * 1000;
        let spin = Spin { spin_ns, until_ns: 0, asked_ns: 0, idle_ns: 0, has_worked: false };
        (spin_us > 0).then_some(spin)
    }

    #[inline]
    pub(super) fn note_work(&mut self) {
        self.has_worked = true;
    }

    pub(super) fn idle_ns(&self) -> u64 {
        self.idle_ns
    }

    /// Returns true if the column must poll again. Otherwise the column may sleep for `due`.
    #[inline]
    pub(super) fn goes_on(&mut self, due: Timeout) -> bool {
        let now_ns = monotonic_ns();
        let asked_ns = std::mem::replace(&mut self.asked_ns, now_ns);
        if std::mem::take(&mut self.has_worked) || due == Timeout::Zero {
            self.until_ns = now_ns + self.spin_ns;
        } else if asked_ns < self.until_ns {
            self.idle_ns += now_ns - asked_ns;
        }
        now_ns < self.until_ns
    }
}
