//! Finds the item of a key: loads one index line and one item, with or without the group's lock.
//!
//! Where: the first step of every verb.
//! Invariant: an item returned was linked at some moment during the call. A search decides only
//! under the lock that an item has expired, because a touch may be changing the exptime.
//! Source: the KV-Cache paper, section 4.2.2.

#![allow(unsafe_code, reason = "items and frames in the mapping")]

use crate::column::handle::View;
use crate::index::hash::Key;
use crate::index::slot::Slot;
use crate::index::{FoundSlot, Loc, LockedGroup, SlotRef};
use crate::item::{Fields, Item};
use memory::frames::Pinned;
use memory::plant::{self, Fault};
use memory::sync::wait_a_little;
use std::marker::PhantomData;

/// The state of an item. Clients see only live items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Live,
    Expired,
    Flushed,
}

#[derive(Clone, Copy)]
pub(crate) struct LinkedItem<'r> {
    pub(crate) slot: Slot,
    pub(crate) item: Item<'r>,
    pub(crate) cas: u64,
}

/// An item found under its group's lock, which is held for `'l`.
#[derive(Clone, Copy)]
pub(crate) struct LockedItem<'l, 'r> {
    pub(crate) at: SlotRef<'r>,
    pub(crate) seen: LinkedItem<'r>,
    pub(crate) fate: Fate,
    lock: PhantomData<&'l LockedGroup<'r>>,
}

impl<'l> LockedItem<'l, '_> {
    pub(crate) fn log_value(&self) -> &'l [u8] {
        // SAFETY: the item was found under its group's lock, which is held for `'l`.
        unsafe { self.seen.item.log_value() }
    }

    /// Overwrites the item's value and fields, as `Item::rewrite` does.
    #[inline(always)]
    pub(crate) fn overwrite(&self, fields: &Fields<'_>, cas_base: u64) {
        // SAFETY: as in `log_value`.
        unsafe { self.seen.item.rewrite(fields, cas_base) };
    }
}

impl<'r> View<'r> {
    /// The item at `loc`.
    #[inline]
    pub(crate) fn item(self, loc: Loc<'r>) -> Item<'r> {
        Item::at(&self.shared.memory().region, loc, self.layout)
    }

    /// The item at `loc`, if the item has this key.
    #[inline(always)]
    pub(crate) fn with_key(self, loc: Loc<'r>, key: &[u8]) -> Option<Item<'r>> {
        Some(self.item(loc)).filter(|item| item.has_key(key))
    }

    #[inline(always)]
    pub(crate) fn cas_of(self, slot: Slot, item: &Item<'_>) -> u64 {
        item.cas(|| self.log.segment_of(slot.loc()).cas_base())
    }

    /// Determines if the item at `loc` is live, at the time of this column's clock.
    #[inline(always)]
    pub(crate) fn fate(self, item: &Item<'_>, loc: u64) -> Fate {
        if self.has_expired(item) {
            return Fate::Expired;
        }
        if self.is_flushed(loc) { Fate::Flushed } else { Fate::Live }
    }

    #[inline]
    pub(crate) fn has_expired(self, item: &Item<'_>) -> bool {
        let exptime = item.exptime();
        let now = self.handle.now - u32::from(plant::is(Fault::ExpiryOneLate));
        exptime != 0 && exptime <= now
    }

    /// Finds the slot of the key's item, dead or live. The slot may be busy.
    #[inline]
    fn find(self, key: Key<'_>) -> Option<FoundSlot<'r>> {
        let is_it = |loc| self.with_key(loc, key.bytes).is_some();
        self.shared.index.find(self.moment(), key.hash, is_it)
    }

    /// Returns the item of `found` if the item is live and its slot is not busy. Otherwise unlinks
    /// a dead item or waits a little, and returns `None`: the caller must look again.
    fn shown(self, hash: u64, found: &FoundSlot<'r>, rounds: &mut u32) -> Option<Item<'r>> {
        let loc = found.slot().loc();
        let item = self.item(found.loc());
        if found.is_busy() {
            wait_a_little(rounds);
            None
        } else if self.fate(&item, loc) == Fate::Live {
            Some(item)
        } else {
            self.reap(hash, loc);
            None
        }
    }

    /// Calls `read` with the key's live item until all bytes were read from one version of the
    /// item. If `read` returns `None`, because the item is no longer linked, looks the key up
    /// again. `found` is the key's slot, if known. Returns the slot, the item and the result.
    #[inline]
    pub(crate) fn read<T>(
        self,
        key: Key<'_>,
        mut found: Option<FoundSlot<'r>>,
        mut read: impl FnMut(Slot, Item<'r>) -> Option<T>,
    ) -> Option<(FoundSlot<'r>, Item<'r>, T)> {
        let mut rounds = 0;
        loop {
            let found = found.take().or_else(|| self.find(key))?;
            let Some(item) = self.shown(key.hash, &found, &mut rounds) else { continue };
            let got = read(found.slot(), item);
            // An unchanged slot also proves that frames pinned by `read` belong to this item.
            if let Some(got) = got.filter(|_| found.is_unchanged()) {
                return Some((found, item, got));
            }
        }
    }

    /// Finds the key's live item without a lock. The caller may use `LinkedItem::cas`, and may read
    /// from the item only its exptime and the parts that are never rewritten.
    pub(crate) fn find_live(self, key: Key<'_>) -> Option<LinkedItem<'r>> {
        let read = self.read(key, None, |slot, item| Some(self.cas_of(slot, &item)));
        read.map(|(found, item, cas)| LinkedItem { slot: found.slot(), item, cas })
    }

    /// Calls `look` with the key's live item, if any, under the lock of the key's group; a dead
    /// item is unlinked first. Returns the result of `look`, and the lock.
    #[inline(always)]
    pub(crate) fn look_locked<T>(
        self,
        key: Key<'_>,
        look: impl FnOnce(&LockedGroup<'r>, Option<&LockedItem<'_, 'r>>) -> T,
    ) -> (T, LockedGroup<'r>) {
        loop {
            let locked = self.shared.index.lock(self.moment(), key.hash);
            let old = self.find_locked(&locked, key.bytes);
            let Some(dead) = old.as_ref().filter(|old| old.fate != Fate::Live) else {
                let looked = look(&locked, old.as_ref());
                return (looked, locked);
            };
            // `reap` gets the location, because another column may set the key after the unlock.
            let loc = dead.seen.slot.loc();
            drop(locked);
            self.reap(key.hash, loc);
        }
    }

    #[inline(always)]
    pub(crate) fn find_locked<'l>(
        self,
        locked: &'l LockedGroup<'r>,
        key: &[u8],
    ) -> Option<LockedItem<'l, 'r>> {
        let mut item = None;
        let found = locked.find(
            #[inline(always)]
            |loc| {
                item = self.with_key(loc, key);
                item.is_some()
            },
        )?;
        Some(self.old(locked, found, item?))
    }

    /// The item of `found`, which was found or found again under the lock.
    #[inline(always)]
    pub(crate) fn old<'l>(
        self,
        _: &'l LockedGroup<'r>,
        found: FoundSlot<'r>,
        item: Item<'r>,
    ) -> LockedItem<'l, 'r> {
        let (slot, at) = (found.slot(), found.at());
        let fate = self.fate(&item, slot.loc());
        let seen = LinkedItem { slot, item, cas: self.cas_of(slot, &item) };
        LockedItem { at, seen, fate, lock: PhantomData }
    }

    /// All fields, except the CAS unique, of an item whose group is locked.
    pub(crate) fn fields<'l>(self, _: &'l LockedGroup<'r>, item: &Item<'l>) -> Fields<'l> {
        // SAFETY: the item's group is locked for `'l`.
        unsafe { item.fields() }
    }

    #[inline]
    pub(crate) fn note_use(self, hash: u64, found: &FoundSlot<'_>, item: &Item<'_>) {
        let loc = found.slot().loc();
        found.bump(|| !self.log.is_young(loc));
        if item.accessed().may_be_late(self.handle.stamp) {
            self.note_access(hash, loc, item);
        }
    }

    /// Notes the time of an access, at most once a minute per item.
    #[cold]
    #[inline(never)]
    fn note_access(self, hash: u64, loc: u64, item: &Item<'_>) {
        if item.accessed().is_fresh(self.handle.now) {
            return;
        }
        let locked = self.index.lock(self.moment(), hash);
        if let Some(found) = locked.find_loc(loc) {
            self.access(&self.item(found.loc()));
        }
    }

    /// Notes an access unless one was noted in the last minute. The caller holds the group's lock.
    pub(crate) fn access(self, item: &Item<'_>) {
        if !item.accessed().is_fresh(self.handle.now) {
            item.set_accessed(self.handle.stamp);
        }
    }

    /// Pins the frames of an item's value, from `first` on. `None`: the frames were given back.
    /// Unless the caller holds the lock of the item's group, the caller checks afterwards that the
    /// item is still linked, before it reads the frames.
    #[inline(never)]
    pub(crate) fn pin(self, item: &Item<'_>, first: u32) -> Option<Pinned> {
        let (value_bytes, log_bytes) = item.value_bytes();
        let framed = (value_bytes - log_bytes) as usize;
        // SAFETY: `first` and `framed` are the item's. Before the value is read, the caller either
        // holds the group's lock or calls `FoundSlot::is_unchanged`, which returns false if the
        // item is not linked.
        unsafe { Pinned::hold(self.memory(), first, framed) }
    }
}
