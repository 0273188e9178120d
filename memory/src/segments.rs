//! The segments of a store, and the lists of free, retired and withheld ones.
//!
//! Where: the log, the frames and the index take whole segments from the lists and give them back.
//! A segment's state and counts are in its entry (`Segment`).
//! Invariant: a segment leaves `Limbo` only when every column has passed a quiescent point since
//! the segment was retired; `Free`, `Frames`, `Index` and `Withheld` segments hold no items. A warm
//! segment is populated in part or whole; a fresh one has no memory. Each node has its own lists of
//! warm and fresh segments. Warm segments are taken before fresh ones, the most recently freed one
//! first.
//! Source: a lock-free stack with a counted head (Treiber, 1986).
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

/// The number that stands for no segment.
pub const NONE: u32 = u32::MAX;

/// All segments, and the lists of free, retired and withheld ones.
#[derive(Debug)]
pub struct Segments {
    table: Table,
    count: CachePadded<AtomicU32>,
    nodes: Nodes,
    /// Number of consecutive segments that belong to one node.
    block: u32,
    heads: Box<[Heads]>,
    free: CachePadded<Free>,
    /// Counter that selects the node whose segment is populated next.
    turn: AtomicU32,
    limbo: CachePadded<AtomicU64>,
    limbo_count: AtomicU32,
    withheld: CachePadded<AtomicU64>,
    withheld_count: AtomicU32,
}

/// The lists of free segments of a node.
#[derive(Debug)]
struct Heads {
    /// Head of the list of warm segments: {changes: 32 | segment: 32}. The count of changes tells a
    /// stalled pop that the head was popped and pushed again.
    warm: CachePadded<AtomicU64>,
    /// Head of the list of fresh segments, which were never touched or have given back their
    /// memory.
    fresh: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Free {
    /// Number of segments in the lists, minus the segments about to be popped: never too high.
    all: AtomicU32,
    /// Number of fresh segments in the lists, plus the segments about to be pushed: never too low.
    fresh: AtomicU32,
}

impl Segments {
    /// Makes `count` free segments, with address space for `count_max`. Segment 0 is taken first.
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

    /// Number of segments, including withheld ones.
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

    /// The place of a segment's node.
    #[inline]
    #[must_use]
    pub fn node_of(&self, segment: u32) -> usize {
        match self.heads.len() {
            1 => 0,
            nodes => (segment / self.block) as usize % nodes,
        }
    }

    /// Ranges of segments that belong to one node, each with that node's system number.
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

    /// Adds a segment if there are fewer than `count_max`. Calls `admit` with it before freeing it.
    pub(crate) fn add(&self, count_max: u32, admit: impl FnOnce(u32)) -> bool {
        let count_max = count_max.min(self.count_max());
        let more = |count: u32| (count < count_max).then(|| count + 1);
        // Relaxed: only the number is shared; the free list publishes the segment.
        let added = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.is_ok_and(|segment| {
            admit(segment);
            self.give(segment);
            true
        })
    }

    /// Withholds the caller's segment, whose memory has been given back to the system.
    pub(crate) fn withhold(&self, segment: u32) {
        self.get(segment).set_state(State::Withheld);
        self.push(&self.withheld, segment);
        self.withheld_count.fetch_add(1, Ordering::Relaxed); // after the push: see `restore`
    }

    /// If fewer than `present_max` segments are not withheld, admits and frees a withheld segment.
    pub(crate) fn restore(&self, present_max: u32, admit: impl FnOnce(u32)) -> bool {
        // The count is lowered before the pop, so that of several threads that see one segment
        // lacking, only one restores a segment.
        let count = self.count();
        let lower = |withheld: u32| {
            let lacks = count.saturating_sub(withheld) < present_max;
            (withheld > 0 && lacks).then(|| withheld - 1)
        };
        // Relaxed: the list orders all other accesses.
        let lowered = self.withheld_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_err() {
            return false;
        }
        let segment = self.pop_reserved(|| self.pop(&self.withheld));
        admit(segment);
        self.give(segment);
        true
    }

    /// Like `take_near`, but for the first node.
    pub fn take(&self, keep: u32) -> Option<u32> {
        self.take_near(keep, 0)
    }

    /// If more than `keep` segments are free, takes one of `node`, or of the nearest node that has
    /// one. Prefers a warm segment of a node to a fresh one.
    pub fn take_near(&self, keep: u32, node: usize) -> Option<u32> {
        self.reserve_one(keep)?;
        let of_node = |at: &usize| {
            let heads = &self.heads[*at];
            self.pop(&heads.warm).or_else(|| self.pop_fresh(heads))
        };
        Some(self.pop_reserved(|| self.nodes.nearest(node).iter().find_map(of_node)))
    }

    /// Takes a free segment of any node, preferably a fresh one. The caller gives its memory back.
    pub(crate) fn take_cold(&self, keep: u32) -> Option<u32> {
        self.reserve_one(keep)?;
        Some(self.pop_reserved(|| self.fresh_of_any().or_else(|| self.warm_of_any())))
    }

    /// Takes a free segment of any node, preferably a warm one.
    pub(crate) fn take_warm(&self, keep: u32) -> Option<u32> {
        self.reserve_one(keep)?;
        Some(self.pop_reserved(|| self.warm_of_any().or_else(|| self.fresh_of_any())))
    }

    /// Takes a fresh segment of any node. Each call begins its search at the next node.
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

    /// If more than `keep` segments are free, reserves one of them for the caller's pop.
    fn reserve_one(&self, keep: u32) -> Option<u32> {
        // The count is lowered before the pop, so that `keep` segments stay free whatever other
        // threads take. Relaxed: the list itself orders the segment's contents.
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
            // A segment is reserved, so another thread is about to push one.
            wait_a_little(&mut rounds);
        }
    }

    /// Frees a segment. The caller owns it, and nobody else uses it.
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
        // The swap takes the whole list. Acquire pairs with the Release in `push`; Release pairs
        // with the Acquire in `pop` and in later calls.
        let head = self.limbo.swap(u64::from(NONE), Ordering::AcqRel);
        let mut segment = low(head);
        while segment != NONE {
            let entry = self.get(segment);
            // Relaxed: the swap has made this call the list's owner.
            let next = entry.appended.next.load(Ordering::Relaxed);
            // Acquire pairs with the Release in `retire`.
            let passed = quiescence.passed(entry.lived.retired.load(Ordering::Acquire));
            if passed || plant::is(Fault::LimboNotWaited) {
                each(segment);
                self.give(segment);
                // Relaxed: the count is a hint. It is lowered after `give`: otherwise the segment
                // would briefly count as neither free nor retired, and a column that found no other
                // segment to wait for would refuse its request.
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
            // If another thread takes the segment meanwhile, the link is wrong; but then the head's
            // count of changes differs too, and the exchange fails.
            let next = || self.get(segment).appended.next.load(Ordering::Relaxed);
            (segment != NONE).then(|| changed(head) | u64::from(next()))
        };
        // Acquire pairs with the Release in `push`.
        list.fetch_update(Ordering::Acquire, Ordering::Acquire, unlink).ok().map(low)
    }
}

/// The upper half of a list's head (its count of changes) after one more change.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(u64::from(!plant::is(Fault::FreeTagKept))) << 32
}

#[cfg(all(test, loom))]
mod under_loom;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
