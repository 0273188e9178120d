//! Lookups: without a lock, one line of the index and one item; and the end of what a lookup finds
//! dead.
//!
//! Where: get, and the first look of everything else.
//! Invariant: an item returned was linked at some moment during the call; "expired" is decided
//! under the lock, because a touch may be rewriting the exptime.
//! Source: the paper's section 4.2.2.

use crate::Store;
use crate::column::Local;
use crate::publish::{Fate, Seen};
use crate::verbs::{Hit, Value};
use memory::frames::Pinned;
use std::sync::Arc;

impl Local {
    #[inline]
    pub(crate) fn get<'s>(&mut self, store: &'s Store, key: &[u8]) -> Option<Hit<'s>> {
        let hash = store.hash.hash(key);
        loop {
            let found = store.index.find(hash, |slot| store.has_key(slot, key))?;
            let seen = store.seen(found.slot);
            let loc = found.slot.loc();
            if self.fate(store, &seen.item, loc) != Fate::Live {
                self.reap(store, hash, loc);
                continue;
            }
            let chained = seen.item.first_frame().is_some();
            let Some(hit) = store.hit(&seen) else { continue };
            // The frames held are this item's only if it is still linked.
            if chained && !found.still() {
                continue;
            }
            found.bump(|| !store.log.is_young(loc));
            if seen.item.minute() != self.minute() {
                self.note_access(store, hash, loc);
            }
            return Some(hit);
        }
    }

    /// What has `key` and is live, without a lock.
    pub(crate) fn find_live<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        key: &[u8],
    ) -> Option<Seen<'s>> {
        loop {
            let found = store.index.find(hash, |slot| store.has_key(slot, key))?;
            let seen = store.seen(found.slot);
            if self.fate(store, &seen.item, seen.slot.loc()) == Fate::Live {
                return Some(seen);
            }
            self.reap(store, hash, seen.slot.loc());
        }
    }

    /// Unlinks a dead item that a lookup came upon.
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

impl Store {
    /// What a lookup returns. `None`: its frames were given back meanwhile, so it is no longer
    /// linked.
    #[inline]
    pub(crate) fn hit<'s>(&'s self, seen: &Seen<'s>) -> Option<Hit<'s>> {
        let item = &seen.item;
        let (value_bytes, log_bytes) = item.value_bytes();
        let value = match item.first_frame() {
            None => Value::Log(item.log_value()),
            Some(first) => {
                if !self.memory().hold(first) {
                    return None;
                }
                let bytes = (value_bytes - log_bytes) as usize;
                let pinned = Pinned::new(Arc::clone(self.memory()), first, bytes);
                Value::Frames(pinned, item.log_value())
            }
        };
        Some(Hit { client_flags: item.client_flags(), cas: seen.cas, value_bytes, value })
    }
}
