//! A slot that was read under a view, and the location that the slot names.
//!
//! Where: every search of the index ends in a `FoundSlot`, whose `Loc` leads to the item.
//! Invariant: a `Loc<'v>` was read from a slot after the column's last quiescent point, and the
//! column passes no quiescent point during `'v`. So the bytes of the item at the location are
//! mapped, are an item's, and are not reused during `'v`: a slot names an item only after the item
//! was written, and an item's segment is reused only after no slot names the item and every column
//! has passed a quiescent point. A column reads one store only, so the location is one of that
//! store's region. `Item::at` relies on this invariant.
//! Source: quiescent-state-based reclamation, see `memory::quiescence`.

#![allow(unsafe_code, reason = "promises that locations are recent")]

use super::slot::{self, Slot};
use memory::plant::{self, Fault};
use memory::sync::{AtomicU64, Ordering, fence};
use std::marker::PhantomData;

/// The promise that a column passes no quiescent point during `'v`. `View::moment` makes it.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'v>(PhantomData<&'v ()>);

impl Moment<'_> {
    /// # Safety
    /// The column is online and passes no quiescent point during the lifetime.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// The location of an item that a column may read during `'v`.
#[derive(Clone, Copy)]
pub(crate) struct Loc<'v> {
    offset: u64,
    moment: PhantomData<&'v ()>,
}

impl<'v> Loc<'v> {
    /// # Safety
    /// The column has read `offset` from a slot since its last quiescent point.
    #[inline(always)]
    pub(crate) unsafe fn new(offset: u64, _: Moment<'v>) -> Self {
        Self { offset, moment: PhantomData }
    }

    /// The location that `slot` names. The index has read `slot` during `'v`.
    #[inline(always)]
    pub(super) fn of(slot: Slot, _: Moment<'v>) -> Self {
        Self { offset: slot.loc(), moment: PhantomData }
    }

    /// The position in the region of the item's first byte.
    #[inline(always)]
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }
}

/// A word of the index that holds a slot.
#[derive(Clone, Copy)]
pub(crate) struct SlotRef<'v>(pub(super) &'v AtomicU64);

/// A slot that a search has read, and the word of the index that holds the slot.
#[derive(Clone, Copy)]
pub(crate) struct FoundSlot<'v> {
    slot: Slot,
    at: SlotRef<'v>,
}

impl<'v> FoundSlot<'v> {
    /// Reads the slot in `word`. Only searches that were given a `Moment` may hand out the result.
    #[inline(always)]
    pub(super) fn read(word: &'v AtomicU64) -> Self {
        // Acquire pairs with the Release that stored the slot, so the whole item is visible.
        Self { slot: Slot(word.load(Ordering::Acquire)), at: SlotRef(word) }
    }

    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    #[inline(always)]
    pub(crate) fn at(&self) -> SlotRef<'v> {
        self.at
    }

    /// The location that the slot named when it was read.
    #[inline(always)]
    pub(crate) fn loc(&self) -> Loc<'v> {
        Loc { offset: self.slot.loc(), moment: PhantomData }
    }

    /// Marks the item as fetched and, if `counts` returns true, raises the slot's counter. Writes
    /// nothing if the slot is marked and the counter is at its maximum.
    #[inline]
    pub(crate) fn bump(&self, counts: impl FnOnce() -> bool) {
        if self.slot.is_saturated() && !plant::is(Fault::SaturatedWritten) {
            return;
        }
        let used = self.slot.used(counts());
        if used != self.slot || plant::is(Fault::SaturatedWritten) {
            // Relaxed: no other data depends on these bits. A use is lost if the slot has changed.
            let (old, new) = (self.slot.0, used.0);
            let _ = self.at.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.slot.has(slot::BUSY)
    }

    /// True if the slot is not busy and still names the same version of the item: then the item is
    /// linked, and all bytes that the caller has read are of this version. False if the item was
    /// moved.
    #[inline]
    pub(crate) fn is_unchanged(&self) -> bool {
        // Pairs with the Release fence in `LockedGroup::rewrite`: a reader of a byte that `rewrite`
        // wrote sees the busy slot here, or a later value of the slot.
        if !plant::is(Fault::UnchangedUnfenced) {
            fence(Ordering::Acquire);
        }
        let slot = Slot(self.at.0.load(Ordering::Relaxed));
        slot.names_same(self.slot.with(slot::BUSY, false)) || plant::is(Fault::UnchangedNotChecked)
    }
}
