//! LRU: evicts the least recently used item. LRU is the baseline of all comparisons.
//!
//! Where: a model for comparisons with our policies. Invariant: the list is in the order of last
//! uses.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

/// Least recently used.
pub struct Lru<'w>(Lists<'w, 1>);

impl<'w> Lru<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        Lru(Lists::new(shape))
    }
}

impl Cache for Lru<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        let hit = self.0.of(key).is_some();
        if !hit {
            if !self.0.shape.fits(key) {
                return false;
            }
            let room_bytes = self.0.shape.capacity_bytes - self.0.shape.bytes_of(key);
            while self.0.bytes(0) > room_bytes
                && let Some(oldest) = self.0.back(0)
            {
                self.0.take(oldest);
            }
        }
        self.0.push(0, key);
        hit
    }

    fn live_bytes(&self) -> u64 {
        self.0.bytes(0)
    }
}
