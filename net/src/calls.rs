//! Counts of the system calls that a column makes.
//!
//! Where: outside the path of a request; each wrapper of this crate counts its system calls here.
//! Invariant: only the column's own thread writes its `Calls`, so an increment needs no locked
//! instruction, only a load and a store. Any thread may read the counts.

use memory::sync::Counter;

/// Numbers of system calls that a column has made, by kind.
#[derive(Debug, Default)]
pub struct Calls {
    /// `epoll_wait`.
    pub waits: Counter,
    /// `epoll_ctl`.
    pub controls: Counter,
    /// Calls that receive: `recv`, `readv`, `recvmmsg` and others.
    pub reads: Counter,
    /// Calls that send: `send`, `sendmsg`, `sendmmsg` and others.
    pub writes: Counter,
    /// `accept4`.
    pub accepts: Counter,
}

impl Calls {
    /// Number of all calls.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let Calls { waits, controls, reads, writes, accepts } = self;
        [waits, controls, reads, writes, accepts].into_iter().map(Counter::get).sum()
    }
}
