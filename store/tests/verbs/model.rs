//! The model: the answer to each request, and the item that the request leaves.
//!
//! Invariant: nothing here reads the store. The CAS unique of an item is not known until an answer
//! shows the unique; if the answer to a request depends on such a unique, the request has several
//! outcomes.
//! Source: memcached's `do_store_item`, `do_add_delta`, `process_mget_cmd` and
//! `process_mdelete_cmd` (1.6.45).

use super::outcome::{Item, Outcome};
use super::request::{Answer, Bytes, Meta, Request, Seen};
use std::cmp::Ordering;
use store::{
    DeleteResult, Delta, DeltaResult, MetaDelete, MetaGet, MetaStep, Put, PutResult, StoreError,
    Verb,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) now: u32,
    pub(crate) key_bytes: usize,
    pub(crate) item_bytes_max: usize,
    pub(crate) has_cas: bool,
    /// True if each use of an item is recorded before the next request. If false, `fetched` and
    /// `used` stay unset, and answers may show any use.
    pub(crate) knows_uses: bool,
}

impl Rules {
    /// The possible outcomes. If the item's CAS unique is known, there is one outcome.
    pub(crate) fn outcomes(&self, item: Option<&Item>, request: &Request) -> Vec<Outcome> {
        let (Some(item), Some(cas)) = (item, request.cas()) else {
            return vec![self.outcome(item, Ordering::Equal, request)];
        };
        let orders = match item.cas {
            Some(own) => vec![own.cmp(&cas)],
            None => vec![Ordering::Less, Ordering::Equal, Ordering::Greater],
        };
        let outcome = |order| match order {
            Ordering::Equal => {
                let item = Item { cas: Some(cas), ..item.clone() };
                self.outcome(Some(&item), order, request)
            }
            _ => self.outcome(Some(item), order, request),
        };
        orders.into_iter().map(outcome).collect()
    }

    /// `order`: the item's CAS unique, compared with the unique that the request demands.
    fn outcome(&self, item: Option<&Item>, order: Ordering, request: &Request) -> Outcome {
        let mut outcome = match request {
            Request::Put(put, value) => self.put(item, order, put, value),
            Request::Get(get, steps) => self.get(item, get, steps),
            Request::Delta(delta) => self.delta(item, order, delta),
            Request::Delete(delete) => self.delete(item, order, delete),
        };
        if let Some(item) = outcome.item.as_mut().filter(|_| !self.knows_uses) {
            (item.fetched, item.used) = (false, 0);
        }
        outcome
    }

    fn new_item(&self, value: Bytes) -> Item {
        Item { value, used: self.now, ..Item::default() }
    }

    /// Notes a use of the item by a read. The store records the second of one use a minute.
    pub(crate) fn read(&self, item: &mut Item) {
        item.fetched = true;
        if self.now - item.used > 60 {
            item.used = self.now;
        }
    }

    fn counted(&self, value_bytes: usize, flags: u32) -> usize {
        let flags = if flags == 0 { 0 } else { 4 };
        let cas = if self.has_cas { 8 } else { 0 };
        self.key_bytes + value_bytes + 51 + flags + cas
    }

    fn is_too_large(&self, value_bytes: usize, flags: u32) -> bool {
        self.counted(value_bytes, flags) > self.item_bytes_max
    }

    /// The outcome if `item` is stored with the CAS unique `cas_in` or, if `None`, a new unique.
    /// `answer` gets the unique, or 0 if the unique is not known yet.
    fn stored(
        &self,
        item: Item,
        cas_in: Option<u64>,
        answer: impl FnOnce(u64) -> Answer,
    ) -> Outcome {
        let cas = if self.has_cas { cas_in } else { Some(0) };
        let reply = Ok(answer(cas.unwrap_or(0)));
        Outcome { reply, item: Some(Item { cas, ..item }), fresh: cas.is_none() }
    }

    fn put(&self, item: Option<&Item>, order: Ordering, put: &Put<'_>, value: &Bytes) -> Outcome {
        use Verb::{Add, Append, AppendVivify, Cas, Prepend, PrependVivify, Replace, Set};
        if self.is_too_large(value.len(), put.client_flags) {
            let kept = item.filter(|_| put.verb != Set);
            return Outcome::new(Err(StoreError::TooLarge), kept.cloned());
        }
        let keep = |result| Outcome::new(Ok(Answer::Put(result)), item.cloned());
        let given = Item {
            flags: put.client_flags,
            exptime: put.exptime,
            binary: put.key_binary,
            ..self.new_item(value.clone())
        };
        let new = match (put.verb, item) {
            (Set, _) | (Add | AppendVivify | PrependVivify, None) | (Replace, Some(_)) => given,
            (Replace | Append | Prepend, None) | (Add, Some(_)) => {
                return keep(PutResult::NotStored);
            }
            (Cas, None) => return keep(PutResult::NotFound),
            (Cas, Some(old)) => match order {
                _ if put.cas == 0 => return keep(PutResult::Exists),
                Ordering::Equal => given,
                Ordering::Greater if put.stale => {
                    Item { exptime: old.exptime, stale: true, won: old.won, ..given }
                }
                _ => return keep(PutResult::Exists),
            },
            (_, Some(_)) if order.is_ne() => return keep(PutResult::Exists),
            (verb, Some(old)) => {
                let sum = match verb {
                    Append | AppendVivify => [&old.value[..], value].concat(),
                    _ => [&value[..], &old.value].concat(),
                };
                if self.is_too_large(sum.len(), old.flags) {
                    return keep(PutResult::NotStored);
                }
                let (flags, exptime) = (old.flags, old.exptime);
                Item { flags, exptime, ..self.new_item(sum.into()) }
            }
        };
        let value_bytes = u32::try_from(new.value.len()).unwrap();
        self.stored(new, put.cas_in, |cas| Answer::Put(PutResult::Stored { cas, value_bytes }))
    }

    fn get(&self, item: Option<&Item>, get: &MetaGet<'_>, steps: &[MetaStep]) -> Outcome {
        let vivified = item.is_none();
        let mut outcome = match item {
            Some(item) => Outcome::new(Ok(Answer::Miss), Some(item.clone())),
            None if steps.iter().any(|step| matches!(step, MetaStep::Vivify(_))) => {
                let new = Item { binary: get.key_binary, ..self.new_item(Bytes::default()) };
                self.stored(new, get.cas_in, |_| Answer::Miss)
            }
            None => return Outcome::new(Ok(Answer::Miss), None),
        };
        let Some(item) = &mut outcome.item else { return outcome };
        let (before, mut won) = (item.exptime, false);
        for step in steps {
            match *step {
                MetaStep::Touch(exptime) => item.exptime = exptime,
                MetaStep::Vivify(exptime) if vivified => (item.exptime, won) = (exptime, true),
                MetaStep::Vivify(_) => {}
                MetaStep::Recache(before) => {
                    let soon = item.exptime != 0 && item.exptime < before;
                    won |= soon && !item.won && !vivified;
                }
            }
        }
        won |= item.stale && !item.won;
        won &= get.win;
        let meta = Meta {
            binary: item.binary,
            exptime: before,
            vivified,
            stale: item.stale,
            token_sent: item.won,
            won,
            uses: self.knows_uses.then(|| (item.fetched, self.now - item.used)),
        };
        outcome.reply = Ok(Answer::Hit(Seen {
            value: item.value.clone(),
            flags: item.flags,
            cas: item.cas.unwrap_or(0),
            meta: Some(meta),
        }));
        item.won |= won;
        if get.bump {
            self.read(item);
        }
        outcome
    }

    fn delta(&self, item: Option<&Item>, order: Ordering, delta: &Delta<'_>) -> Outcome {
        let keep = |result| Outcome::new(Ok(Answer::Delta(result)), item.cloned());
        let (value, exptime, vivified) = match (item, delta.vivify) {
            (None, None) => return keep(DeltaResult::NotFound),
            (None, Some(vivify)) => (vivify.initial, 0, true),
            (Some(old), _) => {
                // memcached splits an item above 512 KiB into chunks, and does not increment it.
                let is_chunked = self.counted(old.value.len(), old.flags) > 512 << 10;
                let number = number(&old.value).filter(|_| !is_chunked);
                match (number, delta.incr) {
                    _ if !old.value.is_empty() && !is_chunked && order.is_ne() => {
                        return keep(DeltaResult::Exists);
                    }
                    (None, _) => return keep(DeltaResult::NonNumeric),
                    (Some(number), true) => (number.wrapping_add(delta.delta), old.exptime, false),
                    (Some(number), false) => {
                        (number.saturating_sub(delta.delta), old.exptime, false)
                    }
                }
            }
        };
        let mut digits = value.to_string().into_bytes();
        let mut new = self.new_item(Bytes::default());
        if let Some(old) = item {
            (new.flags, new.exptime) = (old.flags, delta.exptime.unwrap_or(old.exptime));
            // If the new number is not longer than the old value, the item stays and is rewritten.
            if digits.len() <= old.value.len() {
                digits.resize(old.value.len(), b' ');
                new = Item { exptime: new.exptime, used: self.now, ..old.clone() };
            }
        } else {
            new.exptime = delta.vivify.map_or(0, |vivify| vivify.exptime);
        }
        new.value = digits.into();
        self.stored(new, delta.cas_in, |cas| {
            Answer::Delta(DeltaResult::Stored { value, cas, exptime, vivified })
        })
    }

    fn delete(&self, item: Option<&Item>, order: Ordering, delete: &MetaDelete<'_>) -> Outcome {
        let done = |result, item| Outcome::new(Ok(Answer::Delete(result)), item);
        let Some(old) = item else { return done(DeleteResult::NotFound, None) };
        if order.is_ne() {
            return done(DeleteResult::Exists, item.cloned());
        }
        if !delete.stale && !delete.remove_value {
            return done(DeleteResult::Deleted, None);
        }
        let mut new = old.clone();
        if delete.remove_value {
            let (flags, exptime) = (delete.client_flags, delete.exptime.unwrap_or(0));
            new = Item { flags, exptime, cas: old.cas, ..self.new_item(Bytes::default()) };
        }
        if delete.stale {
            let exptime = delete.exptime.unwrap_or(new.exptime);
            new = Item { exptime, stale: true, won: false, ..new };
        }
        if delete.cas_in.is_some() || delete.stale {
            return self.stored(new, delete.cas_in, |_| Answer::Delete(DeleteResult::Deleted));
        }
        done(DeleteResult::Deleted, Some(new))
    }
}

/// Parses a number as C's `strtoull` does; sufficient for the values that the tests use.
fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_start_matches(' ');
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end == text.len() || text[end..].starts_with(' ')).then(|| text[..end].parse().ok())?
}
