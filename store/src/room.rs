//! Making room: segments are compacted or drained in bounded slices, paid for by appends.
//!
//! Where: before an append takes a place, and in idle columns ahead of need.
//! Invariant: a drain starts only with a free segment kept for what it moves; no append pays for
//! more than a slice unless nothing at all is free.
//! Source: the paper's section 4.2.3 (NbQ-CLOCK); compaction as in log-structured stores.

#![allow(unsafe_code, reason = "overwrites segments in the mapping")]

mod choice;
mod drain;
mod verdict;

pub(crate) use drain::{Aim, Drain};
pub(crate) use verdict::{Debt, Drained, Moved};

use crate::Store;
use crate::column::Local;
use crate::log::Place;
use crate::policy::Queue;
use crate::verbs::Refused;
use memory::sync::{Ordering, spin_loop, yield_now};
use std::time::Duration;

/// A slice is at least and at most so many bytes of records.
const SLICE_BYTES_MIN: u32 = 2 << 10;
pub(crate) const SLICE_BYTES_MAX: u32 = 32 << 10;
/// An append pays this many times its size, and up to ten times more as free segments run out.
const PAY_FACTOR: u32 = 2;
const PAY_FACTOR_MORE: u32 = 10;
/// Appends that do not look for room again after none was to be made.
const REST_APPENDS: u32 = 64;
/// An append that waits gives up after so many rounds: the first spin, the next yield, the others
/// sleep.
const WAIT_ROUNDS_MAX: u32 = 4096;
const WAIT_ROUNDS_SPIN: u32 = 8;
const WAIT_ROUNDS_YIELD: u32 = 64;
const WAIT_SLEEP: Duration = Duration::from_micros(100);

impl Local {
    /// A place for an item of `bytes` that will expire at `exptime` (0: never) in `queue`, paying
    /// for room as it goes. A quiescent point: the caller holds nothing.
    ///
    /// # Errors
    /// `NoMemory`: nothing can be freed.
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
            None => self.wait_for(store, take),
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
            None => self.wait_for(store, take),
        }
    }

    /// Pays for an append of `bytes` when free segments run low.
    fn pay(&mut self, store: &Store, bytes: u32) {
        let segments = &store.memory().segments;
        let high = store.high();
        if segments.free() >= high {
            return;
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
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let lacking = high - free;
        let factor = PAY_FACTOR + PAY_FACTOR_MORE * lacking / high;
        let budget = bytes.saturating_mul(factor).clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        if !self.make_room(store, budget) {
            self.rest = REST_APPENDS;
        }
    }

    /// Makes room until `take` gets what it wants. While it waits for others it reads nothing.
    pub(crate) fn wait_for<T>(
        &mut self,
        store: &Store,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Refused> {
        for round in 0..WAIT_ROUNDS_MAX {
            // With enough drained that only waits for other columns, more would be evicted in vain.
            let enough = store.memory().segments.limbo() >= store.high();
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
            let others =
                // a hint: they may free something
                store.memory().segments.limbo() > 0
                    || store.tokens.load(Ordering::Relaxed) != 0
                    || store.index.is_passing()
                    || !store.harvest.is_empty();
            if !others && round > WAIT_ROUNDS_SPIN {
                break;
            }
            store.memory().quiescence.offline(self.id);
            match round {
                0..WAIT_ROUNDS_SPIN => spin_loop(),
                WAIT_ROUNDS_SPIN..WAIT_ROUNDS_YIELD => yield_now(),
                _ => std::thread::sleep(WAIT_SLEEP),
            }
            self.pass(store);
        }
        Err(Refused::NoMemory)
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
        let mut done = 0;
        while done < budget {
            // What has died is room for nothing.
            let harvested = self.harvest(store, budget - done);
            if harvested > 0 {
                done = done.saturating_add(harvested);
                continue;
            }
            self.stop_for_repack(store);
            if self.drain.is_none() && !self.start(store) {
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

/// In debug builds a segment about to be reused is overwritten, so that tests see who still reads
/// it.
fn poison(store: &Store, segment: u32) {
    if cfg!(debug_assertions) {
        let region = &store.memory().region;
        // SAFETY: all columns have passed a quiescent point since it was retired, and it is not
        // free yet: it is nobody's but ours. (A test plants that this is not so, and must see it.)
        unsafe {
            let at = region.at(region.start(segment));
            at.write_bytes(0xdb, region.segment_bytes() as usize);
        }
        store.log.segment(segment).touch(region.segment_bytes());
    }
}
