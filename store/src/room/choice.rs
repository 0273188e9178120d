//! Chooses the segment to walk next: one with expired items, one worth compacting, or the oldest.
//!
//! Where: a column that makes room calls `claim` when it has no walk to continue.
//! Invariant: a column claims a segment by changing its state from `Sealed` to `Draining`, so that
//! the segment has one owner. A compaction starts only if there is room for all live items.
//! Source: cost and benefit, see `policy::room::worth`.

use super::Room;
use super::drain::Aim;
use crate::column::handle::View;
use crate::policy::room::{CompactionChoice, either, is_too_dead, worth};
use crate::shared::Shared;
use crate::upkeep::sweep::Sweep;
use memory::segments::{Segment, State};

/// A segment is swept first if more than 1 / `EXPIRED_PART` of its bytes may have expired.
const EXPIRED_PART: u64 = 8;
/// Upper bound of the bytes of an item's key and fields.
const ITEM_HEAD_BYTES_MAX: u32 = 300;
/// Maximum number of segments that a search examines to find a segment to compact.
const CANDIDATES_MAX: u32 = 1024;
/// Maximum number of sealed segments that a search examines if there are too many segments.
const CANDIDATES_SAMPLED: u32 = 64;
/// Maximum number of attempts to claim a segment: another column may claim a chosen segment first.
const CLAIM_ATTEMPTS_MAX: u32 = 8;

struct Choice {
    best: Option<u32>,
    /// Estimated dead bytes of all segments. The unused end of a segment does not count, because
    /// compaction leaves such ends too, and would otherwise never stop.
    dead_bytes: u64,
    /// A segment in which many items have probably expired.
    expired: Option<u32>,
}

impl Room {
    /// Claims the next segment to walk. Compaction will move its items to the segment of `token`.
    pub(super) fn claim(&mut self, view: View<'_>, token: u32) -> Option<(u32, Aim)> {
        if let Some(harvested) = self.harvested(view) {
            return Some(harvested);
        }
        if view.index.is_passing() {
            return None; // other columns are making room
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
            // Expired items are swept first, since a compaction would move them.
            if let Some(segment) = expired
                && let Some(sweep) = Sweep::claim(view, segment)
            {
                return Some((segment, Aim::Sweep(sweep)));
            }
            let much = is_too_dead(dead_bytes, all_bytes);
            let Some(segment) = best.filter(|_| much || view.config.eviction.is_none()) else {
                break;
            };
            // No eviction: other columns claim segments, or retired segments will be free.
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
            // Both queues are empty, so all items, perhaps with many frames, are in open segments.
            view.log.seal_all();
            oldest()
        });
        oldest.map(|segment| (segment, Aim::Evict))
    }

    /// Takes the next segment that the harvest has gathered.
    pub(super) fn harvested(&self, view: View<'_>) -> Option<(u32, Aim)> {
        let (segment, sweep) = self.chores.harvest.next(view)?;
        Some((segment, sweep.map_or(Aim::Compact, Aim::Sweep)))
    }

    /// Like `claim`, but claims a segment only if at least `dead_percent` percent of it is dead.
    pub(super) fn claim_dead(
        &mut self,
        view: View<'_>,
        token: u32,
        dead_percent: u64,
    ) -> Option<(u32, Aim)> {
        if let Some(harvested) = self.harvested(view) {
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

    /// Finds the segment most worth compacting in a sample: sealed segments from a random one on.
    fn choose_dead(&mut self, view: View<'_>, dead_percent: u64) -> Option<u32> {
        let segments = &view.memory().segments;
        let count = segments.count();
        // Segments are used in order of their numbers, so the last segments are mostly unused.
        let first = self.random.below(count.saturating_sub(segments.fresh()).max(1));
        let (mut deadest, mut sealed) = (CompactionChoice::default(), 0);
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

    /// Claims a segment with expired items. Called if nothing may be evicted. Claims no segment
    /// twice in the same second.
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

    fn choose(&mut self, view: View<'_>) -> Choice {
        let segments = &view.memory().segments;
        let segment_bytes = u64::from(view.memory().region.segment_bytes());
        let count = segments.count();
        let all = count <= CANDIDATES_MAX;
        let (mut deadest, mut dead_bytes) = (CompactionChoice::default(), 0);
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

/// Estimates the expired bytes of a segment's linked items, as if exptimes were spread evenly.
fn expired_bytes(there: &Segment, now: u32) -> u64 {
    let (first, last) = (u64::from(there.min_exp()), u64::from(there.max_exp()));
    let now = u64::from(now);
    if first >= now || last == u64::from(u32::MAX) {
        return 0;
    }
    u64::from(there.live()) * (now.min(last) - first) / last.saturating_sub(first).max(1)
}

impl Shared {
    fn has_room_to_move(&self, token: u32, segment: u32) -> bool {
        let segments = &self.memory().segments;
        segments.free() > 0
            || self.log.out_room(token as usize, segment) >= segments.get(segment).live()
    }

    /// Dead bytes of a sealed segment, without the unused end if no item would fit in it.
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
