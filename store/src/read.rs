//! Lookups: without a lock, one line of the index and one item; and the end of what a lookup finds
//! dead.
//!
//! Where: get, and the first look of everything else.
//! Invariant: an item returned was linked at some moment during the call; "expired" is decided
//! under the lock, because a touch may be rewriting the exptime.
//! Source: the paper's section 4.2.2.

use crate::Store;
use crate::column::Local;
use crate::index::{Found, Locked};
use crate::item::Item;
use crate::publish::{Fate, Old, Seen};
use crate::verbs::{Appended, Head, Hit, Looked, Wants};
use memory::sync::wait_a_little;

impl Local {
    #[inline]
    pub(crate) fn get<'s>(&'s mut self, store: &'s Store, key: &[u8]) -> Option<Hit<'s>> {
        let hash = store.hash.hash(key);
        self.sample_lookup(store, hash);
        let (head, taken) = loop {
            let (found, item) = self.find_shown(store, hash, key)?;
            let head = Head { store, local: self, item, slot: found.slot };
            let head = (head.client_flags(), head.value_bytes(), head.cas());
            let taken = self.take(store, &item);
            // All that was read was one version's, and frames held are this item's.
            let Some(taken) = taken.filter(|_| found.is_unchanged()) else { continue };
            self.note_use(store, hash, &found, &item);
            break (head, taken);
        };
        let (client_flags, value_bytes, cas) = head;
        Some(Hit { client_flags, cas, value_bytes, value: self.show(taken) })
    }

    /// As `get`, of the key with this hash; the value goes straight to the end of `out`, behind
    /// what `head` appends, as that says.
    #[inline(always)]
    pub(crate) fn get_into<'s>(
        &mut self,
        store: &'s Store,
        (hash, key): (u64, &[u8]),
        out: &mut Vec<u8>,
        mut head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> Wants,
    ) -> Looked<'s> {
        let before = out.len();
        loop {
            let Some((found, item)) = self.find_shown(store, hash, key) else {
                self.sample_lookup(store, hash);
                return Looked::Miss;
            };
            let appended = match head(out, &Head { store, local: self, item, slot: found.slot }) {
                Wants::Value => Self::append(store, &item, out),
                Wants::NoValue => Some(Appended::Whole),
                Wants::CallOff => {
                    out.truncate(before);
                    return Looked::Left;
                }
            };
            // As in `get`.
            if let Some(appended) = appended.filter(|_| found.is_unchanged()) {
                self.sample_lookup(store, hash);
                self.note_use(store, hash, &found, &item);
                return Looked::Hit(appended);
            }
            out.truncate(before);
        }
    }

    /// What has `key` and is live, in a slot that is not busy, without a lock.
    #[inline(always)]
    fn find_shown<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
    ) -> Option<(Found<'s>, Item<'s>)> {
        let mut rounds = 0;
        loop {
            let (found, item) = 'found: {
                if let Some(found) = store.index.first(hash)
                    && let Some(item) = store.with_key(found.slot, key)
                {
                    break 'found (found, item);
                }
                let found = store.index.find_validated(hash, |slot| store.has_key(slot, key))?;
                let item = store.item(found.slot.loc());
                (found, item)
            };
            if found.is_busy() {
                wait_a_little(&mut rounds);
            } else if self.fate(store, &item, found.slot.loc()) == Fate::Live {
                return Some((found, item));
            } else {
                self.reap(store, hash, found.slot.loc());
            }
        }
    }

    /// Counts a use of what was found.
    #[inline]
    fn note_use(&self, store: &Store, hash: u64, found: &Found<'_>, item: &Item<'_>) {
        let loc = found.slot.loc();
        found.bump(|| !store.log.is_young(loc));
        if item.minute() != self.minute() {
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
        loop {
            let (found, item) = self.find_shown(store, hash, key)?;
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
        self.items -= 1;
        if fate == Fate::Expired && !seen.slot.has(crate::index::slot::FETCHED) {
            self.counters(store).expired_unfetched.add(1);
        }
        self.dispose(store, loc, &seen.item);
        fate
    }

    /// Notes the minute of an access, once a minute for an item.
    #[cold]
    #[inline(never)]
    fn note_access(&self, store: &Store, hash: u64, loc: u64) {
        let locked = store.index.lock(hash);
        if let Some(at) = locked.find_loc(loc) {
            store.item(at.slot().loc()).set_minute(self.minute());
        }
    }

    pub(crate) fn delete(&mut self, store: &Store, key: &[u8]) -> bool {
        let hash = store.hash.hash(key);
        let mut locked = store.index.lock(hash);
        let Some(old) = self.find_locked(store, &locked, key) else { return false };
        locked.remove(old.at);
        drop(locked);
        self.items -= 1;
        if store.mrc.samples(hash) {
            store.mrc.deleted(hash);
        }
        self.dispose(store, old.seen.slot.loc(), &old.seen.item);
        self.settle_index(store);
        match old.fate {
            Fate::Live => return true,
            Fate::Expired => self.counters(store).get_expired.add(1),
            Fate::Flushed => self.counters(store).get_flushed.add(1),
        }
        false
    }
}
