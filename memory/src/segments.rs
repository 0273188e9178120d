//! The segments of a store, and the lists of those that are free, retired or withheld.
//!
//! Where: the log, the frames and the index take whole segments here and give them back. What is
//! known of one segment stands in its entry (`Segment`).
//! Invariant: a segment leaves `Limbo` only when every column has passed a quiescent point since it
//! was retired; `Free`, `Frames`, `Index` and `Withheld` segments hold no items. Of the free
//! segments those that are memory already are taken first, the last one given back before all
//! others: what is warm is used again.
//! Source: a lock-free stack with a counted head (Treiber, 1986).
//!
//! ```text
//!          open          seal           claim             retire         all columns passed
//!   Free --------> Open --------> Sealed -------> Draining -------> Limbo -----------------> Free
//!     \---> Frames --> Free (when its last frame is free)
//!     \---> Index (its memory given back; the index may grow by as much) --> Free
//!     \---> Withheld (its memory given back) --> Free, when there may be more again
//! ```

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod segment;
mod table;

pub use segment::{Opening, Reserved, Segment, State, UNSEALED};

use crate::plant::{self, Fault};
use crate::quiescence::Quiescence;
use crate::sync::{AtomicU32, AtomicU64, Line, Ordering, wait_a_little};
use std::io;
use table::Table;

/// No segment.
pub const NONE: u32 = u32::MAX;

/// All segments, and the lists of free, retired and withheld ones.
#[derive(Debug)]
pub struct Segments {
    table: Table,
    /// So many of the table have been added.
    count: Line<AtomicU32>,
    /// Free ones that are memory. {times changed: 32, segment: 32}: the count keeps a stalled pop
    /// from mistaking a re-pushed head for the old.
    warm: Line<AtomicU64>,
    /// Free ones that were never touched, or were given back to the system.
    fresh: Line<AtomicU64>,
    free: Line<Free>,
    limbo: Line<AtomicU64>,
    limbo_count: AtomicU32,
    withheld: Line<AtomicU64>,
    withheld_count: AtomicU32,
}

/// How many are free.
#[derive(Debug)]
struct Free {
    /// Of both lists: never more than there are.
    all: AtomicU32,
    /// Of the fresh ones: never fewer than there are.
    fresh: AtomicU32,
}

impl Segments {
    /// A table of `count` segments, all free; segment 0 first. There may be `count_max` in time.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn new(count: u32, count_max: u32) -> io::Result<Self> {
        let list = || Line(AtomicU64::new(u64::from(NONE)));
        let segments = Self {
            table: Table::new(count_max)?,
            count: Line(AtomicU32::new(count)),
            warm: list(),
            fresh: list(),
            free: Line(Free { all: AtomicU32::new(0), fresh: AtomicU32::new(0) }),
            limbo: list(),
            limbo_count: AtomicU32::new(0),
            withheld: list(),
            withheld_count: AtomicU32::new(0),
        };
        (0..count).rev().for_each(|segment| segments.give(segment));
        Ok(segments)
    }

    /// Entry of `segment`.
    #[inline]
    #[must_use]
    pub fn get(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    /// How many there are, withheld ones with them.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed) // the entries of more are zero, which is `Free`
    }

    /// How many there may be.
    #[must_use]
    pub fn count_max(&self) -> u32 {
        u32::try_from(self.table.len()).unwrap_or(u32::MAX)
    }

    /// Segments that are free now.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.free.all.load(Ordering::Relaxed) // a hint; `take` decides
    }

    /// Free segments that were never touched, or were given back to the system.
    #[inline]
    #[must_use]
    pub fn fresh(&self) -> u32 {
        self.free.fresh.load(Ordering::Relaxed) // a hint
    }

    /// Free segments that are memory already.
    #[inline]
    #[must_use]
    pub fn warm(&self) -> u32 {
        self.free().saturating_sub(self.fresh())
    }

    /// Segments retired and not yet free.
    #[must_use]
    pub fn limbo(&self) -> u32 {
        self.limbo_count.load(Ordering::Relaxed) // a hint
    }

    /// Segments out of use.
    #[must_use]
    pub fn withheld(&self) -> u32 {
        self.withheld_count.load(Ordering::Relaxed) // a hint
    }

    /// Adds a segment to the free ones, where there are fewer than `count_max`; `admit` sees it
    /// first.
    pub(crate) fn add(&self, count_max: u32, admit: impl FnOnce(u32)) -> bool {
        let count_max = count_max.min(self.count_max());
        let more = |count: u32| (count < count_max).then(|| count + 1);
        // Relaxed: the number alone is shared; the free list publishes the segment.
        let added = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        added.is_ok_and(|segment| {
            admit(segment);
            self.give(segment);
            true
        })
    }

    /// Takes a segment that the caller owns, and whose memory he has given back, out of use.
    pub(crate) fn withhold(&self, segment: u32) {
        self.get(segment).set_state(State::Withheld);
        self.push(&self.withheld, segment);
        self.withheld_count.fetch_add(1, Ordering::Relaxed); // after the push: see `restore`
    }

    /// Frees a withheld segment, if fewer than `present_max` are not withheld; `admit` sees it
    /// first.
    pub(crate) fn restore(&self, present_max: u32, admit: impl FnOnce(u32)) -> bool {
        // The count is lowered first, as in `promise`: of several who find one too few, one gets
        // it.
        let count = self.count();
        let lower = |withheld: u32| {
            let lacks = count.saturating_sub(withheld) < present_max;
            (withheld > 0 && lacks).then(|| withheld - 1)
        };
        // Relaxed: the list orders the rest.
        let lowered = self.withheld_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_err() {
            return false;
        }
        let segment = self.pop_counted(|| self.pop(&self.withheld));
        admit(segment);
        self.give(segment);
        true
    }

    /// Takes a free segment, if more than `keep` of them are free; one that is memory, if there is.
    pub fn take(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        let warm = || self.pop(&self.warm);
        Some(self.pop_counted(|| warm().or_else(|| self.pop_fresh())))
    }

    /// As `take`, where the segment's memory goes back to the system: one that has none, if there
    /// is.
    pub(crate) fn take_cold(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        Some(self.pop_counted(|| self.pop_fresh().or_else(|| self.pop(&self.warm))))
    }

    /// As `take`, but only one that is no memory yet.
    pub(crate) fn take_fresh(&self, keep: u32) -> Option<u32> {
        self.promise(keep)?;
        let fresh = self.pop_fresh();
        if fresh.is_none() {
            self.free.all.fetch_add(1, Ordering::Relaxed); // as in `give`
        }
        fresh
    }

    /// Lowers the count of free segments, if more than `keep` are: the caller may pop one.
    fn promise(&self, keep: u32) -> Option<u32> {
        // The count is lowered first, so that `keep` holds whatever others take meanwhile; Relaxed:
        // the list itself orders the segment's contents.
        let keep = keep.saturating_sub(u32::from(plant::is(Fault::KeepOffByOne)));
        let lower = |free: u32| (free > keep).then(|| free - 1);
        self.free.all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower).ok()
    }

    fn pop_fresh(&self) -> Option<u32> {
        let fresh = self.pop(&self.fresh)?;
        self.free.fresh.fetch_sub(1, Ordering::Relaxed); // counted before it was pushed
        Some(fresh)
    }

    /// One that a count has promised the caller.
    fn pop_counted(&self, mut pop: impl FnMut() -> Option<u32>) -> u32 {
        let mut rounds = 0;
        loop {
            if let Some(segment) = pop() {
                return segment;
            }
            // The count said there is one, so it comes.
            wait_a_little(&mut rounds);
        }
    }

    /// Puts a segment nobody uses among the free ones.
    pub fn give(&self, segment: u32) {
        let there = self.get(segment);
        there.set_state(State::Free);
        if there.touched() == 0 {
            self.free.fresh.fetch_add(1, Ordering::Relaxed); // before the push: see `pop_fresh`
            self.push(&self.fresh, segment);
        } else {
            self.push(&self.warm, segment);
        }
        self.free.all.fetch_add(1, Ordering::Relaxed); // after the push: see `promise`
    }

    /// Retires a drained segment: free once all columns have passed a quiescent point.
    pub fn retire(&self, segment: u32, quiescence: &Quiescence) {
        let entry = self.get(segment);
        entry.touch(entry.end());
        self.limbo_count.fetch_add(1, Ordering::Relaxed); // a hint; first, as in `reclaim`
        entry.set_state(State::Limbo);
        // Release pairs with the Acquire in `reclaim`.
        entry.lived.retired.store(quiescence.retire(), Ordering::Release);
        self.push(&self.limbo, segment);
    }

    /// Frees what all columns have passed; `each` sees every segment before it is free.
    pub fn reclaim(&self, quiescence: &Quiescence, mut each: impl FnMut(u32)) {
        // AcqRel: takes the whole list; Acquire pairs with the Release in `push`.
        let head = self.limbo.swap(u64::from(NONE), Ordering::AcqRel);
        let mut segment = low(head);
        while segment != NONE {
            let entry = self.get(segment);
            let next = entry.appended.next.load(Ordering::Relaxed); // ours since the swap
            // Acquire pairs with the Release in `retire`.
            let passed = quiescence.passed(entry.lived.retired.load(Ordering::Acquire));
            if passed || plant::is(Fault::LimboNotWaited) {
                each(segment);
                self.give(segment);
                // A hint. Counted twice for a moment: in neither count, others would find nothing
                // that comes, and refuse.
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
            // A segment taken meanwhile gives a wrong link, but then the count in `head` has
            // changed too.
            let next = || self.get(segment).appended.next.load(Ordering::Relaxed);
            (segment != NONE).then(|| changed(head) | u64::from(next()))
        };
        // Acquire pairs with the Release in `push`.
        list.fetch_update(Ordering::Acquire, Ordering::Acquire, unlink).ok().map(low)
    }
}

/// The count of a list's head after another change.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(u64::from(!plant::is(Fault::FreeTagKept))) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(all(test, loom))]
mod under_loom;
