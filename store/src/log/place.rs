//! A place in the log: bytes reserved for one item until they are committed.
//!
//! Where: `Log::reserve` and `Log::reserve_out` make a place for each item that is appended.
//! Invariant: only the owner of a place may write the place's bytes. A place ends in exactly one
//! commit, which consumes the place: of the item written there (`WrittenPlace`), or of a void.
//!
//! Dropping a place fails an assertion in debug builds, in which the tests, the explored schedules
//! and the soak test run; in a release build the check would cost time in each append. A dropped
//! place wastes memory, but is sound: a segment is drained only after all its places are committed.

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
    /// Makes a place. The caller has just reserved the `bytes` bytes at `loc` in `segment`.
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
    /// Writes an item of `shape` to `place`, which must have the item's extent.
    pub(crate) fn write(
        &self,
        place: Place,
        layout: Layout,
        shape: Shape,
        fields: &Fields<'_>,
    ) -> WrittenPlace {
        assert_eq!(shape.extent(), place.bytes, "the place has the size of the item");
        assert_eq!(shape.cas() != CasWidth::None, layout.cas, "as all of the store's items");
        let base = self.segment(place.segment).cas_base();
        // SAFETY: no other place has any of the bytes, since they were reserved by adding to the
        // segment's cursor. No slot names the bytes, and no walk reaches them, before a commit,
        // which consumes the place. The number of bytes is the item's extent.
        unsafe { item::write(&self.memory.region, place.loc, shape, fields, base) };
        WrittenPlace(place)
    }

    /// Commits a linked item: from now on a drain of the segment may find the item.
    pub(crate) fn commit(&self, written: WrittenPlace) {
        self.committed(written.0);
    }

    /// Commits a place that gets no item: writes a void there.
    pub(crate) fn void(&self, place: Place) {
        // SAFETY: the bytes belong to a place (see `write`). A place has the extent of an item,
        // which is larger than a void's four bytes.
        unsafe { item::write_void(&self.memory.region, place.loc, place.bytes) };
        self.dead_bytes.fetch_add(place.bytes.into(), Ordering::Relaxed); // a sum orders nothing
        self.committed(place);
    }

    #[inline]
    fn committed(&self, place: Place) {
        let (segment, bytes) = place.end();
        if self.segment(segment).commit(bytes) {
            // Items that were linked after the segment was sealed may be due earlier or later.
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
