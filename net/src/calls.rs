//! Counts of the system calls that a column makes.
//!
//! Where: functions of this crate add to `Calls` when they wait, accept, receive or send.
//! Invariant: only the column's thread adds to the column's `Calls`. An addition is therefore a
//! load and a store, without a locked instruction. Any thread may read the counts.

use memory::sync::Counter;

/// Numbers of system calls that a column has made, one number for each kind of call.
#[derive(Debug, Default)]
pub struct Calls {
    /// Number of calls of `epoll_wait` and `epoll_pwait2`.
    pub waits: Counter,
    /// Number of calls of `epoll_ctl`.
    pub controls: Counter,
    /// Number of calls that receive: `recv`, `readv`, `recvmmsg` and others.
    pub reads: Counter,
    /// Number of calls that send: `send`, `sendmsg`, `sendmmsg` and others.
    pub writes: Counter,
    /// Number of calls of `accept4`.
    pub accepts: Counter,
}

impl Calls {
    /// The sum of all five numbers.
    #[must_use]
    pub fn sum(&self) -> u64 {
        let Calls { waits, controls, reads, writes, accepts } = self;
        [waits, controls, reads, writes, accepts].into_iter().map(Counter::get).sum()
    }
}
