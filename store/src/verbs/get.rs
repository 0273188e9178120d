//! GET: finds a key's live item, and copies its value or refers to it.
//!
//! Where: the executor calls `Column::get_into` for each key of a get; see `find` for the search.
//! Invariant: an item returned was linked at some moment during the call. A short value is copied,
//! and the copy is used only if the slot names the same version afterwards.
//! Source: the KV-Cache paper, section 4.2.2.

use crate::column::Column;
use crate::column::handle::{Handle, ValueRef, View};
use crate::index::FoundSlot;
use crate::index::hash::{Key, PrefetchedHash};
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::item::Item;
use crate::verbs::{AppendedPart, HeadResult, Hit, LookupResult, Value};
use memory::frames::Pinned;
use memory::short::Surround;

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
        let found = view.shared.index.likely(view.moment(), key.hash)?;
        if let Some(item) = view.shown_at_once(&found, key.bytes)
            && item.shape().is_short()
        {
            let value_bytes = item.value_bytes().0;
            item.copy_value(&mut copied[..value_bytes as usize]);
            let (client_flags, cas) = (item.client_flags(), view.cas_of(found.slot(), &item));
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
        template: impl FnOnce(&Head<'_>) -> Option<Surround>,
        mut head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> HeadResult,
    ) -> LookupResult<'_> {
        let view = self.handle.view();
        let Some(found) = view.shared.index.likely(view.moment(), hash) else {
            view.sample_lookup(hash);
            return LookupResult::Miss;
        };
        let Some(item) = view.shown_at_once(&found, key) else {
            return get_found_into(view.handle, key, hash, None, out, &mut head);
        };
        if item.shape().is_short()
            && let Some(template) = template(&Head { view, item, slot: found.slot() })
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
    /// Returns the item of `found` if the item has the key `key`, is live, and has one of the
    /// shorter layouts, which nearly all items have. The item of a busy slot is returned too.
    #[inline(always)]
    fn shown_at_once(self, found: &FoundSlot<'r>, key: &[u8]) -> Option<Item<'r>> {
        let item = Item::shorter_at(&self.shared.memory().region, found.loc(), self.layout)?;
        let is_shown =
            item.has_key(key) && !self.has_expired(&item) && !self.is_flushed(found.slot().loc());
        is_shown.then_some(item)
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
}
