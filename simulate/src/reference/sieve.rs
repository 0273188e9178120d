//! SIEVE: a pointer (the hand) goes from old to new items, and evicts unused items.
//!
//! Where: a model for comparisons with our policies. Invariant: neither hits nor the hand move an
//! item.
//! Source: Zhang et al., "SIEVE is simpler than LRU", NSDI 2024.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

/// SIEVE.
pub struct Sieve<'w> {
    list: Lists<'w, 1>,
    used: Vec<bool>,
    hand: Option<u32>,
}

impl<'w> Sieve<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        Sieve { used: vec![false; shape.keys()], list: Lists::new(shape), hand: None }
    }

    fn evict(&mut self) -> bool {
        let Some(mut at) = self.hand.or_else(|| self.list.back(0)) else { return false };
        while std::mem::take(&mut self.used[at as usize]) {
            let Some(next) = self.list.newer(at).or_else(|| self.list.back(0)) else {
                return false;
            };
            at = next;
        }
        self.hand = self.list.newer(at);
        self.list.take(at);
        true
    }
}

impl Cache for Sieve<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        if self.list.of(key).is_some() {
            self.used[key as usize] = true;
            return true;
        }
        if !self.list.shape.fits(key) {
            return false;
        }
        let room_bytes = self.list.shape.capacity_bytes - self.list.shape.bytes_of(key);
        while self.list.bytes(0) > room_bytes && self.evict() {}
        self.used[key as usize] = false;
        self.list.push(0, key);
        false
    }

    fn live_bytes(&self) -> u64 {
        self.list.bytes(0)
    }
}
