//! The model of one key: a register with a value, a CAS unique, client flags and an exptime.
//!
//! Where: `linear` compares each key's history with this model.
//! Invariant: the clock of the column that makes a request decides if an item has expired; an item
//! that is dead by any column's clock may be gone for all columns.
//! Source: memcached's `do_store_item`, `do_add_delta`, `process_mget_cmd` and
//! `process_mdelete_cmd` (1.6.45).

use std::sync::Arc;
use store::{DeleteResult, DeltaResult, MetaStep, PutResult, StoreError, Verb, Vivify};

/// A value. Its debug form shows the first 8 runs of equal words, each with the number of words.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bytes(pub(crate) Arc<[u8]>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.escape_ascii().to_string();
        let words: Vec<&str> = text.split_inclusive('.').collect();
        let mut words = words.chunk_by(|one, other| one == other);
        let runs = words.by_ref().take(8).map(|same| format!("{}x{}", same[0], same.len()));
        write!(to, "{} bytes: {}", self.0.len(), runs.collect::<Vec<_>>().join(" "))
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Item {
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) cas: Option<u64>,
    pub(crate) exptime: u32,
    pub(crate) stale: bool,
    pub(crate) won: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) item: Option<Item>,
    pub(crate) pending: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadResult {
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) cas: u64,
}

/// The result of a meta get: the result of a read, and the values for meta flags.
#[derive(Clone, Debug)]
pub(crate) struct MetaReadResult {
    pub(crate) seen: ReadResult,
    pub(crate) exptime: u32,
    pub(crate) stale: bool,
    pub(crate) token_sent: bool,
    pub(crate) won: bool,
    pub(crate) vivified: bool,
}

/// A request with its answer, or an eviction.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Get(Option<ReadResult>),
    MetaGet {
        steps: Vec<MetaStep>,
        win: bool,
        hit: Option<MetaReadResult>,
    },
    Put {
        verb: Verb,
        given: Item,
        cas: u64,
        cas_in: Option<u64>,
        stale: bool,
        result: Result<PutResult, StoreError>,
    },
    /// A touch that found an item, with the new exptime; `GotAndTouched` also returned the item.
    Touched(u32),
    GotAndTouched(ReadResult, u32),
    Delete {
        cas: Option<u64>,
        result: DeleteResult,
    },
    Mark {
        cas: Option<u64>,
        cas_in: Option<u64>,
        stale: bool,
        exptime: Option<u32>,
        emptied: Option<u32>,
        result: Result<DeleteResult, StoreError>,
    },
    Delta {
        incr: bool,
        delta: u64,
        cas: u64,
        vivify: Option<Vivify>,
        exptime: Option<u32>,
        result: Result<DeltaResult, StoreError>,
    },
    Evicted,
    /// A flush of all keys at this second; `None` flushes now, 0 calls the pending flush off.
    Flush(Option<u32>),
    /// The column's clock was set to the `now` of the call.
    Tick,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) has_cas: bool,
    /// True if no client chooses CAS uniques, so that the uniques of a key rise.
    pub(crate) rising_cas: bool,
    /// True if room may be short, so that requests may be refused.
    pub(crate) may_refuse: bool,
}

/// True if the item is expired or flushed for a column whose clock is at `now`.
pub(crate) fn is_hidden(state: &State, now: u32) -> bool {
    let Some(item) = &state.item else { return false };
    (item.exptime != 0 && item.exptime <= now) || (state.pending != 0 && now >= state.pending)
}

impl Item {
    /// The item with `cas`, the CAS unique that was seen; `None` if the item has another unique.
    fn seen_with(&self, cas: u64) -> Option<Item> {
        let is_it = self.cas.is_none_or(|own| own == cas);
        is_it.then(|| Item { cas: Some(cas), ..self.clone() })
    }

    /// The item, if it may have the CAS unique `cas`. If `cas` is `None`, the item in any case.
    fn matches(&self, cas: Option<u64>) -> Option<Item> {
        cas.map_or_else(|| Some(self.clone()), |cas| self.seen_with(cas))
    }

    fn has_other(&self, cas: u64) -> bool {
        self.cas.is_none_or(|own| own != cas)
    }

    fn answers(&self, seen: &ReadResult) -> Option<Item> {
        let same = self.value == seen.value && self.flags == seen.flags;
        self.seen_with(seen.cas).filter(|_| same)
    }
}

impl Rules {
    /// The states to which the event may lead from `state`. Empty if the event is impossible there.
    pub(crate) fn after(self, state: &State, now: u32, event: &Event) -> Vec<State> {
        let there = state.item.as_ref().filter(|_| !is_hidden(state, now));
        let to = |item: Option<Item>| vec![State { item, ..state.clone() }];
        let some = |item: Option<Item>| item.map_or(Vec::new(), |item| to(Some(item)));
        let only = |holds: bool| if holds { vec![state.clone()] } else { Vec::new() };
        let timed = |item: Item, exptime: &u32| Item { exptime: *exptime, ..item };
        match event {
            Event::Get(None) => only(there.is_none()),
            Event::Get(Some(seen)) => some(there.and_then(|item| item.answers(seen))),
            Event::Touched(exptime) => some(there.map(|item| timed(item.clone(), exptime))),
            Event::GotAndTouched(seen, exptime) => {
                let item = there.and_then(|item| item.answers(seen));
                some(item.map(|item| timed(item, exptime)))
            }
            Event::MetaGet { steps, win, hit } => self.meta(state, there, (steps, *win), hit),
            Event::Put { verb: Verb::Set, result: Err(StoreError::NoMemory), .. } => {
                if self.may_refuse { to(None) } else { Vec::new() }
            }
            Event::Put { result: Err(refused), .. }
            | Event::Mark { result: Err(refused), .. }
            | Event::Delta { result: Err(refused), .. } => {
                only(self.may_refuse && *refused != StoreError::TooLarge)
            }
            Event::Put { verb, given, cas, cas_in, stale, result: Ok(result) } => {
                self.put(state, there, (*verb, given, *cas, *stale), *cas_in, *result)
            }
            Event::Delete { cas, result } => match (result, there) {
                (DeleteResult::NotFound, None) => to(None),
                (DeleteResult::Deleted, Some(item)) if item.matches(*cas).is_some() => to(None),
                (DeleteResult::Exists, Some(item)) => {
                    only(cas.is_some_and(|cas| item.has_other(cas)))
                }
                _ => Vec::new(),
            },
            Event::Mark { cas, result: Ok(result), .. } => match (result, there) {
                (DeleteResult::NotFound, None) => only(true),
                (DeleteResult::Exists, Some(item)) => {
                    only(cas.is_some_and(|cas| item.has_other(cas)))
                }
                (DeleteResult::Deleted, Some(item)) => {
                    some(item.matches(*cas).map(|item| self.marked(item, event)))
                }
                _ => Vec::new(),
            },
            Event::Delta { result: Ok(DeltaResult::Stored { .. }), .. } => {
                some(self.counted(there, event))
            }
            Event::Delta { .. } => only(self.did_not_count(there, event)),
            Event::Evicted => to(None),
            Event::Flush(Some(0)) => vec![State { pending: 0, ..state.clone() }],
            Event::Flush(Some(at)) if *at >= now => vec![State { pending: *at, ..state.clone() }],
            Event::Flush(_) => vec![State::default()],
            Event::Tick if state.pending != 0 && now > state.pending => vec![State::default()],
            Event::Tick => only(true),
        }
    }

    fn put(
        self,
        state: &State,
        there: Option<&Item>,
        (verb, given, cas, stale): (Verb, &Item, u64, bool),
        cas_in: Option<u64>,
        result: PutResult,
    ) -> Vec<State> {
        use Verb::{Add, Append, AppendVivify, Cas, Prepend, PrependVivify, Replace, Set};
        let only = |holds: bool| if holds { vec![state.clone()] } else { Vec::new() };
        let PutResult::Stored { cas: got, value_bytes } = result else {
            return only(match (result, verb, there) {
                (PutResult::NotStored, Add, Some(_)) => true,
                (PutResult::NotStored, Replace | Append | Prepend, None) => true,
                (PutResult::NotFound, Cas, None) => true,
                (PutResult::Exists, Cas, Some(item)) => {
                    cas == 0
                        || (item.has_other(cas)
                            && !(stale && item.cas.is_some_and(|own| cas < own)))
                }
                (
                    PutResult::Exists,
                    Append | Prepend | AppendVivify | PrependVivify,
                    Some(item),
                ) => cas != 0 && item.has_other(cas),
                _ => false,
            });
        };
        let due = match (verb, there) {
            (Set, _) | (Add, None) | (AppendVivify | PrependVivify, None) => Some(given.clone()),
            (Replace, Some(_)) => Some(given.clone()),
            (Cas, Some(item)) if cas != 0 => match item.cas {
                Some(own) if own == cas => Some(given.clone()),
                Some(own) if stale && cas < own => Some(Item {
                    exptime: item.exptime,
                    stale: true,
                    won: item.won,
                    ..given.clone()
                }),
                // The item's CAS unique is unknown: it was `cas` or, if `stale`, a higher unique.
                None if !stale => Some(given.clone()),
                None => {
                    let stale =
                        Item { exptime: item.exptime, stale: true, won: item.won, ..given.clone() };
                    let all = [given.clone(), stale];
                    return all
                        .into_iter()
                        .filter_map(|item| self.stored(there, item, (got, cas_in), value_bytes))
                        .map(|item| State { item: Some(item), ..state.clone() })
                        .collect();
                }
                _ => None,
            },
            (Append | Prepend | AppendVivify | PrependVivify, Some(item)) => {
                let matches = cas == 0 || item.seen_with(cas).is_some();
                let pieces = match verb {
                    Append | AppendVivify => [&item.value, &given.value],
                    _ => [&given.value, &item.value],
                };
                let value: Vec<u8> =
                    pieces.into_iter().flat_map(|piece| piece.iter().copied()).collect();
                let plain = Item { stale: false, won: false, value: value.into(), ..item.clone() };
                matches.then_some(plain)
            }
            _ => None,
        };
        let due = due.and_then(|item| self.stored(there, item, (got, cas_in), value_bytes));
        due.map(|item| State { item: Some(item), ..state.clone() }).into_iter().collect()
    }

    /// The stored item, if the reported CAS unique and length are possible.
    fn stored(
        self,
        there: Option<&Item>,
        item: Item,
        (got, cas_in): (u64, Option<u64>),
        value_bytes: u32,
    ) -> Option<Item> {
        (item.value.len() == value_bytes as usize).then_some(())?;
        self.with_cas(there, item, got, cas_in)
    }

    /// The item with the reported CAS unique `got`, if that unique is possible.
    fn with_cas(
        self,
        there: Option<&Item>,
        item: Item,
        got: u64,
        cas_in: Option<u64>,
    ) -> Option<Item> {
        let before = there.and_then(|there| there.cas).unwrap_or(0);
        let may_be = match (self.has_cas, cas_in) {
            (false, _) => got == 0,
            (true, Some(cas)) => got == cas,
            (true, None) => got != 0 && (!self.rising_cas || got > before),
        };
        may_be.then_some(Item { cas: Some(got), ..item })
    }

    fn marked(self, item: Item, event: &Event) -> Item {
        let Event::Mark { cas_in, stale, exptime, emptied, .. } = *event else { return item };
        let mut new = item;
        if let Some(flags) = emptied {
            new.value = Vec::new().into();
            new.flags = flags;
            new.exptime = exptime.unwrap_or(0);
            (new.stale, new.won) = (false, false);
        }
        if stale {
            new.exptime = exptime.unwrap_or(new.exptime);
            (new.stale, new.won) = (true, false);
            new.cas = self.none_yet();
        }
        if let Some(cas) = cas_in {
            new.cas = Some(if self.has_cas { cas } else { 0 });
        }
        new
    }

    /// The CAS unique of an item that no answer has shown: 0 if the store keeps none, else unknown.
    fn none_yet(self) -> Option<u64> {
        (!self.has_cas).then_some(0)
    }

    fn counted(self, there: Option<&Item>, event: &Event) -> Option<Item> {
        let Event::Delta { incr, delta, cas, vivify, exptime, result } = event else { return None };
        let Ok(DeltaResult::Stored { value, cas: got, exptime: before, vivified }) = result else {
            return None;
        };
        let Some(item) = there else {
            let vivify = (*vivify).filter(|vivify| *vivified && vivify.initial == *value)?;
            let item = Item {
                value: value.to_string().into_bytes().into(),
                flags: 0,
                cas: None,
                exptime: vivify.exptime,
                stale: false,
                won: false,
            };
            return self.with_cas(None, item, *got, None);
        };
        let old = number(item)?;
        let due = if *incr { old.wrapping_add(*delta) } else { old.saturating_sub(*delta) };
        let is_it = !vivified && due == *value && *before == item.exptime;
        let matches = *cas == 0 || item.seen_with(*cas).is_some();
        (is_it && matches).then_some(())?;
        let mut text = value.to_string().into_bytes();
        let in_place = text.len() <= item.value.len();
        text.resize(text.len().max(item.value.len()), b' ');
        let new = Item {
            value: text.into(),
            exptime: exptime.unwrap_or(item.exptime),
            stale: item.stale && in_place,
            won: item.won && in_place,
            ..item.clone()
        };
        self.with_cas(there, new, *got, None)
    }

    fn did_not_count(self, there: Option<&Item>, event: &Event) -> bool {
        let Event::Delta { cas, vivify, result, .. } = event else { return false };
        match (result, there) {
            (Ok(DeltaResult::NotFound), None) => vivify.is_none(),
            (Ok(DeltaResult::NonNumeric), Some(item)) => number(item).is_none(),
            (Ok(DeltaResult::Exists), Some(item)) => {
                !item.value.is_empty() && *cas != 0 && item.has_other(*cas)
            }
            _ => false,
        }
    }

    fn meta(
        self,
        state: &State,
        there: Option<&Item>,
        (steps, win): (&[MetaStep], bool),
        hit: &Option<MetaReadResult>,
    ) -> Vec<State> {
        let vivifies = steps.iter().any(|step| matches!(step, MetaStep::Vivify(_)));
        let to = |item| vec![State { item: Some(item), ..state.clone() }];
        let Some(hit) = hit else {
            // Without room, the store can neither add an exptime to an item nor create an item.
            return match (there, vivifies) {
                (None, false) => vec![state.clone()],
                _ if self.may_refuse => vec![state.clone()],
                _ => Vec::new(),
            };
        };
        let Some(item) = there else {
            let exptime = steps.iter().fold(0, |exptime, step| match *step {
                MetaStep::Touch(to) | MetaStep::Vivify(to) => to,
                MetaStep::Recache(_) => exptime,
            });
            let is_it = vivifies && hit.vivified && hit.won == win && hit.seen.value.is_empty();
            let item = Item {
                value: Vec::new().into(),
                flags: 0,
                cas: None,
                exptime,
                stale: false,
                won: win,
            };
            let item = self.with_cas(None, item, hit.seen.cas, None).filter(|_| is_it);
            return item.map_or(Vec::new(), to);
        };
        let Some(item) = item.answers(&hit.seen).filter(|_| !hit.vivified) else {
            return Vec::new();
        };
        let (mut exptime, mut won) = (item.exptime, false);
        for step in steps {
            match *step {
                MetaStep::Touch(to) => exptime = to,
                MetaStep::Vivify(_) => {}
                MetaStep::Recache(before) => won |= !item.won && exptime != 0 && exptime < before,
            }
        }
        won = (won || (item.stale && !item.won)) && win;
        let shown = (hit.exptime, hit.stale, hit.token_sent, hit.won);
        if shown != (item.exptime, item.stale, item.won, won) {
            return Vec::new();
        }
        to(Item { exptime, won: item.won || won, ..item })
    }
}

/// The item's value as a number, if it is one. In this model a value of over 512 bytes is not.
fn number(item: &Item) -> Option<u64> {
    let text = std::str::from_utf8(&item.value).ok()?;
    let digits = text.split(' ').next()?;
    digits.parse().ok().filter(|_| item.value.len() <= 512)
}
