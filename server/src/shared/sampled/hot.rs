//! The most requested keys, and the keys with the longest values.
//!
//! Where: a column adds the key of each sampled request.
//! Invariant: at most `HOT_KEYS_MAX` hot keys and `BIG_KEYS_MAX` big keys are kept, in memory
//! allocated at the start. A key that has more than one in `HOT_KEYS_MAX` samples is among the hot
//! keys. After each `HOT_SAMPLES` samples, all earlier samples count half as much. With a
//! probability of 99.9 %, every reported key had at least as many requests as reported.
//! Source: A. Metwally, D. Agrawal and A. El Abbadi, *Efficient Computation of Frequent and Top-k
//! Elements in Data Streams* (Space-Saving); E. B. Wilson and M. M. Hilferty, *The Distribution of
//! Chi-Square*, for the bound of a Poisson number.

use arrayvec::ArrayVec;
use memory::plant::{Fault, is};
use protocol::KEY_BYTES_MAX;

use crate::limits::{BIG_KEYS_MAX, HOT_KEYS_MAX, HOT_SAMPLES};

pub(crate) type Key = ArrayVec<u8, KEY_BYTES_MAX>;

#[derive(Clone, Debug)]
pub(crate) struct HotKey {
    pub(crate) key: Key,
    /// Estimated number of recent requests, of which up to `error` may have been for other keys.
    pub(crate) requests: u64,
    pub(crate) error: u64,
    /// Number of requests sampled with a weight of 1. This number is exact.
    certain: u64,
    /// Sum of the squares of the numbers that loops with a weight above 1 added to `requests`. The
    /// statistics treat all requests of a loop as one sample.
    squares: f64,
    /// The last sampled loop with requests for the key, and what that loop added to `requests`.
    last: (u64, u64),
}

/// Number of standard errors by which a bound is below its estimate. One bound fails with a
/// probability of 3e-8, and the samples that count contain at most 2 * `HOT_SAMPLES` keys. So all
/// bounds hold with a probability of 99.9 %, even if the report shows only the largest.
const BOUND_ERRORS: f64 = 5.41;

#[derive(Clone, Debug)]
pub(crate) struct BigKey {
    pub(crate) key: Key,
    pub(crate) value_bytes: u32,
    /// True if the key was sampled since the last halving.
    is_new: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Hot {
    hot: Vec<HotKey>,
    big: Vec<BigKey>,
    /// Estimated number of all requests.
    requests: u64,
    samples: u32,
}

impl Default for Hot {
    fn default() -> Hot {
        let (hot, big) = (Vec::with_capacity(HOT_KEYS_MAX), Vec::with_capacity(BIG_KEYS_MAX));
        Hot { hot, big, requests: 0, samples: 0 }
    }
}

impl HotKey {
    /// Makes the entry of a new key, which inherits `error` requests from the replaced entry.
    fn new(key: &[u8], error: u64, (weight, number): (u64, u64)) -> HotKey {
        let (requests, squares) = (error, 0.0);
        let mut new =
            HotKey { key: own(key), requests, error, certain: 0, squares, last: (number, 0) };
        new.add(weight, number);
        new
    }

    /// Adds a request of weight `weight`, which was sampled in the loop `number`.
    fn add(&mut self, weight: u64, number: u64) {
        self.requests += weight;
        if weight == 1 {
            self.certain += 1;
            return;
        }
        let before = if self.last.0 == number { self.last.1 } else { 0 };
        self.last = (number, before + weight);
        // Adds the growth of the square of the loop's sum, from `before` to `before + weight`.
        self.squares += exact(weight) * exact(2 * before + weight);
    }

    /// Returns a lower bound for the key's requests; 0 if too few samples are certainly of the key.
    pub(crate) fn at_least(&self) -> u64 {
        let seen = self.requests - self.error;
        if seen <= self.error {
            return 0;
        }
        let sampled = exact(seen.saturating_sub(self.certain));
        if sampled <= 0.0 || self.squares <= 0.0 {
            return self.certain;
        }
        // Number of equally weighted loops whose sum would have the same relative error.
        let loops = sampled * sampled / self.squares;
        let root = 1.0 - 1.0 / (9.0 * loops) - BOUND_ERRORS / (3.0 * loops.sqrt());
        self.certain + whole(sampled * root.max(0.0).powi(3))
    }
}

/// Converts a number of requests; the result is exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "of larger numbers the first digits are enough")]
fn exact(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not below zero, and no more than a number of requests"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

fn own(key: &[u8]) -> Key {
    key.iter().copied().take(KEY_BYTES_MAX).collect()
}

impl Hot {
    /// Records a request for `key`, of weight `weight`, in the sampled loop with this `number`.
    pub(crate) fn asked(&mut self, key: &[u8], (weight, number): (u32, u64)) {
        let weight = u64::from(weight);
        self.requests += weight;
        self.samples += 1;
        if let Some(known) = self.hot.iter_mut().find(|known| *known.key == *key) {
            known.add(weight, number);
        } else if self.hot.len() < HOT_KEYS_MAX {
            self.hot.push(HotKey::new(key, 0, (weight, number)));
        } else if let Some(least) = self.hot.iter_mut().min_by_key(|known| known.requests) {
            *least = HotKey::new(key, least.requests, (weight, number));
        }
        if self.samples >= HOT_SAMPLES && !is(Fault::PastNotHalved) {
            self.halve();
        }
    }

    /// Records that the value of `key` has `value_bytes` bytes.
    pub(crate) fn seen(&mut self, key: &[u8], value_bytes: u32) {
        let seen = BigKey { key: Key::new(), value_bytes, is_new: true };
        if let Some(known) = self.big.iter_mut().find(|known| *known.key == *key) {
            *known = BigKey { key: known.key.clone(), ..seen };
        } else if self.big.len() < BIG_KEYS_MAX {
            self.big.push(BigKey { key: own(key), ..seen });
        } else if let Some(least) = self.big.iter_mut().min_by_key(|known| known.value_bytes)
            && least.value_bytes < value_bytes
        {
            *least = BigKey { key: own(key), ..seen };
        }
    }

    /// Forgets a key that no longer has an item.
    pub(crate) fn gone(&mut self, key: &[u8]) {
        self.big.retain(|known| *known.key != *key);
    }

    #[cold]
    fn halve(&mut self) {
        self.samples = 0;
        self.requests /= 2;
        for known in &mut self.hot {
            known.requests /= 2;
            known.error /= 2;
            known.certain /= 2;
            known.squares /= 4.0;
            known.last.1 /= 2;
        }
        self.hot.retain(|known| known.requests > 0);
        self.big.retain(|known| known.is_new);
        self.big.iter_mut().for_each(|known| known.is_new = false);
    }

    /// Returns the keys of all columns, the most requested first, and the number of all requests.
    pub(crate) fn hottest<'h>(all: impl IntoIterator<Item = &'h Hot>) -> (Vec<HotKey>, u64) {
        let (mut keys, mut requests) = (Vec::<HotKey>::new(), 0);
        for hot in all {
            requests += hot.requests;
            for more in &hot.hot {
                match keys.iter_mut().find(|known| known.key == more.key) {
                    Some(known) => {
                        known.requests += more.requests;
                        known.error += more.error;
                        known.certain += more.certain;
                        known.squares += more.squares;
                    }
                    None => keys.push(more.clone()),
                }
            }
        }
        keys.sort_by_key(|known| std::cmp::Reverse(known.requests));
        (keys, requests)
    }

    pub(crate) fn biggest(&self) -> &[BigKey] {
        &self.big
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_are_found_among_many_in_bounded_memory() {
        let (mut one, mut other) = (Hot::default(), Hot::default());
        for number in 0..40_000_u32 {
            let hot = if number.is_multiple_of(2) { &mut one } else { &mut other };
            match number % 10 {
                0 | 1 => hot.asked(b"first", (128, number.into())),
                2 => hot.asked(b"second", (128, number.into())),
                _ => hot.asked(&number.to_le_bytes(), (128, number.into())),
            }
            assert!(hot.hot.len() <= HOT_KEYS_MAX);
        }
        let (keys, requests) = Hot::hottest([&one, &other]);
        assert_eq!((&*keys[0].key, &*keys[1].key), (&b"first"[..], &b"second"[..]));
        let percent = |key: &HotKey| (key.requests - key.error / 2) * 100 / requests;
        assert!(percent(&keys[0]).abs_diff(20) < 3 && percent(&keys[1]).abs_diff(10) < 3);
        assert!(keys[0].requests - keys[0].error > requests / 6, "{:?}", keys[0]);
    }

    #[test]
    fn what_came_in_one_loop_is_one_sample() {
        let (mut together, mut apart) = (Hot::default(), Hot::default());
        for number in 0..64 {
            together.asked(b"key", (128, 7));
            apart.asked(b"key", (128, number));
        }
        assert_eq!((together.hot[0].requests, together.hot[0].at_least()), (64 * 128, 0));
        let bound = apart.hot[0].at_least();
        assert!(bound > 64 * 128 / 3 && bound < 64 * 128, "{bound}");
        together.asked(b"key", (1, 8));
        assert_eq!(together.hot[0].at_least(), 1, "one by one, each is certain");
    }

    #[test]
    fn what_was_hot_once_is_forgotten() {
        let mut hot = Hot::default();
        (0..HOT_SAMPLES).for_each(|_| hot.asked(b"old", (1, 0)));
        (0..8 * HOT_SAMPLES).for_each(|_| hot.asked(b"new", (1, 0)));
        let (keys, _) = Hot::hottest([&hot]);
        assert_eq!(&*keys[0].key, b"new");
        assert!(keys.get(1).is_none_or(|old| old.requests < keys[0].requests / 100));
    }

    #[test]
    fn the_longest_values_are_kept_until_they_are_gone() {
        let mut hot = Hot::default();
        for bytes in 0..1000 {
            hot.seen(&u32::to_le_bytes(bytes), bytes);
        }
        let least = |hot: &Hot| hot.biggest().iter().map(|big| big.value_bytes).min();
        let kept = u32::try_from(BIG_KEYS_MAX).unwrap();
        assert_eq!((hot.biggest().len(), least(&hot)), (BIG_KEYS_MAX, Some(1000 - kept)));
        hot.seen(&u32::to_le_bytes(999), 5);
        assert_eq!(least(&hot), Some(5));
        hot.gone(&u32::to_le_bytes(999));
        assert_eq!(hot.biggest().len(), BIG_KEYS_MAX - 1);
        // A big key is also forgotten if it is not sampled again.
        (0..2 * HOT_SAMPLES).for_each(|_| hot.asked(b"key", (1, 0)));
        assert!(hot.biggest().is_empty());
    }
}
