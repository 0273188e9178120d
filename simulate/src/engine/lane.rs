//! One of the two queues: its sealed segments, by age, and its open segments.
//!
//! Where: the engine uses a `Lane` as the store's `log` does. Invariant: tickets are unique, so
//! that the order of `sealed` is the queue's order.

use std::collections::BTreeSet;

#[derive(Default)]
pub(super) struct Lane {
    /// Pairs of ticket and segment number, oldest first.
    pub(super) sealed: BTreeSet<(u64, u32)>,
    pub(super) open: Option<u32>,
    /// The segment that compaction fills.
    pub(super) out: Option<u32>,
    pub(super) live_bytes: u64,
    pub(super) segments: u32,
    /// Number of segments ever opened for appends.
    pub(super) opened: u64,
    /// A hit in a segment does not count if the segment's birth is at least this number.
    pub(super) young_from: u64,
}
