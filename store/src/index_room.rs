//! The index's memory: it grows by whole segments, and gives them back when it has contracted.
//!
//! Where: after every verb that adds or removes a key, and in the background.
//! Invariant: the index uses no more than the memory of the segments granted to it, whose own
//! memory the system has; a segment goes back only when the index's own memory is the system's
//! again.

use crate::Store;
use crate::column::Local;
use crate::index::grow::Step;
use crate::policy::room::SLICE_BYTES_MAX;
use crate::verbs::Refused;
use memory::segments::State;

/// Items come and go before a column tells the index: a lump.
pub(crate) const ITEMS_LUMP: i64 = if cfg!(shuttle) { 4 } else { 64 };
/// Steps back in one slice of background work.
const SLICE_STEPS: u32 = 32;
/// Segments looked at in one slice for one that was granted to the index.
const LOOKS_MAX: u32 = 256;

impl Local {
    /// After a key was added or removed: keeps the index's count and size up.
    #[inline]
    pub(crate) fn settle_index(&mut self, store: &Store) {
        if self.items.abs() >= ITEMS_LUMP {
            self.report_items(store);
        }
        if store.index.wants_to_grow() {
            self.grow_index(store);
        } else if store.index.wants_to_shrink() {
            store.index.step_back();
        }
    }

    #[inline(never)]
    fn grow_index(&mut self, store: &Store) {
        let hash_of =
            |slot: crate::index::slot::Slot| store.hash.hash(store.item(slot.loc()).key());
        if store.index.step(hash_of) == Step::NeedsMemory {
            self.grant_index(store);
        }
    }

    /// A slice of contraction, in the background. True: there is more.
    pub(crate) fn contract_index(&mut self, store: &Store) -> bool {
        if store.index.is_passing() {
            return false;
        }
        for _ in 0..SLICE_STEPS {
            if !store.index.wants_to_shrink() {
                break;
            }
            store.index.prefetch_to_step_back();
            if store.index.step_back() != Step::Done {
                break;
            }
        }
        let bytes = self.segment_bytes(store);
        let gave = store.index.has_to_spare(bytes) && self.ungrant_index(store);
        gave || store.index.wants_to_shrink()
    }

    /// Gives the index the memory of a free segment.
    pub(crate) fn grant_index(&mut self, store: &Store) -> bool {
        let memory = store.memory();
        // Nobody reads or writes one in state `Index`: when it is free again all of it is written
        // anew.
        let Some(segment) = memory.take_without_memory(store.keep()) else { return false };
        memory.segments.get(segment).set_state(State::Index);
        store.index.grant(self.segment_bytes(store));
        true
    }

    /// Takes the memory of a segment back from the index, if that can do without.
    fn ungrant_index(&mut self, store: &Store) -> bool {
        let memory = store.memory();
        let bytes = self.segment_bytes(store);
        let count = memory.segments.count();
        let first = self.random(count);
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
        if !store.index.give_back(bytes, &memory.quiescence, take) {
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
    pub(crate) fn make_index_room(&mut self, store: &Store, hash: u64) -> Result<(), Refused> {
        if store.index.has_line() {
            return Ok(());
        }
        if !store.index.has_room() {
            let refused = self.make_slots(store);
            self.lacks_line = (refused == Refused::Later).then_some(hash);
            return Err(refused);
        }
        if self.grant_index(store) {
            return Ok(());
        }
        let made = self.room_for(store, |local| local.grant_index(store).then_some(()));
        self.lacks_line = (made == Err(Refused::Later)).then_some(hash);
        made
    }

    /// Has items leave where there is no address space for another overflow line: those that take
    /// least fill it before they fill the memory. Says what the key that needs one is to be told.
    #[cold]
    fn make_slots(&mut self, store: &Store) -> Refused {
        let is_made = self.make_room(store, SLICE_BYTES_MAX) || store.others_make_room();
        if is_made { Refused::Later } else { Refused::NoMemory }
    }

    /// Before a place is taken for the key of `hash`: if it came to nothing before for want of a
    /// line, that comes first, or each attempt would leave a void in the log.
    #[inline]
    pub(crate) fn make_line_first(&mut self, store: &Store, hash: u64) -> Result<(), Refused> {
        match self.lacks_line.take_if(|lacks| *lacks == hash) {
            Some(_) => self.make_index_room(store, hash),
            None => Ok(()),
        }
    }

    fn segment_bytes(&self, store: &Store) -> usize {
        store.memory().region.segment_bytes() as usize
    }
}
