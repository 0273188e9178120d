//! The segments of a store, and the lists of free, retired and withheld segments.
//!
//! Where: the log, the frames and the index take free segments from the lists, and later give the
//! segments back. A `Segment` is the entry of a segment, with the segment's state and counts.
//! Invariant: a segment leaves `Limbo` only after every column has passed a quiescent point since
//! the segment was retired. `Free`, `Frames`, `Index` and `Withheld` segments hold no items. A free
//! segment is warm if some of its memory is populated, and fresh otherwise. Each node has a list of
//! warm and a list of fresh segments. Warm segments are taken before fresh segments.
//! Source: a lock-free stack whose head counts its changes (Treiber, 1986).
//!
//! ```text
//!          open          seal           claim             retire         all columns passed
//!   Free --------> Open --------> Sealed -------> Draining -------> Limbo -----------------> Free
//!     \---> Frames --> Free (when its last frame is free)
//!     \---> Index (its memory given back; the index may grow by as much) --> Free
//!     \---> Withheld (its memory given back) --> Free (when the limit is raised)
//! ```

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod segment;
mod table;

pub use segment::{Opening, Reservation, Segment, State, UNSEALED};

use crate::nodes::Nodes;
use crate::plant::{self, Fault};
use crate::quiescence::Quiescence;
use crate::sync::{AtomicU32, AtomicU64, CachePadded, Ordering, wait_a_little};
use crate::words::low;
use std::io;
use std::ops::Range;
use table::Table;

/// Used in place of a number if there is no segment, frame or chunk.
pub const NONE: u32 = u32::MAX;

/// All segments, and the lists of free, retired and withheld segments.
#[derive(Debug)]
pub struct Segments {
    table: Table,
    count: CachePadded<AtomicU32>,
    nodes: Nodes,
    /// Number of consecutive segments that belong to one node.
    block: u32,
    heads: Box<[Heads]>,
    free: CachePadded<Free>,
    /// Counter that selects the node at which `take_fresh` begins to search.
    turn: AtomicU32,
    limbo: CachePadded<AtomicU64>,
    limbo_count: AtomicU32,
    withheld: CachePadded<AtomicU64>,
    withheld_count: AtomicU32,
}

/// The two lists of a node's free segments.
#[derive(Debug)]
struct Heads {
    /// Head of the list of warm segments: {changes: 32 | segment: 32}. The count of changes lets a
    /// stalled pop notice that the first segment was popped and pushed again.
    warm: CachePadded<AtomicU64>,
    /// Head of the list of fresh segments, in the format of `warm`.
    fresh: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Free {
    /// Number of free segments. Lowered before a pop and raised after a push, so never too high.
    all: AtomicU32,
    /// Number of fresh segments. Raised before a push and lowered after a pop, so never too low.
    fresh: AtomicU32,
}

impl Segments {
    /// Makes `count` free segments and room for `count_max` entries. Segment 0 is taken first.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn new(count: u32, count_max: u32) -> io::Result<Self> {
        Segments::with_nodes(Nodes::default(), count, count_max)
    }

    /// Like `new`, but divides the segments between nodes.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn with_nodes(nodes: Nodes, count: u32, count_max: u32) -> io::Result<Self> {
        let list = || CachePadded(AtomicU64::new(u64::from(NONE)));
        let of_nodes = u32::try_from(nodes.count()).unwrap_or(u32::MAX);
        let segments = Self {
            table: Table::new(count_max)?,
            count: CachePadded(AtomicU32::new(count)),
            block: count.div_ceil(of_nodes).max(1),
            heads: (0..of_nodes).map(|_| Heads { warm: list(), fresh: list() }).collect(),
            nodes,
            free: CachePadded(Free { all: AtomicU32::new(0), fresh: AtomicU32::new(0) }),
            turn: AtomicU32::new(0),
            limbo: list(),
            limbo_count: AtomicU32::new(0),
            withheld: list(),
            withheld_count: AtomicU32::new(0),
        };
        (0..count).rev().for_each(|segment| segments.give(segment));
        Ok(segments)
    }

    /// The entry of `segment`.
    #[inline]
    #[must_use]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    /// Number of all segments, including withheld segments.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed) // as in `add`
    }

    /// The nodes between which segments are divided.
    #[inline]
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The index (in `Nodes`) of the NUMA node to which a segment belongs.
    #[inline]
    #[must_use]
    pub fn node_of(&self, segment: u32) -> usize {
        match self.heads.len() {
            1 => 0,
            nodes => (segment / self.block) as usize % nodes,
        }
    }

    /// Iterates over ranges of segments that belong to the same node. Returns each range, and the
    /// system's number of its node.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Range<u32>, usize)> {
        let block = |first: u32| {
            let behind = first.saturating_add(self.block).min(self.count_max());
            (first..behind, self.nodes.number(self.node_of(first)))
        };
        (0..self.count_max()).step_by(self.block as usize).map(block)
    }

    /// Number of segments for which there is address space.
    #[must_use]
    pub fn count_max(&self) -> u32 {
        u32::try_from(self.table.len()).unwrap_or(u32::MAX)
    }

    /// Number of free segments.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.all.load(Ordering::Relaxed) // a hint; `take` decides
    }

    /// Number of free segments without memory.
    #[inline]
    #[must_use]
    pub fn fresh(&self) -> u32 {
        self.free.fresh.load(Ordering::Relaxed) // a hint
    }

    /// Number of free segments that are populated in part or whole.
    #[inline]
    #[must_use]
    pub fn warm(&self) -> u32 {
        self.free().saturating_sub(self.fresh())
    }

    /// Number of retired segments that are not free yet.
    #[must_use]
    pub fn limbo(&self) -> u32 {
        self.limbo_count.load(Ordering::Relaxed) // a hint
    }

    /// Number of withheld segments.
    #[must_use]
    pub fn withheld(&self) -> u32 {
        self.withheld_count.load(Ordering::Relaxed) // a hint
    }

    /// If there are fewer than `count_max` segments, adds a segment: calls `admit` with the
    /// segment, then frees the segment.
    pub(crate) fn add(&self, count_max: u32, admit: impl FnOnce(u32)) -> bool {
        let count_max = count_max.min(self.count_max());
        let more = |count: u32| (count < count_max).then(|| count + 1);
        // Relaxed: the free list, and not the count, publishes the segment.
        let added = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.is_ok_and(|segment| {
            admit(segment);
            self.give(segment);
            true
        })
    }

    /// Withholds a segment. The caller owns it, and has given its memory back to the system.
    pub(crate) fn withhold(&self, segment: u32) {
        self.get(segment).set_state(State::Withheld);
        self.push(&self.withheld, segment);
        self.withheld_count.fetch_add(1, Ordering::Relaxed); // after the push: see `restore`
    }

    /// If fewer than `present_max` segments are present, takes a withheld segment, calls `admit`
    /// with it and frees it. A segment is present if it is not withheld.
    pub(crate) fn restore(&self, present_max: u32, admit: impl FnOnce(u32)) -> bool {
        // The count is lowered before the pop. Otherwise several threads could each restore a
        // segment when only one segment is lacking.
        let count = self.count();
        let lower = |withheld: u32| {
            let lacks = count.saturating_sub(withheld) < present_max;
            (withheld > 0 && lacks).then(|| withheld - 1)
        };
        // Relaxed: the list's head orders all other accesses.
        let lowered = self.withheld_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_err() {
            return false;
        }
        let segment = self.pop_reserved(|| self.pop(&self.withheld));
        admit(segment);
        self.give(segment);
        true
    }

    /// Like `take_near` for the node at place 0.
    pub fn take(&self, keep: u32) -> Option<u32> {
        self.take_near(keep, 0)
    }

    /// If more than `keep` segments are free, takes a segment of `node`, or else of the nearest
    /// node with free segments. On each node, prefers warm segments to fresh segments.
    pub fn take_near(&self, keep: u32, node: usize) -> Option<u32> {
        self.reserve_one(keep)?;
        let of_node = |at: &usize| {
            let heads = &self.heads[*at];
            self.pop(&heads.warm).or_else(|| self.pop_fresh(heads))
        };
        Some(self.pop_reserved(|| self.nodes.nearest(node).iter().find_map(of_node)))
    }

    /// If more than `keep` segments are free, takes a segment of any node, preferably a fresh one.
    pub(crate) fn take_cold(&self, keep: u32) -> Option<u32> {
        self.reserve_one(keep)?;
        Some(self.pop_reserved(|| self.fresh_of_any().or_else(|| self.warm_of_any())))
    }

    /// If more than `keep` segments are free, takes a segment of any node, preferably a warm one.
    pub(crate) fn take_warm(&self, keep: u32) -> Option<u32> {
        self.reserve_one(keep)?;
        Some(self.pop_reserved(|| self.warm_of_any().or_else(|| self.fresh_of_any())))
    }

    /// If more than `keep` segments are free, takes a fresh segment. Each call begins its search at
    /// the next node, so that segments of all nodes get memory.
    pub(crate) fn take_fresh(&self, keep: u32) -> Option<u32> {
        self.reserve_one(keep)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize; // any turn will do
        let heads = self.heads.iter().cycle().skip(turn % self.heads.len());
        let fresh = heads.take(self.heads.len()).find_map(|heads| self.pop_fresh(heads));
        if fresh.is_none() {
            self.free.all.fetch_add(1, Ordering::Relaxed); // as in `give`
        }
        fresh
    }

    /// If more than `keep` segments are free, reserves a segment for the caller's pop.
    fn reserve_one(&self, keep: u32) -> Option<u32> {
        // The count is lowered before the pop. Otherwise several threads could together leave fewer
        // than `keep` segments. Relaxed: the list's head orders accesses to the segment.
        let keep = keep.saturating_sub(u32::from(plant::is(Fault::KeepOffByOne)));
        let lower = |free: u32| (free > keep).then(|| free - 1);
        self.free.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower).ok()
    }

    fn warm_of_any(&self) -> Option<u32> {
        self.heads.iter().find_map(|heads| self.pop(&heads.warm))
    }

    fn fresh_of_any(&self) -> Option<u32> {
        self.heads.iter().find_map(|heads| self.pop_fresh(heads))
    }

    fn pop_fresh(&self, of: &Heads) -> Option<u32> {
        let fresh = self.pop(&of.fresh)?;
        self.free.fresh.fetch_sub(1, Ordering::Relaxed); // counted before it was pushed
        Some(fresh)
    }

    fn pop_reserved(&self, mut pop: impl FnMut() -> Option<u32>) -> u32 {
        let mut rounds = 0;
        loop {
            if let Some(segment) = pop() {
                return segment;
            }
            // A segment is reserved for this thread: some thread is about to push a segment.
            wait_a_little(&mut rounds);
        }
    }

    /// Frees a segment. The caller owns the segment, and no other thread uses it.
    pub fn give(&self, segment: u32) {
        let (there, heads) = (self.get(segment), &self.heads[self.node_of(segment)]);
        there.set_state(State::Free);
        if there.touched() == 0 {
            self.free.fresh.fetch_add(1, Ordering::Relaxed); // before the push: see `pop_fresh`
            self.push(&heads.fresh, segment);
        } else {
            self.push(&heads.warm, segment);
        }
        self.free.all.fetch_add(1, Ordering::Relaxed); // after the push: see `reserve_one`
    }

    /// Retires a drained segment. `reclaim` frees the segment later.
    pub fn retire(&self, segment: u32, quiescence: &Quiescence) {
        let entry = self.get(segment);
        entry.touch(entry.end());
        self.limbo_count.fetch_add(1, Ordering::Relaxed); // a hint; before the push: see `reclaim`
        entry.set_state(State::Limbo);
        // Release pairs with the Acquire in `reclaim`.
        entry.lived.retired.store(quiescence.retire(), Ordering::Release);
        self.push(&self.limbo, segment);
    }

    /// Frees each retired segment if every column has passed a quiescent point since the segment
    /// was retired. Calls `each` with the segment before freeing it.
    pub fn reclaim(&self, quiescence: &Quiescence, mut each: impl FnMut(u32)) {
        // The swap takes the whole list. Acquire pairs with the Release in `push`. Release pairs
        // with the Acquire in `pop` and in the next call of `reclaim`.
        let head = self.limbo.swap(u64::from(NONE), Ordering::AcqRel);
        let mut segment = low(head);
        while segment != NONE {
            let entry = self.get(segment);
            // Relaxed: after the swap, only this thread uses the list.
            let next = entry.appended.next.load(Ordering::Relaxed);
            // Acquire pairs with the Release in `retire`.
            let passed = quiescence.passed(entry.lived.retired.load(Ordering::Acquire));
            if passed || plant::is(Fault::LimboNotWaited) {
                each(segment);
                self.give(segment);
                // Relaxed: the count is a hint. If it were lowered before `give`, the segment would
                // briefly count as neither free nor retired, and a column without another segment
                // to wait for would refuse its request.
                self.limbo_count.fetch_sub(1, Ordering::Relaxed);
            } else {
                self.push(&self.limbo, segment);
            }
            segment = next;
        }
    }

    fn push(&self, list: &AtomicU64, segment: u32) {
        let next = &self.get(segment).appended.next;
        let link = |head: u64| {
            next.store(low(head), Ordering::Relaxed); // published by the exchange below
            Some(changed(head) | u64::from(segment))
        };
        // Release pairs with the Acquire in `pop` and `reclaim`.
        let pushed = list.fetch_update(Ordering::Release, Ordering::Relaxed, link);
        debug_assert!(pushed.is_ok(), "link never refuses");
    }

    fn pop(&self, list: &AtomicU64) -> Option<u32> {
        let unlink = |head: u64| {
            let segment = low(head);
            // If another thread pops the segment meanwhile, `next` may be wrong. But then the
            // head's count of changes differs, so the exchange fails.
            let next = || self.get(segment).appended.next.load(Ordering::Relaxed);
            (segment != NONE).then(|| changed(head) | u64::from(next()))
        };
        // Acquire pairs with the Release in `push`.
        list.fetch_update(Ordering::Acquire, Ordering::Acquire, unlink).ok().map(low)
    }
}

/// Returns the upper half of a list's head (the count of changes), increased by one.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(u64::from(!plant::is(Fault::FreeTagKept))) << 32
}

#[cfg(all(test, loom))]
mod under_loom;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
