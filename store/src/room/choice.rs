//! Which segment to work on next: one with expired items, one worth compacting, or the oldest of
//! its queue.
//!
//! Where: making room, when no walk is under way.
//! Invariant: a segment is claimed by changing its state from `Sealed` to `Draining`, so that it
//! has one owner; one to be moved only where there is room for all that is live in it.
//! Source: cost and benefit, see `policy::room::worth`.

use super::Room;
use super::drain::Aim;
use crate::Store;
use crate::handle::View;
use crate::policy::room::{Deadest, either, is_too_dead, worth};
use crate::sweep::Sweep;
use memory::segments::{Segment, State};

/// A segment is walked for expired items first when this part of its bytes may have expired.
const EXPIRED_PART: u64 = 8;
/// An item's key and fields, and a little more.
const ITEM_HEAD_BYTES_MAX: u32 = 300;
/// One look at segments, for one to compact, is at this many at most.
const CANDIDATES_MAX: u32 = 1024;
/// A store of more segments is looked at in random places, until this many of those seen could be
/// compacted.
const CANDIDATES_SAMPLED: u32 = 64;
/// Another column may claim the segment chosen first; this is how often a choice is made.
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

impl Room {
    /// Claims the next segment to drain; what it moves goes to what the holder of `token` fills.
    pub(super) fn claim(&mut self, view: View<'_>, token: u32) -> Option<(u32, Aim)> {
        if let Some(harvested) = harvested(view) {
            return Some(harvested);
        }
        if view.index.is_passing() {
            return None; // others are making room
        }
        view.log.trim_timed();
        if let Some((segment, from)) = view.claim_to_repack() {
            return Some((segment, Aim::Repack(from)));
        }
        let segments = &view.memory().segments;
        let room = |segment| view.has_room_to_move(token, segment);
        let all_bytes =
            u64::from(view.memory().present()) << view.memory().region.segment_bytes().ilog2();
        for attempt in 0..=CLAIM_ATTEMPTS_MAX {
            let Choice { best, dead_bytes, expired } = self.choose(view);
            // What it would move may be dead.
            if let Some(segment) = expired
                && let Some(sweep) = Sweep::claim(view, segment)
            {
                return Some((segment, Aim::Sweep(sweep)));
            }
            let much = is_too_dead(dead_bytes, all_bytes);
            let Some(segment) = best.filter(|_| much || view.config.eviction.is_none()) else {
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
                return Some((segment, Aim::Compact));
            }
        }
        let Some(policy) = view.config.eviction else {
            return self.claim_expired(view);
        };
        let (probation_bytes, main_bytes) = view.live_bytes();
        let [first, then] = either(policy.victim(view.share(), probation_bytes, main_bytes));
        let oldest = || view.log.take_oldest(first).or_else(|| view.log.take_oldest(then));
        let oldest = oldest().or_else(|| {
            // All items are in open segments, their values perhaps in frames.
            view.log.seal_all();
            oldest()
        });
        oldest.map(|segment| (segment, Aim::Evict))
    }

    /// As `claim`, only what is dead by `dead_percent` at least.
    pub(super) fn claim_dead(
        &mut self,
        view: View<'_>,
        token: u32,
        dead_percent: u64,
    ) -> Option<(u32, Aim)> {
        if let Some(harvested) = harvested(view) {
            return Some(harvested);
        }
        if view.index.is_passing() {
            return None;
        }
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let segment = self.choose_dead(view, dead_percent)?;
            if !view.has_room_to_move(token, segment) {
                return None;
            }
            if view.log.segment(segment).change(State::Sealed, State::Draining) {
                return Some((segment, Aim::Compact));
            }
        }
        None
    }

    /// Of some sealed segments, looked at from a random one on, that whose compaction frees most.
    fn choose_dead(&mut self, view: View<'_>, dead_percent: u64) -> Option<u32> {
        let segments = &view.memory().segments;
        let count = segments.count();
        // Fresh ones are taken from the first one on: those beyond are mostly such.
        let first = self.random.below(count.saturating_sub(segments.fresh()).max(1));
        let (mut deadest, mut sealed) = (Deadest::default(), 0);
        for look in 0..count.min(CANDIDATES_MAX) {
            let segment = (first + look) % count;
            let there = segments.get(segment);
            if !there.is(State::Sealed) || !there.drainable() {
                continue;
            }
            let dead = view.dead_bytes(there);
            if dead * 100 >= u64::from(there.end()) * dead_percent {
                deadest.look(segment, view.worth_of(segment, dead));
            }
            sealed += 1;
            if sealed == CANDIDATES_SAMPLED {
                break;
            }
        }
        deadest.best()
    }

    /// A segment with expired items, where nothing may be evicted; each once a second.
    fn claim_expired(&mut self, view: View<'_>) -> Option<(u32, Aim)> {
        let count = view.memory().segments.count();
        let first = if count <= CANDIDATES_MAX { 0 } else { self.random.below(count) };
        view.counters().segment_looks.add(count.min(CANDIDATES_MAX).into());
        (0..count.min(CANDIDATES_MAX)).map(|look| (first + look) % count).find_map(|segment| {
            let there = view.log.segment(segment);
            let expired = there.min_exp() <= view.handle.now && there.walked() != view.handle.now;
            let sweep = expired.then(|| Sweep::claim(view, segment))??;
            Some((segment, Aim::Sweep(sweep)))
        })
    }

    /// Looks for segments to work on.
    fn choose(&mut self, view: View<'_>) -> Choice {
        let segments = &view.memory().segments;
        let segment_bytes = u64::from(view.memory().region.segment_bytes());
        let count = segments.count();
        let all = count <= CANDIDATES_MAX;
        let (mut deadest, mut dead_bytes) = (Deadest::default(), 0);
        let (mut expired, mut most_expired) = (None, segment_bytes / EXPIRED_PART);
        let (mut looks, mut sealed) = (0, 0);
        while looks < count.min(CANDIDATES_MAX) && (all || sealed < CANDIDATES_SAMPLED) {
            let segment = if all { looks } else { self.random.below(count) };
            looks += 1;
            let there = segments.get(segment);
            if !there.is(State::Sealed) || !there.drainable() {
                continue;
            }
            sealed += 1;
            let dead = view.dead_bytes(there);
            dead_bytes += dead;
            deadest.look(segment, view.worth_of(segment, dead));
            let bytes = expired_bytes(there, view.handle.now);
            if bytes > most_expired {
                (expired, most_expired) = (Some(segment), bytes);
            }
        }
        view.counters().segment_looks.add(looks.into());
        let dead_bytes = dead_bytes * u64::from(count) / u64::from(looks.max(1));
        Choice { best: deadest.best(), dead_bytes, expired }
    }
}

/// The next of the segments whose time has come.
pub(super) fn harvested(view: View<'_>) -> Option<(u32, Aim)> {
    let (segment, sweep) = view.harvest.next(view)?;
    Some((segment, sweep.map_or(Aim::Compact, Aim::Sweep)))
}

/// About how many bytes of a segment's linked items have expired, if its items expire evenly from
/// the earliest exptime to the latest.
fn expired_bytes(there: &Segment, now: u32) -> u64 {
    let (first, last) = (u64::from(there.min_exp()), u64::from(there.max_exp()));
    let now = u64::from(now);
    if first >= now || last == u64::from(u32::MAX) {
        return 0;
    }
    u64::from(there.live()) * (now.min(last) - first) / last.saturating_sub(first).max(1)
}

/// A column's own random numbers: which segments it looks at first.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Those of column `id`.
    pub(super) fn new(id: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(id as u64 + 1))
    }

    /// A number below this.
    pub(crate) fn below(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(below)) >> 32).unwrap_or(0)
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
