//! One of the two queues: sealed segments by age, and its open ones.
//!
//! Where: in the engine, like `Lane` in the store's `log`. Invariant: tickets are unique, so that
//! the order of `sealed` is the queue's order.

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
    /// Number of the queue's segments.
    pub(super) segments: u32,
    /// Number of segments ever opened for appends.
    pub(super) opened: u64,
    /// Hits in segments of this birth or a later one do not count.
    pub(super) young_from: u64,
}
