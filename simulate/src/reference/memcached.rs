//! memcached's segmented LRU: HOT, WARM and COLD, within one slab class.
//!
//! Where: a model for comparisons with our policies. Invariant: if COLD has items, the model evicts
//! from COLD.
//! Source: memcached's `doc/new_lru.txt`; the shares and ages are 1.6.45's defaults. In this model
//! the background thread is always up to date, and one request is one second of the clock.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;
/// Maximum shares of HOT and WARM in all bytes, in percent.
const HOT_PERCENT: u64 = 20;
const WARM_PERCENT: u64 = 40;
/// Maximum ages of items in HOT and WARM, in fifths of the age of the oldest item in COLD: 0.2 and
/// 2.0 times this age.
const HOT_AGE_FIFTHS: u64 = 1;
const WARM_AGE_FIFTHS: u64 = 10;
/// Maximum number of moves in a round of the background thread.
const MOVES_MAX: u32 = 500;

#[derive(Clone, Copy, Default)]
struct Marks {
    fetched: bool,
    active: bool,
    time: u64,
}

/// Segmented LRU.
pub struct Memcached<'w> {
    lists: Lists<'w, 3>,
    marks: Vec<Marks>,
    now: u64,
}

impl<'w> Memcached<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        let marks = vec![Marks::default(); shape.keys()];
        Memcached { marks, lists: Lists::new(shape), now: 0 }
    }

    fn hit(&mut self, key: u32, list: usize) {
        let marks = &mut self.marks[key as usize];
        if !marks.fetched {
            marks.fetched = true;
        } else if !marks.active {
            marks.active = list != COLD;
            marks.time = self.now;
            if list == COLD {
                self.lists.push(WARM, key);
            }
        }
    }

    /// Moves the oldest item of `list` (HOT or WARM): to WARM if the item was used again, to COLD
    /// if the item is too old or the list is too large. Returns true if the item moved.
    fn pull(&mut self, list: usize, percent: u64, age_max: u64) -> bool {
        let Some(key) = self.lists.back(list) else { return false };
        let limit_bytes = self.live_bytes() * percent / 100;
        let marks = &mut self.marks[key as usize];
        if std::mem::take(&mut marks.active) {
            self.lists.push(WARM, key);
            return true;
        }
        let is_old = self.now - marks.time > age_max;
        let moves = is_old || self.lists.bytes(list) > limit_bytes;
        if moves {
            self.lists.push(COLD, key);
        }
        moves
    }

    fn juggle(&mut self) {
        let cold_time = self.lists.back(COLD).map(|key| self.marks[key as usize].time);
        let cold_age = cold_time.map_or(0, |time| self.now - time);
        for _ in 0..MOVES_MAX {
            let hot = self.pull(HOT, HOT_PERCENT, cold_age * HOT_AGE_FIFTHS / 5);
            if !hot && !self.pull(WARM, WARM_PERCENT, cold_age * WARM_AGE_FIFTHS / 5) {
                break;
            }
        }
    }

    fn evict(&mut self) -> bool {
        let victim = [COLD, HOT, WARM].into_iter().find_map(|list| self.lists.back(list));
        victim.into_iter().for_each(|key| self.lists.take(key));
        victim.is_some()
    }
}

impl Cache for Memcached<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        self.now += 1;
        if let Some(list) = self.lists.of(key) {
            self.hit(key, list);
            return true;
        }
        if !self.lists.shape.fits(key) {
            return false;
        }
        let bytes = self.lists.shape.bytes_of(key);
        while self.live_bytes() + bytes > self.lists.shape.capacity_bytes && self.evict() {}
        self.marks[key as usize] = Marks { time: self.now, ..Marks::default() };
        self.lists.push(HOT, key);
        self.juggle();
        false
    }

    fn live_bytes(&self) -> u64 {
        (HOT..=COLD).map(|list| self.lists.bytes(list)).sum()
    }
}
