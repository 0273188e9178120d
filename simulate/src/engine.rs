//! Simulates the server's eviction: its segments, queues, ghost and use counters.
//!
//! Where: an `Engine` is the simulated cache for one of the store's policies. `store::policy`,
//! which the server runs too, decides how much an append drains, which segment is drained, and what
//! happens to an item. The engine carries out these decisions, like the store's module `room`.
//! Invariant: the bytes that the budget counts never exceed the capacity; an item is evicted only
//! to make room. The engine does not model threads, expiry, frames or the index; an item's size
//! includes its share of the index.

mod ghost;
mod lane;

use crate::cache::{Cache, Shape};
use crate::sizes::mix;
use ghost::Ghost;
use lane::Lane;
use store::policy::room::{
    CompactionChoice, Debt, REWRITTEN_BYTES_MAX, SLICE_BYTES_MIN, VERSION_MAX, either, high,
    is_too_dead, keep, pay_factor, worth, young_from,
};
use store::policy::{CNT_MAX, DrainedItem, Eviction, GhostScope, Queue, Share, Verdict};

/// The segment size for which the store's `SLICE_BYTES_MIN` was chosen. For segments of another
/// size, the engine changes this minimum in proportion.
const SLICES_OF_BYTES: u64 = 256 << 10;
/// Maximum number of drains at the same time, as in a store with one column (thread).
const DRAINS: u32 = 1;
/// The engine keeps one in this number of segments free, but at least 2 and at most `high(DRAINS)`.
const SEGMENTS_PER_FREE: u64 = 16;
const NONE: u32 = u32::MAX;

/// The bytes that the budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Whole segments, as in the server: open, partly drained and free segments count too.
    Memory,
    /// Live items only, so that the result shows the policy alone.
    Live,
}

/// The settings of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of segments into which the capacity is cut; `None` for one segment per item.
    pub segments: Option<u32>,
    /// The bytes that the budget counts.
    pub budget: Budget,
    /// Number of keys that the ghost remembers for each item for which the cache has room.
    pub ghost: f64,
}

impl Default for Settings {
    /// The server's settings. The server's ghost remembers 0.52 to 0.98 keys per item, mean 0.71.
    fn default() -> Self {
        Settings { segments: Some(256), budget: Budget::Memory, ghost: 0.71 }
    }
}

#[derive(Clone, Copy)]
struct Item {
    segment: u32,
    entry: u32,
    cnt: u8,
    version: u8,
}

const ABSENT: Item = Item { segment: NONE, entry: 0, cnt: 0, version: 0 };

struct Segment {
    entries: Vec<u32>,
    queue: Queue,
    room_bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    /// The segment's position in its queue: the oldest segment has the lowest ticket.
    ticket: u64,
    /// Number of segments of the queue that were opened before the segment's items arrived.
    birth: u64,
    /// True if the segment is in a queue, neither open nor being drained.
    is_sealed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    Compact,
    Evict,
}

#[derive(Clone, Copy)]
struct Drain {
    segment: u32,
    entry: usize,
    aim: Aim,
    mean_bytes: u32,
    has_freed: bool,
}

/// A store of segments under one policy.
pub struct Engine<'w> {
    shape: Shape<'w>,
    policy: Eviction,
    budget: Budget,
    has_ghost: bool,
    window_percent: u32,
    share: Share,
    /// Bytes of a segment. If each item has its own segment, a mean item's bytes.
    segment_bytes: u64,
    is_itemwise: bool,
    /// Number of free segments below which appends do work to free memory.
    high: u32,
    /// Number of free segments that appends leave to drains.
    keep: u32,
    items: Vec<Item>,
    segments: Vec<Segment>,
    numbers: Vec<u32>,
    probation: Lane,
    main: Lane,
    ghost: Ghost,
    tickets: u64,
    live_items: u64,
    /// Bytes of the capacity that belong to no segment.
    unused_bytes: u64,
    /// Bytes of dead items in sealed segments.
    dead_bytes: u64,
    drain: Option<Drain>,
    debt: Debt,
}

impl Cache for Engine<'_> {
    fn request(&mut self, key: u32, rewrites: bool) -> bool {
        let item = self.items[key as usize];
        if item.segment == NONE {
            self.insert(key);
            return false;
        }
        if item.cnt < CNT_MAX && !self.is_young(item.segment) {
            self.items[key as usize].cnt += 1;
        }
        if rewrites {
            self.rewrite(key);
        }
        true
    }

    fn live_bytes(&self) -> u64 {
        self.probation.live_bytes + self.main.live_bytes
    }
}

impl<'w> Engine<'w> {
    /// Makes an empty engine.
    #[must_use]
    pub fn new(shape: Shape<'w>, policy: Eviction, settings: Settings) -> Self {
        let (mean_bytes, capacity_bytes) = (shape.mean_bytes(), shape.capacity_bytes);
        let capacity_items = (capacity_bytes / mean_bytes).max(1);
        let segments = settings.segments.map_or(capacity_items, u64::from).min(capacity_items);
        let free = u32::try_from(segments / SEGMENTS_PER_FREE).unwrap_or(u32::MAX);
        let high = free.clamp(2, high(DRAINS));
        Engine {
            policy,
            budget: settings.budget,
            has_ghost: policy.remembered() != GhostScope::None,
            window_percent: u32::try_from(policy.window_percent()).unwrap_or(100),
            share: policy.share(),
            segment_bytes: (capacity_bytes / segments).max(1),
            is_itemwise: segments == capacity_items,
            high,
            keep: keep(DRAINS).min(high - 1),
            items: vec![ABSENT; shape.keys()],
            segments: Vec::new(),
            numbers: Vec::new(),
            probation: Lane::default(),
            main: Lane::default(),
            ghost: Ghost::new(capacity_items as f64 * settings.ghost, policy.remembered()),
            tickets: 0,
            live_items: 0,
            unused_bytes: capacity_bytes,
            dead_bytes: 0,
            drain: None,
            debt: Debt::default(),
            shape,
        }
    }

    /// True if the cache has the key's item.
    #[must_use]
    pub fn holds(&self, key: u32) -> bool {
        self.items[key as usize].segment != NONE
    }

    /// Deletes the key's item; returns false if the key has no item.
    pub fn remove(&mut self, key: u32) -> bool {
        let held = self.holds(key);
        if held {
            self.unlink(key);
        }
        held
    }

    /// Bytes of all segments in use, including bytes of dead items.
    #[must_use]
    pub fn segment_bytes_in_use(&self) -> u64 {
        self.shape.capacity_bytes - self.unused_bytes
    }

    fn lane(&mut self, queue: Queue) -> &mut Lane {
        match queue {
            Queue::Probation => &mut self.probation,
            Queue::Main => &mut self.main,
        }
    }

    fn segment(&mut self, segment: u32) -> &mut Segment {
        &mut self.segments[segment as usize]
    }

    fn is_young(&self, segment: u32) -> bool {
        let segment = &self.segments[segment as usize];
        let lane = match segment.queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        };
        self.window_percent > 0 && segment.birth >= lane.young_from
    }

    fn insert(&mut self, key: u32) {
        let hash = mix(u64::from(key));
        let left = if self.has_ghost { self.ghost.take(hash) } else { None };
        if let Some(from) = left {
            let (bytes, all_bytes) = (self.shape.bytes_of(key), self.shape.capacity_bytes);
            self.share = self.policy.rebalance(self.share, from, bytes, all_bytes);
        }
        let queue = self.policy.admit(left.is_some());
        self.store(queue, key, 0);
    }

    /// Rewrites an item in place, or appends the item again to its queue, with the same counter.
    fn rewrite(&mut self, key: u32) {
        let item = self.items[key as usize];
        let is_short = self.shape.bytes_of(key) <= REWRITTEN_BYTES_MAX as u64;
        if is_short && item.version < VERSION_MAX {
            self.items[key as usize].version += 1;
            return;
        }
        let queue = self.segments[item.segment as usize].queue;
        self.unlink(key);
        self.store(queue, key, item.cnt);
    }

    /// Does the drain work that an append requires, then appends the item.
    fn store(&mut self, queue: Queue, key: u32, cnt: u8) {
        let bytes = self.shape.bytes_of(key);
        if bytes + u64::from(self.keep) * self.segment_bytes > self.shape.capacity_bytes {
            return; // The item is larger than the cache.
        }
        self.pay(bytes);
        while !self.append(queue, key, cnt, self.keep) {
            if !self.step() {
                return;
            }
        }
    }

    fn pay(&mut self, bytes: u64) {
        if self.budget == Budget::Live {
            while self.live_bytes() + bytes > self.shape.capacity_bytes && self.step() {}
            return;
        }
        let free = u32::try_from(self.unused_bytes / self.segment_bytes).unwrap_or(u32::MAX);
        if free >= self.high {
            return;
        }
        // The store has a maximum for this budget. The engine has none, because one item of a
        // segment may be larger than the maximum.
        let least = u64::from(SLICE_BYTES_MIN) * self.segment_bytes / SLICES_OF_BYTES;
        let mut budget = (bytes * u64::from(pay_factor(free, self.high))).max(least);
        while budget > 0 {
            let Some(drain) = self.drain.or_else(|| self.start()) else { return };
            let entry = self.segment(drain.segment).entries.get(drain.entry).copied();
            let live_bytes = self.live_bytes();
            self.step();
            let done = entry.map_or(0, |key| self.shape.bytes_of(key));
            let done = done + live_bytes.saturating_sub(self.live_bytes());
            budget = budget.saturating_sub(done.max(1));
        }
    }

    /// Appends the item at the young end of `queue`. Returns false if a new segment is needed, but
    /// at most `keep` segments are free.
    fn append(&mut self, queue: Queue, key: u32, cnt: u8, keep: u32) -> bool {
        let bytes = self.shape.bytes_of(key);
        let last = self.lane(queue).open;
        let open = match last {
            Some(open) if self.has_room(open, bytes) => open,
            other => {
                let Some(opened) = self.open(queue, bytes, keep) else { return false };
                let window_percent = self.window_percent;
                let lane = self.lane(queue);
                let birth = lane.opened;
                lane.opened += 1;
                let young_from = young_from(birth, lane.segments, window_percent);
                lane.young_from = lane.young_from.max(young_from);
                self.segment(opened).birth = birth;
                if let Some(full) = other {
                    self.seal(full);
                }
                self.lane(queue).open = Some(opened);
                opened
            }
        };
        self.put(open, key, cnt);
        true
    }

    fn has_room(&mut self, segment: u32, bytes: u64) -> bool {
        let segment = self.segment(segment);
        segment.used_bytes + bytes <= segment.room_bytes
    }

    fn put(&mut self, number: u32, key: u32, cnt: u8) {
        let bytes = self.shape.bytes_of(key);
        let segment = self.segment(number);
        let entry = u32::try_from(segment.entries.len()).unwrap_or(u32::MAX);
        segment.entries.push(key);
        segment.used_bytes += bytes;
        segment.live_bytes += bytes;
        let queue = segment.queue;
        self.lane(queue).live_bytes += bytes;
        self.live_items += 1;
        self.items[key as usize] = Item { segment: number, entry, cnt, version: 0 };
    }

    fn open(&mut self, queue: Queue, item_bytes: u64, keep: u32) -> Option<u32> {
        let least = if self.is_itemwise { 0 } else { self.segment_bytes };
        let room_bytes = least.max(item_bytes);
        if self.budget == Budget::Memory {
            if self.unused_bytes < room_bytes + u64::from(keep) * self.segment_bytes {
                return None;
            }
            self.unused_bytes -= room_bytes;
        }
        let number = self.numbers.pop().unwrap_or_else(|| {
            self.segments.push(Segment::default());
            u32::try_from(self.segments.len() - 1).unwrap_or(NONE)
        });
        self.lane(queue).segments += 1;
        let segment = self.segment(number);
        segment.entries.clear();
        *segment = Segment {
            entries: std::mem::take(&mut segment.entries),
            queue,
            room_bytes,
            ..Segment::default()
        };
        Some(number)
    }

    /// Puts a segment into its queue by its ticket. A segment without a ticket gets the newest one.
    fn seal(&mut self, number: u32) {
        let next = self.tickets;
        let segment = self.segment(number);
        let rest_bytes = segment.room_bytes - segment.used_bytes;
        let dead_bytes = segment.used_bytes - segment.live_bytes;
        segment.room_bytes = segment.used_bytes;
        segment.is_sealed = true;
        if segment.ticket == 0 {
            segment.ticket = next + 1;
            self.tickets += 1;
        }
        let (ticket, queue) = (self.segment(number).ticket, self.segment(number).queue);
        self.lane(queue).sealed.insert((ticket, number));
        self.dead_bytes += dead_bytes;
        if self.budget == Budget::Memory {
            self.unused_bytes += rest_bytes;
        }
        self.retire_if_dead(number);
    }

    fn unqueue(&mut self, number: u32) {
        let segment = self.segment(number);
        let entry = (segment.ticket, number);
        let dead_bytes = segment.used_bytes - segment.live_bytes;
        segment.is_sealed = false;
        let queue = segment.queue;
        self.lane(queue).sealed.remove(&entry);
        self.dead_bytes -= dead_bytes;
    }

    fn retire(&mut self, number: u32) {
        if self.budget == Budget::Memory {
            self.unused_bytes += self.segment(number).used_bytes;
        }
        let queue = self.segment(number).queue;
        self.lane(queue).segments -= 1;
        self.numbers.push(number);
    }

    fn retire_if_dead(&mut self, number: u32) {
        let segment = self.segment(number);
        if segment.is_sealed && segment.live_bytes == 0 {
            self.unqueue(number);
            self.retire(number);
        }
    }

    fn unlink(&mut self, key: u32) {
        let bytes = self.shape.bytes_of(key);
        let number = std::mem::replace(&mut self.items[key as usize], ABSENT).segment;
        let segment = self.segment(number);
        segment.live_bytes -= bytes;
        let (queue, is_sealed) = (segment.queue, segment.is_sealed);
        self.lane(queue).live_bytes -= bytes;
        self.live_items -= 1;
        if is_sealed {
            self.dead_bytes += bytes;
            self.retire_if_dead(number);
        }
    }

    /// Drains the next item of a segment, or ends the drain. False if there is nothing to drain.
    fn step(&mut self) -> bool {
        let Some(mut drain) = self.drain.or_else(|| self.start()) else { return false };
        let Some(key) = self.segment(drain.segment).entries.get(drain.entry).copied() else {
            self.finish(drain);
            return true;
        };
        let item = self.items[key as usize];
        if item.segment == drain.segment && item.entry as usize == drain.entry {
            match drain.aim {
                Aim::Compact => self.compact(key, drain.segment),
                Aim::Evict => drain.has_freed |= self.judge(key, drain),
            }
        }
        drain.entry += 1;
        self.drain = Some(drain);
        true
    }

    fn start(&mut self) -> Option<Drain> {
        let (segment, aim) = match self.most_dead() {
            Some(segment) => (segment, Aim::Compact),
            None => (self.oldest()?, Aim::Evict),
        };
        self.unqueue(segment);
        let mean_bytes = self.live_bytes() / self.live_items.max(1);
        let mean_bytes = u32::try_from(mean_bytes).unwrap_or(u32::MAX);
        self.drain = Some(Drain { segment, entry: 0, aim, mean_bytes, has_freed: false });
        self.drain
    }

    /// Returns the segment that is most worth compacting. `None` if few bytes are dead, or if the
    /// segment's live items have no room in another segment.
    fn most_dead(&self) -> Option<u32> {
        let all_bytes = self.shape.capacity_bytes;
        if self.budget == Budget::Live || !is_too_dead(self.dead_bytes, all_bytes) {
            return None;
        }
        let mut deadest = CompactionChoice::default();
        for lane in [&self.probation, &self.main] {
            for (_, number) in &lane.sealed {
                let segment = &self.segments[*number as usize];
                let dead_bytes = segment.used_bytes - segment.live_bytes;
                let age = lane.opened.saturating_sub(segment.birth);
                deadest.look(*number, worth(dead_bytes, segment.used_bytes, age));
            }
        }
        let is_free = self.unused_bytes >= self.segment_bytes;
        deadest.best().filter(|best| is_free || self.out_room(*best))
    }

    /// True if the segment that compaction fills has room for all live items of segment `number`.
    fn out_room(&self, number: u32) -> bool {
        let segment = &self.segments[number as usize];
        let out = match segment.queue {
            Queue::Probation => self.probation.out,
            Queue::Main => self.main.out,
        };
        let out = out.map(|out| &self.segments[out as usize]);
        out.is_some_and(|out| out.used_bytes + segment.live_bytes <= out.room_bytes)
    }

    /// Returns the oldest segment of the queue that the policy names, or else of the other queue.
    fn oldest(&mut self) -> Option<u32> {
        let victim =
            self.policy.victim(self.share, self.probation.live_bytes, self.main.live_bytes);
        for seal_first in [false, true] {
            for queue in either(victim) {
                if seal_first {
                    let lane = self.lane(queue);
                    [lane.open.take(), lane.out.take()]
                        .into_iter()
                        .flatten()
                        .for_each(|open| self.seal(open));
                }
                if let Some((_, oldest)) = self.lane(queue).sealed.first() {
                    return Some(*oldest);
                }
            }
        }
        None
    }

    fn compact(&mut self, key: u32, from: u32) {
        let (bytes, cnt) = (self.shape.bytes_of(key), self.items[key as usize].cnt);
        let queue = self.segment(from).queue;
        let last = self.lane(queue).out;
        let out = match last {
            Some(out) if self.has_room(out, bytes) => out,
            other => {
                let Some(opened) = self.open(queue, bytes, 0) else {
                    // Cannot happen: appends leave at least one segment free for compaction.
                    return self.unlink(key);
                };
                other.into_iter().for_each(|full| self.seal(full));
                self.lane(queue).out = Some(opened);
                self.segment(opened).birth = self.segment(from).birth;
                opened
            }
        };
        self.unlink(key);
        self.put(out, key, cnt);
    }

    /// Carries out the policy's decision about an item. Returns true if the item left the cache.
    fn judge(&mut self, key: u32, drain: Drain) -> bool {
        let bytes = self.shape.bytes_of(key);
        let drained = DrainedItem {
            queue: self.segment(drain.segment).queue,
            cnt: self.items[key as usize].cnt,
            bytes: self.shape.item_bytes[key as usize],
            mean_bytes: drain.mean_bytes,
        };
        let verdict = self.policy.judge(drained, self.debt.pressure(self.shape.capacity_bytes));
        self.unlink(key);
        let is_moved = match verdict {
            Verdict::Spare(cnt) => self.append(Queue::Main, key, cnt, 0),
            Verdict::Evict => false,
        };
        if !is_moved {
            self.ghost.push(drained.queue, mix(u64::from(key)));
            self.debt.freed(bytes);
        }
        if matches!(verdict, Verdict::Spare(_)) {
            self.debt.spared(bytes);
        }
        !is_moved
    }

    /// Gives the segment that compaction fills the compacted segment's position in the queue,
    /// unless the filled segment already has an older position.
    fn inherit(&mut self, number: u32) {
        let (queue, ticket) = (self.segment(number).queue, self.segment(number).ticket);
        if let Some(out) = self.lane(queue).out {
            let out = self.segment(out);
            out.ticket = if out.ticket == 0 { ticket } else { out.ticket.min(ticket) };
        }
    }

    fn finish(&mut self, drain: Drain) {
        match drain.aim {
            Aim::Compact => self.inherit(drain.segment),
            Aim::Evict if !drain.has_freed => self.debt.in_vain(),
            Aim::Evict => {}
        }
        self.drain = None;
        self.retire(drain.segment);
    }
}

impl Default for Segment {
    fn default() -> Self {
        Segment {
            entries: Vec::new(),
            queue: Queue::Main,
            room_bytes: 0,
            used_bytes: 0,
            live_bytes: 0,
            ticket: 0,
            birth: 0,
            is_sealed: false,
        }
    }
}

#[cfg(test)]
mod tests;
