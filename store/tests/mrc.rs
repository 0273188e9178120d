//! Compares a store's estimated miss ratios for other sizes with measured miss ratios.
//!
//! Where: the store alone; after each miss the test sets the key.
//! Invariant: the estimate is for LRU; the store's policies miss somewhat less than LRU.
//! Source: `Store::miss_ratios`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, Put, Store, Verb};
use testing::Random;

const MIB: usize = 1 << 20;

fn store(memory_bytes: usize) -> (Arc<Store>, Column) {
    let config = Config {
        memory_bytes,
        item_bytes_max: MIB,
        columns: 1,
        eviction: Some(Eviction::NbqClock),
        cas: true,
        now: 62,
    };
    let store = Store::new(&config).unwrap();
    let column = store.column();
    (store, column)
}

/// Draws one of 400,000 keys; low keys are drawn more often.
fn key(random: &mut Random) -> u64 {
    let part = random.below(1 << 20);
    ((((part * part) >> 20) * 400_000) >> 20).min(399_999)
}

fn misses(column: &mut Column, random: &mut Random) -> f64 {
    let (warm, lookups) = (1_200_000, 1_000_000);
    let mut misses = 0_u32;
    for at in 0..warm + lookups {
        let key = key(random).to_le_bytes();
        if column.get(&key).is_none() {
            misses += u32::from(at >= warm);
            column.put(&Put::new(Verb::Set, &key), Body::Bytes(&[b'v'; 60])).unwrap();
        }
        column.quiesce();
    }
    f64::from(misses) / f64::from(lookups)
}

#[test]
fn other_sizes_miss_about_as_often_as_was_said() {
    let sizes = [8, 16, 32].map(|mib| mib * MIB);
    let (shared, mut column) = store(sizes[1]);
    assert_eq!(shared.miss_ratios([1]), None);
    let measured = misses(&mut column, &mut Random::new(1));
    let said = shared.miss_ratios(sizes.map(|bytes| bytes as u64)).unwrap();
    // A policy that counts uses misses up to a tenth less than LRU if keys keep their popularity.
    // The estimate comes from a random sample, and has a standard error of about 0.01.
    let near = |said: f64, measured: f64| (-0.06..0.13).contains(&(said - measured));
    assert!(near(said[1], measured), "{said:?} and {measured}");
    for (bytes, said) in [(sizes[0], said[0]), (sizes[2], said[2])] {
        let (_, mut column) = store(bytes);
        let measured = misses(&mut column, &mut Random::new(2));
        assert!(near(said, measured), "{bytes} bytes: {said} said, {measured} measured");
    }
    let [none, all] = shared.miss_ratios([0, 1 << 40]).unwrap();
    assert!(none > 0.85 && all < 0.35, "{none} {all}");
}
