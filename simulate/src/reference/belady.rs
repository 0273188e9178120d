//! Belady's MIN: evicts the item whose next use is latest, even if the item is the newest.
//!
//! Where: a model for comparisons with our policies. Invariant: if all items have one size, no
//! policy misses less often. If sizes differ, MIN misses rarely, but is not optimal.
//! Source: Belady, "A study of replacement algorithms for a virtual-storage computer", 1966; but an
//! item that was just fetched may be evicted at once, because a cache need not keep it.

use crate::cache::{Cache, Shape};
use std::collections::BTreeSet;

const NEVER: u32 = u32::MAX;

/// The optimal policy, which knows all requests.
pub struct Belady<'w> {
    shape: Shape<'w>,
    /// For each request, the index of the next request of the same key.
    next: Vec<u32>,
    at: usize,
    /// For each item in the cache, the index of its next request, and its key.
    held: BTreeSet<(u32, u32)>,
    live_bytes: u64,
}

impl<'w> Belady<'w> {
    /// Makes an empty cache for exactly these requests, fewer than 2^32.
    #[must_use]
    pub fn new(shape: Shape<'w>, requests: &[u32]) -> Self {
        let mut next = vec![NEVER; requests.len()];
        let mut upcoming = vec![NEVER; shape.keys()];
        for (at, key) in requests.iter().enumerate().rev() {
            let this = u32::try_from(at).unwrap_or(NEVER);
            next[at] = std::mem::replace(&mut upcoming[*key as usize], this);
        }
        Belady { shape, next, at: 0, held: BTreeSet::new(), live_bytes: 0 }
    }
}

impl Cache for Belady<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        let this = u32::try_from(self.at).unwrap_or(NEVER);
        let next = self.next.get(self.at).copied().unwrap_or(NEVER);
        self.at += 1;
        let hit = self.held.remove(&(this, key));
        if next == NEVER {
            // The key is not requested again, so its item is not kept.
            self.live_bytes -= if hit { self.shape.bytes_of(key) } else { 0 };
            return hit;
        }
        self.held.insert((next, key));
        if !hit {
            self.live_bytes += self.shape.bytes_of(key);
            while self.live_bytes > self.shape.capacity_bytes
                && let Some((_, latest)) = self.held.pop_last()
            {
                self.live_bytes -= self.shape.bytes_of(latest);
            }
        }
        hit
    }

    fn live_bytes(&self) -> u64 {
        self.live_bytes
    }
}
