//! Meta get, meta delete, touch and delete. A meta get reads and changes an item under one lock.
//!
//! Where: the server's executor calls these functions for mg, md, touch, gat and delete.
//! Invariant: an item's exptime and marks change in place, under the lock. An item without an
//! exptime field is first stored again with an exptime field.
//! Source: memcached's `process_mget_cmd` and `process_mdelete_cmd` (1.6.45).

use crate::column::Column;
use crate::column::handle::View;
use crate::engine::cas::NewCas;
use crate::engine::find::{LinkedItem, LockedItem};
use crate::engine::{ATTEMPTS_MAX, ChangeResult, Decision, NewItem, NewValue};
use crate::error::StoreError;
use crate::index::LockedGroup;
use crate::index::hash::Key;
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::item::EXPTIME_TO_COME;
use crate::verbs::get::ReadValue;
use crate::verbs::{DeleteResult, Hit, MetaDelete, MetaGet, MetaHit, MetaStep, Value};

enum MetaLookup {
    Hit(MetaHit<'static>, ReadValue),
    Miss,
    /// The item must first be stored again with an exptime field.
    NeedsExptime,
}

impl Column {
    /// Like `get`, and sets the exptime. Returns a miss if there is no room for an exptime field.
    ///
    /// # Errors
    /// `StoreError::Later` only.
    pub fn get_and_touch(
        &mut self,
        key: &[u8],
        exptime: u32,
    ) -> Result<Option<Hit<'_>>, StoreError> {
        let steps = &[MetaStep::Touch(exptime)];
        let get = MetaGet { key, key_binary: false, cas_in: None, bump: true, win: false, steps };
        Ok(self.meta_get(&get)?.map(|hit| hit.hit))
    }

    /// Sets the exptime. Returns false after a miss, or if there is no room for an exptime field.
    ///
    /// # Errors
    /// `StoreError::Later` only.
    pub fn touch(&mut self, key: &[u8], exptime: u32) -> Result<bool, StoreError> {
        Ok(self.get_and_touch(key, exptime)?.is_some())
    }

    /// Executes a meta get. Returns a miss if there is no room for the item that `N` vivifies.
    ///
    /// # Errors
    /// `StoreError::Later` only.
    pub fn meta_get(&mut self, get: &MetaGet<'_>) -> Result<Option<MetaHit<'_>>, StoreError> {
        let key = self.handle.view().key(get.key);
        let found = self.meta_find(key, get)?;
        self.handle.view().sample_lookup(key.hash);
        let Some((mut hit, taken)) = found else { return Ok(None) };
        if let Some(taken) = taken {
            hit.hit.value = taken.show(self.handle.view(), &self.copied[..]);
        }
        Ok(Some(hit))
    }

    /// Like `meta_get`, but returns the value separately, and no value for a vivified item.
    fn meta_find(
        &mut self,
        key: Key<'_>,
        get: &MetaGet<'_>,
    ) -> Result<Option<(MetaHit<'static>, Option<ReadValue>)>, StoreError> {
        let vivify = get.steps.iter().any(|step| matches!(step, MetaStep::Vivify(_)));
        for _ in 0..ATTEMPTS_MAX {
            let done = match self.handle.view().look(key, get, &mut self.copied[..]) {
                MetaLookup::Hit(hit, taken) => return Ok(Some((hit, Some(taken)))),
                MetaLookup::NeedsExptime => self.add_exptime(key).map(|()| None),
                MetaLookup::Miss if !vivify => return Ok(None),
                MetaLookup::Miss => self.vivify(key, get),
            };
            match done {
                Ok(Some(hit)) => return Ok(Some((hit, None))),
                Ok(None) => {}
                Err(StoreError::Later) => return Err(StoreError::Later),
                // If there is no room for the new item, the client gets a miss.
                Err(_) => return Ok(None),
            }
        }
        Err(StoreError::Later)
    }

    fn add_exptime(&mut self, key: Key<'_>) -> Result<(), StoreError> {
        let changed = self.change(key, None, |_, old| match old {
            // The caller sets the exptime right after this change.
            Some(old) if !old.seen.item.shape().has_exp() => {
                Decision::Write(NewItem { exptime: EXPTIME_TO_COME, ..NewItem::kept(old) })
            }
            _ => Decision::Answer(()),
        });
        changed.map(|_| ())
    }

    /// Stores an empty item after a miss, marked as won if `get.win` is true, so that only this
    /// client recaches the item. Returns `None` if another column has stored an item meanwhile.
    fn vivify(
        &mut self,
        key: Key<'_>,
        get: &MetaGet<'_>,
    ) -> Result<Option<MetaHit<'static>>, StoreError> {
        let exptime = get.steps.iter().fold(0, |exptime, step| match *step {
            MetaStep::Touch(to) | MetaStep::Vivify(to) => to,
            MetaStep::Recache(_) => exptime,
        });
        let new = NewItem {
            key_binary: get.key_binary,
            set_bits: (if get.win { WON } else { 0 })
                | if get.bump { Slot(0).used(false).0 } else { 0 },
            value: NewValue::Bytes(&[]),
            exptime,
            cas: NewCas::of(get.cas_in),
            ..NewItem::default()
        };
        let changed = self.change(key, None, |_, old| match old {
            Some(_) => Decision::Answer(()),
            None => Decision::Write(new),
        })?;
        let ChangeResult::Written { cas } = changed else { return Ok(None) };
        self.handle.view().counters().total_items.add(1);
        let bytes = new.shape(self.handle.view(), key.bytes, None).all_bytes();
        // The new item is returned even if its exptime has already passed.
        let hit = Hit { client_flags: 0, cas, value_bytes: 0, value: Value::Log(&[]) };
        Ok(Some(MetaHit {
            hit,
            key_binary: get.key_binary,
            exptime: 0,
            idle_seconds: 0,
            fetched: false,
            vivified: true,
            stale: false,
            token_sent: false,
            won: get.win,
            item_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        }))
    }

    /// Deletes the item of `key`. Returns false if the key has no item.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        self.delete_if(key, None) == DeleteResult::Deleted
    }

    /// Deletes the item of `key`, unless `cas` is given and differs from the item's CAS unique.
    #[inline(always)]
    fn delete_if(&mut self, key: &[u8], cas: Option<u64>) -> DeleteResult {
        let key = self.handle.view().key(key);
        let changed = self.change(
            key,
            None,
            #[inline(always)]
            |_, old| match old {
                None => Decision::Answer(DeleteResult::NotFound),
                Some(old) if cas.is_some_and(|cas| cas != old.seen.cas) => {
                    Decision::Answer(DeleteResult::Exists)
                }
                Some(_) => Decision::Delete(DeleteResult::Deleted),
            },
        );
        // A delete needs no place in the log, so `change` never returns an error here.
        let Ok(ChangeResult::Answered(deleted)) = changed else { return DeleteResult::NotFound };
        if deleted == DeleteResult::Deleted && self.handle.shared.mrc.samples(key.hash) {
            self.handle.shared.mrc.deleted(key.hash);
        }
        deleted
    }

    /// Executes a meta delete.
    ///
    /// # Errors
    /// `NoMemory`: there is no room for the changed item. `Later`: there is no room yet.
    pub fn meta_delete(&mut self, delete: &MetaDelete<'_>) -> Result<DeleteResult, StoreError> {
        if delete.stale || delete.remove_value {
            return self.mark(delete);
        }
        Ok(self.delete_if(delete.key, delete.cas))
    }

    /// Marks the item stale with a new CAS unique, or removes its value; in place if possible.
    fn mark(&mut self, delete: &MetaDelete<'_>) -> Result<DeleteResult, StoreError> {
        let key = self.handle.view().key(delete.key);
        let changed = self.change(key, None, |_, old| {
            let Some(old) = old else { return Decision::Answer(DeleteResult::NotFound) };
            if delete.cas.is_some_and(|cas| cas != old.seen.cas) {
                return Decision::Answer(DeleteResult::Exists);
            }
            let mut new = NewItem::kept(old);
            if delete.remove_value {
                new.value = NewValue::Bytes(&[]);
                new.client_flags = delete.client_flags;
                new.exptime = delete.exptime.unwrap_or(0);
                new.key_binary = false;
                new.keep_bits = 0;
            }
            if delete.stale {
                new.exptime = delete.exptime.unwrap_or(new.exptime);
                new.keep_bits &= !WON;
                new.set_bits = STALE;
                new.cas = NewCas::Next;
            }
            if let Some(cas) = delete.cas_in {
                new.cas = NewCas::Given(cas);
            }
            Decision::Write(new)
        })?;
        Ok(match changed {
            ChangeResult::Answered(answer) => answer,
            ChangeResult::Written { .. } => DeleteResult::Deleted,
        })
    }
}

impl View<'_> {
    /// Executes all steps of `get` while it holds the lock of the key's group.
    fn look(self, key: Key<'_>, get: &MetaGet<'_>, copied: &mut [u8]) -> MetaLookup {
        self.look_locked(key, |locked, old| match old {
            Some(old) => self.look_at(locked, old, get, copied),
            None => MetaLookup::Miss,
        })
        .0
    }

    fn look_at(
        self,
        locked: &LockedGroup<'_>,
        old: &LockedItem<'_, '_>,
        get: &MetaGet<'_>,
        copied: &mut [u8],
    ) -> MetaLookup {
        let LinkedItem { slot, item, .. } = old.seen;
        let before = item.exptime();
        let (mut exptime, mut won) = (before, false);
        for step in get.steps {
            match *step {
                MetaStep::Touch(to) => exptime = to,
                MetaStep::Vivify(_) => {}
                MetaStep::Recache(before) => {
                    won |= !slot.has(WON) && exptime != 0 && exptime < before;
                }
            }
        }
        if exptime != before && !item.shape().has_exp() {
            return MetaLookup::NeedsExptime;
        }
        let Some(taken) = self.take(slot.loc(), &item, copied) else { return MetaLookup::Miss };
        if exptime != before {
            self.log.segment_of(slot.loc()).raise_exp(exptime);
            item.set_exptime(exptime);
            self.log.changed_exp(slot.loc(), before, exptime);
        }
        won |= slot.has(STALE) && !slot.has(WON);
        won &= get.win;
        let hit = MetaHit {
            hit: Hit {
                client_flags: item.client_flags(),
                cas: old.seen.cas,
                value_bytes: item.value_bytes().0,
                value: Value::Log(&[]),
            },
            key_binary: item.shape().key_binary(),
            exptime: before,
            idle_seconds: item.accessed().seconds_before(self.handle.now),
            fetched: slot.has(FETCHED),
            vivified: false,
            stale: slot.has(STALE),
            token_sent: slot.has(WON),
            won,
            item_bytes: u32::try_from(item.all_bytes()).unwrap_or(u32::MAX),
        };
        if won {
            locked.update(old.at, |slot| slot.with(WON, true));
        }
        if get.bump {
            let counts = !self.log.is_young(slot.loc());
            locked.update(old.at, |slot| slot.used(counts));
            self.access(&item);
        }
        MetaLookup::Hit(hit, taken)
    }
}
