//! The index's memory: granted in whole segments, and given back once the index has contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more bytes than the segments granted to it have. The pages of these
//! segments are returned to the system. A segment goes back to the log only once the index has
//! returned the same number of bytes of its own pages.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::handle::View;
use crate::index::grow::Step;
use crate::index::slot::Slot;
use memory::segments::State;

/// A column reports its number of linked items when the number has changed by this much.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };

impl View<'_> {
    /// Reports the item count and resizes the index by a step, after a key was added or removed.
    #[inline]
    pub(crate) fn settle_index(self) {
        if self.handle.items.get().abs() >= ITEMS_LUMP {
            self.report_items();
        }
        if self.index.wants_to_grow() {
            self.grow_index();
        } else if self.index.wants_to_shrink() {
            self.index.step_back();
        }
    }

    #[inline(never)]
    fn grow_index(self) {
        let hash_of = |slot: Slot| {
            // SAFETY: the step has just read the slot, under the lock of the slot's group.
            self.hash.hash(unsafe { self.item(slot.loc()) }.key())
        };
        if self.index.step(hash_of) == Step::NeedsMemory {
            self.grant_index();
        }
    }

    /// Grants the index the memory of a free segment. False: no segment can be taken.
    pub(crate) fn grant_index(self) -> bool {
        let memory = self.memory();
        // Nobody accesses a segment in state `Index`. Its next user writes to it before reading it.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}
