//! When memory that was never touched is taken: not while what is touched already holds enough that
//! is dead.
//!
//! Where: before an append, where few free segments are memory already; and by a thread that has
//! segments become memory ahead of need.
//! Invariant: no item is evicted for it, no append pays more for it than a slice, and none waits:
//! where what is dead cannot be used again yet, for a column has not passed a quiescent point,
//! fresh memory is taken. The sums are taken anew when a segment was opened or has become memory,
//! not per append.
//! Source: the write cost of log-structured file systems (Rosenblum and Ousterhout, 1992): what is
//! half dead costs a byte moved for a byte won, and by far less where the deadest goes first.

use crate::Store;
use memory::sync::{AtomicU64, AtomicUsize, Ordering};
use std::io;

/// Touched memory within this part of the items' bytes, in percent, grows without a look at what
/// is dead of it; beyond the second only what is not half dead lets it grow.
const FREELY_PERCENT: u64 = 125;
const HALF_DEAD_PERCENT: u64 = 200;
/// And so much more: what is open and half filled, and what is being moved.
const SLACK_BYTES: u64 = 3 << 20;
/// What must be dead of a segment, in percent, to be used again before memory grows.
const DEAD_PERCENT_MOSTLY: u64 = 75;
const DEAD_PERCENT_HALF: u64 = 50;
/// So many bytes of free segments are memory ahead of need, and so many segments.
const AHEAD_BYTES: u32 = 4 << 20;
const AHEAD_SEGMENTS_MIN: u32 = 3;
/// But at most this part of all.
const AHEAD_PART: u32 = 16;

/// What is to be looked for before memory grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// Nothing.
    Nothing = 0,
    /// Segments that are mostly dead.
    MostlyDead = 1,
    /// Segments that are half dead.
    HalfDead = 2,
}

/// What was found the last time.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// {fresh segments then: 31 | free ones: 31 | `First`: 2}
    found: AtomicU64,
    /// The same numbers when what was ahead of need went back: nothing is to be ahead as long as
    /// they hold.
    rested: AtomicU64,
    /// Bytes of the index that are locked.
    locked_bytes: AtomicUsize,
}

const FREE_AT: u32 = 2;
const FRESH_AT: u32 = 33;

/// What is found holds as long as these numbers do: a segment opened changes the one, one that has
/// become memory the other.
fn word(store: &Store, first: First) -> u64 {
    let segments = &store.memory().segments;
    let (fresh, free) = (u64::from(segments.fresh()), u64::from(segments.free()));
    (fresh << FRESH_AT) | (free << FREE_AT) | first as u64
}

impl Store {
    /// What is to be looked for before a fresh segment is taken.
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

    /// How much of a segment must be dead, in percent, for it to be used again before a fresh one
    /// is taken. `None`: a fresh one may be taken.
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

    /// Bytes of memory in use, as whole segments: all but fresh ones and what the index has been
    /// granted, of which it uses a part.
    fn touched_bytes(&self) -> u64 {
        let memory = self.memory();
        let fresh = memory.segments.fresh();
        let segment_bytes = u64::from(memory.region.segment_bytes());
        let of_index = memory.segments_of(self.index.granted_bytes());
        let touched = memory.present().saturating_sub(fresh + of_index);
        u64::from(touched) * segment_bytes + self.index.bytes() as u64
    }

    /// Nothing is worth being moved: a fresh segment may be taken.
    pub(crate) fn let_grow(&self) {
        self.growth.found.store(word(self, First::Nothing), Ordering::Relaxed);
    }

    /// How many free segments ought to be memory ahead of need.
    fn ahead(&self) -> u32 {
        let memory = self.memory();
        let some = AHEAD_BYTES / memory.region.segment_bytes();
        some.max(AHEAD_SEGMENTS_MIN).min(memory.present() / AHEAD_PART)
    }

    /// Are fewer free segments memory than ought to be ahead of need, where memory may grow? Or is
    /// any not, where all are to be locked?
    #[inline]
    #[must_use]
    pub fn wants_ahead(&self) -> bool {
        let memory = self.memory();
        let segments = &memory.segments;
        // Appends pay for room where fewer than `high` are free.
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

    /// What `rest_ahead` is to be given later: it stays the same while no segment is opened or
    /// freed.
    #[must_use]
    pub fn segments_seen(&self) -> u64 {
        word(self, First::Nothing)
    }

    /// Gives back what is memory ahead of need, if no segment was opened or freed since `seen`:
    /// what does not grow has no use for it. For the thread that calls `populate_ahead`. False:
    /// some were.
    #[must_use]
    pub fn rest_ahead(&self, seen: u64) -> bool {
        if seen != self.segments_seen() {
            return false;
        }
        let memory = self.memory();
        let warm = memory.segments.warm();
        if warm <= self.ahead() && !memory.region.is_locked() {
            // No column ever waits for the one that this thread has in hands.
            let mut left = warm;
            while left > 0 && memory.cool_one(self.high() + 1) {
                left -= 1;
            }
            self.growth.rested.store(self.segments_seen(), Ordering::Relaxed); // as `wants_ahead`
        }
        true
    }

    /// Has a free segment become memory ahead of need, so that no append has to wait for the
    /// system. For a thread that is no column. False: there is none to be.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub fn populate_ahead(&self) -> io::Result<bool> {
        if self.memory().region.is_locked() {
            self.lock_index()?;
        }
        Ok(self.wants_ahead() && self.memory().populate_one(self.high() + 1)?)
    }

    /// Has all memory that may be in use become such, and keeps it from being swapped out, whatever
    /// the limit becomes. Before the columns start.
    ///
    /// # Errors
    /// The system refuses (RLIMIT_MEMLOCK), or has no memory for it.
    pub fn lock_memory(&self) -> io::Result<()> {
        let locked = self.memory().lock().and_then(|()| self.lock_index());
        if locked.is_err() {
            // A part of it locked is no promise kept, and what grows would be refused.
            self.memory().region.lock_no_more();
        }
        locked
    }

    /// Bytes that the index uses, if they are more than are locked, or many fewer.
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
