//! Decides when the cache is warm, which means that the hit ratio has settled.
//!
//! ```text
//! |...................half|......quarter......|......quarter......|now
//!                           hit ratio            hit ratio           do they differ?
//! ```
//!
//! Where: `run::course` adds counts once a second during the traffic before a schedule.
//! Invariant: the caller gives all times and counts. The compared spans grow with the elapsed time,
//! so that a slowly changing ratio does not count as settled too early.

use std::time::Duration;

/// Minimum time after which the hit ratio can count as settled.
const WARM_MIN: Duration = Duration::from_secs(5);
/// The hit ratio has not settled if the last two quarters differ by more than this.
const APART_MAX: f64 = 0.005;
/// A difference up to this share of the hit or miss ratio (the lower one) counts as settled.
const SHARE_MAX: f64 = 0.02;
/// A difference up to this many standard errors may be chance, and counts as settled.
const ERRORS: f64 = 3.0;

/// Hits and looked-up keys from the start to the time `at`.
#[derive(Clone, Copy, Debug, Default)]
struct HitSums {
    at: Duration,
    hits: u64,
    keys: u64,
}

/// The hit ratio over time.
#[derive(Debug)]
pub(crate) struct WarmUp {
    sums: Vec<HitSums>,
}

impl Default for WarmUp {
    fn default() -> WarmUp {
        WarmUp { sums: vec![HitSums::default()] }
    }
}

impl WarmUp {
    /// Adds the keys looked up since the last call, at time `at`.
    pub(crate) fn add(&mut self, at: Duration, hits: u64, keys: u64) {
        let last = self.sums.last().copied().unwrap_or_default();
        self.sums.push(HitSums { at, hits: last.hits + hits, keys: last.keys + keys });
    }

    /// The hit ratios of the last quarter of the time so far and of the quarter before.
    pub(crate) fn ratios(&self) -> Option<[f64; 2]> {
        let [last, before] = self.quarters();
        Some([last.0?, before.0?])
    }

    pub(crate) fn is_settled(&self) -> bool {
        let [(Some(last), keys), (Some(before), keys_before)] = self.quarters() else {
            return false;
        };
        let mean = f64::midpoint(last, before);
        let variance = mean * (1.0 - mean);
        let error = (variance / keys as f64 + variance / keys_before as f64).sqrt();
        let apart_max = (SHARE_MAX * mean.min(1.0 - mean)).max(ERRORS * error).min(APART_MAX);
        let is_long = self.sums.last().is_some_and(|last| last.at >= WARM_MIN);
        is_long && (last - before).abs() <= apart_max
    }

    /// Hit ratio and number of keys of the last quarter and of the quarter before.
    fn quarters(&self) -> [(Option<f64>, u64); 2] {
        let now = self.sums.last().copied().unwrap_or_default();
        let until = |part: u32| {
            let at = now.at * part / 4;
            let at = self.sums.partition_point(|sums| sums.at <= at);
            self.sums.get(at.saturating_sub(1)).copied().unwrap_or_default()
        };
        let between = |from: HitSums, to: HitSums| {
            let keys = to.keys - from.keys;
            ((keys > 0).then(|| (to.hits - from.hits) as f64 / keys as f64), keys)
        };
        [between(until(3), now), between(until(2), until(3))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 100_000;

    /// The second in which the ratio settles, if second n has `keys` keys and `hits(n)` hits.
    fn settled(keys: u64, hits: impl Fn(u64) -> u64) -> Option<u64> {
        let mut warm = WarmUp::default();
        (1..=600).find(|second| {
            warm.add(Duration::from_secs(*second), hits(*second), keys);
            warm.is_settled()
        })
    }

    #[test]
    fn what_stands_has_settled_at_once_and_what_rises_when_it_has_risen() {
        assert_eq!(settled(KEYS, |_| 90_000), Some(5));
        assert_eq!(settled(KEYS, |_| 0), Some(5));
        // The ratio rises for a minute, to 60 % or 2 %, and settles about a minute later.
        for hits in [60_000, 2_000] {
            let at = settled(KEYS, |second| hits * second.min(60) / 60).unwrap();
            assert!((100..=130).contains(&at), "{hits}: {at}");
        }
        // Each second the ratio rises by 16 % of the distance to its final value.
        let missing = |second: u64| (0..second).fold(50_000, |left, _| left * 84 / 100);
        let at = settled(KEYS, |second| 90_000 - missing(second)).unwrap();
        assert!(missing(at) < 100, "{at}: {}", missing(at));
    }

    #[test]
    fn chance_neither_settles_nor_hinders_it() {
        // A hundred keys a second are looked up, and a random half of them are hits. The first
        // quarters have too few keys to settle the ratio.
        let drawn = |second: u64| {
            let bits = |n| simulate::sizes::mix(second * 2 + n).count_ones();
            u64::from(bits(0) + bits(1)) * 100 / 128
        };
        let at = settled(100, drawn).unwrap();
        assert!(at > 5, "{at}");
        assert_eq!(settled(0, |_| 0), None);
        assert_eq!(WarmUp::default().ratios(), None);
    }
}
