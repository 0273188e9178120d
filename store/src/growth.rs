//! Growth of the memory in use: a fresh segment is taken only while little memory in use is dead.
//!
//! A free segment is *warm* if it is populated, and *fresh* if it has no memory (`Segments`).
//!
//! Where: before an append if few free segments are warm; and in a thread that populates segments.
//! Invariant: no item is evicted to save memory, and an append does at most a slice of work to save
//! memory. No append waits: if dead memory cannot be reused yet, because a column has not passed a
//! quiescent point, the append takes a fresh segment. The sums of bytes are computed again only
//! after a segment was opened or populated.
//! Source: the write cost of log-structured file systems (Rosenblum and Ousterhout, 1992):
//! compacting a half-dead segment moves one byte per byte gained. Deader segments, which go first,
//! cost far less.

use crate::Store;
use memory::sync::{AtomicU64, AtomicUsize, Ordering};
use std::io;

/// Fresh segments are taken freely until memory in use is this percentage of the items' bytes.
const FREELY_PERCENT: u64 = 125;
/// Up to this percentage, mostly dead segments are reused before a fresh segment is taken. Above
/// this percentage, half-dead segments are reused too.
const HALF_DEAD_PERCENT: u64 = 200;
/// Memory allowed in addition, for half-filled open segments and for items on the move.
const SLACK_BYTES: u64 = 3 << 20;
const DEAD_PERCENT_MOSTLY: u64 = 75;
const DEAD_PERCENT_HALF: u64 = 50;
/// Bytes of free segments that are kept warm ahead of need.
const AHEAD_BYTES: u32 = 4 << 20;
/// The minimum number of segments that are kept warm ahead of need.
const AHEAD_SEGMENTS_MIN: u32 = 3;
/// The number of segments kept warm ahead of need is at most the number of present segments divided
/// by this.
const AHEAD_PART: u32 = 16;

/// The kind of segment that is compacted and reused before a fresh segment is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reuse {
    Nothing = 0,
    MostlyDead = 1,
    HalfDead = 2,
}

/// The result of the last `assess`, and the state of the work done ahead of need.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// The result of the last `assess`: {fresh segments: 31 | free segments: 31 | `Reuse`: 2}.
    found: AtomicU64,
    /// The counts of fresh and free segments, as in `found`, when warm segments were last given
    /// back. While the counts are unchanged, no segment is populated ahead of need.
    rested: AtomicU64,
    /// Bytes of the index that are locked into RAM.
    locked_bytes: AtomicUsize,
}

const FREE_AT: u32 = 2;
const FRESH_AT: u32 = 33;

/// The word for `found`. The result of `assess` holds while both counts stay the same: opening a
/// segment changes the count of free ones, and populating one changes the count of fresh ones.
fn word(store: &Store, first: Reuse) -> u64 {
    let segments = &store.memory().segments;
    let (fresh, free) = (u64::from(segments.fresh()), u64::from(segments.free()));
    (fresh << FRESH_AT) | (free << FREE_AT) | first as u64
}

impl Store {
    /// The result of the last `assess`, renewed if a segment was opened or populated since.
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

    /// The percentage of dead bytes from which a segment is reused before a fresh one is taken.
    /// `None`: a fresh segment may be taken.
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

    /// Bytes used by the index and by segments that are neither fresh nor granted to the index.
    fn touched_bytes(&self) -> u64 {
        let memory = self.memory();
        let fresh = memory.segments.fresh();
        let segment_bytes = u64::from(memory.region.segment_bytes());
        let of_index = memory.segments_of(self.index.granted_bytes());
        let touched = memory.present().saturating_sub(fresh + of_index);
        u64::from(touched) * segment_bytes + self.index.bytes() as u64
    }

    /// Allows a fresh segment to be taken. Called when no segment is worth compacting.
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
    /// populates a fresh segment if fewer than `ahead` segments are warm and memory may grow.
    #[inline]
    #[must_use]
    pub fn wants_to_populate(&self) -> bool {
        let memory = self.memory();
        let segments = &memory.segments;
        // `populate_one` leaves `high` segments free, since appends make room while fewer are free.
        let may_take = segments.fresh() > 0 && segments.free() > self.high() + 1;
        if memory.region.is_locked() {
            return may_take || self.index_to_lock().is_some();
        }
        may_take
            && segments.warm() < self.ahead()
            // Relaxed: a hint, stored by one thread only.
            && self.growth.rested.load(Ordering::Relaxed) != word(self, Reuse::Nothing)
            && self.reuse() == Reuse::Nothing
    }

    /// A number that stays the same while no segment is opened or freed; for `give_back_unused`.
    #[must_use]
    pub fn segments_seen(&self) -> u64 {
        word(self, Reuse::Nothing)
    }

    /// Gives the memory of warm segments back to the system, since a store that does not grow does
    /// not need them. False: a segment was opened or freed since `segments_seen` returned `seen`,
    /// so the store may grow, and keeps the memory. Only for the thread that calls `populate_one`.
    #[must_use]
    pub fn give_back_unused(&self, seen: u64) -> bool {
        if seen != self.segments_seen() {
            return false;
        }
        let memory = self.memory();
        let warm = memory.segments.warm();
        if warm <= self.ahead() && !memory.region.is_locked() {
            // More than `high` segments stay free, so no column waits for the one taken here.
            let mut left = warm;
            while left > 0 && memory.give_back_one(self.high() + 1) {
                left -= 1;
            }
            self.growth.rested.store(self.segments_seen(), Ordering::Relaxed);
        }
        true
    }

    /// Populates a free segment ahead of need, so that no append waits for the system. Called by a
    /// thread without a column. False: no segment has to be populated.
    ///
    /// # Errors
    /// The system has no memory for the segment.
    pub fn populate_one(&self) -> io::Result<bool> {
        if self.memory().region.is_locked() {
            self.lock_index()?;
        }
        Ok(self.wants_to_populate() && self.memory().populate_one(self.high() + 1)?)
    }

    /// Populates all memory within the limit and locks it into RAM; `populate_one` does the same
    /// when the limit is raised. Must be called before the columns start.
    ///
    /// # Errors
    /// The system refuses (RLIMIT_MEMLOCK), or lacks the memory.
    pub fn lock_memory(&self) -> io::Result<()> {
        let locked = self.memory().lock().and_then(|()| self.lock_index());
        if locked.is_err() {
            // Only a part of the memory is locked, and locking later segments would fail too.
            self.memory().region.stop_locking();
        }
        locked
    }

    /// Number of bytes of the index, if it differs by a segment or more from the number locked.
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
