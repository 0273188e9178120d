//! Rewriting in place: where a new value has the old one's shape, it takes its bytes.
//!
//! Where: the engine tries it before it takes a place, whatever the verb; every reader of short
//! values reads as told here.
//! Invariant: of an item only these are rewritten: its value, CAS unique, exptime, client flags and
//! minute; never its key, shape or extent. A value no longer than `REWRITTEN_BYTES_MAX` is copied
//! before anybody else sees it, and the copy counts only if the slot names the same bytes after it.
//! Source: a sequence lock (Boehm, "Can seqlocks get along with programming language memory
//! models?", 2012), its number in the slot.
//!
//! ```text
//!   writer, under the group's lock        reader, without
//!     slot: busy                            slot, Acquire; busy: again
//!     fence Release                         bytes, Relaxed, into a buffer of its own
//!     bytes, Relaxed                        fence Acquire
//!     slot: version + 1, Release            slot, Relaxed; not as before: again
//! ```
//! A reader who saw a byte of a rewriting sees its busy slot, or a later one, by the fences; one
//! who saw none has what the slot named. (Location, version) never comes back while a reader may
//! hold it: at the last version an item is appended anew, a moved item begins at version 0
//! elsewhere, and the old place is not used again before every column has passed a quiescent point.
//! Whoever changes or copies items under the lock (drains, touches, other writers) meets no
//! rewriting at all. Walkers read only shapes without the lock.

use crate::handle::View;
use crate::index::Locked;
use crate::index::slot::{Slot, VER_MAX};
use crate::item::{CasWidth, Fields, Item, Shape};
use crate::read::{Fate, Old};
use memory::plant::{self, Fault};

/// Is the item of a slot likely to be one that a new one of `shape` could be written over? A guess,
/// made without the lock.
#[inline]
pub(crate) fn looks_rewritable(slot: Slot, item: &Item<'_>, shape: Shape) -> bool {
    let is_fresh = slot.ver() < VER_MAX || plant::is(Fault::LastVersionRewritten);
    shape.is_short() && is_fresh && item.shape() == shape
}

impl View<'_> {
    /// Can an item of `shape` be written over `old`?
    #[inline(always)]
    pub(crate) fn can_rewrite(self, old: &Old<'_, '_>, shape: Shape) -> bool {
        let slot = old.seen.slot;
        old.fate == Fate::Live
            && looks_rewritable(slot, &old.seen.item, shape)
            // What is written now must not go with what was flushed.
            && self.log.segment_of(slot.loc()).epoch() == self.log.epoch()
    }

    /// Writes an item over `old`, which can be rewritten; the slot becomes what `change` says, at
    /// the next version. False: the CAS unique does not fit, and nothing was written.
    #[inline(always)]
    pub(crate) fn rewrite(
        self,
        locked: &Locked<'_>,
        old: &Old<'_, '_>,
        fields: &Fields<'_>,
        change: impl FnOnce(Slot) -> Slot,
    ) -> bool {
        let item = &old.seen.item;
        let segment = self.log.segment_of(old.seen.slot.loc());
        let behind = fields.cas.wrapping_sub(segment.cas_base());
        if item.shape().cas() == CasWidth::Short && behind > u64::from(u32::MAX) {
            return false;
        }
        // Before the item's own exptime says so: the background walk goes by it.
        if !plant::is(Fault::LifeNotProlonged) {
            segment.raise_exp(fields.exptime);
        }
        let before = item.exptime();
        locked.rewrite(
            old.at,
            change,
            #[inline(always)]
            || item.rewrite(fields, segment.cas_base()),
        );
        self.log.changed_exp(old.seen.slot.loc(), before, fields.exptime);
        true
    }
}
