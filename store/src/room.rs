//! Making room: segments are compacted or drained in bounded slices, paid for by appends.
//!
//! Where: before an append takes a place, and in idle columns ahead of need.
//! Invariant: a drain starts only with a free segment kept for what it moves; no append pays for
//! more than a slice unless nothing at all is free; an item's slot changes under its group's lock,
//! found by location.
//! Source: the paper's section 4.2.3 (NbQ-CLOCK); compaction as in log-structured stores.

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use crate::Store;
use crate::column::Local;
use crate::index::slot::{FETCHED, Slot};
use crate::item::{self, CasWidth, Fields, Item, Record};
use crate::log::Place;
use crate::policy::{self, Policy, Pressure, Queue, Verdict};
use crate::publish::{Fate, item_bytes};
use crate::sweep::Sweep;
use crate::verbs::Refused;
use memory::segments::{Segment, State};
use memory::sync::{Ordering, spin_loop, yield_now};
use std::time::Duration;

/// A slice is at least and at most so many bytes of records.
const SLICE_BYTES_MIN: u32 = 2 << 10;
pub(crate) const SLICE_BYTES_MAX: u32 = 32 << 10;
/// An append pays this many times its size, and up to ten times more as free segments run out.
const PAY_FACTOR: u32 = 2;
const PAY_FACTOR_MORE: u32 = 10;
/// Compaction comes before eviction while more than this part of all segments is dead, in percent.
const DEAD_PERCENT_MAX: u64 = 3;
/// A segment with less dead bytes than this is not worth compacting, in percent: of those that are
/// there when more than `DEAD_PERCENT_MAX` is dead, the best has as many.
const COMPACT_DEAD_PERCENT_MIN: u64 = 3;
/// A segment is walked for expired items first when this part of it may be such.
const EXPIRED_PART: u64 = 8;
/// An item's key and fields, and a little more.
const ITEM_HEAD_BYTES_MAX: u32 = 300;
/// What is dead of a segment is counted in so many parts of it, to tell what is worth most.
const WORTH_PARTS: u64 = 1 << 10;
/// Segments looked at to choose one to compact; in larger stores, at random, until so many of them
/// could be.
const CANDIDATES_MAX: u32 = 1024;
const CANDIDATES_SAMPLED: u32 = 64;
/// Choices of a segment to compact that others may take first.
const CLAIM_ATTEMPTS_MAX: u32 = 8;
/// More bytes spared than freed, as a part of all memory, from which on a policy must let go.
const DEBT_PART: u64 = 16;
/// Appends that do not look for room again after none was to be made.
const REST_APPENDS: u32 = 64;
/// An append that waits gives up after so many rounds: the first spin, the next yield, the others
/// sleep.
const WAIT_ROUNDS_MAX: u32 = 4096;
const WAIT_ROUNDS_SPIN: u32 = 8;
const WAIT_ROUNDS_YIELD: u32 = 64;
const WAIT_SLEEP: Duration = Duration::from_micros(100);

/// What a walk through a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Move all live items together: no item is lost.
    Compact,
    /// Spare or evict, as the policy says.
    Evict,
    /// Drop the dead, leave the others where they are.
    Sweep,
    /// Copy values whose frames lie scattered from this segment on, leave the others.
    Repack(u32),
}

/// What a column's drains have spared beyond what they freed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Debt {
    bytes: u64,
    /// A whole drain under debt has freed nothing.
    stuck: bool,
}

/// A walk through a claimed segment.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) segment: u32,
    pub(crate) at: u32,
    aim: Aim,
    token: u32,
    freed_bytes: u64,
    /// The mean of all items when it began; 0 where nobody asks.
    mean_bytes: u32,
    pub(crate) sweep: Sweep,
}

/// What a look at the sealed segments has found.
struct Choice {
    /// The one whose compaction frees most, if it frees enough.
    best: Option<u32>,
    /// An estimate of all dead bytes. What an item that did not fit left over at a segment's end is
    /// not counted: compaction would leave as much, and never come to an end.
    dead_bytes: u64,
    /// One many of whose items are likely to have expired.
    expired: Option<u32>,
}

/// How much a segment's compaction is worth, 0 where there is too little dead. By cost and benefit
/// (Rosenblum and Ousterhout, 1992), `(1 - u) * age / (1 + u)` with `u` live: what has not been
/// overwritten for long will not be soon, and keeps the room together. But with the third power of
/// what is dead: the first moves half as much again where all keys are overwritten alike, for there
/// age tells nothing, and no less where some are hot (`bench store -- overwrite --hot-percent`).
fn worth(dead_bytes: u64, segment_bytes: u64, age: u64) -> u64 {
    if dead_bytes * 100 < segment_bytes * COMPACT_DEAD_PERCENT_MIN {
        return 0;
    }
    let dead = dead_bytes * WORTH_PARTS / segment_bytes;
    dead.pow(3).saturating_mul(age + 1) / (2 * WORTH_PARTS - dead)
}

/// How an item's drain went.
#[derive(PartialEq, Eq)]
pub(crate) enum Drained {
    Done,
    /// It was relocated.
    Moved,
    NoRoom,
}

/// What of a relocated item is another than before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) cnt: Option<u64>,
    pub(crate) first_frame: Option<u32>,
}

impl Drain {
    pub(crate) fn token(&self) -> usize {
        self.token as usize
    }
}

impl Local {
    /// A place for an item of `bytes` that will expire at `exptime` (0: never) in `queue`, paying
    /// for room as it goes. A quiescent point: the caller holds nothing.
    ///
    /// # Errors
    /// `NoMemory`: nothing can be freed.
    pub(crate) fn place(
        &mut self,
        store: &Store,
        (queue, exptime): (Queue, u32),
        bytes: u32,
    ) -> Result<Place, Refused> {
        self.pay(store, bytes);
        let take = |local: &mut Self| {
            store.log.reserve(queue, (local.appender(store), exptime), bytes, store.keep())
        };
        match take(self) {
            Some(place) => Ok(place),
            None => self.wait_for(store, take),
        }
    }

    /// A frame for a value on its way in; as `place`.
    ///
    /// # Errors
    /// As `place`.
    pub(crate) fn frame(&mut self, store: &Store) -> Result<u32, Refused> {
        self.pay(store, store.frame_bytes());
        let take = |_: &mut Self| store.memory().take_frame(store.keep());
        match take(self) {
            Some(frame) => Ok(frame),
            None => self.wait_for(store, take),
        }
    }

    /// Pays for an append of `bytes` when free segments run low.
    fn pay(&mut self, store: &Store, bytes: u32) {
        let segments = &store.memory().segments;
        let high = store.high();
        if segments.free() >= high {
            return;
        }
        self.pass(store);
        self.reclaim(store);
        self.take_allowed(store);
        // What waits for other columns will be free without more being drained; what is to be
        // withheld will not.
        let free = (segments.free() + segments.limbo()).saturating_sub(store.excess());
        if free >= high {
            return;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let lacking = high - free;
        let factor = PAY_FACTOR + PAY_FACTOR_MORE * lacking / high;
        let budget = bytes.saturating_mul(factor).clamp(SLICE_BYTES_MIN, SLICE_BYTES_MAX);
        if !self.make_room(store, budget) {
            self.rest = REST_APPENDS;
        }
    }

    /// Makes room until `take` gets what it wants. While it waits for others it reads nothing.
    pub(crate) fn wait_for<T>(
        &mut self,
        store: &Store,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, Refused> {
        for round in 0..WAIT_ROUNDS_MAX {
            // With enough drained that only waits for other columns, more would be evicted in vain.
            let enough = store.memory().segments.limbo() >= store.high();
            let progress = !enough && self.make_room(store, SLICE_BYTES_MAX);
            self.pass(store);
            self.reclaim(store);
            self.take_allowed(store);
            if let Some(taken) = take(self) {
                return Ok(taken);
            }
            if progress {
                continue;
            }
            let others =
                // a hint: they may free something
                store.memory().segments.limbo() > 0
                    || store.tokens.load(Ordering::Relaxed) != 0
                    || store.index.is_passing()
                    || !store.harvest.is_empty();
            if !others && round > WAIT_ROUNDS_SPIN {
                break;
            }
            store.memory().quiescence.offline(self.id);
            match round {
                0..WAIT_ROUNDS_SPIN => spin_loop(),
                WAIT_ROUNDS_SPIN..WAIT_ROUNDS_YIELD => yield_now(),
                _ => std::thread::sleep(WAIT_SLEEP),
            }
            self.pass(store);
        }
        Err(Refused::NoMemory)
    }

    /// Frees retired segments that nobody can be reading any more.
    pub(crate) fn reclaim(&self, store: &Store) {
        let memory = store.memory();
        if memory.segments.limbo() == 0 {
            return;
        }
        memory.segments.reclaim(&memory.quiescence, |segment| {
            // What a pass has left uncounted, or others have counted too.
            let (bytes, queue) =
                (store.log.segment(segment).miscounted(), store.log.queue_of(segment));
            match bytes >= 0 {
                true => self.counters(store).unlink(queue, bytes.unsigned_abs().into()),
                false => self.counters(store).link(queue, bytes.unsigned_abs().into()),
            }
            poison(store, segment);
        });
    }

    /// Works off `budget` bytes of records. False: nothing to be done.
    pub(crate) fn make_room(&mut self, store: &Store, budget: u32) -> bool {
        let mut done = 0;
        while done < budget {
            // What has died is room for nothing.
            let harvested = self.harvest(store, budget - done);
            if harvested > 0 {
                done = done.saturating_add(harvested);
                continue;
            }
            self.stop_for_repack(store);
            if self.drain.is_none() && !self.start(store) {
                break;
            }
            let did = self.slice(store, budget - done);
            if did == 0 {
                // Nowhere to move anything to before others free something.
                break;
            }
            done += did;
        }
        done > 0
    }

    /// Claims the next segment to drain.
    fn start(&mut self, store: &Store) -> bool {
        if self.take_parked(store) {
            return true;
        }
        let Some(token) = store.take_token() else { return false };
        let claimed = self.claim(store, token);
        match claimed {
            Some((segment, aim, sweep)) => {
                let counters = self.counters(store);
                match aim {
                    Aim::Compact => counters.compacted_segments.add(1),
                    Aim::Evict => counters.drained_segments.add(1),
                    Aim::Sweep | Aim::Repack(_) => {}
                }
                let mean_bytes = if aim == Aim::Evict { store.mean_item_bytes() } else { 0 };
                let drain = Drain { segment, at: 0, aim, token, freed_bytes: 0, mean_bytes, sweep };
                self.drain = Some(drain);
            }
            None => store.give_token(token),
        }
        claimed.is_some()
    }

    fn claim(&mut self, store: &Store, token: u32) -> Option<(u32, Aim, Sweep)> {
        if let Some(gathered) = self.next_gathered(store) {
            return Some(gathered);
        }
        if store.index.is_passing() {
            return None; // others are making room
        }
        store.log.trim_timed();
        if let Some((segment, aim)) = self.claim_to_repack(store) {
            return Some((segment, aim, Sweep::default()));
        }
        let segments = &store.memory().segments;
        // Only with room for all that is to be moved.
        let room = |segment| {
            segments.free() > 0
                || store.log.out_room(token as usize, segment) >= segments.get(segment).live()
        };
        let all_bytes =
            u64::from(store.memory().present()) << store.memory().region.segment_bytes().ilog2();
        for attempt in 0..=CLAIM_ATTEMPTS_MAX {
            let Choice { best, dead_bytes, expired } = self.choose(store);
            // What it would move may be dead.
            if let Some(segment) = expired
                && let Some(sweep) = self.claim_to_sweep(store, segment)
            {
                return Some((segment, Aim::Sweep, sweep));
            }
            let much = dead_bytes * 100 > all_bytes * DEAD_PERCENT_MAX;
            let Some(segment) = best.filter(|_| much || store.config.eviction.is_none()) else {
                break;
            };
            // Others are at all that is best, or what was retired will be room: no reason to evict.
            if attempt == CLAIM_ATTEMPTS_MAX || (!room(segment) && segments.limbo() > 0) {
                return None;
            }
            if !room(segment) {
                break;
            }
            if segments.get(segment).change(State::Sealed, State::Draining) {
                return Some((segment, Aim::Compact, Sweep::default()));
            }
        }
        let Some(policy) = store.config.eviction else {
            let claimed = self.claim_expired(store);
            return claimed.map(|(segment, sweep)| (segment, Aim::Sweep, sweep));
        };
        let (probation_bytes, main_bytes) = store.live_bytes();
        let (first, then) = match policy.victim(store.share(), probation_bytes, main_bytes) {
            Queue::Probation => (Queue::Probation, Queue::Main),
            Queue::Main => (Queue::Main, Queue::Probation),
        };
        let oldest = || store.log.take_oldest(first).or_else(|| store.log.take_oldest(then));
        let oldest = oldest().or_else(|| {
            // All items are in open segments, their values perhaps in frames.
            store.log.seal_all();
            oldest()
        });
        oldest.map(|segment| (segment, Aim::Evict, Sweep::default()))
    }

    /// A segment with expired items, where nothing may be evicted; each once a second.
    fn claim_expired(&mut self, store: &Store) -> Option<(u32, Sweep)> {
        let count = store.memory().segments.count();
        let first = if count <= CANDIDATES_MAX { 0 } else { self.random(count) };
        (0..count.min(CANDIDATES_MAX)).map(|look| (first + look) % count).find_map(|segment| {
            let there = store.log.segment(segment);
            let expired = there.min_exp() <= self.now && there.walked() != self.now;
            Some((segment, expired.then(|| self.claim_to_sweep(store, segment))??))
        })
    }

    /// Looks for segments to work on.
    fn choose(&mut self, store: &Store) -> Choice {
        let segments = &store.memory().segments;
        let segment_bytes = u64::from(store.memory().region.segment_bytes());
        let count = segments.count();
        let all = count <= CANDIDATES_MAX;
        let left_over_max = u64::from(store.frame_bytes() + ITEM_HEAD_BYTES_MAX);
        let (mut best, mut best_worth, mut dead_bytes) = (None, 0, 0);
        let (mut expired, mut most_expired) = (None, segment_bytes / EXPIRED_PART);
        let (mut looks, mut sealed) = (0, 0);
        while looks < count.min(CANDIDATES_MAX) && (all || sealed < CANDIDATES_SAMPLED) {
            let segment = if all { looks } else { self.random(count) };
            looks += 1;
            let there = segments.get(segment);
            if !there.is(State::Sealed) || !there.drainable() {
                continue;
            }
            sealed += 1;
            let left_over = segment_bytes.saturating_sub(there.end().into()).min(left_over_max);
            let dead = segment_bytes.saturating_sub(left_over + u64::from(there.live()));
            dead_bytes += dead;
            let worth = worth(dead, segment_bytes, store.log.age(segment));
            if worth > best_worth {
                (best, best_worth) = (Some(segment), worth);
            }
            let bytes = self.expired_bytes(there);
            if bytes > most_expired {
                (expired, most_expired) = (Some(segment), bytes);
            }
        }
        let dead_bytes = dead_bytes * u64::from(count) / u64::from(looks.max(1));
        Choice { best, dead_bytes, expired }
    }

    /// About how many bytes of a segment's linked items have expired, if its items expire evenly
    /// from the earliest exptime to the latest.
    fn expired_bytes(&self, there: &Segment) -> u64 {
        let (first, last) = (u64::from(there.min_exp()), u64::from(there.max_exp()));
        let now = u64::from(self.now);
        if first >= now || last == u64::from(u32::MAX) {
            return 0;
        }
        u64::from(there.live()) * (now.min(last) - first) / last.saturating_sub(first).max(1)
    }

    pub(crate) fn random(&mut self, below: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(((self.random >> 32) * u64::from(below)) >> 32).unwrap_or(0)
    }

    /// Walks on through the claimed segment for about `budget` bytes. Returns how many it did.
    pub(crate) fn slice(&mut self, store: &Store, budget: u32) -> u32 {
        let Some(mut drain) = self.drain.take() else { return 0 };
        if drain.aim == Aim::Sweep {
            return self.sweep_slice(store, drain, budget);
        }
        let memory = store.memory();
        let end = memory.segments.get(drain.segment).end();
        let mut done = 0;
        while done < budget {
            if drain.at >= end {
                self.finish(store, drain);
                return done.max(1);
            }
            let loc = memory.region.start(drain.segment) + u64::from(drain.at);
            // SAFETY: the segment was drainable when it was claimed, so records cover it up to
            // `end`, and `at` steps from one to the next.
            let extent = match unsafe { item::record(&memory.region, loc, store.layout) } {
                Record::Void(extent) => extent,
                Record::Item(item) => {
                    let before = drain.freed_bytes;
                    if self.drain_item(store, &mut drain, &item, loc) == Drained::NoRoom {
                        self.stop(store, &drain);
                        return done;
                    }
                    // An item's frames count as well, or far more would be evicted than was needed.
                    let freed = drain.freed_bytes - before;
                    done = done.saturating_add(u32::try_from(freed).unwrap_or(budget));
                    item.extent()
                }
            };
            drain.at += extent;
            done = done.saturating_add(extent);
        }
        self.drain = Some(drain);
        done
    }

    fn drain_item(
        &mut self,
        store: &Store,
        drain: &mut Drain,
        item: &Item<'_>,
        loc: u64,
    ) -> Drained {
        if let Aim::Repack(from) = drain.aim {
            if item.shape().is_chained() {
                let at = (store.hash.hash(item.key()), loc);
                drain.freed_bytes += u64::from(self.repack(store, drain, at, item, from));
            }
            return Drained::Done;
        }
        let hash = store.hash.hash(item.key());
        let Some(found) = store.index.find(hash, |slot| slot.loc() == loc) else {
            return Drained::Done;
        };
        let bytes = item_bytes(item.shape());
        if self.fate(store, item, loc) != Fate::Live {
            self.drop_dead(store, drain, hash, loc, bytes);
            return Drained::Done;
        }
        match drain.aim {
            Aim::Sweep | Aim::Repack(_) => Drained::Done,
            Aim::Compact => {
                let (token, from) = (drain.token as usize, drain.segment);
                let place = |bytes| store.log.reserve_out(token, from, bytes);
                self.relocate(store, (hash, loc), item, Moved::default(), place)
            }
            Aim::Evict => {
                let cnt = found.slot.cnt();
                match self.judge(store, drain, cnt, bytes) {
                    Verdict::Evict { remember } => {
                        self.evict(store, drain, (hash, loc, bytes), remember);
                    }
                    Verdict::Spare(cnt) => {
                        let to = (self.appender(store), item.exptime());
                        let place = |bytes| store.log.reserve(Queue::Main, to, bytes, 0);
                        let moved = Moved { cnt: Some(cnt.into()), first_frame: None };
                        if self.relocate(store, (hash, loc), item, moved, place) == Drained::NoRoom
                        {
                            self.evict(store, drain, (hash, loc, bytes), true);
                        }
                        self.debt.bytes += bytes;
                    }
                }
                Drained::Done
            }
        }
    }

    /// Asks the policy about an item of so many bytes.
    fn judge(&self, store: &Store, drain: &Drain, cnt: u64, bytes: u64) -> Verdict {
        let Some(policy) = store.config.eviction else { return Verdict::Spare(0) };
        let in_debt = self.debt.bytes > store.memory_bytes() as u64 / DEBT_PART;
        let item = policy::Drained {
            queue: store.log.queue_of(drain.segment),
            cnt: u8::try_from(cnt).unwrap_or(policy::CNT_MAX),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            mean_bytes: drain.mean_bytes,
        };
        policy.judge(item, Pressure { in_debt, stuck: self.debt.stuck })
    }

    fn drop_dead(&mut self, store: &Store, drain: &mut Drain, hash: u64, loc: u64, bytes: u64) {
        match self.unlink_dead(store, hash, loc) {
            Fate::Live => return,
            Fate::Expired | Fate::Flushed => self.counters(store).reclaimed.add(1),
        }
        self.freed(drain, bytes);
    }

    pub(crate) fn freed(&mut self, drain: &mut Drain, bytes: u64) {
        drain.freed_bytes += bytes;
        self.debt.bytes = self.debt.bytes.saturating_sub(3 * bytes);
        self.debt.stuck = false;
    }

    /// Evicts the item at a location, if it is still linked; the ghost may be told to `remember`.
    fn evict(
        &mut self,
        store: &Store,
        drain: &mut Drain,
        (hash, loc, bytes): (u64, u64, u64),
        remember: bool,
    ) {
        let mut locked = store.index.lock(hash);
        let Some(at) = locked.find_loc(loc) else { return };
        let slot = at.slot();
        locked.remove(at);
        if remember {
            locked.remember(store.log.queue_of(drain.segment));
        }
        drop(locked);
        self.items -= 1;
        let counters = self.counters(store);
        counters.evictions.add(1);
        let age = self.now.saturating_sub(store.log.segment(drain.segment).opened());
        counters.note_eviction_age(age);
        if !slot.has(FETCHED) {
            counters.evicted_unfetched.add(1);
        }
        self.dispose(store, loc, &store.item(loc));
        self.freed(drain, bytes);
    }

    /// Moves the item at `loc`, if it is still linked, to where `place` says; with another counter,
    /// if it is spared, and as it is, if it is only moved together with others; naming a copy of
    /// its frames, if there is one.
    pub(crate) fn relocate(
        &mut self,
        store: &Store,
        (hash, loc): (u64, u64),
        item: &Item<'_>,
        Moved { cnt, first_frame }: Moved,
        place: impl FnOnce(u32) -> Option<Place>,
    ) -> Drained {
        let region = &store.memory().region;
        let from = store.log.segment_of(loc);
        // A guess: it may be rewritten before it is locked.
        let shape = item.shape().with_cas(store.cas_width(item.cas(|| from.cas_base())));
        let Some(place) = place(shape.extent()) else { return Drained::NoRoom };
        let mut locked = store.index.lock(hash);
        let Some(at) = locked.find_loc(loc) else {
            drop(locked);
            store.void(place);
            return Drained::Done;
        };
        let cas = item.cas(|| from.cas_base());
        if shape.cas() == CasWidth::Short && store.cas_width(cas) == CasWidth::Long {
            drop(locked);
            store.void(place);
            return Drained::NoRoom;
        }
        // Flushed since it was looked at: among what is stored after the flush it would be back.
        if store.log.segment(place.segment).epoch() != from.epoch() {
            locked.remove(at);
            drop(locked);
            self.items -= 1;
            store.void(place);
            self.dispose(store, loc, item);
            return Drained::Done;
        }
        let fields = item.fields();
        let first_frame = first_frame.unwrap_or(fields.first_frame);
        let fields = Fields { cas, first_frame, ..fields };
        store.write(place, shape, &fields);
        let never = fields.exptime == 0;
        let exptime = if never { u32::MAX } else { fields.exptime };
        let to = store.log.segment(place.segment);
        to.link(place.bytes, exptime, shape.is_chained());
        if !never && to.due() == u32::MAX {
            // Compaction's own open segment: nobody else says when to look at it.
            store.log.note_due(place.segment, exptime);
        }
        locked.update(at, |slot| {
            let moved: Slot = slot.at(place.loc);
            cnt.map_or(moved, |cnt| moved.with_cnt(cnt))
        });
        drop(locked);
        let counters = self.counters(store);
        counters.link(store.log.queue_of(place.segment), item_bytes(shape));
        counters.unlink(store.log.queue_of(region.segment_of(loc)), item_bytes(item.shape()));
        match cnt {
            None => counters.compacted_bytes.add(u64::from(shape.extent())),
            Some(_) => counters.spared_bytes.add(u64::from(shape.extent())),
        }
        store.log.unlink(loc, item.extent());
        store.log.commit(place);
        Drained::Moved
    }

    /// The walk is through.
    pub(crate) fn finish(&mut self, store: &Store, drain: Drain) {
        match drain.aim {
            Aim::Sweep => self.swept(store, &drain),
            Aim::Repack(_) => self.repacked(store, drain.segment),
            Aim::Compact | Aim::Evict => {
                if drain.aim == Aim::Compact {
                    store.log.inherit(drain.token as usize, drain.segment);
                } else if drain.freed_bytes == 0 {
                    self.debt.stuck = true;
                }
                // Its live bytes may still fall: who unlinked an item counts it a moment later.
                store.log.retire(drain.segment);
            }
        }
        store.give_token(drain.token);
        self.settle_index(store);
    }

    /// The walk cannot go on: the segment is as any other again.
    fn stop(&self, store: &Store, drain: &Drain) {
        self.repacked(store, drain.segment);
        store.give_token(drain.token);
    }

    /// Gives an eviction up where it stands.
    pub(crate) fn stop_evicting(&mut self, store: &Store) {
        if let Some(drain) = self.drain.take_if(|drain| drain.aim == Aim::Evict) {
            self.stop(store, &drain);
        }
    }

    /// As `stop_evicting`, where frames brought together make up for what it would free.
    pub(crate) fn stop_for_repack(&mut self, store: &Store) {
        let evicts = self.drain.as_ref().is_some_and(|drain| drain.aim == Aim::Evict);
        if evicts && self.scattered(store).is_some() {
            self.stop_evicting(store);
        }
    }

    /// A column that sleeps leaves its walk to whoever needs room next, and the token with it.
    pub(crate) fn park_drain(&mut self, store: &Store) {
        let Some(drain) = self.drain.take() else { return };
        match store.parked.try_lock() {
            Ok(mut parked) => parked.push(drain),
            Err(_) => self.stop(store, &drain),
        }
    }

    /// Goes on with a walk that somebody left.
    pub(crate) fn take_parked(&mut self, store: &Store) -> bool {
        // Relaxed: a hint; each parked walk has a token.
        if self.drain.is_none()
            && store.tokens.load(Ordering::Relaxed) != 0
            && let Ok(mut parked) = store.parked.try_lock()
        {
            self.drain = parked.pop();
        }
        self.drain.is_some()
    }

    /// Begins a background walk through the segment that `claim` gives. False: there is none, or
    /// too much else is under way.
    pub(crate) fn sweep(
        &mut self,
        store: &Store,
        claim: impl FnOnce(&Self) -> Option<(u32, Aim, Sweep)>,
    ) -> bool {
        let Some(token) = store.take_token() else { return false };
        let Some((segment, aim, sweep)) = claim(self) else {
            store.give_token(token);
            return false;
        };
        self.drain =
            Some(Drain { segment, at: 0, aim, token, freed_bytes: 0, mean_bytes: 0, sweep });
        true
    }
}

impl Store {
    /// One of the few rights to drain.
    fn take_token(&self) -> Option<u32> {
        let free = |taken: u64| {
            let token = (!taken).trailing_zeros();
            (token < self.tokens_max()).then(|| taken | (1 << token))
        };
        // Acquire pairs with the Release in `give_token`: what the last holder left in its output
        // is seen.
        let old = self.tokens.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
        Some((!old).trailing_zeros())
    }

    fn give_token(&self, token: u32) {
        self.tokens.fetch_and(!(1 << token), Ordering::Release); // pairs with `take_token`
    }
}

/// In debug builds a segment about to be reused is overwritten, so that tests see who still reads
/// it.
fn poison(store: &Store, segment: u32) {
    if cfg!(debug_assertions) {
        let region = &store.memory().region;
        // SAFETY: all columns have passed a quiescent point since it was retired, and it is not
        // free yet: it is nobody's but ours. (A test plants that this is not so, and must see it.)
        unsafe {
            let at = region.at(region.start(segment));
            at.write_bytes(0xdb, region.segment_bytes() as usize);
        }
        store.log.segment(segment).touch(region.segment_bytes());
    }
}
