//! Estimates from a sample of the keys the miss ratios that a cache of another size would have.
//!
//! Where: columns report lookups, stores and deletes of sampled keys (at first one in 64);
//! statistics read the estimate.
//! Invariant: at most `SAMPLES_MAX` keys are kept, which bounds the estimate's memory and the work
//! of one call. No lookup waits: a lookup is not counted if another thread uses the samples.
//! Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC Construction with SHARDS", FAST
//! 2015. Keys are sampled by their hash, and reuse distances among the samples are scaled up. If
//! too many or too few hot keys are sampled, the number of lookups at the shortest reuse distance
//! is corrected, so that the lookups of the samples, scaled up, are as many as all lookups.
//! The estimate holds only for a cache that evicts the least recently used items.

mod stack;

use memory::sync::{AtomicU64, Mutex, Ordering};
use stack::{Recency, Stack};

const RATE_BITS_MIN: u32 = 6;
/// Maximum number of sampled keys. If there are more, about half of the keys are dropped for good.
const SAMPLES_MAX: usize = 8192;
/// Binary logarithm of the number of buckets from a reuse distance to twice this distance.
const PARTS_BITS: u32 = 3;
/// All reuse distances of 2^`DISTANCE_BITS_MAX` bytes or more share the last bucket.
const DISTANCE_BITS_MAX: u32 = 44;
const BUCKETS: usize = (DISTANCE_BITS_MAX << PARTS_BITS) as usize;
/// After this number of sampled lookups all counts are halved, so that recent lookups prevail.
const HALF_LIFE: u32 = 1 << 13;

#[derive(Debug)]
pub(crate) struct Mrc {
    /// A key is sampled if its hash is below this number.
    threshold: AtomicU64,
    samples: Mutex<Samples>,
}

#[derive(Debug)]
struct Samples {
    rate_bits: u32,
    stack: Stack,
    /// Number of sampled lookups in each bucket of the reuse distance. A lookup counts twice as
    /// much each time the share of sampled keys has been halved.
    reused: Box<[u64]>,
    /// Number of sampled lookups that would miss at any memory size, weighted like `reused`.
    cold: u64,
    /// Number of lookups, sampled or not.
    all: u64,
    /// Number of sampled lookups since the counts were last halved.
    lookups: u32,
}

impl Mrc {
    pub(crate) fn new() -> Self {
        let samples = Samples {
            rate_bits: RATE_BITS_MIN,
            stack: Stack::new(SAMPLES_MAX),
            reused: vec![0; BUCKETS].into(),
            cold: 0,
            all: 0,
            lookups: 0,
        };
        Self { threshold: AtomicU64::new(threshold(RATE_BITS_MIN)), samples: Mutex::new(samples) }
    }

    #[inline]
    pub(crate) fn samples(&self, hash: u64) -> bool {
        // Relaxed: `with` compares the hash with the current threshold again.
        hash < self.threshold.load(Ordering::Relaxed)
    }

    /// Counts a sampled lookup in second `now`. Also adds `lookups`, the number of all lookups
    /// since the last call, to the count of all lookups, and sets `lookups` to 0.
    pub(crate) fn looked_up(&self, hash: u64, now: u32, lookups: &mut u64) {
        self.with(hash, |samples| {
            samples.all += std::mem::take(lookups);
            samples.looked_up(hash, now);
        });
    }

    /// Notes the storing of an item that expires at `exptime` (0: never).
    pub(crate) fn stored(&self, hash: u64, bytes: u32, exptime: u32) {
        self.with(hash, |samples| samples.stack.store(hash, bytes, exptime));
    }

    pub(crate) fn deleted(&self, hash: u64) {
        self.with(hash, |samples| samples.stack.remove(hash));
    }

    pub(crate) fn flushed(&self) {
        if let Ok(mut samples) = self.samples.lock() {
            samples.stack.clear();
        }
    }

    /// Misses per lookup at each of the memory sizes in `bytes`; `None` before the first lookup.
    pub(crate) fn miss_ratios<const N: usize>(&self, bytes: [u64; N]) -> Option<[f64; N]> {
        let samples = self.samples.lock().ok()?;
        if samples.all == 0 {
            return None;
        }
        let sampled = samples.reused.iter().sum::<u64>() + samples.cold;
        let (sampled, all) = (count(sampled << RATE_BITS_MIN), count(samples.all));
        let hits = |bytes| samples.hits(bytes) * count(1 << RATE_BITS_MIN) + all - sampled;
        Some(bytes.map(|bytes| (1.0 - hits(bytes) / all).clamp(0.0, 1.0)))
    }

    pub(crate) fn bytes(&self) -> usize {
        let bytes = |samples: &Samples| samples.stack.bytes() + size_of_val(&*samples.reused);
        self.samples.lock().map_or(0, |samples| bytes(&samples))
    }

    /// Returns n if one key in n is sampled.
    pub(crate) fn one_in(&self) -> u64 {
        // Relaxed: a number for statistics.
        u64::MAX / self.threshold.load(Ordering::Relaxed) + 1
    }

    fn with(&self, hash: u64, update: impl FnOnce(&mut Samples)) {
        let Ok(mut samples) = self.samples.try_lock() else { return };
        if hash >= threshold(samples.rate_bits) {
            return;
        }
        update(&mut samples);
        if samples.stack.keys() > SAMPLES_MAX {
            samples.rate_bits += 1;
            let threshold = threshold(samples.rate_bits);
            samples.stack.keep_below(threshold);
            self.threshold.store(threshold, Ordering::Relaxed); // a hint
        }
    }
}

impl Samples {
    fn looked_up(&mut self, hash: u64, now: u32) {
        let weight = 1 << (self.rate_bits - RATE_BITS_MIN);
        match self.stack.touch(hash, now) {
            Recency::New => self.cold += weight,
            Recency::Reused { bytes_between } => {
                let distance = bytes_between.saturating_mul(1 << self.rate_bits);
                if let Some(bucket) = self.reused.get_mut(bucket(distance)) {
                    *bucket += weight;
                }
            }
        }
        self.lookups += 1;
        if self.lookups == HALF_LIFE {
            self.lookups = 0;
            self.cold /= 2;
            self.all /= 2;
            self.reused.iter_mut().for_each(|lookups| *lookups /= 2);
        }
    }

    /// Number of lookups at reuse distances below `bytes`, interpolated in the bucket of `bytes`.
    fn hits(&self, bytes: u64) -> f64 {
        let last = bucket(bytes);
        let below: u64 = self.reused[..last].iter().sum();
        let (start, end) = (bucket_start(last), bucket_start(last + 1));
        let part = count(bytes.saturating_sub(start)) / count(end - start);
        count(below) + count(self.reused[last]) * part.min(1.0)
    }
}

fn threshold(rate_bits: u32) -> u64 {
    1 << (64 - rate_bits)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn count(number: u64) -> f64 {
    number as f64
}

fn bucket(distance: u64) -> usize {
    let power = distance.max(1).ilog2();
    let part = if power >= PARTS_BITS { distance >> (power - PARTS_BITS) } else { 0 };
    let part = part & ((1 << PARTS_BITS) - 1);
    (((power as usize) << PARTS_BITS) | usize::try_from(part).unwrap_or(0)).min(BUCKETS - 1)
}

fn bucket_start(bucket: usize) -> u64 {
    let (power, part) = (bucket >> PARTS_BITS, bucket & ((1 << PARTS_BITS) - 1));
    (1 << power) + (((part as u64) << power) >> PARTS_BITS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use testing::Random;

    fn hash(key: u64) -> u64 {
        let mixed = (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn buckets_follow_each_other() {
        for bucket_of in 8..BUCKETS - 1 {
            let (start, next) = (bucket_start(bucket_of), bucket_start(bucket_of + 1));
            assert!(start <= next, "{bucket_of}");
            if bucket_of >= 3 << PARTS_BITS {
                assert_eq!((bucket(start), bucket(next - 1)), (bucket_of, bucket_of));
            }
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn the_bucket_of_a_size_counts_in_part() {
        let mrc = Mrc::new();
        let mut samples = mrc.samples.lock().expect("nobody else");
        let of = bucket(1 << 20);
        let (start, end) = (bucket_start(of), bucket_start(of + 1));
        samples.reused[of - 1] = 50;
        samples.reused[of] = 400;
        for (bytes, hits) in [(start, 50.0), (start + (end - start) / 4, 150.0), (end, 450.0)] {
            assert!((samples.hits(bytes) - hits).abs() < 0.01, "{bytes}: {}", samples.hits(bytes));
        }
    }

    #[test]
    fn uniform_lookups_miss_in_proportion() {
        let (mrc, mut random) = (Mrc::new(), Random::new(1));
        let (keys, bytes, mut lookups) = (1_000_000, 100, 0);
        for hash in (0..keys).map(hash).filter(|hash| mrc.samples(*hash)) {
            mrc.stored(hash, bytes, 0);
        }
        for _ in 0..4_000_000 {
            let hash = hash(random.below(keys));
            lookups += 1;
            if mrc.samples(hash) {
                mrc.looked_up(hash, 1, &mut lookups);
            }
        }
        let all = keys * u64::from(bytes);
        let ratios = mrc.miss_ratios([all / 4, all / 2, all * 3 / 4, 2 * all]).unwrap();
        for (ratio, expected) in ratios.iter().zip([0.75, 0.5, 0.25, 0.0]) {
            assert!((ratio - expected).abs() < 0.05, "{ratio} against {expected}");
        }
        assert!(mrc.one_in() >= 128, "a million keys are more than fit at one in 64");
    }

    #[test]
    fn skewed_lookups_miss_as_an_lru_does() {
        let (mrc, mut random) = (Mrc::new(), Random::new(7));
        let (room, bytes) = (20_000, 64);
        let (mut queue, mut last) = (VecDeque::new(), vec![0_u64; 400_000]);
        let (mut held, mut misses, mut time) = (0, 0, 0);
        let (all, mut lookups) = (3_000_000, 0);
        for _ in 0..all {
            // The cube of a uniform random number makes few keys hot and many keys rare.
            let part = random.below(1 << 20);
            let key = (((((part * part) >> 20) * part) >> 20) * 400_000) >> 20;
            lookups += 1;
            if mrc.samples(hash(key)) {
                mrc.looked_up(hash(key), 1, &mut lookups);
                mrc.stored(hash(key), bytes, 0);
            }
            time += 1;
            let at = &mut last[usize::try_from(key).unwrap()];
            if *at == 0 {
                misses += 1;
                held += 1;
            }
            *at = time;
            queue.push_back((key, time));
            while held > room {
                let (oldest, when) = queue.pop_front().unwrap();
                let at = &mut last[usize::try_from(oldest).unwrap()];
                if *at == when {
                    *at = 0;
                    held -= 1;
                }
            }
        }
        let exact = count(misses) / count(all);
        let [ratio] = mrc.miss_ratios([room * u64::from(bytes)]).unwrap();
        assert!((ratio - exact).abs() < 0.03, "{ratio} against {exact}");
    }

    #[test]
    fn what_expires_or_is_deleted_is_missed_at_any_size() {
        let mrc = Mrc::new();
        for (key, exptime) in [(1, 5), (2, 0), (3, 50)] {
            let hash = key << 20;
            assert!(mrc.samples(hash));
            mrc.looked_up(hash, 1, &mut 64);
            mrc.stored(hash, 10, exptime);
        }
        mrc.deleted(2 << 20);
        (1..=3).for_each(|key| mrc.looked_up(key << 20, 20, &mut 64));
        // Three of six lookups were of new keys, one of an expired key and one of a deleted key.
        let [ratio] = mrc.miss_ratios([1 << 40]).unwrap();
        assert!((ratio - 5.0 / 6.0).abs() < 1e-9, "{ratio}");
        mrc.flushed();
        mrc.looked_up(3 << 20, 20, &mut 64);
        let [ratio] = mrc.miss_ratios([1 << 40]).unwrap();
        assert!((ratio - 6.0 / 7.0).abs() < 1e-9, "{ratio}");
    }
}
