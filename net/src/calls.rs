//! How many system calls a column has made.
//!
//! Where: beside the path; each wrapper of this crate counts here.
//! Invariant: only the column's own thread writes its `Calls`, so an increment is a load and a
//! store, without a locked instruction; any thread may read them.

use memory::sync::Counter;

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

impl Calls {
    /// All of them.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let Calls { waits, controls, reads, writes, accepts } = self;
        [waits, controls, reads, writes, accepts].into_iter().map(Counter::get).sum()
    }
}
