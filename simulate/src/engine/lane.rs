//! One of the two queues: sealed segments by age, and its open ones.
//!
//! Where: in the engine, like `Lane` in the store's `log`. Invariant: tickets are unique, so that
//! the set's order is the queue's.

use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Lane {
    /// {ticket, segment}, the oldest first.
    pub(super) sealed: BTreeSet<(u64, u32)>,
    /// The segment that appends go to.
    pub(super) open: Option<u32>,
    /// The segment that compaction fills.
    pub(super) out: Option<u32>,
    pub(super) live_bytes: u64,
    /// Number of its segments, and of those ever opened, without those that compaction fills.
    pub(super) segments: u32,
    pub(super) opened: u64,
    /// The birth from which on hits do not count.
    pub(super) young_from: u64,
}
