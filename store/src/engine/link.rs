//! Links and unlinks items: sets or empties an item's slot, and counts the item.
//!
//! Where: every verb that writes or deletes an item ends here, and so does every eviction.
//! Invariant: an item is complete, and counted in its segment, before a slot names the item. An
//! item's bytes count as dead only after no slot names the item any more.

use crate::column::handle::View;
use crate::engine::cas::NewCas;
use crate::engine::find::Fate;
use crate::index::slot::{FETCHED, Slot};
use crate::index::{Full, LockedGroup, SlotRef};
use crate::item::{CasWidth, Fields, Item, Shape};
use crate::log::{Place, WrittenPlace};
use memory::plant::{self, Fault};

/// The fields that a move changes; `None` keeps the old value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MovedFields {
    pub(crate) cnt: Option<u64>,
    pub(crate) first_frame: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveResult {
    Moved,
    /// The item is no longer linked.
    Gone,
    NoRoom,
}

#[derive(Default)]
pub(crate) struct ReapedCounts {
    expired: u32,
    flushed: u32,
    unfetched: u32,
}

impl ReapedCounts {
    #[inline]
    pub(crate) fn note(&mut self, fate: Fate, slot: Slot) {
        self.expired += u32::from(fate == Fate::Expired);
        self.flushed += u32::from(fate == Fate::Flushed);
        self.unfetched += u32::from(fate == Fate::Expired && !slot.has(FETCHED));
    }

    /// Subtracts the items, but not their bytes, from the counters. Returns the number of items.
    pub(crate) fn count(&self, view: View<'_>) -> u32 {
        let items = self.expired + self.flushed;
        view.count_items(-i64::from(items));
        let counters = view.counters();
        counters.curr_items.sub(items.into());
        counters.expired_unfetched.add(self.unfetched.into());
        counters.crawler_reclaimed.add(self.expired.into());
        counters.reclaimed.add(self.flushed.into());
        items
    }
}

impl View<'_> {
    /// Links the item in `written`: `slot` replaces the slot at `old`, or is added if `old` is
    /// `None`.
    ///
    /// # Errors
    /// There is no memory for the overflow line that a new slot needs. The item is then not linked.
    pub(crate) fn link<'r>(
        self,
        locked: &mut LockedGroup<'r>,
        old: Option<SlotRef<'r>>,
        slot: Slot,
        (written, shape, exptime): (&WrittenPlace, Shape, u32),
    ) -> Result<(), Full> {
        let (number, bytes) = (written.place().segment(), written.place().bytes());
        let segment = self.log.segment(number);
        segment.link(bytes, exptime, shape.is_chained());
        match old {
            Some(at) => locked.set(at, slot),
            None => {
                locked.insert(slot).inspect_err(|_| _ = segment.unlink(bytes))?;
                self.count_items(1);
                if let Some(from) = locked.recall() {
                    self.counters().ghost_hits.add(1);
                    self.rebalance(from, shape.all_bytes());
                }
            }
        }
        let counters = self.counters();
        counters.curr_items.add(1);
        counters.link(self.log.queue_of(number), shape.all_bytes());
        Ok(())
    }

    /// Moves the item at `loc`, if the item is still linked, to the place that `place` reserves.
    /// `cnt` is the new reference counter of an item that a drain spares; `None` keeps the counter.
    /// `first_frame` is the first frame of the value's copy, if repacking has made a copy.
    pub(crate) fn relocate(
        self,
        (hash, loc): (u64, u64),
        item: &Item<'_>,
        MovedFields { cnt, first_frame }: MovedFields,
        place: impl FnOnce(u32) -> Option<Place>,
    ) -> MoveResult {
        let from = self.log.segment_of(loc);
        // A guess: the item may be rewritten, and get another CAS unique, before the lock is taken.
        let width = |cas| self.cas_width(NewCas::Given(cas));
        let shape = item.shape().with_cas(width(item.cas(|| from.cas_base())));
        let Some(place) = place(shape.extent()) else { return MoveResult::NoRoom };
        let mut locked = self.index.lock(self.moment(), hash);
        let Some(found) = locked.find_loc(loc) else {
            drop(locked);
            self.log.void(place);
            return MoveResult::Gone;
        };
        let cas = item.cas(|| from.cas_base());
        if shape.cas() == CasWidth::Short && width(cas) == CasWidth::Long {
            drop(locked);
            self.log.void(place);
            return MoveResult::NoRoom;
        }
        // If the item was flushed, it would be visible again in a segment of the new epoch.
        let to_epoch = self.log.segment(place.segment()).epoch();
        if to_epoch != from.epoch() && !plant::is(Fault::FlushedMoved) {
            locked.remove(found.at());
            drop(locked);
            self.log.void(place);
            self.unlinked(loc, item);
            return MoveResult::Gone;
        }
        let fields = self.fields(&locked, item);
        let first_frame = first_frame.unwrap_or(fields.first_frame);
        let fields = Fields { cas, first_frame, ..fields };
        let written = self.log.write(place, self.layout, shape, &fields);
        let (to, to_loc) = (written.place().segment(), written.place().loc());
        self.log.segment(to).link(shape.extent(), fields.exptime, shape.is_chained());
        if fields.exptime != 0 && self.log.segment(to).due() == u32::MAX {
            // Compaction fills this segment, so no append has noted when its items expire.
            self.log.note_due(to, fields.exptime);
        }
        locked.update(found.at(), |slot| {
            let moved = slot.at(to_loc);
            cnt.map_or(moved, |cnt| moved.with_cnt(cnt))
        });
        drop(locked);
        let left = self.memory().region.segment_of(loc);
        self.counters().link(self.log.queue_of(to), shape.all_bytes());
        self.counters().unlink(self.log.queue_of(left), item.all_bytes(), item.extent());
        match cnt {
            None => self.counters().compacted_bytes.add(shape.extent().into()),
            Some(_) => self.counters().spared_bytes.add(shape.extent().into()),
        }
        self.log.unlink(left, item.extent());
        self.log.commit(written);
        MoveResult::Moved
    }

    /// Counts an item as removed after its slot was emptied. The caller holds no lock.
    pub(crate) fn unlinked(self, loc: u64, item: &Item<'_>) {
        self.count_items(-1);
        self.dispose(loc, item);
    }

    /// Counts an item without a slot as dead, and releases its frames. The caller holds no lock.
    pub(crate) fn dispose(self, loc: u64, item: &Item<'_>) {
        if let Some(frame) = item.first_frame() {
            self.memory().release(frame);
        }
        self.dispose_but_frames(loc, item);
    }

    /// Like `dispose`, but keeps the frames, because another item refers to them now.
    pub(crate) fn dispose_but_frames(self, loc: u64, item: &Item<'_>) {
        let (segment, extent) = (self.memory().region.segment_of(loc), item.extent());
        let dead = &self.handle.dead_bytes;
        dead.set(dead.get().saturating_add(extent));
        let counters = self.counters();
        counters.curr_items.sub(1);
        counters.unlink(self.log.queue_of(segment), item.all_bytes(), extent);
        self.log.unlink(segment, extent);
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn reap(self, hash: u64, loc: u64) {
        match self.unlink_dead(hash, loc).0 {
            Fate::Live => return,
            Fate::Expired => self.counters().get_expired.add(1),
            Fate::Flushed => self.counters().get_flushed.add(1),
        }
        self.settle_index();
    }

    /// Unlinks the item at `loc` if the item is dead. Returns the item's fate and slot; the fate is
    /// `Live` if the item is alive or not linked.
    pub(crate) fn unlink_dead(self, hash: u64, loc: u64) -> (Fate, Slot) {
        let mut locked = self.index.lock(self.moment(), hash);
        let Some(found) = locked.find_loc(loc) else { return (Fate::Live, Slot(0)) };
        let (slot, item) = (found.slot(), self.item(found.loc()));
        let fate = self.fate(&item, loc);
        if fate == Fate::Live {
            return (fate, slot);
        }
        locked.remove(found.at());
        drop(locked);
        self.count_items(-i64::from(!plant::is(Fault::ItemStaysCounted)));
        match plant::is(Fault::FramesKept) {
            true => self.dispose_but_frames(loc, &item),
            false => self.dispose(loc, &item),
        }
        (fate, slot)
    }
}
