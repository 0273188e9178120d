//! Background work: removes dead items that no client asks for, and makes room ahead of need.
//!
//! Where: a column's thread calls `maintain` once in each round of its loop, and while idle.
//! Invariant: a lookup never returns a dead item, even if no walk has reached the item yet. Walks
//! are cut into slices. A segment is walked when all of its items, or probably many, have expired.
//! A column that has found no work looks again after a change (`Log::note_change`), after a segment
//! was taken or retired, and in each new second.
//! Source: memcached's LRU crawler (1.6.45).

pub(crate) mod aging;
pub(crate) mod flush;
pub(crate) mod harvest;
pub(crate) mod sweep;

use crate::column::Column;
use memory::sync::Ordering;

/// A slice of background work walks about this number of bytes of records.
const SLICE_BYTES: u32 = if cfg!(shuttle) { 2 << 10 } else { 32 << 10 };

/// The store and the clock at a look for background work that found none. Until one of the numbers
/// differs, no work is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    changes: u32,
    free: u32,
    limbo: u32,
    now: u32,
}

impl Column {
    /// Does a bounded slice of background work. Returns true if there is more to do now.
    #[inline]
    pub fn maintain(&mut self) -> bool {
        let look = self.look();
        self.looks = self.vain_look != Some(look);
        // Beside other columns, work may arise between the comparison and this check.
        let is_alone = self.handle.shared.config.columns <= 1;
        debug_assert!(self.looks || !is_alone || !self.is_due(), "a change is not noted");
        self.looks && self.look_for_work(look)
    }

    /// True if the last call of `maintain` looked for work, because the store or the clock had
    /// changed since a look that found none.
    #[inline]
    #[must_use]
    pub fn looks(&self) -> bool {
        self.looks
    }

    #[inline(always)]
    fn look(&self) -> Look {
        let view = self.handle.view();
        let segments = &view.memory().segments;
        // `changes` comes first: a change that this look overlooks alters the number of the next.
        let (changes, now) = (view.log.changes(), self.handle.now);
        Look { changes, free: segments.free(), limbo: segments.limbo(), now }
    }

    #[inline(never)]
    fn look_for_work(&mut self, look: Look) -> bool {
        let goes_on = self.work_slice();
        // If the slice itself has changed the numbers, they may come back later with work to do.
        let is_vain = !goes_on && !self.is_due() && self.look() == look;
        self.vain_look = is_vain.then_some(look);
        goes_on
    }

    fn work_slice(&mut self) -> bool {
        let Self { handle, room, flush_walk, .. } = self;
        let view = handle.view();
        view.reclaim();
        view.settle_index();
        // A pass through the index is completed even if the expiry was switched off meanwhile.
        let harvests =
            room.chores.expires_unasked.load(Ordering::Relaxed) || view.index.is_passing();
        if harvests && room.chores.harvest.work(view, SLICE_BYTES) > 0 {
            return true;
        }
        let contracting = room.contract_index(view);
        if room.go_on(view, SLICE_BYTES) || room.adjust(view) {
            return true;
        }
        if room.make_ahead(view, SLICE_BYTES) {
            return true;
        }
        room.begin_harvested(view)
            || flush_walk.walk(view, &room.chores.harvest)
            || room.chores.aging.walk_slice(view)
            || contracting
    }

    /// True if background work may be due that this column has not done, perhaps because another
    /// column is at it.
    fn is_due(&self) -> bool {
        let (view, chores) = (self.handle.view(), &self.room.chores);
        let (memory, index, now) = (view.memory(), &view.index, self.handle.now);
        let segment_bytes = memory.region.segment_bytes() as usize;
        let expires = chores.expires_unasked.load(Ordering::Relaxed); // a switch
        // A walk that this column has not ended holds a token, which `make_room` sees.
        chores.make_room(view.shared)
            || memory.segments.free() < view.high()
            || memory.present() != memory.allowed()
            || index.wants_to_grow()
            || index.wants_to_shrink()
            || index.has_to_spare(segment_bytes)
            || (expires && view.log.calendar.may_be_due(now))
            || view.log.flush.now().is_sweeping()
            || chores.aging.is_due(now)
    }
}
