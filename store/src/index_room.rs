//! The index's memory: it grows by whole segments, and gives them back when it has contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more than the memory of the segments granted to it, whose own
//! memory the system has; a segment goes back only when the index's own memory is the system's
//! again.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::handle::View;
use crate::index::grow::Step;
use crate::index::slot::Slot;
use memory::segments::State;

/// Items come and go before a column tells the index: a lump.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };

impl View<'_> {
    /// After a key was added or removed: keeps the index's count and size up.
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
            // SAFETY: the step read the slot just now.
            self.hash.hash(unsafe { self.item(slot.loc()) }.key())
        };
        if self.index.step(hash_of) == Step::NeedsMemory {
            self.grant_index();
        }
    }

    /// Gives the index the memory of a free segment.
    pub(crate) fn grant_index(self) -> bool {
        let memory = self.memory();
        // Nobody reads or writes one in state `Index`: when it is free again all of it is written
        // anew.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}
