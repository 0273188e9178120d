//! Compares the references with known results, on sequences short enough to follow by hand.
//!
//! Where: tests of `reference`. Invariant: no policy misses less often than `Belady`, whose misses
//! a test compares with the best of all possible choices.

use super::*;
use crate::cache::{Cache, Shape};
use crate::contestant::SimulatedPolicy;
use crate::engine::{Budget, Engine, Settings};
use crate::made::{cycle, keys_of, mixture, zipf};
use crate::sizes::{EQUAL_BYTES, Items};
use store::policy::Eviction;
use testing::Random;

/// The request sequence of a textbook (Silberschatz et al., "Operating System Concepts").
const TEXTBOOK: [u32; 20] = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
/// Belady's anomaly: FIFO with four frames misses more than with three.
const ANOMALY: [u32; 12] = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];

const SIXTEEN: [u32; 16] = [EQUAL_BYTES; 16];

fn frames(count: u64) -> Shape<'static> {
    Shape { item_bytes: &SIXTEEN, capacity_bytes: count * u64::from(EQUAL_BYTES) }
}

fn misses(mut cache: impl Cache, requests: &[u32]) -> usize {
    requests.iter().filter(|key| !cache.request(**key, false)).count()
}

fn fifo(count: u64) -> Engine<'static> {
    let settings = Settings { segments: None, budget: Budget::Live, ghost: 0.0 };
    Engine::new(frames(count), Eviction::Fifo, settings)
}

/// Returns which of the keys 0 to 15 are in the cache after `requests`. For each key, a new cache
/// gets the requests and then a request for the key.
fn held<C: Cache>(make: impl Fn() -> C, requests: &[u32]) -> Vec<u32> {
    let is_held = |key: &u32| {
        let mut cache = make();
        requests.iter().for_each(|key| {
            cache.request(*key, false);
        });
        cache.request(*key, false)
    };
    (0..16).filter(is_held).collect()
}

#[test]
fn lru_and_fifo_miss_as_the_textbook_says() {
    assert_eq!(misses(Lru::new(frames(3)), &TEXTBOOK), 12);
    assert_eq!(misses(fifo(3), &TEXTBOOK), 15);
    assert_eq!((misses(fifo(3), &ANOMALY), misses(fifo(4), &ANOMALY)), (9, 10));
    assert_eq!(misses(Lru::new(frames(3)), &ANOMALY), 10);
    assert_eq!(misses(Lru::new(frames(4)), &ANOMALY), 8);
}

/// Returns the fewest possible misses. Tries every choice of the key to evict.
fn fewest(requests: &[u32], frames: usize, held: &mut Vec<u32>) -> usize {
    let Some((key, rest)) = requests.split_first() else { return 0 };
    if held.contains(key) {
        return fewest(rest, frames, held);
    }
    held.push(*key);
    let best = if held.len() <= frames {
        fewest(rest, frames, held)
    } else {
        let tried = (0..held.len()).map(|out| {
            let mut left = held.clone();
            left.remove(out);
            fewest(rest, frames, &mut left)
        });
        tried.min().unwrap()
    };
    held.retain(|other| other != key);
    1 + best
}

#[test]
fn belady_is_the_best_there_is() {
    let mut random = Random::new(4);
    for _ in 0..200 {
        let requests: Vec<u32> = (0..12).map(|_| random.number(6)).collect();
        for count in 1..=3_usize {
            let belady = Belady::new(frames(count as u64), &requests);
            let best = fewest(&requests, count, &mut Vec::new());
            assert_eq!(misses(belady, &requests), best, "{requests:?}, {count} frames");
        }
    }
}

#[test]
fn nobody_misses_less_than_belady_or_takes_more_than_there_is() {
    let traces = [
        zipf(2000, 40_000, 1),
        cycle(0, 1200, 20_000),
        cycle(0, 20_000, 20_000),
        mixture(2000, 40_000, 2),
    ];
    for (requests, items) in traces.iter().flat_map(|trace| [(trace, "equal"), (trace, "etc")]) {
        let items: Items = items.parse().unwrap();
        let keys = u32::try_from(keys_of(requests)).unwrap();
        let item_bytes: Vec<u32> = (0..keys).map(|key| items.bytes(key)).collect();
        let mean = Shape { item_bytes: &item_bytes, capacity_bytes: 0 }.mean_bytes();
        for objects in [20, 1000] {
            let shape = Shape { item_bytes: &item_bytes, capacity_bytes: objects * mean };
            let least = misses(Belady::new(shape, requests), requests);
            for policy in SimulatedPolicy::all() {
                let settings = Settings::default();
                let mut cache = policy.cache(shape, requests, &items, settings).unwrap();
                let mut missed = 0;
                for (at, key) in requests.iter().enumerate() {
                    missed += usize::from(!cache.request(*key, at % 5 == 0));
                    assert!(cache.live_bytes() <= shape.capacity_bytes, "{policy}");
                }
                let fair = items == Items::Equal && missed < least;
                assert!(!fair, "{policy}, {objects}: {missed} misses against {least}");
            }
        }
    }
}

#[test]
fn clock_spares_once_a_use() {
    let clock = || Clock::new(frames(3));
    assert_eq!(held(clock, &[1, 2, 3, 1, 4]), [1, 3, 4], "1 was used and is spared");
    assert_eq!(held(clock, &[1, 2, 3, 1, 4, 5, 6]), [4, 5, 6], "1 is spared only once");
    assert_eq!(
        held(clock, &[1, 2, 3, 1, 1, 4, 5, 6, 7]),
        [1, 6, 7],
        "1 was used twice and is spared twice"
    );
}

#[test]
fn sieve_leaves_what_it_spares_in_its_place() {
    let sieve = || Sieve::new(frames(3));
    assert_eq!(held(sieve, &[1, 2, 3, 1, 4]), [1, 3, 4]);
    // The hand is at 3 and moves towards newer keys, so SIEVE evicts 3 before 1, which is older.
    assert_eq!(held(sieve, &[1, 2, 3, 1, 4, 5]), [1, 4, 5]);
    assert_eq!(held(sieve, &[1, 2, 3, 1, 4, 5, 6]), [1, 5, 6]);
    assert_eq!(held(sieve, &[1, 2, 3, 1, 4, 4, 5, 6, 7]), [4, 6, 7]);
}

#[test]
fn arc_keeps_what_was_used_twice_and_learns_from_its_ghosts() {
    let arc = || Arc::new(frames(4));
    assert_eq!(held(arc, &[1, 2, 1, 2, 3, 4, 5, 6, 7]), [1, 2, 6, 7]);
    // A request for a key in B1, the ghost of T1, increases the target size of T1.
    let mut cache = arc();
    [1, 2, 1, 2, 3, 4, 5, 6].iter().for_each(|key| {
        cache.request(*key, false);
    });
    let before = cache.target_for_tests();
    assert!(!cache.request(4, false), "a ghost is no hit");
    assert!(cache.target_for_tests() > before);
}

#[test]
fn lirs_does_as_worked_by_hand() {
    let lirs = || Lirs::new(frames(3));
    // Table 1 of the LIRS paper, with room for two LIRs and one HIR; keys 1 to 5 are the paper's
    // blocks A to E. A and D become LIRs; B and C become HIRs. B is used again while B is in the
    // stack, and becomes a LIR in place of A, the oldest LIR. Then A, now a HIR, is used twice, and
    // becomes a LIR in place of B.
    let references = [1, 4, 2, 3, 2, 1, 4, 1, 5];
    let mut cache = lirs();
    let hits = references.map(|key| cache.request(key, false));
    assert_eq!(hits, [false, false, false, false, false, true, true, true, false]);
    assert_eq!(held(lirs, &references), [1, 4, 5]);
    assert_eq!(misses(lirs(), &cycle(1, 5, 50)), 50 - 2 * 9);
}

/// LIRS as the LIRS paper describes it, with vectors in place of linked lists. In `stack`, the
/// newest key is last, and true marks a LIR. In `queue`, the key that is evicted next is first.
struct PlainLirs {
    frames: usize,
    stack: Vec<(u32, bool)>,
    queue: Vec<u32>,
}

impl PlainLirs {
    fn request(&mut self, key: u32) -> bool {
        let lirs = self.stack.iter().filter(|(_, lir)| *lir).count();
        let place = self.stack.iter().position(|(other, _)| *other == key);
        let was_lir = place.is_some_and(|at| self.stack[at].1);
        let hit = was_lir || self.queue.contains(&key);
        if !hit && lirs + self.queue.len() == self.frames {
            self.queue.remove(0);
        }
        if let Some(at) = place {
            self.stack.remove(at);
        }
        // While the LIRs have room, a missed key becomes a LIR.
        let lir = was_lir || place.is_some() || (!hit && lirs < self.frames - 1);
        self.queue.retain(|other| *other != key);
        self.stack.push((key, lir));
        if !lir {
            self.queue.push(key);
        }
        if self.stack.iter().filter(|(_, lir)| *lir).count() > self.frames - 1 {
            let bottom = self.stack.iter().position(|(_, lir)| *lir).unwrap();
            let (demoted, _) = self.stack.remove(bottom);
            self.queue.push(demoted);
        }
        let bottom = self.stack.iter().position(|(_, lir)| *lir).unwrap();
        self.stack.drain(..bottom);
        hit
    }
}

#[test]
fn lirs_does_as_a_plain_telling_of_it() {
    let mut random = Random::new(7);
    for round in 0..300_u32 {
        let frames_here = 2 + round as usize % 5;
        let spread = 4 + random.number(12);
        let mut plain = PlainLirs { frames: frames_here, stack: Vec::new(), queue: Vec::new() };
        let mut cache = Lirs::new(frames(frames_here as u64));
        for at in 0..200 {
            let key = random.number(spread).min(random.number(16));
            assert_eq!(cache.request(key, false), plain.request(key), "round {round}, at {at}");
        }
    }
}

#[test]
fn memcached_moves_to_warm_what_was_hit_twice() {
    let memcached = || Memcached::new(frames(10));
    let scan: Vec<u32> = (4..16).collect();
    let after = |hits: &[u32]| held(memcached, &[&[1, 2, 3][..], hits, &scan].concat());
    assert_eq!(after(&[])[0], 6, "a scan takes all");
    assert!(!after(&[1]).contains(&1), "one hit is not enough");
    let twice = after(&[1, 1]);
    assert!(twice.contains(&1) && !twice.contains(&2), "{twice:?}");
}

#[test]
fn a_loop_larger_than_the_cache_defeats_lru_but_not_belady() {
    let item_bytes = [EQUAL_BYTES; 1000];
    let shape = Shape { item_bytes: &item_bytes, capacity_bytes: 900 * u64::from(EQUAL_BYTES) };
    let requests = cycle(0, 1000, 20_000);
    assert_eq!(misses(Lru::new(shape), &requests), 20_000);
    assert!(misses(Belady::new(shape, &requests), &requests) < 3500);
}
