//! The index's memory: granted in whole segments, and given back once the index has contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more bytes than the segments granted to it have, and the pages of
//! those segments are given to the system. A segment goes back to the log only once as many bytes
//! of the index have been given to the system.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::handle::View;
use crate::index::grow::Step;
use crate::index::slot::Slot;
use memory::segments::State;

/// A column reports once its items linked and those unlinked differ by this number.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };

impl View<'_> {
    /// Reports to the index, which takes a step if it wants to. Called after a key came or went.
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
        // Nobody accesses a segment in state `Index`; when it is used again, it is written before
        // it is read.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}
