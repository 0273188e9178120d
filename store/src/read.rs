//! Lookups: without a lock, one line of the index and one item; and the end of what a lookup finds
//! dead.
//!
//! Where: get, and the first look of everything else.
//! Invariant: an item returned was linked at some moment during the call; "expired" is decided
//! under the lock, because a touch may be rewriting the exptime.
//! Source: the paper's section 4.2.2.

use crate::Store;
use crate::column::Local;
use crate::index::slot::Slot;
use crate::index::{Found, Locked};
use crate::item::Item;
use crate::publish::{Fate, Old, Seen};
use crate::rewrite::is_short;
use crate::verbs::{Appended, Around, Deleted, Head, Hit, Looked, Value, Wants};
use memory::plant::{self, Fault};
use memory::sync::wait_a_little;

impl Local {
    #[inline]
    pub(crate) fn get<'s>(&'s mut self, store: &'s Store, key: &[u8]) -> Option<Hit<'s>> {
        let hash = store.hash.hash(key);
        self.sample_lookup(store, hash);
        let found = store.index.likely(hash)?;
        if let Some(item) = self.shown_at_once(store, found.slot, key)
            && is_short(item.shape())
        {
            let value_bytes = item.value_bytes().0;
            item.copy_value(&mut self.copied[..value_bytes as usize]);
            let head = Head { store, local: self, item, slot: found.slot };
            let (client_flags, cas) = (head.client_flags(), head.cas());
            // All that was read was one version's.
            if found.is_unchanged() {
                self.note_use(store, hash, &found, &item);
                let value = Value::Log(&self.copied[..value_bytes as usize]);
                return Some(Hit { client_flags, cas, value_bytes, value });
            }
        }
        self.get_anyhow(store, hash, key)
    }

    /// As `get`, whatever there is.
    #[cold]
    #[inline(never)]
    fn get_anyhow<'s>(&'s mut self, store: &'s Store, hash: u64, key: &[u8]) -> Option<Hit<'s>> {
        let mut rounds = 0;
        let (head, taken) = loop {
            let found = self.find(store, hash, key)?;
            let Some(item) = self.shown(store, hash, &found, &mut rounds) else { continue };
            let head = Head { store, local: self, item, slot: found.slot };
            let head = (head.client_flags(), head.value_bytes(), head.cas());
            let taken = self.take(store, &item);
            // As in `get`, and frames held are this item's.
            if let Some(taken) = taken.filter(|_| found.is_unchanged()) {
                self.note_use(store, hash, &found, &item);
                break (head, taken);
            }
        };
        let (client_flags, value_bytes, cas) = head;
        Some(Hit { client_flags, cas, value_bytes, value: self.show(taken) })
    }

    /// As `get`, of the key with this hash; what it has goes straight to the end of `out`, together
    /// with what stands around it or, where `around` does not say, as `head` says.
    #[inline(always)]
    pub(crate) fn get_around<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
        out: &mut Vec<u8>,
        around: impl FnOnce(&Head<'_>) -> Option<Around>,
        mut head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> Wants,
    ) -> Looked<'s> {
        let Some(found) = store.index.likely(hash) else {
            self.sample_lookup(store, hash);
            return Looked::Miss;
        };
        let Some(item) = self.shown_at_once(store, found.slot, key) else {
            return self.get_found_into(store, hash, key, None, out, &mut head);
        };
        if is_short(item.shape())
            && let Some(around) = around(&Head { store, local: self, item, slot: found.slot })
        {
            let before = out.len();
            item.append_around(out, &around, key);
            // As in `get`.
            if found.is_unchanged() {
                self.sample_lookup(store, hash);
                self.note_use(store, hash, &found, &item);
                return Looked::Hit(Appended::Around);
            }
            out.truncate(before);
        }
        self.get_found_into(store, hash, key, Some(found), out, &mut head)
    }

    /// As `get_around`, of what was found or will be, whatever comes of it, by `head` alone.
    #[inline(never)]
    fn get_found_into<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
        mut found: Option<Found<'s>>,
        out: &mut Vec<u8>,
        head: &mut impl FnMut(&mut Vec<u8>, &Head<'_>) -> Wants,
    ) -> Looked<'s> {
        let (before, mut rounds) = (out.len(), 0);
        let looked = loop {
            let found = found.take().or_else(|| self.find(store, hash, key));
            let Some(found) = found else { break Looked::Miss };
            let Some(item) = self.shown(store, hash, &found, &mut rounds) else { continue };
            let appended = match head(out, &Head { store, local: self, item, slot: found.slot }) {
                Wants::Value => Self::append(store, &item, out),
                Wants::NoValue => Some(Appended::Whole),
                Wants::CallOff => {
                    out.truncate(before);
                    return Looked::Left;
                }
            };
            // As in `get_anyhow`.
            if let Some(appended) = appended.filter(|_| found.is_unchanged()) {
                self.note_use(store, hash, &found, &item);
                break Looked::Hit(appended);
            }
            out.truncate(before);
        };
        self.sample_lookup(store, hash);
        looked
    }

    /// The item of a slot, if it has the key, is as nearly all are, and is known as live without a
    /// second look. The slot may be busy.
    #[inline(always)]
    fn shown_at_once<'s>(&self, store: &'s Store, slot: Slot, key: &[u8]) -> Option<Item<'s>> {
        let item = store.shorter_with_key(slot, key)?;
        let is_shown = !self.has_expired(&item) && !self.is_flushed(store, slot.loc());
        is_shown.then_some(item)
    }

    /// What has `key`, dead or live, in a slot that may be busy.
    #[inline]
    fn find<'s>(&self, store: &'s Store, hash: u64, key: &[u8]) -> Option<Found<'s>> {
        store.index.find(hash, |slot| store.has_key(slot, key))
    }

    /// The item found, if it is live and its slot not busy. Otherwise it is to be looked for again:
    /// what is dead is gone by then.
    fn shown<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        found: &Found<'s>,
        rounds: &mut u32,
    ) -> Option<Item<'s>> {
        let (item, loc) = (store.item(found.slot.loc()), found.slot.loc());
        if found.is_busy() {
            wait_a_little(rounds);
            None
        } else if self.fate(store, &item, loc) == Fate::Live {
            Some(item)
        } else {
            self.reap(store, hash, loc);
            None
        }
    }

    /// Counts a use of what was found.
    #[inline]
    fn note_use(&self, store: &Store, hash: u64, found: &Found<'_>, item: &Item<'_>) {
        let loc = found.slot.loc();
        found.bump(|| !store.log.is_young(loc));
        if item.minute() != self.minute {
            self.note_access(store, hash, loc);
        }
    }

    /// Tells of a lookup, for the estimate of other sizes.
    #[inline]
    pub(crate) fn sample_lookup(&mut self, store: &Store, hash: u64) {
        self.lookups += 1;
        if store.mrc.samples(hash) {
            self.tell_lookup(store, hash);
        }
    }

    #[cold]
    #[inline(never)]
    fn tell_lookup(&mut self, store: &Store, hash: u64) {
        store.mrc.looked_up(hash, self.now, &mut self.lookups);
    }

    /// What has `key` and is live, without a lock. Of the item only what is never rewritten may be
    /// read, and its exptime; its CAS unique was.
    pub(crate) fn find_live<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
    ) -> Option<Seen<'s>> {
        let mut rounds = 0;
        loop {
            let found = self.find(store, hash, key)?;
            let Some(item) = self.shown(store, hash, &found, &mut rounds) else { continue };
            let slot = found.slot;
            let cas = item.cas(|| store.log.segment_of(slot.loc()).cas_base());
            if found.is_unchanged() {
                return Some(Seen { slot, item, cas });
            }
        }
    }

    /// What has `key` and is live, and its group's lock.
    pub(crate) fn lock_live<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
    ) -> (Locked<'s>, Option<Old<'s, 's>>) {
        loop {
            let locked = store.index.lock(hash);
            let old = self.find_locked(store, &locked, key);
            let dead = old.as_ref().filter(|old| old.fate != Fate::Live);
            let Some(loc) = dead.map(|old| old.seen.slot.loc()) else { return (locked, old) };
            drop(locked);
            self.reap(store, hash, loc);
        }
    }

    /// Unlinks a dead item that a lookup came upon.
    #[cold]
    #[inline(never)]
    pub(crate) fn reap(&mut self, store: &Store, hash: u64, loc: u64) {
        match self.unlink_dead(store, hash, loc) {
            Fate::Live => return,
            Fate::Expired => self.counters(store).get_expired.add(1),
            Fate::Flushed => self.counters(store).get_flushed.add(1),
        }
        self.settle_index(store);
    }

    /// Unlinks the item at `loc` if it is dead. `Live`: it was not, or was gone.
    pub(crate) fn unlink_dead(&mut self, store: &Store, hash: u64, loc: u64) -> Fate {
        let mut locked = store.index.lock(hash);
        let Some(at) = locked.find_loc(loc) else { return Fate::Live };
        let seen = store.seen(at.slot());
        let fate = self.fate(store, &seen.item, loc);
        if fate == Fate::Live {
            return fate;
        }
        locked.remove(at);
        drop(locked);
        self.items -= i64::from(!plant::is(Fault::ItemStaysCounted));
        if fate == Fate::Expired && !seen.slot.has(crate::index::slot::FETCHED) {
            self.counters(store).expired_unfetched.add(1);
        }
        match plant::is(Fault::FramesKept) {
            true => self.dispose_but_frames(store, loc, &seen.item),
            false => self.dispose(store, loc, &seen.item),
        }
        fate
    }

    /// Notes the minute of an access, once a minute for an item.
    #[cold]
    #[inline(never)]
    fn note_access(&self, store: &Store, hash: u64, loc: u64) {
        let locked = store.index.lock(hash);
        if let Some(at) = locked.find_loc(loc) {
            store.item(at.slot().loc()).set_minute(self.minute);
        }
    }

    pub(crate) fn delete(&mut self, store: &Store, key: &[u8]) -> bool {
        self.delete_if(store, key, |_| true) == Deleted::Deleted
    }

    /// Deletes what has `key`, if it `is_it`.
    pub(crate) fn delete_if(
        &mut self,
        store: &Store,
        key: &[u8],
        is_it: impl FnOnce(&Seen<'_>) -> bool,
    ) -> Deleted {
        let hash = store.hash.hash(key);
        let mut locked = store.index.lock(hash);
        let Some(old) = self.find_locked(store, &locked, key) else { return Deleted::NotFound };
        if old.fate == Fate::Live && !is_it(&old.seen) {
            return Deleted::Exists;
        }
        locked.remove(old.at);
        drop(locked);
        self.items -= 1;
        if store.mrc.samples(hash) {
            store.mrc.deleted(hash);
        }
        self.dispose(store, old.seen.slot.loc(), &old.seen.item);
        self.settle_index(store);
        match old.fate {
            Fate::Live => return Deleted::Deleted,
            Fate::Expired => self.counters(store).get_expired.add(1),
            Fate::Flushed => self.counters(store).get_flushed.add(1),
        }
        Deleted::NotFound
    }
}
