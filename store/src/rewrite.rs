//! Rewriting in place: where a new value has the old one's shape, it takes its bytes.
//!
//! Where: set, replace, cas and arithmetic try it before they append; every reader of short values
//! reads as told here.
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

#![allow(unsafe_code, reason = "holds frames")]

use crate::Store;
use crate::column::Local;
use crate::index::Locked;
use crate::index::slot::{Slot, VER_MAX};
use crate::item::{CasWidth, Fields, Item, Shape};
use crate::policy::room::REWRITTEN_BYTES_MAX;
use crate::publish::{Fate, Old};
use crate::verbs::{Appended, Value};
use memory::frames::Pinned;
use memory::plant::{self, Fault};

/// What a reader got of a value.
pub(crate) enum Taken<'s> {
    /// So many bytes in the column's buffer.
    Copied(usize),
    /// What is never rewritten.
    Shown(Value<'s>),
}

/// Might an item of this shape be rewritten, or be what is?
#[inline]
pub(crate) fn is_short(shape: Shape) -> bool {
    !shape.is_chained() && shape.log_bytes as usize <= REWRITTEN_BYTES_MAX
}

/// Holds the frames of an item's value, from the first on.
#[inline(never)]
fn hold(store: &Store, item: &Item<'_>, first: u32) -> Option<Pinned> {
    let (value_bytes, log_bytes) = item.value_bytes();
    let framed = (value_bytes - log_bytes) as usize;
    // SAFETY: both are the item's. Who is given the value either holds the group's lock or asks
    // `Found::is_unchanged` before it is read, which is no for an item that is not linked.
    unsafe { Pinned::hold(store.memory(), first, framed) }
}

impl Local {
    /// Takes an item's value: by a copy, which the caller proves whole, where it may be rewritten.
    /// `None`: its frames were given back meanwhile, so it is no longer linked.
    #[inline]
    pub(crate) fn take<'s>(&mut self, store: &'s Store, item: &Item<'s>) -> Option<Taken<'s>> {
        let bytes = item.value_bytes().1 as usize;
        Some(match item.first_frame() {
            None if bytes <= REWRITTEN_BYTES_MAX => {
                item.copy_value(&mut self.copied[..bytes]);
                Taken::Copied(bytes)
            }
            None => Taken::Shown(Value::Log(item.log_value())),
            Some(first) => Taken::Shown(Value::Frames(hold(store, item, first)?, item.log_value())),
        })
    }

    /// Appends an item's value to `out`, as `take` takes it.
    #[inline(always)]
    pub(crate) fn append<'s>(
        store: &'s Store,
        item: &Item<'s>,
        out: &mut Vec<u8>,
    ) -> Option<Appended<'s>> {
        if let Some(first) = item.first_frame() {
            return hold(store, item, first)
                .map(|pinned| Appended::Frames(pinned, item.log_value()));
        }
        if item.value_bytes().1 as usize <= REWRITTEN_BYTES_MAX {
            item.append_value(out);
        } else {
            out.extend_from_slice(item.log_value());
        }
        Some(Appended::Whole)
    }

    /// What was taken, until the column's next operation.
    #[inline]
    pub(crate) fn show<'s>(&'s self, taken: Taken<'s>) -> Value<'s> {
        match taken {
            Taken::Copied(bytes) => Value::Log(&self.copied[..bytes]),
            Taken::Shown(value) => value,
        }
    }

    /// Is the item of a slot likely to be one that a new one of `shape` could be written over? A
    /// guess, made without the lock.
    #[inline]
    pub(crate) fn looks_rewritable(slot: Slot, item: &Item<'_>, shape: Shape) -> bool {
        let fresh = slot.ver() < VER_MAX || plant::is(Fault::LastVersionRewritten);
        is_short(shape) && fresh && item.shape() == shape
    }

    /// Can an item of `shape` be written over `old`?
    pub(crate) fn can_rewrite(store: &Store, old: &Old<'_, '_>, shape: Shape) -> bool {
        let slot = old.seen.slot;
        old.fate == Fate::Live
            && is_short(shape)
            && (slot.ver() < VER_MAX || plant::is(Fault::LastVersionRewritten))
            && old.seen.item.shape() == shape
            // What is written now must not go with what was flushed.
            && store.log.segment_of(slot.loc()).epoch() == store.log.epoch()
    }

    /// Writes an item over `old`, which can be rewritten; the slot becomes what `change` says, at
    /// the next version. False: the CAS unique does not fit, and nothing was written.
    pub(crate) fn rewrite(
        store: &Store,
        locked: &Locked<'_>,
        old: &Old<'_, '_>,
        fields: &Fields<'_>,
        change: impl FnOnce(Slot) -> Slot,
    ) -> bool {
        let segment = store.log.segment_of(old.seen.slot.loc());
        let short = old.seen.item.shape().cas() == CasWidth::Short;
        let behind = fields.cas.wrapping_sub(segment.cas_base());
        if short && behind > u64::from(u32::MAX) {
            return false;
        }
        // Before the item's own exptime says so: the background walk goes by it.
        if !plant::is(Fault::LifeNotProlonged) {
            segment.raise_exp(if fields.exptime == 0 { u32::MAX } else { fields.exptime });
        }
        let item = &old.seen.item;
        let before = item.exptime();
        locked.rewrite(old.at, change, || item.rewrite(fields, segment.cas_base()));
        store.log.changed_exp(old.seen.slot.loc(), before, fields.exptime);
        true
    }
}
