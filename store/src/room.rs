//! Room for appends: an append takes a place for an item, or a frame for a piece of a large value,
//! and pays with work that makes room for more appends.
//!
//! Where: before an append; `maintain` makes room ahead of need.
//! Invariant: an append does at most one slice of work if a segment is free, and otherwise a
//! bounded number of slices. No append waits here: if other columns hold memory that will be freed,
//! the append gets the answer `Later`.
//! Source: the KV-Cache paper, section 4.2.3 (NbQ-CLOCK); compaction of log-structured stores.

mod choice;
mod chores;
mod drain;
pub(crate) mod growth;
pub(crate) mod limit;
pub(crate) mod lines;
mod repack;
mod verdict;
mod work;

pub(crate) use chores::Chores;
pub(crate) use drain::Drain;

use crate::column::handle::{Handle, View};
use crate::error::StoreError;
use crate::log::Place;
use crate::policy::Queue;
use crate::policy::room::{
    COMPACT_DEAD_PERCENT_MIN, Debt, SLICE_BYTES_MAX, SLICE_BYTES_MIN, pay_factor,
};
use memory::random::Random;
use memory::sync::{Ordering, spin_loop};
use std::sync::Arc;

/// After a search for room has found none, this number of appends do not search.
const REST_APPENDS: u32 = 64;
/// If no segment is free, an append does at most this number of slices of work, then gets `Later`.
const SLICES_MAX: u32 = 16;
/// An append is refused when it has found, this number of times, that there is no work to do and
/// that no other column works. Once is not enough: a column may be between two steps.
const VAIN_LOOKS_MAX: u32 = 4;
/// Without eviction, a full store refuses this number of appends before it searches again.
const FULL_APPENDS: u32 = 256;

/// Bytes of work that an append does, for each of its bytes, instead of taking a fresh segment. In
/// half-dead segments, 3 bytes of work make room for 1.5 bytes.
const REUSE_FACTOR: u32 = 3;

/// The state that a column keeps between its slices of making room.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) chores: Arc<Chores>,
    pub(crate) drain: Option<Drain>,
    debt: Debt,
    /// Number of further appends without a search for room (`REST_APPENDS`).
    rest: u32,
    /// Number of further appends that are refused at once (`FULL_APPENDS`). It is ignored if this
    /// column has made enough bytes dead for a compaction, and set to 0 when the clock moves on.
    /// Above 0, the column overlooks bytes that other columns have made dead.
    pub(crate) full_appends: u32,
    /// The hash of the last key whose append got `Later` because the index lacked a line.
    pub(crate) lacks_line: Option<u64>,
    pub(crate) random: Random,
}

impl Room {
    pub(crate) fn new(chores: Arc<Chores>, id: usize) -> Self {
        Self {
            chores,
            drain: None,
            debt: Debt::default(),
            rest: 0,
            full_appends: 0,
            lacks_line: None,
            random: Random::new(id),
        }
    }

    /// Does the append's share of work, and returns a place in `queue` for an item of `bytes` that
    /// expires at `exptime` (0: never). May pass a quiescent point.
    ///
    /// # Errors
    /// `NoMemory`: nothing can be freed. `Later`: memory will be freed, or the append has done its
    /// share of the work.
    pub(crate) fn place(
        &mut self,
        handle: &mut Handle,
        (queue, exptime): (Queue, u32),
        bytes: u32,
    ) -> Result<Place, StoreError> {
        self.pay(handle, bytes);
        self.take(handle, |view| {
            view.log.reserve(queue, (view.appender(), exptime), bytes, view.keep())
        })
    }

    pub(crate) fn frame(&mut self, handle: &mut Handle) -> Result<u32, StoreError> {
        self.pay(handle, handle.shared.frame_bytes());
        self.take(handle, |view| {
            let node = view.memory().segments.nodes().of_column(view.handle.id);
            view.memory().take_frame(view.keep(), node)
        })
    }

    /// If few segments are free, makes room by work in proportion to the `bytes` of the append.
    fn pay(&mut self, handle: &mut Handle, bytes: u32) {
        let high = handle.shared.high();
        if handle.shared.memory().segments.free() >= high {
            return self.pay_for_reuse(handle, bytes);
        }
        pass_and_reclaim(handle);
        // Retired segments count as free; segments that the limit takes away do not.
        let segments = &handle.shared.memory().segments;
        let free = (segments.free() + segments.limbo()).saturating_sub(handle.shared.excess());
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

    /// While enough segments are free, makes dead memory reusable if few free segments are
    /// populated (warm) and too much of the populated memory is dead.
    #[inline]
    fn pay_for_reuse(&mut self, handle: &mut Handle, bytes: u32) {
        if handle.shared.memory().segments.warm() <= handle.shared.keep()
            && handle.shared.dead_percent_to_reuse().is_some()
        {
            self.reuse(handle, bytes);
        }
    }

    #[inline(never)]
    fn reuse(&mut self, handle: &mut Handle, bytes: u32) {
        pass_and_reclaim(handle);
        let segments = &handle.shared.memory().segments;
        // Retired segments are populated, so they will be warm when they are free.
        if segments.warm() + segments.limbo() > handle.shared.keep() {
            return;
        }
        let Some(dead_percent) = handle.shared.dead_percent_to_reuse() else { return };
        let budget = bytes.saturating_mul(REUSE_FACTOR).clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        // Relaxed: `tokens` is only a hint that other columns are making room.
        if !self.make_reusable(handle.view(), budget, dead_percent)
            && self.chores.tokens.load(Ordering::Relaxed) == 0
        {
            handle.shared.let_grow();
        }
    }

    #[inline(always)]
    fn take<T>(
        &mut self,
        handle: &mut Handle,
        take: impl Fn(View<'_>) -> Option<T>,
    ) -> Result<T, StoreError> {
        take(handle.view()).map_or_else(|| self.room_for(handle, take), Ok)
    }

    /// Makes room until `take` succeeds, but by at most `SLICES_MAX` slices of work.
    pub(crate) fn room_for<T>(
        &mut self,
        handle: &mut Handle,
        mut take: impl FnMut(View<'_>) -> Option<T>,
    ) -> Result<T, StoreError> {
        if self.is_full(handle.view()) {
            self.full_appends -= 1;
            let segments = &handle.shared.memory().segments;
            let will_be_free = segments.free() + segments.limbo() > handle.shared.keep();
            return Err(if will_be_free { StoreError::Later } else { StoreError::NoMemory });
        }
        let mut vain_looks = 0;
        for _ in 0..SLICES_MAX {
            // If enough retired segments will become free, evictions would not help.
            let enough = handle.shared.memory().segments.limbo() >= handle.shared.high();
            let progress = !enough && self.make_room(handle.view(), SLICE_BYTES_MAX);
            pass_and_reclaim(handle);
            if let Some(taken) = take(handle.view()) {
                return Ok(taken);
            }
            if progress {
                continue;
            }
            if self.chores.make_room(&handle.shared) {
                break;
            }
            vain_looks += 1;
            if vain_looks == VAIN_LOOKS_MAX {
                self.full_appends = FULL_APPENDS;
                handle.dead_bytes.set(0);
                return Err(StoreError::NoMemory);
            }
            spin_loop();
        }
        Err(StoreError::Later)
    }

    fn is_full(&self, view: View<'_>) -> bool {
        self.full_appends > 0
            && view.config.eviction.is_none()
            && u64::from(view.handle.dead_bytes.get()) * 100
                < u64::from(view.memory().region.segment_bytes()) * COMPACT_DEAD_PERCENT_MIN
    }
}

/// Passes a quiescent point, and reclaims memory that no column can be reading any more.
fn pass_and_reclaim(handle: &mut Handle) {
    handle.pass();
    handle.view().reclaim();
    let (memory, keep) = (handle.shared.memory(), handle.shared.keep());
    if memory.present() < memory.allowed() {
        // If the limit was lowered since the comparison, `adjust` withholds segments.
        memory.adjust(keep + 1);
    }
}

impl View<'_> {
    /// Frees the retired segments that no column can be reading any more.
    pub(crate) fn reclaim(self) {
        let memory = self.memory();
        if memory.segments.limbo() == 0 {
            return;
        }
        memory.reclaim(|segment| {
            // Corrects the counters: a pass may unlink items uncounted, or count items twice.
            let (bytes, queue) =
                (self.log.segment(segment).miscounted(), self.log.queue_of(segment));
            let (counters, more) = (self.counters(), bytes.unsigned_abs());
            match bytes >= 0 {
                true => counters.unlink(queue, more.into(), more),
                false => {
                    counters.link(queue, more.into());
                    counters.dead_bytes.sub(more.into());
                }
            }
        });
    }
}
