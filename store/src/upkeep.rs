//! Background work: removes dead items that no client asks for, and makes room ahead of need.
//!
//! Where: a column's thread calls `maintain` once in each round of its loop, and while idle.
//! Invariant: a lookup never returns a dead item, even if no walk has reached the item yet. Walks
//! are cut into slices. A segment is walked when all of its items, or probably many, have expired.
//! Source: memcached's LRU crawler (1.6.45).

pub(crate) mod aging;
pub(crate) mod flush;
pub(crate) mod harvest;
pub(crate) mod sweep;

use crate::column::Column;
use memory::sync::Ordering;

/// A slice of background work walks about this number of bytes of records.
const SLICE_BYTES: u32 = if cfg!(shuttle) { 2 << 10 } else { 32 << 10 };

impl Column {
    /// Does a bounded slice of background work. Returns true if there is more to do now.
    pub fn maintain(&mut self) -> bool {
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
}
