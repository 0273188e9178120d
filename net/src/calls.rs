//! How many system calls a column has made.
//!
//! Where: beside the path; each wrapper of this crate counts here.
//! Invariant: one thread writes a `Calls` (its column), so an increment is a load and a store, no
//! locked instruction; any thread may read.

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
