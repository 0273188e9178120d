//! Reads of a key: a read loads one index line and one item, with or without the group's lock.
//!
//! Where: GET, and the first lookup of every other verb.
//! Invariant: an item returned was linked at some moment during the call. A read decides only under
//! the lock that an item has expired, because a touch may be changing the exptime. A short value is
//! copied, and the copy is used only if the slot names the same version afterwards.
//! Source: the KV-Cache paper, section 4.2.2.

#![allow(unsafe_code, reason = "items and frames in the mapping")]

use crate::column::Column;
use crate::handle::{Handle, ValueRef, View};
use crate::hash::{Key, PrefetchedHash};
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::index::{FoundSlot, Loc, LockedGroup, SlotRef};
use crate::item::{Fields, Item};
use crate::verbs::{AppendedPart, HeadResult, Hit, LookupResult, ReplyTemplate, Value};
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

    /// All fields of the item.
    pub(crate) fn fields(&self) -> Fields<'l> {
        // SAFETY: as in `log_value`.
        Fields { cas: self.seen.cas, ..unsafe { self.seen.item.fields() } }
    }

    /// Overwrites the item's value and fields, as `Item::rewrite` does.
    #[inline(always)]
    pub(crate) fn overwrite(&self, fields: &Fields<'_>, cas_base: u64) {
        // SAFETY: as in `log_value`.
        unsafe { self.seen.item.rewrite(fields, cas_base) };
    }
}

pub(crate) enum ReadValue {
    /// Number of bytes that were copied into the column's buffer.
    Copied(usize),
    /// A value that is never rewritten, and the value's pinned frames.
    Lasting(ValueRef, Option<Pinned>),
}

impl ReadValue {
    /// Returns the value; `copied` is the buffer that holds the bytes of `Copied`. The column must
    /// not have passed a quiescent point since the value was taken: then the value is empty.
    pub(crate) fn show<'s>(self, view: View<'s>, copied: &'s [u8]) -> Value<'s> {
        let log = |kept| view.kept(kept).unwrap_or_default();
        match self {
            ReadValue::Copied(bytes) => Value::Log(&copied[..bytes]),
            ReadValue::Lasting(kept, None) => Value::Log(log(kept)),
            ReadValue::Lasting(kept, Some(pinned)) => Value::Frames(pinned, log(kept)),
        }
    }
}

/// The data that a reply shows before the value. Each method reads one field of the item.
pub struct Head<'s> {
    view: View<'s>,
    item: Item<'s>,
    slot: Slot,
}

impl Head<'_> {
    /// The 32 bits of flags that the client stored with the item.
    #[inline]
    #[must_use]
    pub fn client_flags(&self) -> u32 {
        self.item.client_flags()
    }

    /// The length of the value.
    #[inline]
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        self.item.value_bytes().0
    }

    /// The CAS unique; 0 when the store keeps none.
    #[inline]
    #[must_use]
    pub fn cas(&self) -> u64 {
        self.view.cas_of(self.slot, &self.item)
    }

    /// The exptime (0: never), or `None` if a concurrent touch may be changing it.
    #[inline]
    #[must_use]
    pub fn exptime(&self) -> Option<u32> {
        (!self.item.shape().has_exp()).then_some(0)
    }

    /// Seconds since the last noted access (meta flag `l`). `None`: the caller must note this
    /// access under the lock, so that only one of two concurrent clients gets the old time.
    #[inline]
    #[must_use]
    pub fn idle_seconds(&self) -> Option<u32> {
        let (accessed, handle) = (self.item.accessed(), self.view.handle);
        accessed.is_fresh(handle.now).then(|| accessed.seconds_before(handle.now))
    }

    /// True if the key was given in base64.
    #[inline]
    #[must_use]
    pub fn key_binary(&self) -> bool {
        self.item.shape().key_binary()
    }

    /// True if the item was fetched before (meta flag `h`). False is not certain: two clients that
    /// fetch the item at once may both get false.
    #[inline]
    #[must_use]
    pub fn fetched(&self) -> bool {
        self.slot.has(FETCHED)
    }

    /// True if the item is stale (meta flag `X`). The first client to read it may recache it.
    #[inline]
    #[must_use]
    pub fn stale(&self) -> bool {
        self.slot.has(STALE)
    }

    /// True if another client has already won the right to recache the item (meta flag `Z`).
    #[inline]
    #[must_use]
    pub fn token_sent(&self) -> bool {
        self.slot.has(WON)
    }
}

impl Column {
    /// Looks `key` up, and counts a use of its item.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Option<Hit<'_>> {
        let Self { handle, copied, .. } = self;
        let view = handle.view();
        let key = view.key(key);
        view.sample_lookup(key.hash);
        let found = view.store.index.likely(view.moment(), key.hash)?;
        if let Some(item) = view.shown_at_once(&found, key.bytes)
            && item.shape().is_short()
        {
            let value_bytes = item.value_bytes().0;
            item.copy_value(&mut copied[..value_bytes as usize]);
            let (client_flags, cas) = (item.client_flags(), view.cas_of(found.slot, &item));
            // An unchanged slot proves that all bytes were read from one version of the item.
            if found.is_unchanged() {
                view.note_use(key.hash, &found, &item);
                let value = Value::Log(&copied[..value_bytes as usize]);
                return Some(Hit { client_flags, cas, value_bytes, value });
            }
        }
        get_anyhow(handle, key.bytes, key.hash, &mut copied[..])
    }

    /// Like `get`, but takes the key's hash and appends a reply to `out`. If the value is short and
    /// `template` returns the text around the value, the whole reply is appended at once. Otherwise
    /// `head` appends the text before the value, and returns the kind of data to follow. If `head`
    /// is called again, its earlier text is removed. If `head` calls the lookup off, nothing is
    /// appended and no use is counted.
    #[inline(always)]
    pub fn get_into(
        &mut self,
        key: &[u8],
        PrefetchedHash(hash): PrefetchedHash,
        out: &mut Vec<u8>,
        template: impl FnOnce(&Head<'_>) -> Option<ReplyTemplate>,
        mut head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> HeadResult,
    ) -> LookupResult<'_> {
        let view = self.handle.view();
        let Some(found) = view.store.index.likely(view.moment(), hash) else {
            view.sample_lookup(hash);
            return LookupResult::Miss;
        };
        let Some(item) = view.shown_at_once(&found, key) else {
            return get_found_into(view.handle, key, hash, None, out, &mut head);
        };
        if item.shape().is_short()
            && let Some(template) = template(&Head { view, item, slot: found.slot })
        {
            let before = out.len();
            item.append_around(out, &template, key);
            // An unchanged slot proves that the reply shows one version of the item.
            if found.is_unchanged() {
                view.sample_lookup(hash);
                view.note_use(hash, &found, &item);
                return LookupResult::Hit(AppendedPart::FromTemplate);
            }
            out.truncate(before);
        }
        get_found_into(view.handle, key, hash, Some(found), out, &mut head)
    }
}

#[cold]
#[inline(never)]
fn get_anyhow<'s>(
    handle: &'s Handle,
    bytes: &[u8],
    hash: u64,
    copied: &'s mut [u8],
) -> Option<Hit<'s>> {
    let (view, key) = (handle.view(), Key { bytes, hash });
    let (found, item, (head, taken)) = view.read(key, None, |slot, item| {
        let head = (item.client_flags(), item.value_bytes().0, view.cas_of(slot, &item));
        Some((head, view.take(slot.loc(), &item, copied)?))
    })?;
    view.note_use(key.hash, &found, &item);
    let (client_flags, value_bytes, cas) = head;
    let value = taken.show(view, copied);
    Some(Hit { client_flags, cas, value_bytes, value })
}

/// Does the work of `Column::get_into` without `template`. `found`: the key's slot, if known.
#[inline(never)]
fn get_found_into<'s>(
    handle: &'s Handle,
    bytes: &[u8],
    hash: u64,
    found: Option<FoundSlot<'s>>,
    out: &mut Vec<u8>,
    head: &mut impl FnMut(&mut Vec<u8>, &Head<'_>) -> HeadResult,
) -> LookupResult<'s> {
    let (view, key, before) = (handle.view(), Key { bytes, hash }, out.len());
    let read = view.read(key, found, |slot, item| {
        out.truncate(before);
        match head(out, &Head { view, item, slot }) {
            HeadResult::Value => view.append(slot.loc(), &item, out).map(LookupResult::Hit),
            HeadResult::NoValue => Some(LookupResult::Hit(AppendedPart::Whole)),
            HeadResult::CallOff => Some(LookupResult::CalledOff),
        }
    });
    if !matches!(read, Some((_, _, LookupResult::Hit(_)))) {
        out.truncate(before);
    }
    let Some((found, item, looked)) = read else {
        view.sample_lookup(key.hash);
        return LookupResult::Miss;
    };
    if matches!(looked, LookupResult::Hit(_)) {
        view.note_use(key.hash, &found, &item);
        view.sample_lookup(key.hash);
    }
    looked
}

impl<'r> View<'r> {
    /// The item at `loc`.
    #[inline]
    pub(crate) fn item(self, loc: Loc<'r>) -> Item<'r> {
        Item::at(&self.store.memory().region, loc, self.layout)
    }

    /// The item at `loc`, if the item has this key.
    #[inline(always)]
    pub(crate) fn with_key(self, loc: Loc<'r>, key: &[u8]) -> Option<Item<'r>> {
        Item::with_key(&self.store.memory().region, loc, self.layout, key)
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
    fn has_expired(self, item: &Item<'_>) -> bool {
        let exptime = item.exptime();
        let now = self.handle.now - u32::from(plant::is(Fault::ExpiryOneLate));
        exptime != 0 && exptime <= now
    }

    /// Returns the item of `found` if the item has the key `key`, is live, and has one of the
    /// shorter layouts, which nearly all items have. The item of a busy slot is returned too.
    #[inline(always)]
    fn shown_at_once(self, found: &FoundSlot<'r>, key: &[u8]) -> Option<Item<'r>> {
        let (region, loc) = (&self.store.memory().region, found.slot.loc());
        let item = Item::shorter_with_key(region, found.loc(), self.layout, key)?;
        let is_shown = !self.has_expired(&item) && !self.is_flushed(loc);
        is_shown.then_some(item)
    }

    /// Finds the slot of the key's item, dead or live. The slot may be busy.
    #[inline]
    fn find(self, key: Key<'_>) -> Option<FoundSlot<'r>> {
        let is_it = |loc| self.with_key(loc, key.bytes).is_some();
        self.store.index.find(self.moment(), key.hash, is_it)
    }

    /// Returns the item of `found` if the item is live and its slot is not busy. Otherwise unlinks
    /// a dead item or waits a little, and returns `None`: the caller must look again.
    fn shown(self, hash: u64, found: &FoundSlot<'r>, rounds: &mut u32) -> Option<Item<'r>> {
        let loc = found.slot.loc();
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
    fn read<T>(
        self,
        key: Key<'_>,
        mut found: Option<FoundSlot<'r>>,
        mut read: impl FnMut(Slot, Item<'r>) -> Option<T>,
    ) -> Option<(FoundSlot<'r>, Item<'r>, T)> {
        let mut rounds = 0;
        loop {
            let found = found.take().or_else(|| self.find(key))?;
            let Some(item) = self.shown(key.hash, &found, &mut rounds) else { continue };
            let got = read(found.slot, item);
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
        read.map(|(FoundSlot { slot, .. }, item, cas)| LinkedItem { slot, item, cas })
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
            let locked = self.store.index.lock(self.moment(), key.hash);
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

    #[inline(always)]
    pub(crate) fn old<'l>(
        self,
        _: &'l LockedGroup<'r>,
        FoundSlot { slot, at }: FoundSlot<'r>,
        item: Item<'r>,
    ) -> LockedItem<'l, 'r> {
        let fate = self.fate(&item, slot.loc());
        let seen = LinkedItem { slot, item, cas: self.cas_of(slot, &item) };
        LockedItem { at, seen, fate, lock: PhantomData }
    }

    #[inline]
    fn note_use(self, hash: u64, found: &FoundSlot<'_>, item: &Item<'_>) {
        let loc = found.slot.loc();
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

    /// Takes the value of the item at `loc`. The caller must make sure that a copied value is of
    /// one version. Returns `None` if the frames were given back, because the item is not linked.
    #[inline]
    pub(crate) fn take(self, loc: u64, item: &Item<'_>, copied: &mut [u8]) -> Option<ReadValue> {
        if item.shape().is_short() {
            let bytes = item.value_bytes().1 as usize;
            item.copy_value(&mut copied[..bytes]);
            return Some(ReadValue::Copied(bytes));
        }
        let pinned = match item.first_frame() {
            None => None,
            Some(first) => Some(self.pin(item, first)?),
        };
        Some(ReadValue::Lasting(self.handle.keep(loc), pinned))
    }

    /// Appends the item's value to `out` if the value may be rewritten; else returns it uncopied.
    #[inline(always)]
    fn append(self, loc: u64, item: &Item<'r>, out: &mut Vec<u8>) -> Option<AppendedPart<'r>> {
        let Some(log) = item.lasting_value() else {
            item.append_value(out);
            return Some(AppendedPart::Whole);
        };
        if let Some(first) = item.first_frame() {
            return self.pin(item, first).map(|pinned| AppendedPart::Frames(pinned, log));
        }
        Some(AppendedPart::Lasting(log, self.handle.keep(loc)))
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
