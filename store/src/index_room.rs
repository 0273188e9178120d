//! The index's memory: granted in whole segments, and given back after the index has contracted.
//!
//! Where: called after every verb that adds or removes a key, and by background work.
//! Invariant: the index uses at most as many bytes as the segments granted to it have. The system
//! gets back the pages of these segments, since the index has its own pages. A segment returns to
//! the log only after the index has given back the same number of bytes of its own pages.

use crate::handle::View;
use crate::index::grow::Step;
use memory::segments::State;

/// A column reports its change of the number of linked items when the change reaches this number.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };

impl View<'_> {
    /// Reports the item count if due, and resizes the index by a step if the index wants that.
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
        let hash_of = |loc| self.hash.hash(self.item(loc).key());
        if self.index.step(self.moment(), hash_of) == Step::NeedsMemory {
            self.grant_index();
        }
    }

    /// Grants the memory of a free segment to the index. Returns false if no segment can be taken.
    pub(crate) fn grant_index(self) -> bool {
        let memory = self.memory();
        // Nobody accesses a segment in state `Index`, and a later user first writes to it.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}
