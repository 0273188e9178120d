//! Meta get and meta delete, touch among them: what they read and mark is one step under the lock.
//!
//! Where: the executor's arms for mg, md, touch, gat.
//! Invariant: exptime and marks change in place, under the lock; where the item has no exptime
//! field, it is written anew with one first.
//! Source: memcached's `process_mget_cmd` and `process_mdelete_cmd` (1.6.45).

use crate::Store;
use crate::column::Local;
use crate::index::slot::{FETCHED, STALE, Slot, WON};
use crate::item::EXPTIME_TO_COME;
use crate::publish::{
    ATTEMPTS_MAX, Fate, KEEP_ALL, Modified, New, NewCas, NewValue, Plan, Seen, item_bytes, shape_of,
};
use crate::rewrite::Taken;
use crate::verbs::{Deleted, Hit, MetaDelete, MetaGet, MetaHit, MetaStep, Refused, Value};

/// What a locked look at an item came to.
enum Looked<'s> {
    /// Its value apart.
    Hit(MetaHit<'s>, Taken<'s>),
    Miss,
    /// It needs an exptime field first.
    NeedsExptime,
}

impl Local {
    pub(crate) fn touch<'s>(
        &'s mut self,
        store: &'s Store,
        key: &[u8],
        exptime: u32,
    ) -> Result<Option<MetaHit<'s>>, Refused> {
        let steps = &[MetaStep::Touch(exptime)];
        let get = MetaGet { key, key_binary: false, cas_in: None, bump: true, win: false, steps };
        self.meta_get(store, &get)
    }

    pub(crate) fn meta_get<'s>(
        &'s mut self,
        store: &'s Store,
        get: &MetaGet<'_>,
    ) -> Result<Option<MetaHit<'s>>, Refused> {
        let hash = store.hash.hash(get.key);
        let found = self.meta_find(store, hash, get)?;
        self.sample_lookup(store, hash);
        let Some((mut hit, taken)) = found else { return Ok(None) };
        if let Some(taken) = taken {
            hit.hit.value = self.show(taken);
        }
        Ok(Some(hit))
    }

    /// As `meta_get`, the value apart.
    fn meta_find<'s>(
        &mut self,
        store: &'s Store,
        hash: u64,
        get: &MetaGet<'_>,
    ) -> Result<Option<(MetaHit<'s>, Option<Taken<'s>>)>, Refused> {
        let vivify = get.steps.iter().any(|step| matches!(step, MetaStep::Vivify(_)));
        for _ in 0..ATTEMPTS_MAX {
            let done = match self.look(store, hash, get) {
                Looked::Hit(hit, taken) => return Ok(Some((hit, Some(taken)))),
                Looked::NeedsExptime => self.add_exptime(store, get.key).map(|()| None),
                Looked::Miss if !vivify => return Ok(None),
                Looked::Miss => self.vivify(store, get),
            };
            match done {
                Ok(Some(hit)) => return Ok(Some((hit, None))),
                Ok(None) => {}
                Err(Refused::Later) => return Err(Refused::Later),
                // Without room for the field the item stays as it is, and so does its exptime: a
                // miss is honest.
                Err(_) => return Ok(None),
            }
        }
        Err(Refused::Later)
    }

    /// Takes all steps at once, under the lock.
    fn look<'s>(&mut self, store: &'s Store, hash: u64, get: &MetaGet<'_>) -> Looked<'s> {
        let locked = store.index.lock(hash);
        let Some(old) = self.find_locked(store, &locked, get.key) else { return Looked::Miss };
        if old.fate != Fate::Live {
            let loc = old.seen.slot.loc();
            drop(locked);
            // By its place: another may have set the key meanwhile.
            self.reap(store, hash, loc);
            return Looked::Miss;
        }
        let Seen { slot, item, .. } = old.seen;
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
            return Looked::NeedsExptime;
        }
        let Some(taken) = self.take(store, &item) else { return Looked::Miss };
        if exptime != before {
            let never = exptime == 0;
            let raised = if never { u32::MAX } else { exptime };
            store.log.segment_of(slot.loc()).raise_exp(raised);
            item.set_exptime(exptime);
            store.log.changed_exp(slot.loc(), before, exptime);
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
            idle_seconds: self.idle_seconds(item.minute()),
            fetched: slot.has(FETCHED),
            vivified: false,
            stale: slot.has(STALE),
            token_sent: slot.has(WON),
            won,
            item_bytes: u32::try_from(item_bytes(item.shape())).unwrap_or(u32::MAX),
        };
        if won {
            locked.update(old.at, |slot| slot.with(WON, true));
        }
        if get.bump {
            let counts = !store.log.is_young(slot.loc());
            locked.update(old.at, |slot| slot.used(counts));
            item.set_minute(self.minute);
        }
        Looked::Hit(hit, taken)
    }

    /// Writes the item anew, with room for an exptime.
    fn add_exptime(&mut self, store: &Store, key: &[u8]) -> Result<(), Refused> {
        self.modify(store, key, |seen| {
            let Some(seen) = seen else { return Plan::Answer(()) };
            match seen.item.shape().has_exp() {
                true => Plan::Answer(()),
                // The caller's own is set right after.
                false => Plan::Write(New { exptime: EXPTIME_TO_COME, ..kept(seen) }),
            }
        })?;
        Ok(())
    }

    /// Makes an empty item on a miss, with all steps taken already: nobody sees it before it is
    /// won. `None`: somebody else made one.
    fn vivify(
        &mut self,
        store: &Store,
        get: &MetaGet<'_>,
    ) -> Result<Option<MetaHit<'static>>, Refused> {
        let exptime = get.steps.iter().fold(0, |exptime, step| match *step {
            MetaStep::Touch(to) | MetaStep::Vivify(to) => to,
            MetaStep::Recache(_) => exptime,
        });
        let new = New {
            value: NewValue::Padded(&[], 0),
            exptime,
            client_flags: 0,
            key_binary: get.key_binary,
            cas: get.cas_in.map_or(NewCas::Next, NewCas::Given),
            keep_bits: 0,
            set_bits: (if get.win { WON } else { 0 })
                | if get.bump { Slot(0).used(false).0 } else { 0 },
        };
        let modified = self.modify(store, get.key, |seen| match seen {
            Some(_) => Plan::Answer(()),
            None => Plan::Write(new),
        })?;
        let Modified::Written { cas } = modified else { return Ok(None) };
        self.counters(store).total_items.add(1);
        let bytes = item_bytes(shape_of(store, get.key, None, &new));
        // Even one that has expired already is answered once.
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

    pub(crate) fn meta_delete(
        &mut self,
        store: &Store,
        delete: &MetaDelete<'_>,
    ) -> Result<Deleted, Refused> {
        if delete.stale || delete.remove_value {
            return self.mark(store, delete);
        }
        let is_it = |seen: &Seen<'_>| delete.cas.is_none_or(|cas| cas == seen.cas);
        Ok(self.delete_if(store, delete.key, is_it))
    }

    /// Marks stale, or drops the value: the item is written anew, for its CAS unique changes.
    fn mark(&mut self, store: &Store, delete: &MetaDelete<'_>) -> Result<Deleted, Refused> {
        let modified = self.modify(store, delete.key, |seen| {
            let Some(seen) = seen else { return Plan::Answer(Deleted::NotFound) };
            if delete.cas.is_some_and(|cas| cas != seen.cas) {
                return Plan::Answer(Deleted::Exists);
            }
            let mut new = kept(seen);
            if delete.remove_value {
                new.value = NewValue::Padded(&[], 0);
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
            Plan::Write(new)
        })?;
        Ok(match modified {
            Modified::Answered(answer) => answer,
            Modified::Written { .. } => Deleted::Deleted,
        })
    }
}

/// The item as it is.
fn kept<'a>(seen: &Seen<'_>) -> New<'a> {
    New {
        value: NewValue::Keep,
        exptime: seen.item.exptime(),
        client_flags: seen.item.client_flags(),
        key_binary: seen.item.shape().key_binary(),
        cas: NewCas::Given(seen.cas),
        keep_bits: KEEP_ALL,
        set_bits: 0,
    }
}
