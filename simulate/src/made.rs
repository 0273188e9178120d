//! Makes requests for tests: Zipf, scans, loops, and mixtures of them.
//!
//! Where: unit tests only. Invariant: the same arguments give the same requests.

use testing::Random;

/// Makes `count` requests for `keys` keys. The n-th most frequent key has the weight 1/n.
pub(crate) fn zipf(keys: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut sums: Vec<f64> = Vec::new();
    for key in 1..=keys {
        sums.push(sums.last().unwrap_or(&0.0) + 1.0 / f64::from(key));
    }
    let all = *sums.last().unwrap();
    let mut random = Random::new(seed);
    let mut one = || {
        let at = random.unit() * all;
        let key = u32::try_from(sums.partition_point(|sum| *sum <= at)).unwrap();
        // Keys of similar frequency get numbers that are far apart.
        u32::try_from(u64::from(key) * 7919 % u64::from(keys)).unwrap()
    };
    (0..count).map(|_| one()).collect()
}

/// Requests the `keys` keys from `from` on, again and again, until there are `count` requests.
pub(crate) fn cycle(from: u32, keys: u32, count: usize) -> Vec<u32> {
    (from..from + keys).cycle().take(count).collect()
}

/// Makes the requests of `zipf`, interrupted by scans of keys that are requested only once, and by
/// bursts of requests for one key.
pub(crate) fn mixture(keys: u32, count: usize, seed: u64) -> Vec<u32> {
    let mut fresh = keys;
    let mut random = Random::new(seed);
    let mut requests = Vec::new();
    for chunk in zipf(keys, count, seed).chunks(1000) {
        requests.extend(chunk);
        let scan = random.number(500);
        requests.extend(fresh..fresh + scan);
        fresh += scan;
        requests.extend([fresh; 5]);
        fresh += 1;
    }
    requests
}

/// Makes requests that mostly repeat recently requested keys, the most recent keys most often.
pub(crate) fn recency(count: usize, depth: f64, seed: u64) -> Vec<u32> {
    let (mut stack, mut requests, mut fresh) = (Vec::new(), Vec::new(), 0);
    let mut random = Random::new(seed);
    for _ in 0..count {
        let at = random.unit();
        let distance = -(1.0 - at).ln() * depth;
        let behind = (0..stack.len()).find(|n| *n as f64 >= distance);
        let key = match behind {
            Some(behind) if random.number(100) >= 15 => stack.remove(stack.len() - 1 - behind),
            _ => {
                fresh += 1;
                fresh - 1
            }
        };
        stack.push(key);
        requests.push(key);
    }
    requests
}

/// Requests each key twice. The second request comes `distance` keys after the first request.
pub(crate) fn twice(count: u32, distance: u32) -> Vec<u32> {
    let pair = |key: u32| std::iter::once(key).chain(key.checked_sub(distance));
    (0..count).flat_map(pair).collect()
}

pub(crate) fn keys_of(requests: &[u32]) -> usize {
    requests.iter().max().map_or(0, |key| *key as usize + 1)
}
