//! The sampled keys in the order of their last use, and the bytes between two uses of a key.
//!
//! Where: `mrc` reports lookups and stores of sampled keys to the stack, under `mrc`'s lock.
//! Invariant: each use of a key takes the next place, and a key has only the place of its last use.
//! A tree holds sums of the bytes of the keys. When all places are used up, the keys move to the
//! first places; at least `keys` / 2 uses come before the next such move (`Stack::new`).
//! Source: Olken, "Efficient methods for calculating the success function of fixed space
//! replacement policies" (1981), with Fenwick's tree of partial sums, over blocks of places.
//!
//! The stack is compact, because it is a large part of a small store's memory: a place takes 16
//! bytes, an entry of the table from keys to places takes 2 bytes, and a block's sum takes 8 bytes.

/// Number of places in a block. In a block, the bytes of the places are added up one by one.
const BLOCK: usize = 16;
/// The value of an empty entry of `Stack::at`.
const NOWHERE: u16 = u16::MAX;
const PAGE_BYTES: usize = 4 << 10;
/// Multiplier that spreads the hashes, which are all small: 2^64 over the golden ratio (Knuth, The
/// Art of Computer Programming, section 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recency {
    /// The key is not in the stack, or its item has expired.
    New,
    Reused {
        /// Bytes of the items whose keys were used since the key's last use, and of the key's item.
        bytes_between: u64,
    },
}

#[derive(Debug)]
pub(super) struct Stack {
    /// The hash of the key in each place; 0 in an empty place.
    hashes: Box<[u64]>,
    /// The stored item of the key in each place: {exptime: 32, bytes: 32}.
    stored: Box<[u64]>,
    /// Fenwick tree of the bytes in each block; index 0 is unused.
    sums: Box<[u64]>,
    /// Hash table from keys to places, linearly probed; at most half of it, plus 1 entry, is used.
    at: Box<[u16]>,
    keys: usize,
    /// The place of the next use.
    now: usize,
    /// The greatest value that `now` ever had; the memory of later places was never touched.
    now_max: usize,
}

impl Stack {
    /// Makes a stack for at most `keys` + 1 keys. `keys` must be below 40,000.
    pub(super) fn new(keys: usize) -> Self {
        // After the keys have moved to the first places, at least `keys` / 2 places are free.
        let places = (keys + 1) * 3 / 2;
        debug_assert!(places < usize::from(NOWHERE), "places have 16 bits");
        Self {
            hashes: vec![0; places].into(),
            stored: vec![0; places].into(),
            sums: vec![0; places.div_ceil(BLOCK) + 1].into(),
            at: vec![NOWHERE; (2 * keys).next_power_of_two()].into(),
            keys: 0,
            now: 0,
            now_max: 0,
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.keys
    }

    /// Bytes of memory that the stack takes. Places that no key has had yet take no memory.
    pub(super) fn bytes(&self) -> usize {
        let places = (self.now_max * size_of::<u64>()).next_multiple_of(PAGE_BYTES) * 2;
        places + size_of_val(&*self.sums) + size_of_val(&*self.at)
    }

    /// Notes a use of the key of `hash` in second `now`. The key becomes the youngest key.
    pub(super) fn touch(&mut self, hash: u64, now: u32) -> Recency {
        let hash = hash.max(1);
        let Some(at) = self.find(hash) else {
            self.push(hash, 0);
            return Recency::New;
        };
        let (place, stored) = (usize::from(self.at[at]), self.stored[usize::from(self.at[at])]);
        let bytes_between = self.sum(self.now) - self.sum(place);
        self.take(at);
        self.push(hash, stored);
        let exptime = stored >> 32;
        let expired = exptime != 0 && exptime <= u64::from(now);
        if expired { Recency::New } else { Recency::Reused { bytes_between } }
    }

    /// Notes that an item of the key of `hash` was stored. The key becomes the youngest key.
    pub(super) fn store(&mut self, hash: u64, bytes: u32, exptime: u32) {
        self.remove(hash);
        self.push(hash.max(1), (u64::from(exptime) << 32) | u64::from(bytes));
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some(at) = self.find(hash.max(1)) {
            self.take(at);
        }
    }

    pub(super) fn keep_below(&mut self, threshold: u64) {
        self.restart(threshold);
    }

    pub(super) fn clear(&mut self) {
        self.restart(0);
    }

    /// The index in `at` of the entry for the key of `hash`.
    fn find(&self, hash: u64) -> Option<usize> {
        let mut at = self.home(hash);
        while self.at[at] != NOWHERE {
            if self.hashes[usize::from(self.at[at])] == hash {
                return Some(at);
            }
            at = self.behind(at);
        }
        None
    }

    fn home(&self, hash: u64) -> usize {
        let shift = u64::BITS - self.at.len().ilog2();
        usize::try_from(hash.wrapping_mul(SPREAD) >> shift).unwrap_or(0)
    }

    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.at.len() - 1)
    }

    /// Gives the next place to a key that has no place.
    fn push(&mut self, hash: u64, stored: u64) {
        if self.now == self.hashes.len() {
            self.restart(u64::MAX);
        }
        let place = self.now;
        self.now += 1;
        self.now_max = self.now_max.max(self.now);
        (self.hashes[place], self.stored[place]) = (hash, stored);
        let mut at = self.home(hash);
        while self.at[at] != NOWHERE {
            at = self.behind(at);
        }
        self.at[at] = u16::try_from(place).unwrap_or(NOWHERE);
        self.keys += 1;
        self.add(place, bytes_of(stored));
    }

    /// Removes the key of the table's entry `at` from the table and from the key's place.
    fn take(&mut self, at: usize) {
        let place = usize::from(self.at[at]);
        self.add(place, bytes_of(self.stored[place]).wrapping_neg());
        (self.hashes[place], self.stored[place]) = (0, 0);
        self.keys -= 1;
        // Entries that follow move up to fill the hole, so that no search ends too early.
        let (mut hole, mut next) = (at, self.behind(at));
        while self.at[next] != NOWHERE {
            let home = self.home(self.hashes[usize::from(self.at[next])]);
            let mask = self.at.len() - 1;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.at[hole] = self.at[next];
                hole = next;
            }
            next = self.behind(next);
        }
        self.at[hole] = NOWHERE;
    }

    /// Moves the keys with hashes below `below` to the first places, in order; removes all others.
    fn restart(&mut self, below: u64) {
        self.sums.fill(0);
        self.at.fill(NOWHERE);
        self.keys = 0;
        let end = std::mem::take(&mut self.now);
        for from in 0..end {
            let hash = std::mem::take(&mut self.hashes[from]);
            let stored = std::mem::take(&mut self.stored[from]);
            if hash != 0 && hash < below {
                self.push(hash, stored);
            }
        }
    }

    /// Adds `bytes` to all partial sums that include the place's block.
    fn add(&mut self, place: usize, bytes: u64) {
        let mut node = place / BLOCK + 1;
        while let Some(sum) = self.sums.get_mut(node) {
            *sum = sum.wrapping_add(bytes);
            node += node & node.wrapping_neg();
        }
    }

    fn sum(&self, places: usize) -> u64 {
        let mut node = places / BLOCK;
        let mut sum =
            self.stored[node * BLOCK..places].iter().map(|stored| bytes_of(*stored)).sum();
        while node > 0 {
            sum = u64::wrapping_add(sum, self.sums[node]);
            node &= node - 1;
        }
        sum
    }
}

fn bytes_of(stored: u64) -> u64 {
    stored & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reuse_is_as_far_as_what_was_used_between() {
        let mut stack = Stack::new(4);
        let reused = |bytes_between| Recency::Reused { bytes_between };
        for key in [1, 2, 3] {
            assert_eq!(stack.touch(key, 1), Recency::New);
            stack.store(key, 10 * u32::try_from(key).unwrap(), 0);
        }
        assert_eq!(stack.touch(3, 1), reused(30));
        assert_eq!(stack.touch(1, 1), reused(60));
        assert_eq!(stack.touch(1, 1), reused(10));
        for _ in 0..100 {
            assert_eq!(stack.touch(2, 1), reused(60));
            assert_eq!(stack.touch(3, 1), reused(60));
            assert_eq!(stack.touch(1, 1), reused(60));
        }
        stack.store(2, 20, 9);
        assert_eq!(stack.touch(2, 8), reused(20));
        assert_eq!(stack.touch(2, 9), Recency::New);
        stack.remove(2);
        assert_eq!(stack.touch(3, 1), reused(40));
        stack.keep_below(3);
        assert_eq!((stack.keys(), stack.touch(1, 1)), (1, reused(10)));
        stack.clear();
        assert_eq!((stack.keys(), stack.touch(1, 1)), (0, Recency::New));
    }

    /// Compares the stack with a plain list of the keys in the order of their last use.
    #[test]
    fn any_order_of_uses_is_as_a_list_says() {
        let (mut stack, mut list, mut random) = (Stack::new(50), Vec::new(), 7_u64);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (key, what, bytes) =
                ((random >> 33) % 50 + 1, (random >> 40) % 4, (random >> 50) % 100);
            let at = list.iter().position(|(other, _)| *other == key);
            let before = at.map(|at| {
                let between = list[at..].iter().map(|(_, bytes)| *bytes).sum::<u64>();
                (between, list.remove(at).1)
            });
            match (what, before) {
                (0, _) => stack.remove(key),
                (1, _) => {
                    stack.store(key, u32::try_from(bytes).unwrap(), 0);
                    list.push((key, bytes));
                }
                (_, None) => {
                    assert_eq!(stack.touch(key, 1), Recency::New);
                    list.push((key, 0));
                }
                (_, Some((bytes_between, bytes))) => {
                    assert_eq!(stack.touch(key, 1), Recency::Reused { bytes_between });
                    list.push((key, bytes));
                }
            }
            assert_eq!(stack.keys(), list.len());
        }
    }
}
