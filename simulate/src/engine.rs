//! The server's eviction without the server: segments, queues, ghost and counters over item sizes.
//!
//! Where: the simulated cache of each of our policies. It asks `store::policy`, whose code runs in
//! the server, and does with the answers what the store's `room` does.
//! Invariant: what segments take never exceeds the capacity; an item is given up only to make room.
//! Left out of the store: threads, expiry, the index (its bytes count in each item's size), frames.

mod ghost;
mod lane;

use crate::cache::{Cache, Shape};
use crate::sizes::mix;
use ghost::Ghost;
use lane::Lane;
use store::policy::{CNT_MAX, Drained, Eviction, Policy, Pressure, Queue, Share, Verdict};

/// As in the store's `room`: what an append pays, and when compaction comes before eviction.
const PAY_FACTOR: u64 = 2;
const PAY_FACTOR_MORE: u64 = 10;
/// A slice is at least this part of a segment: 2 KiB of 256 KiB.
const SLICE_PART: u64 = 128;
const DEAD_PERCENT_MAX: u64 = 5;
const COMPACT_LIVE_PERCENT_MAX: u64 = 90;
/// Bytes spared beyond what was freed, as a part of all, over which a policy must let go.
const DEBT_PART: u64 = 16;
/// What is freed pays for so much spared.
const DEBT_PAID: u64 = 3;
/// The longest item rewritten in place, about, and how often before it is appended anew.
const REWRITTEN_BYTES_MAX: u64 = 1 << 10;
const VERSION_MAX: u8 = 7;
/// Free segments below which appends pay for room, with one column; in tiny stores fewer.
const HIGH: u64 = 5;
/// No segment.
const NONE: u32 = u32::MAX;

/// What the budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Whole segments, as the server: what is open, half drained or kept free counts too.
    Memory,
    /// Live items only: the policy alone.
    Live,
}

/// How an engine is built.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Segments that the capacity is cut into; `None`: one for each item.
    pub segments: Option<u32>,
    /// What the budget counts.
    pub budget: Budget,
    /// Keys that the ghost has room for, as a part of the items there is room for.
    pub ghost: f64,
}

impl Default for Settings {
    /// As the server: its index has 0.52 to 0.98 tags an item, 0.71 on average.
    fn default() -> Self {
        Settings { segments: Some(256), budget: Budget::Memory, ghost: 0.71 }
    }
}

/// Where a key's item is.
#[derive(Clone, Copy)]
struct Item {
    segment: u32,
    entry: u32,
    cnt: u8,
    /// Times it was rewritten in place.
    version: u8,
}

const ABSENT: Item = Item { segment: NONE, entry: 0, cnt: 0, version: 0 };

/// A part of the log.
struct Segment {
    entries: Vec<u32>,
    queue: Queue,
    room_bytes: u64,
    used_bytes: u64,
    live_bytes: u64,
    /// Its place in the queue.
    ticket: u64,
    /// Bytes that had been appended to its queue when it was opened.
    opened_at: u64,
    /// In a queue, not open, not being drained.
    is_sealed: bool,
}

/// What a walk through a segment is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    Compact,
    Evict,
}

/// A walk through a segment.
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
    window_percent: u64,
    /// What probation ought to have.
    share: Share,
    /// Bytes of a segment; where each item has its own, of a mean one.
    segment_bytes: u64,
    is_itemwise: bool,
    high: u64,
    items: Vec<Item>,
    segments: Vec<Segment>,
    /// Numbers of segments to be used again.
    numbers: Vec<u32>,
    probation: Lane,
    main: Lane,
    ghost: Ghost,
    tickets: u64,
    live_items: u64,
    /// Bytes of the capacity that no segment takes.
    unused_bytes: u64,
    /// Bytes in sealed segments that no item takes.
    dead_bytes: u64,
    drain: Option<Drain>,
    debt_bytes: u64,
    is_stuck: bool,
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
    /// An empty one.
    #[must_use]
    pub fn new(shape: Shape<'w>, policy: Eviction, settings: Settings) -> Self {
        let (mean_bytes, capacity_bytes) = (shape.mean_bytes(), shape.capacity_bytes);
        let capacity_items = (capacity_bytes / mean_bytes).max(1);
        let segments = settings.segments.map_or(capacity_items, u64::from).min(capacity_items);
        Engine {
            policy,
            budget: settings.budget,
            has_ghost: policy.admit(false) != policy.admit(true),
            window_percent: policy.window_percent(),
            share: policy.share(),
            segment_bytes: (capacity_bytes / segments).max(1),
            is_itemwise: segments == capacity_items,
            high: (segments / 16).clamp(2, HIGH),
            items: vec![ABSENT; shape.keys()],
            segments: Vec::new(),
            numbers: Vec::new(),
            probation: Lane::default(),
            main: Lane::default(),
            ghost: Ghost::new(capacity_items as f64 * settings.ghost, remembers_main(policy)),
            tickets: 0,
            live_items: 0,
            unused_bytes: capacity_bytes,
            dead_bytes: 0,
            drain: None,
            debt_bytes: 0,
            is_stuck: false,
            shape,
        }
    }

    /// Is the key's item there?
    #[must_use]
    pub fn holds(&self, key: u32) -> bool {
        self.items[key as usize].segment != NONE
    }

    /// Deletes; false on a miss.
    pub fn remove(&mut self, key: u32) -> bool {
        let held = self.holds(key);
        if held {
            self.unlink(key);
        }
        held
    }

    /// Bytes that segments take, whatever lies in them.
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

    /// Do hits in it not count yet?
    fn is_young(&self, segment: u32) -> bool {
        let segment = &self.segments[segment as usize];
        let lane = match segment.queue {
            Queue::Probation => &self.probation,
            Queue::Main => &self.main,
        };
        let age_bytes = lane.appended_bytes - segment.opened_at;
        age_bytes * 100 < lane.live_bytes * self.window_percent
    }

    fn insert(&mut self, key: u32) {
        let hash = mix(u64::from(key));
        let left = if self.has_ghost { self.ghost.take(hash) } else { None };
        if let Some(from) = left {
            let (bytes, all_bytes) = (self.shape.bytes_of(key), self.live_bytes());
            self.share = self.policy.rebalance(self.share, from, bytes, all_bytes);
        }
        let queue = self.policy.admit(left.is_some());
        self.store(queue, key, 0);
    }

    /// In place, or else to the young end of the queue it stands in; it keeps its counter.
    fn rewrite(&mut self, key: u32) {
        let item = self.items[key as usize];
        let is_short = self.shape.bytes_of(key) <= REWRITTEN_BYTES_MAX;
        if is_short && item.version < VERSION_MAX {
            self.items[key as usize].version += 1;
            return;
        }
        let queue = self.segments[item.segment as usize].queue;
        self.unlink(key);
        self.store(queue, key, item.cnt);
    }

    /// Pays for room, then appends.
    fn store(&mut self, queue: Queue, key: u32, cnt: u8) {
        let bytes = self.shape.bytes_of(key);
        if bytes + self.keep() * self.segment_bytes > self.shape.capacity_bytes {
            return; // Larger than all there is.
        }
        self.pay(bytes);
        while !self.append(queue, key, cnt, self.keep()) {
            if !self.step() {
                return;
            }
        }
    }

    /// Free segments that only drains may take.
    fn keep(&self) -> u64 {
        self.high.min(3) - 1
    }

    fn pay(&mut self, bytes: u64) {
        if self.budget == Budget::Live {
            while self.live_bytes() + bytes > self.shape.capacity_bytes && self.step() {}
            return;
        }
        let free = self.unused_bytes / self.segment_bytes;
        if free >= self.high {
            return;
        }
        let factor = PAY_FACTOR + PAY_FACTOR_MORE * (self.high - free) / self.high;
        let mut budget = (bytes * factor).max(self.segment_bytes / SLICE_PART);
        while budget > 0 {
            let Some(drain) = self.drain.or_else(|| self.start()) else { return };
            let entry = self.segment(drain.segment).entries.get(drain.entry).copied();
            let done = entry.map_or(0, |key| self.shape.bytes_of(key));
            self.step();
            budget = budget.saturating_sub(done.max(1));
        }
    }

    /// Puts the item at the young end. False: no segment for it, with `keep` kept free.
    fn append(&mut self, queue: Queue, key: u32, cnt: u8, keep: u64) -> bool {
        let bytes = self.shape.bytes_of(key);
        let last = self.lane(queue).open;
        let open = match last {
            Some(open) if self.has_room(open, bytes) => open,
            other => {
                let Some(opened) = self.open(queue, bytes, keep) else { return false };
                if let Some(full) = other {
                    self.seal(full);
                }
                self.lane(queue).open = Some(opened);
                opened
            }
        };
        self.lane(queue).appended_bytes += bytes;
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

    fn open(&mut self, queue: Queue, item_bytes: u64, keep: u64) -> Option<u32> {
        let least = if self.is_itemwise { 0 } else { self.segment_bytes };
        let room_bytes = least.max(item_bytes);
        if self.budget == Budget::Memory {
            if self.unused_bytes < room_bytes + keep * self.segment_bytes {
                return None;
            }
            self.unused_bytes -= room_bytes;
        }
        let number = self.numbers.pop().unwrap_or_else(|| {
            self.segments.push(Segment::default());
            u32::try_from(self.segments.len() - 1).unwrap_or(NONE)
        });
        let opened_at = self.lane(queue).appended_bytes;
        let segment = self.segment(number);
        segment.entries.clear();
        *segment = Segment {
            entries: std::mem::take(&mut segment.entries),
            queue,
            room_bytes,
            opened_at,
            ..Segment::default()
        };
        Some(number)
    }

    /// It enters the queue: at the young end, or where its ticket says.
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

    /// A sealed segment leaves its queue.
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

    /// One entry of the walk, or its end. False: nothing to walk.
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

    /// Chooses the next segment to walk through.
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

    /// The segment with most dead bytes, when there are too many and it frees enough.
    fn most_dead(&mut self) -> Option<u32> {
        if self.budget == Budget::Live
            || self.dead_bytes * 100 <= self.shape.capacity_bytes * DEAD_PERCENT_MAX
            || self.unused_bytes < self.segment_bytes
        {
            return None;
        }
        let sealed = self.probation.sealed.iter().chain(&self.main.sealed);
        let dead = |number: u32| {
            let segment = &self.segments[number as usize];
            (segment.used_bytes - segment.live_bytes, segment.used_bytes)
        };
        let (_, most) = *sealed.max_by_key(|(_, number)| dead(*number))?;
        let (dead_bytes, used_bytes) = dead(most);
        (dead_bytes * 100 >= used_bytes * (100 - COMPACT_LIVE_PERCENT_MAX)).then_some(most)
    }

    /// The oldest segment of the queue that the policy names, or else of the other.
    fn oldest(&mut self) -> Option<u32> {
        let victim =
            self.policy.victim(self.share, self.probation.live_bytes, self.main.live_bytes);
        let other = if victim == Queue::Main { Queue::Probation } else { Queue::Main };
        for seal_first in [false, true] {
            for queue in [victim, other] {
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

    /// Moves an item with others of its age.
    fn compact(&mut self, key: u32, from: u32) {
        let (bytes, cnt) = (self.shape.bytes_of(key), self.items[key as usize].cnt);
        let (queue, ticket) = (self.segment(from).queue, self.segment(from).ticket);
        let last = self.lane(queue).out;
        let out = match last {
            Some(out) if self.has_room(out, bytes) => out,
            other => {
                let Some(opened) = self.open(queue, bytes, 0) else {
                    // Cannot be: a walk begins with a segment's room, which appends leave alone.
                    return self.unlink(key);
                };
                other.into_iter().for_each(|full| self.seal(full));
                self.lane(queue).out = Some(opened);
                self.segment(opened).opened_at = 0;
                self.segment(opened).ticket = ticket;
                opened
            }
        };
        let into = self.segment(out);
        into.ticket = into.ticket.min(ticket);
        self.unlink(key);
        self.put(out, key, cnt);
    }

    /// Asks the policy, and does as it says. True: freed.
    fn judge(&mut self, key: u32, drain: Drain) -> bool {
        let bytes = self.shape.bytes_of(key);
        let pressure = Pressure {
            in_debt: self.debt_bytes > self.shape.capacity_bytes / DEBT_PART,
            stuck: self.is_stuck,
        };
        let drained = Drained {
            queue: self.segment(drain.segment).queue,
            cnt: self.items[key as usize].cnt,
            bytes: self.shape.item_bytes[key as usize],
            mean_bytes: drain.mean_bytes,
        };
        let verdict = self.policy.judge(drained, pressure);
        self.unlink(key);
        match verdict {
            Verdict::Spare(cnt) if self.append(Queue::Main, key, cnt, 0) => {
                self.debt_bytes += bytes;
                return false;
            }
            Verdict::Evict { remember: true } => {
                self.ghost.push(drained.queue, mix(u64::from(key)));
            }
            Verdict::Evict { remember: false } | Verdict::Spare(_) => {}
        }
        self.debt_bytes = self.debt_bytes.saturating_sub(DEBT_PAID * bytes);
        self.is_stuck = false;
        true
    }

    /// The walk is through.
    fn finish(&mut self, drain: Drain) {
        if drain.aim == Aim::Evict && !drain.has_freed {
            self.is_stuck = true;
        }
        self.drain = None;
        self.retire(drain.segment);
    }
}

/// Does the ghost take note of what leaves the main queue?
fn remembers_main(policy: Eviction) -> bool {
    let unused = Drained { queue: Queue::Main, cnt: 0, bytes: 1, mean_bytes: 1 };
    policy.judge(unused, Pressure::default()) == Verdict::Evict { remember: true }
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
            opened_at: 0,
            is_sealed: false,
        }
    }
}

#[cfg(test)]
mod tests;
