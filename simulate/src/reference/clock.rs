//! CLOCK with counters of two bits: evicts the oldest item if its counter is 0. Otherwise
//! decrements the counter and makes the item the newest.
//!
//! Where: a model for comparisons with our policies. Invariant: counters are at most 3. CLOCK with
//! counters of one bit is also known as second chance.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

const CNT_MAX: u8 = 3;

/// Generalized CLOCK.
pub struct Clock<'w> {
    list: Lists<'w, 1>,
    cnt: Vec<u8>,
}

impl<'w> Clock<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        Clock { cnt: vec![0; shape.keys()], list: Lists::new(shape) }
    }
}

impl Cache for Clock<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        let cnt = &mut self.cnt[key as usize];
        if self.list.of(key).is_some() {
            *cnt = (*cnt + 1).min(CNT_MAX);
            return true;
        }
        if !self.list.shape.fits(key) {
            return false;
        }
        *cnt = 0;
        let room_bytes = self.list.shape.capacity_bytes - self.list.shape.bytes_of(key);
        while self.list.bytes(0) > room_bytes
            && let Some(oldest) = self.list.back(0)
        {
            if self.cnt[oldest as usize] == 0 {
                self.list.take(oldest);
            } else {
                self.cnt[oldest as usize] -= 1;
                self.list.push(0, oldest);
            }
        }
        self.list.push(0, key);
        false
    }

    fn live_bytes(&self) -> u64 {
        self.list.bytes(0)
    }
}
