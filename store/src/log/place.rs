//! A place in the log: bytes reserved for one item until they are committed.
//!
//! Where: `Log::reserve` and `Log::reserve_out` make a place for each item that is appended.
//! Invariant: a place is the only right to write its bytes, and it ends in exactly one commit: of
//! the item written there (`WrittenPlace`), or of a void. Both commits consume the place.
//!
//! Dropping a place fails an assertion in debug builds, in which the tests, the explored schedules
//! and the soak test run; in a release build the check would cost time in each append. A dropped
//! place costs memory, not soundness: its segment is never wholly committed, so never drained.

#![allow(unsafe_code, reason = "items in the mapping")]

use super::Log;
use crate::item::{self, CasWidth, Fields, Layout, Shape};
use memory::sync::Ordering;

/// Bytes of an open segment that nobody else reads or writes.
#[derive(Debug)]
#[must_use = "a place is committed or voided"]
pub(crate) struct Place {
    segment: u32,
    loc: u64,
    bytes: u32,
}

/// A place with an item in it, to be committed once a slot names the item.
#[derive(Debug)]
#[must_use = "an item is committed, or its place is voided"]
pub(crate) struct WrittenPlace(Place);

impl Place {
    /// Makes a place of `bytes` bytes at `loc` in `segment`, just reserved by the caller.
    pub(super) fn new(segment: u32, loc: u64, bytes: u32) -> Self {
        Self { segment, loc, bytes }
    }

    pub(crate) fn segment(&self) -> u32 {
        self.segment
    }

    pub(crate) fn loc(&self) -> u64 {
        self.loc
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Ends the place without the check in `drop`. Returns its segment and its number of bytes.
    fn end(self) -> (u32, u32) {
        let ended = (self.segment, self.bytes);
        std::mem::forget(self);
        ended
    }
}

impl WrittenPlace {
    pub(crate) fn take_back(self) -> Place {
        self.0
    }

    pub(crate) fn place(&self) -> &Place {
        &self.0
    }
}

#[cfg(debug_assertions)]
impl Drop for Place {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "{self:?} was neither committed nor voided");
    }
}

impl Log {
    /// Writes an item of `shape` to a place of its extent, in a store of this `layout`.
    pub(crate) fn write(
        &self,
        place: Place,
        layout: Layout,
        shape: Shape,
        fields: &Fields<'_>,
    ) -> WrittenPlace {
        assert_eq!(shape.extent(), place.bytes, "a place for exactly this item");
        assert_eq!(shape.cas() != CasWidth::None, layout.cas, "as all of the store's items");
        let base = self.segment(place.segment).cas_base();
        // SAFETY: the bytes are those of a place. They were reserved by adding to their segment's
        // cursor, so no other place has any of them; no slot names them and no walk comes to them
        // before they are committed, which consumes the place. Their number is `extent`.
        unsafe { item::write(&self.memory.region, place.loc, shape, fields, base) };
        WrittenPlace(place)
    }

    /// Commits a linked item: from now on a drain of the segment may find the item.
    pub(crate) fn commit(&self, written: WrittenPlace) {
        self.committed(written.0);
    }

    /// Commits a place that gets no item, as a void.
    pub(crate) fn void(&self, place: Place) {
        // SAFETY: the bytes are a place's, as in `write`; every item's extent, and so every
        // place, is larger than a void's four bytes.
        unsafe { item::write_void(&self.memory.region, place.loc, place.bytes) };
        self.dead_bytes.fetch_add(place.bytes.into(), Ordering::Relaxed); // a sum
        self.committed(place);
    }

    #[inline]
    fn committed(&self, place: Place) {
        let (segment, bytes) = place.end();
        if self.segment(segment).commit(bytes) {
            // The due second must allow for items linked after the segment was sealed.
            self.note_first_due(segment);
            self.retire_if_dead(segment);
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "neither committed nor voided")]
    fn a_place_cannot_be_forgotten() {
        drop(Place::new(0, 0, 8));
    }
}
