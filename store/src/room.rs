//! Room for what is appended: a place for each item, a frame for each piece of a large value, and
//! what an append pays for them.
//!
//! Where: before an append; `maintain` makes room ahead of need.
//! Invariant: no append pays for more than a slice unless nothing at all is free, and then for a
//! bounded number of them. Nobody waits here: where other columns hold what will be room, the
//! append is told to come later.
//! Source: the KV-Cache paper, section 4.2.3 (NbQ-CLOCK); compaction as in log-structured stores.

mod choice;
mod drain;
mod lines;
mod reclaim;
mod verdict;
mod work;

pub(crate) use drain::Drain;

use crate::Store;
use crate::handle::{Handle, View};
use crate::log::Place;
use crate::policy::Queue;
use crate::policy::room::{
    COMPACT_DEAD_PERCENT_MIN, Debt, SLICE_BYTES_MAX, SLICE_BYTES_MIN, pay_factor,
};
use crate::verbs::Refused;
use choice::Random;
use memory::sync::{Ordering, spin_loop};

/// Appends that do not look for room again after none was to be made.
const REST_APPENDS: u32 = 64;
/// Slices of work that an append does where no segment is free; then it is to come again.
const SLICES_MAX: u32 = 16;
/// Looks in a row at which nothing was to be done and nobody else at work, before an append is
/// refused: somebody may have been between two steps.
const VAIN_LOOKS_MAX: u32 = 4;
/// Appends refused without a look after one that found the store full, where nothing is evicted.
const FULL_APPENDS: u32 = 256;

/// Where memory would grow, an append pays this many times its size: of what is half dead, that is
/// room for as much and half as much again.
const REUSE_FACTOR: u32 = 3;

/// What a column keeps to make room by.
#[derive(Debug)]
pub(crate) struct Room {
    /// The walk through a segment that is under way.
    drain: Option<Drain>,
    /// What the column's drains have spared beyond what they freed.
    debt: Debt,
    /// Appends to go before room is looked for again where there was none to be made.
    rest: u32,
    /// Appends to go that are refused without a look, for one found that nothing can be freed. It
    /// holds until the clock moves on, or the column itself has made as much dead as makes a
    /// segment worth compacting; what others have made dead is found when none is left to go.
    pub(crate) full_appends: u32,
    /// The key for which the index lacked a line when it was last to come later, by its hash.
    pub(crate) lacks_line: Option<u64>,
    pub(crate) random: Random,
}

impl Room {
    /// That of column `id`.
    pub(crate) fn new(id: usize) -> Self {
        Self {
            drain: None,
            debt: Debt::default(),
            rest: 0,
            full_appends: 0,
            lacks_line: None,
            random: Random::new(id),
        }
    }

    /// A place for an item of `bytes` that will expire at `exptime` (0: never) in `queue`, paying
    /// for room as it goes. A quiescent point.
    ///
    /// # Errors
    /// `NoMemory`: nothing can be freed. `Later`: something will be, or more work than an append's
    /// share is to be done first.
    pub(crate) fn place(
        &mut self,
        handle: &mut Handle,
        (queue, exptime): (Queue, u32),
        bytes: u32,
    ) -> Result<Place, Refused> {
        self.pay(handle, bytes);
        self.take(handle, |view| {
            view.log.reserve(queue, (view.appender(), exptime), bytes, view.keep())
        })
    }

    /// A frame for a value on its way in; as `place`.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn frame(&mut self, handle: &mut Handle) -> Result<u32, Refused> {
        self.pay(handle, handle.store.frame_bytes());
        self.take(handle, |view| view.memory().take_frame(view.keep()))
    }

    /// Pays for an append of `bytes` when free segments run low.
    fn pay(&mut self, handle: &mut Handle, bytes: u32) {
        let high = handle.store.high();
        if handle.store.memory().segments.free() >= high {
            return self.pay_for_reuse(handle, bytes);
        }
        pass_and_reclaim(handle);
        // What waits for other columns will be free without more being drained; what is to be
        // withheld will not.
        let segments = &handle.store.memory().segments;
        let free = (segments.free() + segments.limbo()).saturating_sub(handle.store.excess());
        if free >= high {
            return;
        }
        if self.rest > 0 || self.is_full(handle.view()) {
            self.rest = self.rest.saturating_sub(1);
            return;
        }
        let budget = bytes.saturating_mul(pay_factor(free, high));
        let budget = budget.clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        if !self.make_room(handle.view(), budget) {
            self.rest = REST_APPENDS;
        }
    }

    /// Before an append of `bytes`, with enough free segments: if few of them are memory, and not
    /// enough of what is touched is alive, pays for such to be used again.
    #[inline]
    fn pay_for_reuse(&mut self, handle: &mut Handle, bytes: u32) {
        if handle.store.memory().segments.warm() <= handle.store.keep()
            && handle.store.dead_percent_to_reuse().is_some()
        {
            self.reuse(handle, bytes);
        }
    }

    #[inline(never)]
    fn reuse(&mut self, handle: &mut Handle, bytes: u32) {
        pass_and_reclaim(handle);
        let segments = &handle.store.memory().segments;
        // What waits for other columns will be there.
        if segments.warm() + segments.limbo() > handle.store.keep() {
            return;
        }
        let Some(dead_percent) = handle.store.dead_percent_to_reuse() else { return };
        let budget = bytes.saturating_mul(REUSE_FACTOR).clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        // Relaxed: a hint; others may be at it.
        if !self.make_reusable(handle.view(), budget, dead_percent)
            && handle.store.tokens.load(Ordering::Relaxed) == 0
        {
            handle.store.let_grow();
        }
    }

    /// What `take` takes, at once or when there is room.
    #[inline(always)]
    fn take<T>(
        &mut self,
        handle: &mut Handle,
        take: impl Fn(View<'_>) -> Option<T>,
    ) -> Result<T, Refused> {
        take(handle.view()).map_or_else(|| self.room_for(handle, take), Ok)
    }

    /// Makes room until `take` gets what it wants, as far as an append's share of work goes.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn room_for<T>(
        &mut self,
        handle: &mut Handle,
        mut take: impl FnMut(View<'_>) -> Option<T>,
    ) -> Result<T, Refused> {
        if self.is_full(handle.view()) {
            self.full_appends -= 1;
            let segments = &handle.store.memory().segments;
            let will_be_free = segments.free() + segments.limbo() > handle.store.keep();
            return Err(if will_be_free { Refused::Later } else { Refused::NoMemory });
        }
        let mut vain_looks = 0;
        for _ in 0..SLICES_MAX {
            // With enough drained that only waits for other columns, more would be evicted in vain.
            let enough = handle.store.memory().segments.limbo() >= handle.store.high();
            let progress = !enough && self.make_room(handle.view(), SLICE_BYTES_MAX);
            pass_and_reclaim(handle);
            if let Some(taken) = take(handle.view()) {
                return Ok(taken);
            }
            if progress {
                continue;
            }
            if handle.store.others_make_room() {
                break;
            }
            vain_looks += 1;
            if vain_looks == VAIN_LOOKS_MAX {
                self.full_appends = FULL_APPENDS;
                handle.dead_bytes.set(0);
                return Err(Refused::NoMemory);
            }
            spin_loop();
        }
        Err(Refused::Later)
    }

    /// Is it known, without a look, that nothing can be freed?
    fn is_full(&self, view: View<'_>) -> bool {
        self.full_appends > 0
            && view.config.eviction.is_none()
            && u64::from(view.handle.dead_bytes.get()) * 100
                < u64::from(view.memory().region.segment_bytes()) * COMPACT_DEAD_PERCENT_MIN
    }
}

/// Passes a quiescent point, and takes back the memory that all columns have passed.
fn pass_and_reclaim(handle: &mut Handle) {
    handle.pass();
    handle.view().reclaim();
    handle.view().take_allowed();
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
