//! How many system calls a column has made.
//!
//! Where: beside the path; each wrapper of this crate counts here.
//! Invariant: one thread writes a `Calls` (its column), so an increment is a load and a store, no
//! locked instruction; any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that one thread adds to and any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning column may call this; two writers would lose counts (nothing
    /// worse).
    #[inline]
    pub fn add(&self, n: u64) {
        // Relaxed: a statistic; it orders nothing and pairs with nothing.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets it to `n`. As `add`, for the owning column alone.
    #[inline]
    pub fn set(&self, n: u64) {
        // Relaxed: as in `add`.
        self.0.store(n, Ordering::Relaxed);
    }

    /// What it stands at.
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// A column's system calls, by kind.
#[derive(Debug, Default)]
pub struct Calls {
    /// `epoll_wait`.
    pub waits: Counter,
    /// `epoll_ctl`.
    pub controls: Counter,
    /// `recv` and `readv`.
    pub reads: Counter,
    /// `send` and `sendmsg`.
    pub writes: Counter,
    /// `accept4`.
    pub accepts: Counter,
}
