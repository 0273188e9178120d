//! The sampled keys in the order of their last use, and the bytes between two uses.
//!
//! Where: under `mrc`'s lock.
//! Invariant: a key has one place in time; the tree's sums are those of the places' bytes. Time
//! starts anew when its places are used up, which costs each use a bounded share.
//! Source: Olken, "Efficient methods for calculating the success function of fixed space
//! replacement policies" (1981), with Fenwick's tree of partial sums.

use std::collections::HashMap;

/// Each key of a few is on a page of its own.
const PAGE_BYTES: usize = 4 << 10;

/// One key.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    hash: u64,
    bytes: u32,
    exptime: u32,
    taken: bool,
}

/// What a use found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// Not there, or no longer good.
    New,
    /// There; other keys of so many bytes were used since, itself included.
    Reused {
        /// Among the sampled keys.
        bytes_between: u64,
    },
}

/// The keys.
#[derive(Debug)]
pub(super) struct Stack {
    places: Box<[Place]>,
    /// Partial sums of the places' bytes, from 1 on.
    sums: Box<[u64]>,
    /// Where each key is.
    at: HashMap<u64, usize>,
    /// The next place.
    now: usize,
}

impl Stack {
    /// For `keys` keys and one more.
    pub(super) fn new(keys: usize) -> Self {
        let places = 2 * (keys + 1);
        Self {
            places: vec![Place::default(); places].into(),
            sums: vec![0; places + 1].into(),
            // Twice what is used: it never grows.
            at: HashMap::with_capacity(2 * (keys + 1)),
            now: 0,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.at.len()
    }

    /// Bytes of memory it takes, about: what no key has come to yet is only reserved.
    pub(super) fn bytes(&self) -> usize {
        let map = self.at.capacity() * 8 / 7 * (size_of::<(u64, usize)>() + 1);
        let touched = map.min(self.keys() * PAGE_BYTES);
        size_of_val(&*self.places) + self.now * size_of::<u64>() + touched
    }

    /// A use at time `now`, which makes the key the youngest.
    pub(super) fn touch(&mut self, hash: u64, now: u32) -> Touched {
        let Some(&at) = self.at.get(&hash) else {
            self.push(Place { hash, bytes: 0, exptime: 0, taken: true });
            return Touched::New;
        };
        let place = self.places[at];
        let bytes_between = self.sum(self.now) - self.sum(at);
        self.take(at);
        self.push(place);
        let expired = place.exptime != 0 && place.exptime <= now;
        if expired { Touched::New } else { Touched::Reused { bytes_between } }
    }

    /// Stores a key, which makes it the youngest.
    pub(super) fn store(&mut self, hash: u64, bytes: u32, exptime: u32) {
        self.remove(hash);
        self.push(Place { hash, bytes, exptime, taken: true });
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some(&at) = self.at.get(&hash) {
            self.take(at);
            self.at.remove(&hash);
        }
    }

    /// Gives up the keys whose hash is not below.
    pub(super) fn keep_below(&mut self, threshold: u64) {
        self.places.iter_mut().for_each(|place| place.taken &= place.hash < threshold);
        self.restart();
    }

    pub(super) fn clear(&mut self) {
        self.keep_below(0);
    }

    fn push(&mut self, place: Place) {
        if self.now == self.places.len() {
            self.restart();
        }
        let at = self.now;
        self.now += 1;
        self.places[at] = place;
        self.at.insert(place.hash, at);
        self.add(at, u64::from(place.bytes));
    }

    fn take(&mut self, at: usize) {
        let bytes = u64::from(self.places[at].bytes);
        self.places[at].taken = false;
        self.add(at, bytes.wrapping_neg());
    }

    /// Moves all keys to the first places, in their order.
    fn restart(&mut self) {
        self.sums.fill(0);
        self.at.clear();
        let end = std::mem::take(&mut self.now);
        for from in 0..end {
            let place = self.places[from];
            self.places[from].taken = false;
            if place.taken {
                self.push(place);
            }
        }
    }

    /// Adds to a place's bytes.
    fn add(&mut self, at: usize, bytes: u64) {
        let mut node = at + 1;
        while let Some(sum) = self.sums.get_mut(node) {
            *sum = sum.wrapping_add(bytes);
            node += node & node.wrapping_neg();
        }
    }

    /// Bytes of the first `places` places.
    fn sum(&self, places: usize) -> u64 {
        let (mut node, mut sum) = (places, 0_u64);
        while node > 0 {
            sum = sum.wrapping_add(self.sums[node]);
            node &= node - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reuse_is_as_far_as_what_was_used_between() {
        let mut stack = Stack::new(4);
        let reused = |bytes_between| Touched::Reused { bytes_between };
        for key in [1, 2, 3] {
            assert_eq!(stack.touch(key, 1), Touched::New);
            stack.store(key, 10 * u32::try_from(key).unwrap(), 0);
        }
        assert_eq!(stack.touch(3, 1), reused(30));
        assert_eq!(stack.touch(1, 1), reused(60));
        assert_eq!(stack.touch(1, 1), reused(10));
        // Time starts anew many times.
        for _ in 0..100 {
            assert_eq!(stack.touch(2, 1), reused(60));
            assert_eq!(stack.touch(3, 1), reused(60));
            assert_eq!(stack.touch(1, 1), reused(60));
        }
        stack.remove(2);
        assert_eq!(stack.touch(3, 1), reused(40));
        stack.keep_below(3);
        assert_eq!((stack.keys(), stack.touch(1, 1)), (1, reused(10)));
        stack.clear();
        assert_eq!((stack.keys(), stack.touch(1, 1)), (0, Touched::New));
    }
}
