//! The index's memory: it grows by whole segments, and gives them back when it has contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more than the memory of the segments granted to it, whose own
//! memory the system has; a segment goes back only when the index's own memory is the system's
//! again.

#![allow(unsafe_code, reason = "items in the mapping")]

use crate::handle::{Handle, View};
use crate::index::grow::Step;
use crate::index::slot::Slot;
use crate::policy::room::SLICE_BYTES_MAX;
use crate::room::Room;
use crate::verbs::Refused;
use memory::segments::State;

/// Items come and go before a column tells the index: a lump.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };
/// Steps back in one slice of background work.
const SLICE_STEPS: u32 = 32;
/// Segments looked at in one slice for one that was granted to the index.
const LOOKS_MAX: u32 = 256;

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
    fn grant_index(self) -> bool {
        let memory = self.memory();
        // Nobody reads or writes one in state `Index`: when it is free again all of it is written
        // anew.
        let Some(segment) = memory.take_without_memory(self.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        self.index.grant(memory.region.segment_bytes() as usize);
        true
    }
}

impl Room {
    /// A slice of contraction, in the background. True: there is more.
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

    /// Takes the memory of a segment back from the index, if that can do without.
    fn ungrant_index(&mut self, view: View<'_>) -> bool {
        let memory = view.memory();
        let bytes = memory.region.segment_bytes() as usize;
        let count = memory.segments.count();
        let first = self.random.below(count);
        let mut looks = (0..count.min(LOOKS_MAX)).map(|look| (first + look) % count);
        let granted = |segment: &u32| {
            // Who gets true owns it.
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
            memory.region.admit(segment);
            memory.segments.give(segment);
        }
        true
    }

    /// Makes memory for another overflow line of the index, which the key of `hash` needs.
    ///
    /// # Errors
    /// There is none to be had, or none yet.
    pub(crate) fn make_index_room(
        &mut self,
        handle: &mut Handle,
        hash: u64,
    ) -> Result<(), Refused> {
        if handle.store.index.has_line() {
            return Ok(());
        }
        if !handle.store.index.has_room() {
            let refused = self.make_slots(handle.view());
            self.lacks_line = (refused == Refused::Later).then_some(hash);
            return Err(refused);
        }
        if handle.view().grant_index() {
            return Ok(());
        }
        let made = self.room_for(handle, |view| view.grant_index().then_some(()));
        self.lacks_line = (made == Err(Refused::Later)).then_some(hash);
        made
    }

    /// Has items leave where there is no address space for another overflow line: those that take
    /// least fill it before they fill the memory. Says what the key that needs one is to be told.
    #[cold]
    fn make_slots(&mut self, view: View<'_>) -> Refused {
        let is_made = self.make_room(view, SLICE_BYTES_MAX) || view.others_make_room();
        if is_made { Refused::Later } else { Refused::NoMemory }
    }

    /// Before a place is taken for the key of `hash`: if it came to nothing before for want of a
    /// line, that comes first, or each attempt would leave a void in the log.
    #[inline]
    pub(crate) fn make_line_first(
        &mut self,
        handle: &mut Handle,
        hash: u64,
    ) -> Result<(), Refused> {
        match self.lacks_line.take_if(|lacks| *lacks == hash) {
            Some(_) => self.make_index_room(handle, hash),
            None => Ok(()),
        }
    }
}
