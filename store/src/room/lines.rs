//! The lines of the index and their memory, which is granted to the index in whole segments.
//!
//! Where: called after every verb that adds or removes a key, by appends that need an overflow
//! line, and by background work, which contracts the index if items are few.
//! Invariant: the index uses at most as many bytes as the segments granted to it have. The system
//! gets back the pages of these segments, since the index has its own pages. A segment returns to
//! the log only after the index has given back the same number of bytes of its own pages, and no
//! column can be reading these bytes any more.
//! Source: none.

use super::Room;
use crate::column::handle::{Handle, View};
use crate::error::StoreError;
use crate::index::grow::Step;
use crate::policy::room::SLICE_BYTES_MAX;
use memory::segments::State;

/// A column reports its change of the number of linked items when the change reaches this number.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };
/// Maximum number of calls of `step_back` in a slice of background work.
const SLICE_STEPS: u32 = 32;
/// Maximum number of segments that a slice looks at to find one that was granted to the index.
const LOOKS_MAX: u32 = 256;

impl Room {
    /// Makes the index smaller by a slice of work. Returns true if there is more to do.
    pub(crate) fn contract_index(&mut self, view: View<'_>) -> bool {
        if view.index.is_passing() {
            return false;
        }
        for _ in 0..SLICE_STEPS {
            if !view.index.wants_to_shrink() {
                break;
            }
            view.index.prefetch_to_step_back();
            if view.index.step_back() != Step::Done {
                break;
            }
        }
        let bytes = view.memory().region.segment_bytes() as usize;
        let gave = view.index.has_to_spare(bytes) && self.ungrant_index(view);
        gave || view.index.wants_to_shrink()
    }

    /// Takes a segment's memory back from the index. Returns false if the index needs its memory.
    fn ungrant_index(&mut self, view: View<'_>) -> bool {
        let memory = view.memory();
        let bytes = memory.region.segment_bytes() as usize;
        let count = memory.segments.count();
        let first = self.random.below(count);
        let mut looks = (0..count.min(LOOKS_MAX)).map(|look| (first + look) % count);
        let granted = |segment: &u32| {
            // The column whose `change` succeeds owns the segment.
            memory.segments.get(*segment).change(State::Index, State::Limbo)
        };
        let mut segment = None;
        let take = || {
            segment = looks.find(granted);
            segment.is_some()
        };
        if !view.index.give_back(bytes, &memory.quiescence, take) {
            return false;
        }
        if let Some(segment) = segment {
            memory.region.lock_on_fault(segment);
            memory.segments.give(segment);
        }
        true
    }

    /// Makes memory for another overflow line of the index, which the key of `hash` needs.
    ///
    /// # Errors
    /// `NoMemory`: there is no memory for the line. `Later`: there is no memory yet.
    pub(crate) fn make_index_room(
        &mut self,
        handle: &mut Handle,
        hash: u64,
    ) -> Result<(), StoreError> {
        if handle.shared.index.has_line() {
            return Ok(());
        }
        if !handle.shared.index.has_room() {
            let refused = self.make_slots(handle.view());
            self.lacks_line = (refused == StoreError::Later).then_some(hash);
            return Err(refused);
        }
        if handle.view().grant_index() {
            return Ok(());
        }
        let made = self.room_for(handle, |view| view.grant_index().then_some(()));
        self.lacks_line = (made == Err(StoreError::Later)).then_some(hash);
        made
    }

    /// Evicts items to free overflow lines, if no address space is left for more lines: small items
    /// use the address space up before they fill the memory. Returns the error for the key.
    #[cold]
    fn make_slots(&mut self, view: View<'_>) -> StoreError {
        let is_made = self.make_room(view, SLICE_BYTES_MAX) || self.chores.make_room(view.shared);
        if is_made { StoreError::Later } else { StoreError::NoMemory }
    }

    /// If the index lacked a line for the key of `hash` before, makes room for the line before a
    /// place in the log is taken: otherwise each attempt would leave a void in the log.
    #[inline]
    pub(crate) fn make_line_first(
        &mut self,
        handle: &mut Handle,
        hash: u64,
    ) -> Result<(), StoreError> {
        match self.lacks_line.take_if(|lacks| *lacks == hash) {
            Some(_) => self.make_index_room(handle, hash),
            None => Ok(()),
        }
    }
}

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
