//! The model: the reply of each operation on a key, and the item that the operation leaves.
//!
//! Invariant: nothing here reads the store; the caller fills in CAS uniques that the store chose.

use crate::ops::{Cas, DeltaOp, Exp, KeyOp, MetaDeleteOp, MetaGetOp, PutOp, Step};
use std::{fmt, rc::Rc};
use store::{StoreError, Verb};

/// A value whose debug form is shortened.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Text(pub Rc<Vec<u8>>);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = String::from_utf8_lossy(&self.0[..self.0.len().min(24)]).into_owned();
        write!(f, "{start:?} of {} bytes", self.0.len())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Text,
    pub(crate) flags: u32,
    pub(crate) exptime: u32,
    pub(crate) cas: u64,
    pub(crate) binary: bool,
    pub(crate) fetched: bool,
    pub(crate) stale: bool,
    pub(crate) won: bool,
    /// The second of the item's last recorded use.
    pub(crate) used: u32,
    /// True if the item may be gone: a flush that hid it was called off, or a set was refused.
    pub(crate) maybe: bool,
    /// The store's count of evictions when the item was last seen.
    pub(crate) evictions: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Stored { cas: u64, value_bytes: usize },
    NotStored,
    Exists,
    NotFound,
    NonNumeric,
    Refused(StoreError),
    Hit { flags: u32, cas: u64, value: Text },
    Touched,
    Meta(Meta),
    Counted { value: u64, cas: u64, exptime: u32, vivified: bool },
    Deleted,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meta {
    pub(crate) flags: u32,
    pub(crate) cas: u64,
    pub(crate) value: Text,
    pub(crate) binary: bool,
    pub(crate) exptime: u32,
    pub(crate) fetched: bool,
    pub(crate) vivified: bool,
    pub(crate) stale: bool,
    pub(crate) token_sent: bool,
    pub(crate) won: bool,
}

impl Reply {
    pub(crate) fn cas_mut(&mut self) -> Option<&mut u64> {
        match self {
            Self::Stored { cas, .. } | Self::Hit { cas, .. } | Self::Counted { cas, .. } => {
                Some(cas)
            }
            Self::Meta(meta) => Some(&mut meta.cas),
            _ => None,
        }
    }
}

pub(crate) struct Outcome {
    pub(crate) reply: Reply,
    pub(crate) item: Option<Item>,
    /// True if this operation gives the item a CAS unique that the store chooses.
    pub(crate) fresh: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) now: u32,
    pub(crate) frame_bytes: usize,
    pub(crate) item_bytes_max: usize,
    pub(crate) cas: bool,
}

impl Exp {
    pub(crate) fn at(self, now: u32) -> u32 {
        match self {
            Self::Never => 0,
            Self::Past => 1,
            Self::In(seconds) => now + seconds,
        }
    }
}

impl Cas {
    /// Returns the number of this CAS unique, if the item's CAS unique is `cas`.
    pub(crate) fn of(self, cas: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Same => cas,
            Self::Lower(by) => cas.saturating_sub(by),
            Self::Higher(by) => cas.saturating_add(by),
        }
    }
}

impl World {
    fn outcome(&self, reply: Reply, item: Option<Item>) -> Outcome {
        Outcome { reply, item, fresh: false }
    }

    pub(crate) fn expect(
        &self,
        key: &[u8],
        item: Option<&Item>,
        op: &KeyOp,
        value: &Text,
        cas: u64,
    ) -> Outcome {
        match op {
            KeyOp::Put(put) => self.put(key, item, put, value, cas),
            KeyOp::Get => self.get(item),
            KeyOp::Gat(exp) => {
                let mut outcome = self.get(item);
                outcome.item.iter_mut().for_each(|item| item.exptime = exp.at(self.now));
                outcome
            }
            KeyOp::Touch(exp) => {
                let mut outcome = self.get(item);
                if let Some(item) = &mut outcome.item {
                    item.exptime = exp.at(self.now);
                    outcome.reply = Reply::Touched;
                }
                outcome
            }
            KeyOp::Delta(delta) => self.delta(key, item, delta, cas),
            KeyOp::MetaGet(get) => self.meta_get(item, get),
            KeyOp::MetaDelete(delete) => self.meta_delete(item, delete, cas),
            KeyOp::Delete => match item {
                Some(_) => self.outcome(Reply::Deleted, None),
                None => self.outcome(Reply::NotFound, None),
            },
        }
    }

    /// The item's last recorded use after a read now: the store records at most one use a minute.
    pub(crate) fn read(&self, item: &Item) -> u32 {
        if self.now - item.used > 60 { self.now } else { item.used }
    }

    fn get(&self, item: Option<&Item>) -> Outcome {
        let Some(item) = item else { return self.outcome(Reply::NotFound, None) };
        let reply = Reply::Hit { flags: item.flags, cas: item.cas, value: item.value.clone() };
        let item = Item { fetched: true, used: self.read(item), ..item.clone() };
        self.outcome(reply, Some(item))
    }

    fn new_item(&self, value: &Text) -> Item {
        Item {
            value: value.clone(),
            flags: 0,
            exptime: 0,
            cas: 0,
            binary: false,
            fetched: false,
            stale: false,
            won: false,
            used: self.now,
            maybe: false,
            evictions: 0,
        }
    }

    fn too_large(&self, key: &[u8], value_bytes: usize, flags: u32) -> bool {
        self.counted(key, value_bytes, flags) > self.item_bytes_max
    }

    fn counted(&self, key: &[u8], value_bytes: usize, flags: u32) -> usize {
        let flags = if flags == 0 { 0 } else { 4 };
        let cas = if self.cas { 8 } else { 0 };
        key.len() + value_bytes + 51 + flags + cas
    }

    /// The result of storing `item` with the CAS unique `cas_in` or, if `None`, a new unique.
    fn stored(&self, mut item: Item, cas_in: Option<u64>) -> Outcome {
        let fresh = cas_in.is_none() && self.cas;
        item.cas = if self.cas { cas_in.unwrap_or(0) } else { 0 };
        let reply = Reply::Stored { cas: item.cas, value_bytes: item.value.0.len() };
        Outcome { reply, item: Some(item), fresh }
    }

    fn put(&self, key: &[u8], item: Option<&Item>, put: &PutOp, value: &Text, cas: u64) -> Outcome {
        if self.too_large(key, value.0.len(), put.flags) {
            let kept = if put.verb == Verb::Set { None } else { item.cloned() };
            return self.outcome(Reply::Refused(StoreError::TooLarge), kept);
        }
        let new = Item {
            flags: put.flags,
            exptime: put.exp.at(self.now),
            binary: put.binary,
            ..self.new_item(value)
        };
        let keep = |reply| self.outcome(reply, item.cloned());
        match (put.verb, item) {
            (Verb::Set, _)
            | (Verb::Add | Verb::AppendVivify | Verb::PrependVivify, None)
            | (Verb::Replace, Some(_)) => self.stored(new, put.cas_in),
            (Verb::Replace | Verb::Append | Verb::Prepend, None) | (Verb::Add, Some(_)) => {
                keep(Reply::NotStored)
            }
            (Verb::Cas, None) => keep(Reply::NotFound),
            (Verb::Cas, Some(old)) if cas != 0 && cas == old.cas => self.stored(new, put.cas_in),
            (Verb::Cas, Some(old)) if cas != 0 && put.stale && cas < old.cas => {
                let new = Item { exptime: old.exptime, stale: true, won: old.won, ..new };
                self.stored(new, put.cas_in)
            }
            (Verb::Cas, Some(_)) => keep(Reply::Exists),
            (_, Some(old)) if cas != 0 && cas != old.cas => keep(Reply::Exists),
            (verb, Some(old)) => {
                let before = matches!(verb, Verb::Prepend | Verb::PrependVivify);
                let (first, second) =
                    if before { (value, &old.value) } else { (&old.value, value) };
                let sum = Text(Rc::new([&first.0[..], &second.0[..]].concat()));
                if self.too_large(key, sum.0.len(), old.flags) {
                    return keep(Reply::NotStored);
                }
                let (flags, exptime) = (old.flags, old.exptime);
                self.stored(Item { flags, exptime, ..self.new_item(&sum) }, put.cas_in)
            }
        }
    }

    fn delta(&self, key: &[u8], item: Option<&Item>, delta: &DeltaOp, cas: u64) -> Outcome {
        let keep = |reply| self.outcome(reply, item.cloned());
        let text = |number: u64| number.to_string().into_bytes();
        let (new, value, exptime) = match item {
            None => {
                let Some((initial, exp)) = delta.vivify else { return keep(Reply::NotFound) };
                let new = self.new_item(&Text(Rc::new(text(initial))));
                (Item { exptime: exp.at(self.now), ..new }, initial, 0)
            }
            Some(old) => {
                // memcached splits an item above 512 KiB into chunks, and does not increment it.
                let is_chunked = self.counted(key, old.value.0.len(), old.flags) > 512 << 10;
                if old.value.0.is_empty() || is_chunked {
                    return keep(Reply::NonNumeric);
                }
                if cas != 0 && cas != old.cas {
                    return keep(Reply::Exists);
                }
                let Some(number) = number(&old.value.0) else {
                    return keep(Reply::NonNumeric);
                };
                let value = match delta.incr {
                    true => number.wrapping_add(delta.by),
                    false => number.saturating_sub(delta.by),
                };
                let mut digits = text(value);
                let longer = digits.len() > old.value.0.len();
                digits.resize(digits.len().max(old.value.0.len()), b' ');
                let mut new = Item { value: Text(Rc::new(digits)), ..old.clone() };
                if longer {
                    (new.fetched, new.stale, new.won, new.binary) = (false, false, false, false);
                }
                new.exptime = delta.exp.map_or(old.exptime, |exp| exp.at(self.now));
                new.used = self.now;
                (new, value, old.exptime)
            }
        };
        let mut outcome = self.stored(new, delta.cas_in);
        let cas = outcome.item.as_ref().map_or(0, |item| item.cas);
        outcome.reply = Reply::Counted { value, cas, exptime, vivified: item.is_none() };
        outcome
    }

    fn meta_get(&self, item: Option<&Item>, get: &MetaGetOp) -> Outcome {
        let vivify = get.steps.iter().any(|step| matches!(step, Step::Vivify(_)));
        let vivified = item.is_none() && vivify;
        let mut outcome = match item {
            Some(item) => self.outcome(Reply::NotFound, Some(item.clone())),
            None if vivify => {
                let new = self.new_item(&Text(Rc::default()));
                self.stored(Item { binary: get.binary, ..new }, get.cas_in)
            }
            None => return self.outcome(Reply::NotFound, None),
        };
        let Some(item) = &mut outcome.item else { return outcome };
        let (before, mut won) = (item.exptime, false);
        for step in &get.steps {
            match *step {
                Step::Touch(exp) => item.exptime = exp.at(self.now),
                Step::Vivify(exp) if vivified => (item.exptime, won) = (exp.at(self.now), true),
                Step::Vivify(_) => {}
                Step::Recache(seconds) => {
                    let soon = item.exptime != 0 && item.exptime < self.now + seconds;
                    won |= soon && !item.won && !vivified;
                }
            }
        }
        won |= item.stale && !item.won;
        won &= get.win;
        outcome.reply = Reply::Meta(Meta {
            flags: item.flags,
            cas: item.cas,
            value: item.value.clone(),
            binary: item.binary,
            exptime: if vivified { 0 } else { before },
            fetched: item.fetched,
            vivified,
            stale: item.stale,
            token_sent: item.won,
            won,
        });
        item.won |= won;
        item.fetched |= get.bump;
        if vivified {
            item.used = self.now;
        } else if get.bump {
            item.used = self.read(item);
        }
        outcome
    }

    fn meta_delete(&self, item: Option<&Item>, delete: &MetaDeleteOp, cas: u64) -> Outcome {
        let keep = |reply| self.outcome(reply, item.cloned());
        let Some(old) = item else { return keep(Reply::NotFound) };
        if delete.cas.is_some() && cas != old.cas {
            return keep(Reply::Exists);
        }
        if !delete.stale && !delete.remove_value {
            return self.outcome(Reply::Deleted, None);
        }
        let exp = delete.exp.map(|exp| exp.at(self.now));
        let mut new = old.clone();
        if delete.remove_value {
            let (flags, exptime) = (delete.flags, exp.unwrap_or(0));
            new = Item { flags, exptime, cas: old.cas, ..self.new_item(&Text(Rc::default())) };
        }
        if delete.stale {
            new = Item { exptime: exp.unwrap_or(new.exptime), stale: true, won: false, ..new };
        }
        if self.cas && (delete.cas_in.is_some() || delete.stale) {
            let mut outcome = self.stored(new, delete.cas_in);
            outcome.reply = Reply::Deleted;
            return outcome;
        }
        self.outcome(Reply::Deleted, Some(new))
    }
}

/// Parses a number as C's `strtoull` does; sufficient for the values that this test uses.
fn number(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_start_matches(' ');
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (end == text.len() || text[end..].starts_with(' ')).then(|| text[..end].parse().ok())?
}
