//! Rewriting in place: a new item of the same shape is written over the old item.
//!
//! Where: for every verb, the engine tries to rewrite the old item before it takes a place in the
//! log. Every reader of short values follows the protocol below.
//! Invariant: only an item's value, CAS unique, exptime, client flags and stamp are rewritten;
//! never its key, shape or extent. A reader first copies a value of at most `REWRITTEN_BYTES_MAX`
//! bytes, and uses the copy only if the slot names the same version afterwards.
//! Source: a sequence lock (Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012), with the sequence number in the slot.
//!
//! ```text
//!   writer, under the group's lock        reader, without the lock
//!     slot: busy                            slot, Acquire; if busy, retry
//!     fence Release                         bytes, Relaxed, into a buffer of its own
//!     bytes, Relaxed                        fence Acquire
//!     slot: version + 1, Release            slot, Relaxed; if changed, retry
//! ```
//! Because of the fences, a reader that has read a byte of a rewrite then finds the slot busy or
//! changed. A reader that has read no such byte has the version that the slot named. No pair of
//! location and version is reused while a reader may hold the pair: an item whose version is the
//! highest possible one is not rewritten, a moved item begins at version 0 at another location, and
//! bytes are reused only after every column has passed a quiescent point. Drains,
//! touches and writers change or copy items under the lock, so they meet no rewrite. Walks without
//! the lock use the rewritten fields only as hints.

use crate::column::handle::View;
use crate::engine::find::{Fate, LockedItem};
use crate::index::LockedGroup;
use crate::index::slot::{Slot, VER_MAX};
use crate::item::{CasWidth, Fields, Item, Shape};
use memory::plant::{self, Fault};

/// True if an item of `shape` may replace the slot's item in place; a guess without the lock.
#[inline]
pub(crate) fn looks_rewritable(slot: Slot, item: &Item<'_>, shape: Shape) -> bool {
    let is_fresh = slot.ver() < VER_MAX || plant::is(Fault::LastVersionRewritten);
    shape.is_short() && is_fresh && item.shape() == shape
}

impl View<'_> {
    #[inline(always)]
    pub(crate) fn can_rewrite(self, old: &LockedItem<'_, '_>, shape: Shape) -> bool {
        let slot = old.seen.slot;
        old.fate == Fate::Live
            && looks_rewritable(slot, &old.seen.item, shape)
            // An item in a segment of an earlier epoch counts as flushed.
            && self.log.segment_of(slot.loc()).epoch() == self.log.epoch()
    }

    /// Writes an item over `old`, for which `can_rewrite` holds. `change` makes the new slot, which
    /// gets the next version. Returns false, and writes nothing, if the CAS unique does not fit.
    #[inline(always)]
    pub(crate) fn rewrite(
        self,
        locked: &LockedGroup<'_>,
        old: &LockedItem<'_, '_>,
        fields: &Fields<'_>,
        change: impl FnOnce(Slot) -> Slot,
    ) -> bool {
        let item = &old.seen.item;
        let segment = self.log.segment_of(old.seen.slot.loc());
        let behind = fields.cas.wrapping_sub(segment.cas_base());
        if item.shape().cas() == CasWidth::Short && behind > u64::from(u32::MAX) {
            return false;
        }
        // The segment's latest exptime is raised first: walks rely on it as an upper bound.
        if !plant::is(Fault::LifeNotProlonged) {
            segment.raise_exp(fields.exptime);
        }
        let before = item.exptime();
        locked.rewrite(
            old.at,
            change,
            #[inline(always)]
            || old.overwrite(fields, segment.cas_base()),
        );
        self.log.changed_exp(old.seen.slot.loc(), before, fields.exptime);
        true
    }
}
