//! Background work: removes dead items that no client asks for, and makes room ahead of need.
//!
//! Where: once in each round of a column's loop, and in its idle moments.
//! Invariant: a lookup never returns a dead item, however far background walks have come. Walks are
//! cut into slices. A segment is walked once all its items, or possibly many of them, have expired.
//! Source: memcached's LRU crawler (1.6.45).

use crate::column::Column;

/// Bytes of records in a slice of background work.
const SLICE_BYTES: u32 = if cfg!(shuttle) { 2 << 10 } else { 32 << 10 };

impl Column {
    /// Does a bounded slice of background work. Returns true if there is more to do now.
    pub fn maintain(&mut self) -> bool {
        let Self { handle, room, flush_walk, .. } = self;
        let view = handle.view();
        view.reclaim();
        view.settle_index();
        // A pass that has begun is completed even if background expiry was switched off meanwhile.
        let harvests = view.expires_unasked() || view.index.is_passing();
        if harvests && view.harvest.work(view, SLICE_BYTES) > 0 {
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
            || flush_walk.walk(view)
            || view.aging.walk_slice(view)
            || contracting
    }
}
