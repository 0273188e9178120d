//! Background work: what is dead goes without being touched, and there is room ahead of need.
//!
//! Where: an idle moment of a column's loop, and once a second.
//! Invariant: a lookup never returns a dead item, whatever the background walk has got to; the walk
//! is cut into slices, and goes through a segment when all of it has expired, or much of it may
//! have.
//! Source: memcached's LRU crawler (1.6.45).

use crate::Store;
use crate::column::Local;

/// A slice of background work, in bytes of records.
const SLICE_BYTES: u32 = if cfg!(shuttle) { 2 << 10 } else { 32 << 10 };

impl Local {
    /// A slice of background work. True: there is more.
    pub(crate) fn maintain(&mut self, store: &Store) -> bool {
        self.reclaim(store);
        self.settle_index(store);
        if self.harvest(store, SLICE_BYTES) > 0 {
            return true;
        }
        let contracting = self.contract_index(store);
        let segments = &store.memory().segments;
        if self.take_parked(store) {
            // An eviction ends with the need for it: the rest of a segment may name frames worth
            // many segments.
            let has_room = segments.free() + segments.limbo() >= store.high();
            if has_room && store.lacking() == 0 {
                self.stop_evicting(store);
            }
            self.stop_for_repack(store);
            self.slice(store, SLICE_BYTES);
            return true;
        }
        if self.adjust(store) {
            return true;
        }
        let low = segments.free() + segments.limbo() < store.high();
        if low && self.rest == 0 && !self.is_full(store) {
            if self.make_room(store, SLICE_BYTES) {
                return true;
            }
            self.rest = 1;
        }
        self.walk(store) || contracting
    }

    /// Begins to walk a segment with dead items. False: there is none left.
    fn walk(&mut self, store: &Store) -> bool {
        if self.sweep(store, |local| local.next_gathered(store)) {
            return true;
        }
        self.walk_flushed(store)
    }
}
