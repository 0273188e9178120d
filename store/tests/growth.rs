//! The store takes memory as items need it: it reuses mostly dead segments before memory that was
//! never touched, and moves nothing while it only grows.
//!
//! Where: the whole store, one column, under a virtual clock.
//! Invariant: the store's memory stays within twice the bytes of its items, plus `BESIDE_BYTES`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use store::policy::Eviction;
use store::{Body, Column, Config, Put, Start, Store, Verb};

const MIB: usize = 1 << 20;
const BESIDE_BYTES: u64 = 5 << 20;

fn make(memory_mb: usize, eviction: Option<Eviction>) -> (Arc<Store>, Column) {
    let config = Config {
        memory_bytes: memory_mb * MIB,
        item_bytes_max: MIB,
        columns: 1,
        eviction,
        cas: true,
        now: 100,
    };
    let store = Store::new(&config).expect("address space");
    let column = store.column();
    (store, column)
}

fn set(column: &mut Column, key: u32, bytes: usize, exptime: u32) {
    let value = vec![u8::try_from(key % 251).unwrap(); bytes];
    let key = key.to_le_bytes();
    let put = Put { exptime, ..Put::new(Verb::Set, &key) };
    column.put(&put, Body::Bytes(&value)).expect("room");
    column.quiesce();
}

fn touched_bytes(store: &Store) -> u64 {
    let usage = store.usage();
    usage.log_bytes() + usage.index_bytes + usage.ghost_bytes
}

struct Load {
    keys: u32,
    lengths: std::ops::Range<usize>,
    exptime: fn(u32) -> u32,
    sets: u32,
}

/// Fills a store and overwrites items at random. Returns the maximum of the memory in use minus
/// twice the items' bytes, and the percentage of the stored bytes that the store moved.
fn overwrite(memory_mb: usize, eviction: Option<Eviction>, load: &Load) -> (i64, usize) {
    let (store, mut column) = make(memory_mb, eviction);
    let mut random = 1_u32;
    let mut draw = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 4) as usize
    };
    let (mut beyond, mut stored_bytes) = (i64::MIN, 0);
    for number in 0..load.keys + load.sets {
        let key =
            if number < load.keys { number } else { u32::try_from(draw()).unwrap() % load.keys };
        let bytes = load.lengths.start + draw() % load.lengths.len();
        set(&mut column, key, bytes, (load.exptime)(key));
        stored_bytes += bytes;
        if number % 64 == 0 {
            column.maintain();
            let (live, touched) = (store.stats().bytes, touched_bytes(&store));
            beyond = beyond.max(i64::try_from(touched).unwrap() - 2 * i64::try_from(live).unwrap());
        }
    }
    let stats = store.stats();
    assert_eq!((stats.evictions, stats.curr_items), (0, u64::from(load.keys)), "{stats:?}");
    for key in 0..load.keys {
        assert!(column.get(&key.to_le_bytes()).is_some());
    }
    (beyond, 100 * usize::try_from(stats.compacted_bytes).unwrap() / stored_bytes)
}

#[test]
fn what_is_overwritten_at_random_stays_within_twice_its_bytes() {
    let never: fn(u32) -> u32 = |_| 0;
    let some: fn(u32) -> u32 = |key| if key % 2 == 0 { 0 } else { 1000 + key % 7 * 500 };
    for (lengths, keys, sets) in [
        (15_000..18_000, 1700, 12_000), // some in the log, some with a frame
        (16_000..16_300, 1700, 12_000),
        (17_000..40_000, 900, 6000),
        (90_000..110_000, 280, 2000),
        (3_500..4_500, 7000, 40_000),
        (800..1_200, 25_000, 120_000),
        (80..120, 120_000, 400_000),
    ] {
        for (exptime, eviction) in [(never, Some(Eviction::default())), (some, None)] {
            let load = Load { keys, lengths: lengths.clone(), exptime, sets };
            let (beyond, moved) = overwrite(128, eviction, &load);
            let what = format!("values of {lengths:?}, {eviction:?}: {moved} % moved");
            assert!(
                beyond < i64::try_from(BESIDE_BYTES).unwrap(),
                "{beyond} bytes too many: {what}"
            );
            assert!(moved < 30, "{what}");
        }
    }
}

#[test]
fn what_only_grows_is_never_moved() {
    for (bytes, sets) in [(100, 150_000), (4000, 10_000), (16_100, 2500), (100_000, 400)] {
        for exptime in [0, 100_000] {
            let (store, mut column) = make(64, Some(Eviction::default()));
            for key in 0..sets {
                set(&mut column, key, bytes, exptime);
                if key % 16 == 0 {
                    column.maintain();
                }
            }
            let stats = store.stats();
            assert_eq!((stats.compacted_bytes, stats.evictions), (0, 0), "{bytes}: {stats:?}");
            assert_eq!(stats.curr_items, u64::from(sets));
        }
    }
}

#[test]
fn what_was_deleted_is_used_again_first() {
    let (store, mut column) = make(128, Some(Eviction::default()));
    (0..40_000).for_each(|key| set(&mut column, key, 1000, 0));
    let before = touched_bytes(&store);
    (0..40_000_u32).filter(|key| key % 8 != 0).for_each(|key| {
        column.delete(&key.to_le_bytes());
    });
    (100_000..110_000).for_each(|key| set(&mut column, key, 2500, 0));
    let after = touched_bytes(&store);
    assert!(after < before + (1 << 20), "{before} became {after}");
    assert_eq!(store.stats().evictions, 0);
}

/// Number of this thread's minor page faults (served from memory) so far.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // After the name, which may have blanks, come the state, six numbers, and `minflt`.
    stat.rsplit(')').next().unwrap().split(' ').nth(8).unwrap().parse().unwrap()
}

/// Stores 32 MiB of new keys, and checks that the store takes little more memory than needed. If
/// `helped`, another thread populates memory after each slice. Returns this thread's page faults.
fn grow(helped: bool) -> u64 {
    const SLICE: u32 = 16;
    let (store, mut column) = make(64, Some(Eviction::default()));
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let other = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            for () in asked {
                while store.populate_one().expect("memory") {}
                done.send(()).expect("the test waits");
            }
        })
    };
    // These sets touch memory that is taken only once, for example the index's.
    (0..2000).for_each(|key| set(&mut column, key, 1000, 0));
    let before = faults();
    for first in (2000..32_000).step_by(SLICE as usize) {
        (first..first + SLICE).for_each(|key| set(&mut column, key, 1000, 0));
        column.maintain();
        if helped && store.wants_to_populate() {
            ask.send(()).expect("the other thread runs");
            is_done.recv().expect("it answers");
        }
        let (live, usage) = (store.stats().bytes, store.usage());
        assert!(usage.free_bytes <= 5 << 20, "{usage:?}");
        assert!(touched_bytes(&store) < 2 * live + BESIDE_BYTES, "{usage:?}");
    }
    let faults = faults() - before;
    drop(ask);
    other.join().expect("it ends");
    faults
}

#[test]
fn an_append_does_not_wait_for_memory_that_is_ahead_of_need() {
    let (alone, helped) = (grow(false), grow(true));
    // Each page of 4 KiB costs a fault, except the pages of the index.
    assert!(alone > 6000, "{alone} page faults where nobody helps");
    assert!(helped < alone / 20, "{helped} page faults, {alone} where nobody helps");
}

#[test]
fn an_empty_store_takes_nothing_ahead_of_need() {
    for memory_mb in [8, 64, 1024] {
        let (store, mut column) = make(memory_mb, Some(Eviction::default()));
        while store.populate_one().expect("memory") {}
        let usage = store.usage();
        assert!(usage.log_bytes() <= 5 << 20, "{usage:?}");
        (0..10_000).for_each(|key| set(&mut column, key % 10, 1000, 0));
        while store.populate_one().expect("memory") {}
        // Three or more segments of the largest size may be open or taken ahead of need.
        let usage = store.usage();
        assert!(usage.log_bytes() <= 8 << 20, "{usage:?}");
    }
}

#[test]
fn what_is_ahead_goes_back_when_nothing_grows_and_comes_again_when_something_does() {
    let (store, mut column) = make(1024, Some(Eviction::default()));
    (0..1000).for_each(|key| set(&mut column, key, 10_000, 0));
    while store.populate_one().expect("memory") {}
    let (seen, before) = (store.segments_seen(), store.usage());
    assert!(before.free_bytes > 0, "{before:?}");
    (1000..1400).for_each(|key| set(&mut column, key, 10_000, 0));
    assert!(!store.give_back_unused(seen), "it grows");
    while store.populate_one().expect("memory") {}
    assert!(store.give_back_unused(store.segments_seen()));
    let after = store.usage();
    assert!(after.free_bytes == 0 && after.live_bytes > before.live_bytes, "{after:?}");
    assert!(!store.wants_to_populate() && !store.populate_one().expect("memory"), "it rests");
    (1400..1800).for_each(|key| set(&mut column, key, 10_000, 0));
    assert!(store.wants_to_populate() && store.populate_one().expect("memory"), "it grows again");
}

#[test]
fn nothing_is_taken_ahead_that_makes_an_append_pay() {
    let (store, mut column) = make(8, Some(Eviction::default()));
    for key in 0..20_000 {
        set(&mut column, key, 1000, 0);
        while store.populate_one().expect("memory") {}
        if store.stats().evictions > 0 {
            break;
        }
    }
    let usage = store.usage();
    assert!(usage.live_bytes > 6 << 20, "{usage:?}");
}

#[test]
fn an_index_made_for_so_many_items_holds_them_and_contracts_when_the_memory_is_lowered() {
    let config = Config {
        memory_bytes: 64 * MIB,
        item_bytes_max: MIB,
        columns: 1,
        eviction: Some(Eviction::default()),
        cas: true,
        now: 100,
    };
    let items = 100_000;
    let with = |items: u64| {
        let start = Start { items, ..Start::default() };
        let store = Store::with_start(&config, start).expect("address space");
        let column = store.column();
        (store, column)
    };
    let (store, mut column) = with(u64::from(items));
    let level = store.stats().hash_power_level;
    let made_bytes = store.stats().hash_bytes;
    for key in 0..items {
        set(&mut column, key, 1, 0);
    }
    assert_eq!(store.stats().hash_power_level, level);
    assert_eq!(store.stats().curr_items, u64::from(items));
    for key in 0..items {
        assert!(column.delete(&key.to_le_bytes()), "{key}");
        column.quiesce();
    }
    assert!(store.stats().hash_bytes <= made_bytes + made_bytes / 8);
    assert_eq!(store.stats().hash_power_level, level, "it does not contract below its start");
    column.limit_memory(32 * MIB).expect("possible");
    for _ in 0..1_000_000 {
        if store.stats().hash_bytes < made_bytes / 4 {
            break;
        }
        column.maintain();
        column.quiesce();
    }
    let left_bytes = store.stats().hash_bytes;
    assert!(left_bytes < made_bytes / 4, "{left_bytes} of {made_bytes}");

    let most_bytes = with(u64::MAX).0.stats().hash_bytes;
    assert!((15 << 20..=16 << 20).contains(&most_bytes), "{most_bytes}");
}
