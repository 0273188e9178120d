//! Making room: segments are compacted or drained in bounded slices, paid for by appends.
//!
//! Where: before an append takes a place, and in idle columns ahead of need.
//! Invariant: a drain starts only with a free segment kept for what it moves; no append pays for
//! more than a slice unless nothing at all is free, and then for a bounded number of them. Nobody
//! waits here: where others hold what will be room, the append is told to come later.
//! Source: the paper's section 4.2.3 (NbQ-CLOCK); compaction as in log-structured stores.

#![allow(unsafe_code, reason = "overwrites segments in the mapping")]

mod choice;
mod drain;
mod verdict;

pub(crate) use drain::{Aim, Drain};
pub(crate) use verdict::{Drained, Moved};

use crate::Store;
use crate::column::Local;
use crate::log::Place;
use crate::policy::Queue;
use crate::policy::room::{COMPACT_DEAD_PERCENT_MIN, SLICE_BYTES_MAX, SLICE_BYTES_MIN, pay_factor};
use crate::verbs::Refused;
use memory::sync::{Ordering, plain_access, spin_loop};

/// Appends that do not look for room again after none was to be made.
const REST_APPENDS: u32 = 64;
/// Slices of work that an append does where no segment is free; then it is to come again.
const SLICES_MAX: u32 = 16;
/// Looks in a row at which nothing was to be done and nobody else at work, before an append is
/// refused: somebody may have been between two steps.
const VAIN_LOOKS_MAX: u32 = 4;
/// Appends refused without a look after one that found the store full, where nothing is evicted.
const FULL_APPENDS: u32 = 256;
/// That nothing can be freed, as a look has found. It holds for `FULL_APPENDS` appends at most,
/// until the clock moves on, and until the column itself has made as much dead as makes a segment
/// worth compacting. What others have made dead is found at the end of that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Full {
    /// Appends it still holds for.
    appends: u32,
    /// What the column has made dead since.
    pub(crate) dead_bytes: u32,
}

impl Local {
    /// A place for an item of `bytes` that will expire at `exptime` (0: never) in `queue`, paying
    /// for room as it goes. A quiescent point: the caller holds nothing.
    ///
    /// # Errors
    /// `NoMemory`: nothing can be freed. `Later`: something will be, or more work than an append's
    /// share is to be done first.
    pub(crate) fn place(
        &mut self,
        store: &Store,
        (queue, exptime): (Queue, u32),
        bytes: u32,
    ) -> Result<Place, Refused> {
        self.pay(store, bytes);
        let take = |local: &mut Self| {
            store.log.reserve(queue, (local.appender(store), exptime), bytes, store.keep())
        };
        match take(self) {
            Some(place) => Ok(place),
            None => self.room_for(store, take),
        }
    }

    /// A frame for a value on its way in; as `place`.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn frame(&mut self, store: &Store) -> Result<u32, Refused> {
        self.pay(store, store.frame_bytes());
        let take = |_: &mut Self| store.memory().take_frame(store.keep());
        match take(self) {
            Some(frame) => Ok(frame),
            None => self.room_for(store, take),
        }
    }

    /// Pays for an append of `bytes` when free segments run low.
    fn pay(&mut self, store: &Store, bytes: u32) {
        let segments = &store.memory().segments;
        let high = store.high();
        if segments.free() >= high {
            return self.pay_for_reuse(store, bytes);
        }
        self.pass(store);
        self.reclaim(store);
        self.take_allowed(store);
        // What waits for other columns will be free without more being drained; what is to be
        // withheld will not.
        let free = (segments.free() + segments.limbo()).saturating_sub(store.excess());
        if free >= high {
            return;
        }
        if self.rest > 0 || self.is_full(store) {
            self.rest = self.rest.saturating_sub(1);
            return;
        }
        let budget = bytes.saturating_mul(pay_factor(free, high));
        let budget = budget.clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        if !self.make_room(store, budget) {
            self.rest = REST_APPENDS;
        }
    }

    /// Makes room until `take` gets what it wants, as far as an append's share of work goes.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn room_for<T>(
        &mut self,
        store: &Store,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Refused> {
        let segments = &store.memory().segments;
        if self.is_full(store) {
            self.full.appends -= 1;
            let will_be_free = segments.free() + segments.limbo() > store.keep();
            return Err(if will_be_free { Refused::Later } else { Refused::NoMemory });
        }
        let mut vain_looks = 0;
        for _ in 0..SLICES_MAX {
            // With enough drained that only waits for other columns, more would be evicted in vain.
            let enough = segments.limbo() >= store.high();
            let progress = !enough && self.make_room(store, SLICE_BYTES_MAX);
            self.pass(store);
            self.reclaim(store);
            self.take_allowed(store);
            if let Some(taken) = take(self) {
                return Ok(taken);
            }
            if progress {
                continue;
            }
            if store.others_make_room() {
                break;
            }
            vain_looks += 1;
            if vain_looks == VAIN_LOOKS_MAX {
                self.full = Full { appends: FULL_APPENDS, dead_bytes: 0 };
                return Err(Refused::NoMemory);
            }
            spin_loop();
        }
        Err(Refused::Later)
    }

    /// Is it known, without a look, that nothing can be freed?
    pub(crate) fn is_full(&self, store: &Store) -> bool {
        self.full.appends > 0
            && store.config.eviction.is_none()
            && u64::from(self.full.dead_bytes) * 100
                < u64::from(store.memory().region.segment_bytes()) * COMPACT_DEAD_PERCENT_MIN
    }

    /// Frees retired segments that nobody can be reading any more.
    pub(crate) fn reclaim(&self, store: &Store) {
        let memory = store.memory();
        if memory.segments.limbo() == 0 {
            return;
        }
        memory.segments.reclaim(&memory.quiescence, |segment| {
            // What a pass has left uncounted, or others have counted too.
            let (bytes, queue) =
                (store.log.segment(segment).miscounted(), store.log.queue_of(segment));
            let (counters, more) = (self.counters(store), bytes.unsigned_abs());
            match bytes >= 0 {
                true => counters.unlink(queue, more.into(), more),
                false => {
                    counters.link(queue, more.into());
                    counters.dead_bytes.sub(more.into());
                }
            }
            poison(store, segment);
        });
    }

    /// Works off `budget` bytes of records. False: nothing to be done.
    pub(crate) fn make_room(&mut self, store: &Store, budget: u32) -> bool {
        self.work_off(store, budget, |local| local.start(store))
    }

    /// As `make_room`, where free segments are enough: only what is dead goes, and only segments
    /// are moved of which so much is.
    pub(crate) fn make_reusable(&mut self, store: &Store, budget: u32, dead_percent: u64) -> bool {
        self.stop_evicting(store);
        self.work_off(store, budget, |local| local.start_reuse(store, dead_percent))
    }

    fn work_off(&mut self, store: &Store, budget: u32, start: impl Fn(&mut Self) -> bool) -> bool {
        let mut done = 0;
        while done < budget {
            // What has died is room for nothing.
            let harvested = self.harvest(store, budget - done);
            if harvested > 0 {
                done = done.saturating_add(harvested);
                continue;
            }
            self.stop_for_repack(store);
            if self.drain.is_none() && !start(self) {
                break;
            }
            let did = self.slice(store, budget - done);
            if did == 0 {
                // Nowhere to move anything to before others free something.
                break;
            }
            done += did;
        }
        done > 0
    }
}

impl Store {
    /// Others hold what may become room: retired segments that wait for their quiescent points, a
    /// walk, a pass. Relaxed: hints; who is told to come later asks again.
    pub(crate) fn others_make_room(&self) -> bool {
        self.memory().segments.limbo() > 0
            || self.tokens.load(Ordering::Relaxed) != 0
            || self.index.is_passing()
            || !self.harvest.is_empty()
    }
}

/// In debug builds a segment about to be reused is overwritten, so that tests see who still reads
/// it.
fn poison(store: &Store, segment: u32) {
    if cfg!(debug_assertions) {
        let region = &store.memory().region;
        // SAFETY: all columns have passed a quiescent point since it was retired, and it is not
        // free yet: it is nobody's but ours. (A test plants that this is not so, and must see it.)
        unsafe {
            let at = region.at(region.start(segment));
            plain_access(at, region.segment_bytes() as usize, true);
            at.write_bytes(0xdb, region.segment_bytes() as usize);
        }
        store.log.segment(segment).touch(region.segment_bytes());
    }
}
