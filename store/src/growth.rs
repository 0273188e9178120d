//! Growth of the memory in use: fresh segments are taken only while little touched memory is dead.
//!
//! A free segment is *warm* if it is populated, and *fresh* if it has no memory (`Segments`).
//!
//! Where: before an append, if few free segments are warm; and in a thread that populates segments
//! ahead of need.
//! Invariant: no item is evicted to save memory; no append does more than a slice of work to save
//! it, and no append waits: where dead memory cannot be used again yet, because a column has not
//! passed a quiescent point, a fresh segment is taken. The sums are computed anew when a segment
//! was opened or populated, not for each append.
//! Source: the write cost of log-structured file systems (Rosenblum and Ousterhout, 1992):
//! compacting a half dead segment moves one byte for each byte won, and far less if the segments
//! with most dead bytes go first.

use crate::Store;
use memory::sync::{AtomicU64, AtomicUsize, Ordering};
use std::io;

/// Touched memory up to which it grows freely, in percent of the items' bytes.
const FREELY_PERCENT: u64 = 125;
/// Touched memory up to which only mostly dead segments are used again before it grows, in percent
/// of the items' bytes; above that, half dead ones are too.
const HALF_DEAD_PERCENT: u64 = 200;
/// Bytes added to the items' bytes before both percentages are taken. They stand for segments that
/// are open and half filled, and for items that are being moved.
const SLACK_BYTES: u64 = 3 << 20;
/// Dead bytes of a segment that is mostly dead, in percent.
const DEAD_PERCENT_MOSTLY: u64 = 75;
/// Dead bytes of a segment that is half dead, in percent.
const DEAD_PERCENT_HALF: u64 = 50;
/// Bytes of free segments that are to be warm ahead of need.
const AHEAD_BYTES: u32 = 4 << 20;
/// Fewest segments that are to be warm ahead of need.
const AHEAD_SEGMENTS_MIN: u32 = 3;
/// Most segments that are to be warm ahead of need, as a part of all segments: one in this many.
const AHEAD_PART: u32 = 16;

/// The segments that are to be used again before a fresh one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Nothing = 0,
    MostlyDead = 1,
    /// Segments that are half dead, too.
    HalfDead = 2,
}

/// The findings of the last look.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// {fresh segments: 31 | free segments: 31 | `First`: 2}, at the time of the look.
    found: AtomicU64,
    /// The numbers of `found` when segments that were warm ahead of need were given back. While
    /// they have not changed, no segment is to be warm ahead of need.
    rested: AtomicU64,
    /// Bytes of the index that are locked.
    locked_bytes: AtomicUsize,
}

const FREE_AT: u32 = 2;
const FRESH_AT: u32 = 33;

/// The word of `found`. A look's finding holds while the numbers in it stay the same: opening a
/// segment changes the number of free ones, and populating one the number of fresh ones.
fn word(store: &Store, first: First) -> u64 {
    let segments = &store.memory().segments;
    let (fresh, free) = (u64::from(segments.fresh()), u64::from(segments.free()));
    (fresh << FRESH_AT) | (free << FREE_AT) | first as u64
}

impl Store {
    /// The segments that are to be used again before a fresh one is taken.
    #[inline]
    fn first(&self) -> First {
        let found = self.growth.found.load(Ordering::Relaxed); // a hint, here and below
        match found ^ word(self, First::Nothing) {
            0 => First::Nothing,
            1 => First::MostlyDead,
            2 => First::HalfDead,
            _ => self.look(),
        }
    }

    /// Dead bytes of a segment, in percent, from which it is used again before a fresh one is
    /// taken. `None`: a fresh one may be taken.
    #[inline]
    pub(crate) fn dead_percent_to_reuse(&self) -> Option<u64> {
        match self.first() {
            First::Nothing => None,
            First::MostlyDead => Some(DEAD_PERCENT_MOSTLY),
            First::HalfDead => Some(DEAD_PERCENT_HALF),
        }
    }

    #[inline(never)]
    fn look(&self) -> First {
        let live = self.sum(|counters| &counters.bytes);
        let touched = self.touched_bytes();
        let within = |percent: u64| touched <= live / 100 * percent + SLACK_BYTES;
        let first = match (within(FREELY_PERCENT), within(HALF_DEAD_PERCENT)) {
            (true, _) => First::Nothing,
            (false, true) => First::MostlyDead,
            (false, false) => First::HalfDead,
        };
        self.growth.found.store(word(self, first), Ordering::Relaxed); // read by `first`, a hint
        first
    }

    /// Bytes in use: the index's, and segments that are neither fresh nor granted to the index.
    fn touched_bytes(&self) -> u64 {
        let memory = self.memory();
        let fresh = memory.segments.fresh();
        let segment_bytes = u64::from(memory.region.segment_bytes());
        let of_index = memory.segments_of(self.index.granted_bytes());
        let touched = memory.present().saturating_sub(fresh + of_index);
        u64::from(touched) * segment_bytes + self.index.bytes() as u64
    }

    /// Allows a fresh segment to be taken. To be called when no segment is worth being compacted.
    pub(crate) fn let_grow(&self) {
        self.growth.found.store(word(self, First::Nothing), Ordering::Relaxed);
    }

    /// Number of free segments that are to be warm ahead of need.
    fn ahead(&self) -> u32 {
        let memory = self.memory();
        let some = AHEAD_BYTES / memory.region.segment_bytes();
        some.max(AHEAD_SEGMENTS_MIN).min(memory.present() / AHEAD_PART)
    }

    /// True if a free segment is to be populated. If all memory is locked, each fresh one is.
    /// Otherwise one is if fewer segments are warm than are to be ahead of need, and memory may
    /// grow.
    #[inline]
    #[must_use]
    pub fn wants_to_populate(&self) -> bool {
        let memory = self.memory();
        let segments = &memory.segments;
        // Appends pay for room while fewer than `high` are free.
        let may_take = segments.fresh() > 0 && segments.free() > self.high() + 1;
        if memory.region.is_locked() {
            return may_take || self.index_to_lock().is_some();
        }
        may_take
            && segments.warm() < self.ahead()
            // Relaxed: a hint; one thread stores it.
            && self.growth.rested.load(Ordering::Relaxed) != word(self, First::Nothing)
            && self.first() == First::Nothing
    }

    /// A number that stays the same while no segment is opened or freed, for `give_back_unused`.
    #[must_use]
    pub fn segments_seen(&self) -> u64 {
        word(self, First::Nothing)
    }

    /// Gives the memory of warm segments back to the system if no segment was opened or freed since
    /// `seen`: a store that does not grow has no use for them. For the thread that calls
    /// `populate_one`. False: a segment was opened or freed.
    #[must_use]
    pub fn give_back_unused(&self, seen: u64) -> bool {
        if seen != self.segments_seen() {
            return false;
        }
        let memory = self.memory();
        let warm = memory.segments.warm();
        if warm <= self.ahead() && !memory.region.is_locked() {
            // No column ever waits for the segment that this thread has taken.
            let mut left = warm;
            while left > 0 && memory.cool_one(self.high() + 1) {
                left -= 1;
            }
            // Relaxed: read by `wants_to_populate`, as a hint.
            self.growth.rested.store(self.segments_seen(), Ordering::Relaxed);
        }
        true
    }

    /// Populates a free segment ahead of need, so that no append has to wait for the system. For a
    /// thread that is no column. False: none is to be populated.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn populate_one(&self) -> io::Result<bool> {
        if self.memory().region.is_locked() {
            self.lock_index()?;
        }
        Ok(self.wants_to_populate() && self.memory().populate_one(self.high() + 1)?)
    }

    /// Populates all memory that may be in use, and locks it into RAM, also if the limit changes.
    /// To be called before the columns start.
    ///
    /// # Errors
    /// The system refuses (RLIMIT_MEMLOCK), or has no memory for it.
    pub fn lock_memory(&self) -> io::Result<()> {
        let locked = self.memory().lock().and_then(|()| self.lock_index());
        if locked.is_err() {
            // Memory that is locked in part breaks the promise, and later segments would be
            // refused.
            self.memory().region.lock_no_more();
        }
        locked
    }

    /// Bytes that the index uses, if they differ by a segment or more from those that are locked.
    fn index_to_lock(&self) -> Option<usize> {
        let bytes = self.index.bytes();
        let locked = self.growth.locked_bytes.load(Ordering::Relaxed); // one thread's alone
        let step = self.memory().region.segment_bytes() as usize;
        (bytes.abs_diff(locked) >= step).then_some(bytes)
    }

    fn lock_index(&self) -> io::Result<()> {
        if let Some(bytes) = self.index_to_lock() {
            self.index.lock_memory()?;
            self.growth.locked_bytes.store(bytes, Ordering::Relaxed); // as above
        }
        Ok(())
    }
}
