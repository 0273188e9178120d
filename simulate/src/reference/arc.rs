//! ARC: a list of items used once and a list of items used more often. Their ghosts (lists of
//! evicted keys) balance the sizes of the two lists.
//!
//! Where: a model for comparisons with our policies. Invariant: the items of the two lists fit the
//! capacity. Listed items and items whose keys are in the ghosts have at most twice the capacity.
//! Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003,
//! figure 4; with bytes in place of pages.

use super::lists::Lists;
use crate::cache::{Cache, Shape};

/// T1 lists items used once, T2 items used more often; B1 and B2 are the ghosts of T1 and T2.
const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// Adaptive replacement.
pub struct Arc<'w> {
    lists: Lists<'w, 4>,
    /// The target size of T1: p in the ARC paper.
    target_bytes: u64,
}

impl<'w> Arc<'w> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(shape: Shape<'w>) -> Self {
        Arc { lists: Lists::new(shape), target_bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn target_for_tests(&self) -> u64 {
        self.target_bytes
    }

    fn capacity(&self) -> u64 {
        self.lists.shape.capacity_bytes
    }

    fn replace(&mut self, was_in_b2: bool) {
        let t1 = self.lists.bytes(T1);
        let over = t1 > self.target_bytes || (was_in_b2 && t1 == self.target_bytes);
        let from = if t1 > 0 && (over || self.lists.bytes(T2) == 0) { T1 } else { T2 };
        if let Some(oldest) = self.lists.back(from) {
            self.lists.push(from + B1, oldest);
        }
    }

    fn make_room(&mut self, bytes: u64, was_in_b2: bool) {
        while self.lists.bytes(T1) + self.lists.bytes(T2) + bytes > self.capacity() {
            self.replace(was_in_b2);
        }
    }

    fn drop_oldest(&mut self, list: usize) {
        if let Some(oldest) = self.lists.back(list) {
            self.lists.take(oldest);
        }
    }

    /// Handles a hit in a ghost, which shows that the list that had evicted the key was too short.
    fn revive(&mut self, key: u32, ghost: usize) {
        let bytes = self.lists.shape.bytes_of(key);
        let (b1, b2) = (self.lists.bytes(B1).max(1), self.lists.bytes(B2).max(1));
        self.target_bytes = if ghost == B1 {
            (self.target_bytes + bytes.max(bytes * b2 / b1)).min(self.capacity())
        } else {
            self.target_bytes.saturating_sub(bytes.max(bytes * b1 / b2))
        };
        self.lists.take(key);
        self.make_room(bytes, ghost == B2);
        self.lists.push(T2, key);
    }

    fn insert(&mut self, key: u32) {
        let (bytes, capacity) = (self.lists.shape.bytes_of(key), self.capacity());
        while self.lists.bytes(T1) + self.lists.bytes(B1) + bytes > capacity {
            let from = if self.lists.bytes(B1) > 0 { B1 } else { T1 };
            self.drop_oldest(from);
        }
        self.make_room(bytes, false);
        let all = |lists: &Lists<'_, 4>| (T1..=B2).map(|list| lists.bytes(list)).sum::<u64>();
        while all(&self.lists) + bytes > 2 * capacity && self.lists.bytes(B2) > 0 {
            self.drop_oldest(B2);
        }
        self.lists.push(T1, key);
    }
}

impl Cache for Arc<'_> {
    fn request(&mut self, key: u32, _rewrites: bool) -> bool {
        match self.lists.of(key) {
            Some(T1 | T2) => {
                self.lists.push(T2, key);
                return true;
            }
            Some(ghost) => self.revive(key, ghost),
            None if self.lists.shape.fits(key) => self.insert(key),
            None => {}
        }
        false
    }

    fn live_bytes(&self) -> u64 {
        self.lists.bytes(T1) + self.lists.bytes(T2)
    }
}
