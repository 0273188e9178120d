//! The index's memory: it is granted by whole segments, which the index gives back when it has
//! contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more memory than that of the segments granted to it, and the memory
//! of those segments is the system's. A segment goes back to the log only when as much of the
//! index's own memory is the system's again.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::handle::View;
use crate::index::grow::Step;
use crate::index::slot::Slot;
use memory::segments::State;

/// A column reports to the index when this many items more, or fewer, are linked than it last
/// reported.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };

impl View<'_> {
    /// To be called after a key was added or removed: reports to the index, and has it
    /// take a step if it wants one.
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
        // Nobody reads or writes a segment in state `Index`: its bytes are written before they are
        // read when it is in use again.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}
