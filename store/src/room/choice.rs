//! Which segment to work on next: one with expired items, one worth compacting, or the oldest of
//! its queue.
//!
//! Where: making room, when no walk is under way.
//! Invariant: a segment is claimed by changing its state from `Sealed` to `Draining`, so that it
//! has one owner; one to be moved only where there is room for all that is live in it.
//! Source: cost and benefit, see `policy::room::worth`.

use super::{Aim, Drain};
use crate::Store;
use crate::column::Local;
use crate::policy::room::{Deadest, either, is_too_dead, worth};
use crate::sweep::Sweep;
use memory::segments::{Segment, State};

/// A segment is walked for expired items first when this part of it may be such.
const EXPIRED_PART: u64 = 8;
/// An item's key and fields, and a little more.
const ITEM_HEAD_BYTES_MAX: u32 = 300;
/// Segments looked at to choose one to compact; in larger stores, at random, until so many of them
/// could be.
const CANDIDATES_MAX: u32 = 1024;
const CANDIDATES_SAMPLED: u32 = 64;
/// Choices of a segment to compact that others may take first.
const CLAIM_ATTEMPTS_MAX: u32 = 8;

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

impl Local {
    /// Claims the next segment to drain.
    pub(super) fn start(&mut self, store: &Store) -> bool {
        self.take_parked(store) || self.begin(store, |local, token| local.claim(store, token))
    }

    /// Claims a segment of which at least `dead_percent` is dead, or that has expired.
    pub(super) fn start_reuse(&mut self, store: &Store, dead_percent: u64) -> bool {
        if self.take_parked(store) {
            self.stop_evicting(store);
        }
        self.drain.is_some()
            || self.begin(store, |local, token| local.claim_dead(store, token, dead_percent))
    }

    fn begin(
        &mut self,
        store: &Store,
        claim: impl FnOnce(&mut Self, u32) -> Option<(u32, Aim, Sweep)>,
    ) -> bool {
        let Some(token) = store.take_token() else { return false };
        let claimed = claim(self, token);
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
        let room = |segment| store.has_room_to_move(token, segment);
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
            let much = is_too_dead(dead_bytes, all_bytes);
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
        let [first, then] = either(policy.victim(store.share(), probation_bytes, main_bytes));
        let oldest = || store.log.take_oldest(first).or_else(|| store.log.take_oldest(then));
        let oldest = oldest().or_else(|| {
            // All items are in open segments, their values perhaps in frames.
            store.log.seal_all();
            oldest()
        });
        oldest.map(|segment| (segment, Aim::Evict, Sweep::default()))
    }

    /// As `claim`, only what is dead by `dead_percent` at least.
    fn claim_dead(
        &mut self,
        store: &Store,
        token: u32,
        dead_percent: u64,
    ) -> Option<(u32, Aim, Sweep)> {
        if let Some(gathered) = self.next_gathered(store) {
            return Some(gathered);
        }
        if store.index.is_passing() {
            return None;
        }
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let segment = self.choose_dead(store, dead_percent)?;
            if !store.has_room_to_move(token, segment) {
                return None;
            }
            if store.log.segment(segment).change(State::Sealed, State::Draining) {
                return Some((segment, Aim::Compact, Sweep::default()));
            }
        }
        None
    }

    /// Of some sealed segments, looked at from a random one on, that whose compaction frees most.
    fn choose_dead(&mut self, store: &Store, dead_percent: u64) -> Option<u32> {
        let segments = &store.memory().segments;
        let count = segments.count();
        // Fresh ones are taken from the first one on: those beyond are mostly such.
        let first = self.random(count.saturating_sub(segments.fresh()).max(1));
        let (mut deadest, mut sealed) = (Deadest::default(), 0);
        for look in 0..count.min(CANDIDATES_MAX) {
            let segment = (first + look) % count;
            let there = segments.get(segment);
            if !there.is(State::Sealed) || !there.drainable() {
                continue;
            }
            let dead = store.dead_bytes(there);
            if dead * 100 >= u64::from(there.end()) * dead_percent {
                deadest.look(segment, store.worth_of(segment, dead));
            }
            sealed += 1;
            if sealed == CANDIDATES_SAMPLED {
                break;
            }
        }
        deadest.best()
    }

    /// A segment with expired items, where nothing may be evicted; each once a second.
    fn claim_expired(&mut self, store: &Store) -> Option<(u32, Sweep)> {
        let count = store.memory().segments.count();
        let first = if count <= CANDIDATES_MAX { 0 } else { self.random(count) };
        self.counters(store).segment_looks.add(count.min(CANDIDATES_MAX).into());
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
        let (mut deadest, mut dead_bytes) = (Deadest::default(), 0);
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
            let dead = store.dead_bytes(there);
            dead_bytes += dead;
            deadest.look(segment, store.worth_of(segment, dead));
            let bytes = self.expired_bytes(there);
            if bytes > most_expired {
                (expired, most_expired) = (Some(segment), bytes);
            }
        }
        self.counters(store).segment_looks.add(looks.into());
        let dead_bytes = dead_bytes * u64::from(count) / u64::from(looks.max(1));
        Choice { best: deadest.best(), dead_bytes, expired }
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
}

impl Store {
    /// May all that is live in a segment be moved?
    fn has_room_to_move(&self, token: u32, segment: u32) -> bool {
        let segments = &self.memory().segments;
        segments.free() > 0
            || self.log.out_room(token as usize, segment) >= segments.get(segment).live()
    }

    /// What of a sealed segment is dead, but for what an item that did not fit left over.
    fn dead_bytes(&self, there: &Segment) -> u64 {
        let segment_bytes = u64::from(self.memory().region.segment_bytes());
        let left_over_max = u64::from(self.frame_bytes() + ITEM_HEAD_BYTES_MAX);
        let left_over = segment_bytes.saturating_sub(there.end().into()).min(left_over_max);
        segment_bytes.saturating_sub(left_over + u64::from(there.live()))
    }

    fn worth_of(&self, segment: u32, dead_bytes: u64) -> u64 {
        let segment_bytes = u64::from(self.memory().region.segment_bytes());
        worth(dead_bytes, segment_bytes, self.log.age(segment))
    }
}
