//! Growth of the memory in use: a fresh segment is taken only while little memory in use is dead.
//!
//! A free segment is *warm* if it is populated, and *fresh* if it has no memory (`Segments`).
//!
//! Where: called by an append if few free segments are warm, and by the thread that populates
//! segments.
//! Invariant: no item is evicted to save memory, and an append does at most one slice of work to
//! save memory. No append waits: if a column must pass a quiescent point before dead memory can be
//! reused, the append takes a fresh segment. `assess` runs only if a segment was opened, freed or
//! populated.
//! Source: the write cost of log-structured file systems (Rosenblum and Ousterhout, 1992):
//! compacting a half-dead segment moves one byte per byte gained. Segments with more dead bytes
//! cost far less, and are compacted first.

use crate::shared::Shared;
use memory::sync::{AtomicU64, AtomicUsize, Ordering};
use std::io;

/// Memory in use grows without compaction up to this percentage of the items' bytes.
const FREELY_PERCENT: u64 = 125;
/// While memory in use is at most this percentage of the items' bytes, only mostly dead segments
/// are compacted before a fresh segment is taken. Above it, half-dead segments are compacted too.
const HALF_DEAD_PERCENT: u64 = 200;
/// Bytes allowed in addition to both percentages, because open segments are partly empty.
const SLACK_BYTES: u64 = 3 << 20;
const DEAD_PERCENT_MOSTLY: u64 = 75;
const DEAD_PERCENT_HALF: u64 = 50;
/// Number of bytes in free segments that are populated in advance.
const AHEAD_BYTES: u32 = 4 << 20;
/// Minimum number of free segments that are populated in advance, if `AHEAD_PART` allows.
const AHEAD_SEGMENTS_MIN: u32 = 3;
/// At most one in this number of segments is populated in advance.
const AHEAD_PART: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    Nothing = 0,
    MostlyDead = 1,
    HalfDead = 2,
}

#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Segment counts and result of the last `assess`: {fresh: 31 bits | free: 31 | `Reuse`: 2}.
    found: AtomicU64,
    /// The counts of fresh and free segments when warm segments last gave back their memory, packed
    /// by `word`. Until a count changes, no segment is populated in advance.
    rested: AtomicU64,
    locked_bytes: AtomicUsize,
}

const FREE_AT: u32 = 2;
const FRESH_AT: u32 = 33;

/// Packs the counts of fresh and free segments with `first`, like `found`. Opening a segment
/// changes the count of free segments; populating a segment changes the count of fresh segments.
fn word(shared: &Shared, first: Reuse) -> u64 {
    let segments = &shared.memory().segments;
    let (fresh, free) = (u64::from(segments.fresh()), u64::from(segments.free()));
    (fresh << FRESH_AT) | (free << FREE_AT) | first as u64
}

impl Shared {
    /// The result of the last `assess`; calls `assess` again if a count of segments has changed.
    #[inline]
    fn reuse(&self) -> Reuse {
        let found = self.growth.found.load(Ordering::Relaxed); // a hint, here and below
        match found ^ word(self, Reuse::Nothing) {
            0 => Reuse::Nothing,
            1 => Reuse::MostlyDead,
            2 => Reuse::HalfDead,
            _ => self.assess(),
        }
    }

    /// Minimum percentage of dead bytes at which a segment is reused before a fresh segment is
    /// taken. `None` if a fresh segment may be taken at once.
    #[inline]
    pub(crate) fn dead_percent_to_reuse(&self) -> Option<u64> {
        match self.reuse() {
            Reuse::Nothing => None,
            Reuse::MostlyDead => Some(DEAD_PERCENT_MOSTLY),
            Reuse::HalfDead => Some(DEAD_PERCENT_HALF),
        }
    }

    #[inline(never)]
    fn assess(&self) -> Reuse {
        let live = self.sum(|counters| &counters.bytes);
        let touched = self.touched_bytes();
        let within = |percent: u64| touched <= live / 100 * percent + SLACK_BYTES;
        let first = match (within(FREELY_PERCENT), within(HALF_DEAD_PERCENT)) {
            (true, _) => Reuse::Nothing,
            (false, true) => Reuse::MostlyDead,
            (false, false) => Reuse::HalfDead,
        };
        self.growth.found.store(word(self, first), Ordering::Relaxed); // read by `reuse`, a hint
        first
    }

    /// Bytes of the index, and of all segments that are neither fresh nor granted to the index.
    fn touched_bytes(&self) -> u64 {
        let memory = self.memory();
        let fresh = memory.segments.fresh();
        let segment_bytes = u64::from(memory.region.segment_bytes());
        let of_index = memory.segments_of(self.index.granted_bytes());
        let touched = memory.present().saturating_sub(fresh + of_index);
        u64::from(touched) * segment_bytes + self.index.bytes() as u64
    }

    /// Lets appends take fresh segments. Called when no segment is worth compacting.
    pub(crate) fn let_grow(&self) {
        self.growth.found.store(word(self, Reuse::Nothing), Ordering::Relaxed);
    }

    fn ahead(&self) -> u32 {
        let memory = self.memory();
        let some = AHEAD_BYTES / memory.region.segment_bytes();
        some.max(AHEAD_SEGMENTS_MIN).min(memory.present() / AHEAD_PART)
    }

    /// True if `populate_one` has work to do. If memory is locked into RAM, `populate_one`
    /// populates all fresh segments and locks the index's new memory. Otherwise `populate_one`
    /// populates a fresh segment if memory may grow and fewer than `ahead()` segments are warm.
    #[inline]
    #[must_use]
    pub fn wants_to_populate(&self) -> bool {
        let memory = self.memory();
        let segments = &memory.segments;
        // More than `high` segments must stay free: while fewer are free, each append makes room.
        let may_take = segments.fresh() > 0 && segments.free() > self.high() + 1;
        if memory.region.is_locked() {
            return may_take || self.index_to_lock().is_some();
        }
        may_take
            && segments.warm() < self.ahead()
            // Relaxed: `rested` is a hint that only one thread stores.
            && self.growth.rested.load(Ordering::Relaxed) != word(self, Reuse::Nothing)
            && self.reuse() == Reuse::Nothing
    }

    /// A number that changes when a segment is opened, populated or freed; see `give_back_unused`.
    #[must_use]
    pub fn segments_seen(&self) -> u64 {
        word(self, Reuse::Nothing)
    }

    /// Gives the memory of warm segments back to the system, since a store that does not grow does
    /// not need warm segments. Returns false if a segment was opened or freed since `segments_seen`
    /// returned `seen`: then the store may grow, and keeps its memory. Only the thread that calls
    /// `populate_one` may call this function.
    #[must_use]
    pub fn give_back_unused(&self, seen: u64) -> bool {
        if seen != self.segments_seen() {
            return false;
        }
        let memory = self.memory();
        let warm = memory.segments.warm();
        if warm <= self.ahead() && !memory.region.is_locked() {
            // More than `high` segments stay free, so no column lacks the segment taken here.
            let mut left = warm;
            while left > 0 && memory.give_back_one(self.high() + 1) {
                left -= 1;
            }
            self.growth.rested.store(self.segments_seen(), Ordering::Relaxed);
        }
        true
    }

    /// Populates a free segment in advance, so that no append waits for the system. A thread
    /// without a column calls this function. Returns false if no segment has to be populated.
    ///
    /// # Errors
    /// The system has no memory for the segment, or refuses to lock memory into RAM.
    pub fn populate_one(&self) -> io::Result<bool> {
        if self.memory().region.is_locked() {
            self.lock_index()?;
        }
        Ok(self.wants_to_populate() && self.memory().populate_one(self.high() + 1)?)
    }

    /// Populates all memory within the store's limit, and locks the memory into RAM. If the limit
    /// is raised later, `populate_one` does the same. Must be called before the columns start.
    ///
    /// # Errors
    /// The system refuses to lock the memory (RLIMIT_MEMLOCK), or has too little memory.
    pub fn lock_memory(&self) -> io::Result<()> {
        let locked = self.memory().lock().and_then(|()| self.lock_index());
        if locked.is_err() {
            // Only a part of the memory is locked, and locking later segments would fail too.
            self.memory().region.stop_locking();
        }
        locked
    }

    /// Bytes of the index, if they differ from the locked bytes by the size of a segment or more.
    fn index_to_lock(&self) -> Option<usize> {
        let bytes = self.index.bytes();
        let locked = self.growth.locked_bytes.load(Ordering::Relaxed); // used by one thread only
        let step = self.memory().region.segment_bytes() as usize;
        (bytes.abs_diff(locked) >= step).then_some(bytes)
    }

    fn lock_index(&self) -> io::Result<()> {
        if let Some(bytes) = self.index_to_lock() {
            self.index.lock_memory()?;
            self.growth.locked_bytes.store(bytes, Ordering::Relaxed); // as in `index_to_lock`
        }
        Ok(())
    }
}
