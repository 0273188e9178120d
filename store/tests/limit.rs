//! The memory limit, changed while the store serves requests.
//!
//! Where: the whole store, under a virtual clock.
//! Invariant: if the limit rises, more memory may be used at once; if it falls, the memory in use
//! falls in steps. No item that fits is lost. No request is refused while any item may be evicted.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod each;

use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, OutOfBounds, Put, PutResult, Store, StoreError, Value, Verb};

const MIB: usize = 1 << 20;
const SLICES_MAX: u32 = 100_000;

each::policies! {
    less_memory_evicts_the_rest_and_gives_it_back,
    more_memory_is_there_at_once,
    nobody_is_refused_while_the_memory_shrinks_under_load,
    large_values_give_way_to_a_lower_limit,
    what_fits_a_lower_limit_is_compacted_and_not_evicted,
    scattered_frames_are_brought_together_before_more_is_evicted,
    many_columns_survive_the_smallest_limit,
}

fn config(eviction: Option<Eviction>, memory_mb: usize, columns: usize) -> Config {
    Config {
        memory_bytes: memory_mb * MIB,
        item_bytes_max: MIB,
        columns,
        eviction,
        cas: true,
        now: 100,
    }
}

fn make(config: &Config) -> (Arc<Store>, Column) {
    let store = Store::new(config).expect("address space");
    let column = store.column();
    (store, column)
}

fn set(column: &mut Column, key: u32, bytes: usize) -> Result<PutResult, StoreError> {
    let value = vec![u8::try_from(key % 251).unwrap(); bytes];
    let stored = column.put(&Put::new(Verb::Set, &key.to_le_bytes()), Body::Bytes(&value));
    column.quiesce();
    stored
}

/// Does all background work in each of three seconds, so that the store retries work it gave up.
fn settle(column: &mut Column, now: &mut u32) {
    for _ in 0..3 {
        *now += 1;
        column.set_now(*now);
        let mut slices = 0;
        while column.maintain() {
            column.quiesce();
            slices += 1;
            assert!(slices < SLICES_MAX, "background work without an end");
        }
        column.quiesce();
    }
}

/// Bytes of all segments in use or free, but at least of the segments that the limit allows.
fn present_bytes(store: &Store) -> u64 {
    let usage = store.usage();
    let present = usage.segments_allowed.max(
        usage.segments_open
            + usage.segments_sealed
            + usage.segments_frames
            + usage.segments_free
            + usage.segments_limbo
            + usage.segments_index,
    );
    present * usage.segment_bytes
}

fn fill(store: &Store, column: &mut Column, bytes: usize) -> u32 {
    let mut key = 0;
    while store.stats().evictions < 1000 {
        set(column, key, bytes).expect("room is made");
        key += 1;
    }
    key
}

fn less_memory_evicts_the_rest_and_gives_it_back(eviction: Eviction) {
    let (store, mut column) = make(&config(Some(eviction), 16, 1));
    let mut now = 100;
    fill(&store, &mut column, 300);
    let before = store.stats();
    column.limit_memory(8 * MIB).expect("within bounds");
    assert_eq!(store.memory_bytes(), 8 * MIB);
    settle(&mut column, &mut now);
    let (after, usage) = (store.stats(), store.usage());
    assert_eq!(present_bytes(&store), 8 << 20, "{usage:?}");
    assert!(usage.sum_bytes() - usage.table_bytes <= 8 << 20, "{usage:?}");
    // More than a third of the item bytes are still there, and no more than the new limit allows.
    assert!(after.bytes > before.bytes / 3 && after.bytes < 8 << 20, "{before:?} {after:?}");
    let evictions = after.evictions;
    settle(&mut column, &mut now);
    assert_eq!(store.stats().evictions, evictions, "it has come to an end");
}

fn more_memory_is_there_at_once(eviction: Eviction) {
    let (store, mut column) = make(&config(Some(eviction), 8, 1));
    let mut now = 100;
    let keys = fill(&store, &mut column, 300);
    column.limit_memory(64 * MIB).expect("within bounds");
    let before = store.stats();
    for key in keys..keys + 5 * keys {
        set(&mut column, key, 300).expect("room");
    }
    let after = store.stats();
    assert_eq!(after.evictions, before.evictions, "there is room for all");
    assert!(after.curr_items == before.curr_items + u64::from(5 * keys));
    for megabytes in [8, 32, 16, 64] {
        column.limit_memory(megabytes * MIB).expect("within bounds");
        settle(&mut column, &mut now);
        assert_eq!(present_bytes(&store), (megabytes * MIB) as u64, "{:?}", store.usage());
    }
    assert!(store.usage().sum_bytes() < 16 << 20, "{:?}", store.usage());
}

fn nobody_is_refused_while_the_memory_shrinks_under_load(eviction: Eviction) {
    let (store, mut column) = make(&config(Some(eviction), 32, 1));
    let mut key = fill(&store, &mut column, 700);
    column.limit_memory(8 * MIB).expect("within bounds");
    let mut sets = 0;
    // The column does a slice of background work for every 20 requests, as a busy server does.
    while present_bytes(&store) > 8 << 20 {
        for _ in 0..20 {
            key += 1;
            sets += 1;
            set(&mut column, key, 700).expect("room is made");
        }
        column.maintain();
        assert!(sets < 200_000, "{:?}", store.usage());
    }
    let usage = store.usage();
    assert!(usage.log_bytes() <= 8 << 20, "{usage:?}");
}

fn what_fits_a_lower_limit_is_compacted_and_not_evicted(eviction: Eviction) {
    const KEYS: u32 = 5000;
    let (store, mut column) = make(&config(Some(eviction), 16, 1));
    let (mut now, mut random) = (100, 1_u32);
    let mut lengths = vec![0; KEYS as usize];
    for megabytes in [16, 7, 12, 6, 200, 6, 7] {
        column.limit_memory(megabytes * MIB).expect("within bounds");
        for set_no in 0..30_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (key, length) = ((random >> 8) % KEYS, (random >> 7) as usize % 1500);
            set(&mut column, key, length).expect("room");
            lengths[key as usize] = length;
            if set_no % 64 == 0 {
                column.maintain();
            }
        }
        settle(&mut column, &mut now);
        let stats = store.stats();
        assert_eq!(stats.evictions, 0, "at {megabytes} MiB: {stats:?} {:?}", store.usage());
        assert_eq!(present_bytes(&store), (megabytes * MIB) as u64, "{:?}", store.usage());
    }
    assert!(store.stats().compacted_segments > 0, "{:?}", store.stats());
    let there = |key: u32| column.get(&key.to_le_bytes()).map(|hit| hit.value_bytes as usize);
    let found: Vec<_> = (0..KEYS).map(there).collect();
    assert!(found.iter().zip(&lengths).all(|(found, length)| *found == Some(*length)));
}

/// Few segments ever have all frames free if values come and go at random. If the store did not
/// copy such values together, a quarter of the memory would stay unused.
fn scattered_frames_are_brought_together_before_more_is_evicted(eviction: Eviction) {
    for (lengths, to_mb) in [(150_000..150_001, 16), (20_000..300_000, 16), (20_000..300_000, 40)] {
        let (store, mut column) = make(&config(Some(eviction), 64, 1));
        let (mut now, mut random) = (100, 1_u32);
        let mut stored = std::collections::HashMap::new();
        for _ in 0..4000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (random >> 8) % 900;
            let length = lengths.start + (random >> 4) as usize % lengths.len();
            set(&mut column, key, length).expect("room is made");
            stored.insert(key, length);
            let _ = column.get(&(key / 3).to_le_bytes());
        }
        let before = store.stats();
        column.limit_memory(to_mb * MIB).expect("within bounds");
        settle(&mut column, &mut now);
        let (after, usage) = (store.stats(), store.usage());
        assert_eq!(present_bytes(&store), (to_mb * MIB) as u64, "{usage:?}");
        assert!(after.bytes > (to_mb * MIB / 2) as u64, "{before:?} {after:?} {usage:?}");
        let mut hits = 0;
        for (key, length) in stored {
            let Some(hit) = column.get(&key.to_le_bytes()) else { continue };
            hits += 1;
            assert_eq!(hit.value_bytes as usize, length);
            let Value::Frames(pinned, tail) = &hit.value else { panic!("long enough for frames") };
            let byte = u8::try_from(key % 251).unwrap();
            let all = pinned.pieces().chain([*tail]).flatten();
            assert_eq!(all.filter(|there| **there == byte).count(), length, "key {key}");
        }
        assert_eq!(hits, after.curr_items);
    }
}

fn large_values_give_way_to_a_lower_limit(eviction: Eviction) {
    let (store, mut column) = make(&config(Some(eviction), 32, 1));
    let mut now = 100;
    for key in 0..300 {
        set(&mut column, key, 150_000).expect("room is made");
    }
    column.limit_memory(10 * MIB).expect("within bounds");
    settle(&mut column, &mut now);
    let usage = store.usage();
    assert_eq!(present_bytes(&store), 10 << 20, "{usage:?}");
    assert!(store.stats().bytes > 5 << 20, "{:?} {usage:?}", store.stats());
    set(&mut column, 1000, 900_000).expect("room is made");
}

fn many_columns_survive_the_smallest_limit(eviction: Eviction) {
    let (store, mut column) = make(&config(Some(eviction), 64, 40));
    let mut others: Vec<Column> = (1..40).map(|_| store.column()).collect();
    others.iter_mut().for_each(Column::offline);
    let mut now = 100;
    for round in 0..3_u32 {
        column.offline();
        for (other, first) in others.iter_mut().zip((round * 1_000_000..).step_by(2000)) {
            other.online();
            (first..first + 2000).for_each(|key| _ = set(other, key, 700).expect("room"));
            other.offline();
        }
        column.online();
        column.limit_memory([8, 4, 64][round as usize % 3] * MIB).expect("within bounds");
        settle(&mut column, &mut now);
    }
    column.limit_memory(4 * MIB).expect("16 segments");
    settle(&mut column, &mut now);
    assert_eq!(present_bytes(&store), 4 << 20, "{:?}", store.usage());
    column.offline();
    for (other, first) in others.iter_mut().zip((10_000_000..).step_by(200)) {
        other.online();
        (first..first + 200).for_each(|key| _ = set(other, key, 700).expect("room is made"));
        other.offline();
    }
    assert!(store.stats().bytes > 1 << 19, "{:?}", store.usage());
}

#[test]
fn without_eviction_it_shrinks_as_far_as_it_goes_and_loses_nothing() {
    let (store, mut column) = make(&config(None, 16, 1));
    let mut now = 100;
    (0..30_000).for_each(|key| _ = set(&mut column, key, 300).expect("room"));
    column.limit_memory(8 * MIB).expect("within bounds");
    settle(&mut column, &mut now);
    let usage = store.usage();
    assert!(present_bytes(&store) < 11 << 20, "the free part goes: {usage:?}");
    assert!(present_bytes(&store) > 8 << 20, "the items stay: {usage:?}");
    assert_eq!(store.stats().curr_items, 30_000);
    let more = (0..1000).take_while(|key| set(&mut column, 40_000 + key, 300).is_ok()).count();
    assert!(more < 300, "two open segments take {more} items more");
    (0..15_000_u32).for_each(|key| assert!(column.delete(&(2 * key).to_le_bytes())));
    settle(&mut column, &mut now);
    assert_eq!(present_bytes(&store), 8 << 20, "{:?}", store.usage());
    assert!((0..15_000).all(|key: u32| column.get(&(2 * key + 1).to_le_bytes()).is_some()));
}

#[test]
fn a_limit_out_of_bounds_is_refused_and_changes_nothing() {
    let (store, mut column) = make(&config(Some(Eviction::default()), 8, 1));
    set(&mut column, 1, 300).expect("room");
    // A limit is at most 16 times the first limit, and at least two largest items and 16 segments.
    for bytes in [8 * 16 * MIB + MIB, 2 * MIB - 1, MIB, 0, usize::MAX] {
        assert_eq!(column.limit_memory(bytes), Err(OutOfBounds), "{bytes}");
    }
    assert_eq!(store.memory_bytes(), 8 * MIB);
    assert_eq!(column.limit_memory(8 * 16 * MIB), Ok(()));
    assert_eq!(column.limit_memory(2 * MIB), Ok(()));
    assert!(column.get(&1_u32.to_le_bytes()).is_some());
}

/// With larger pages a segment is at least a page, so returning a segment affects no other segment.
#[test]
#[cfg(debug_assertions)]
fn pages_of_16_and_64_kib_lose_nothing() {
    for page_bytes in [16 << 10, 64 << 10] {
        memory::map::plant_page_bytes(page_bytes);
        let (store, mut column) = make(&config(Some(Eviction::default()), 4, 1));
        let (mut now, mut random) = (100, 1_u32);
        let segment_bytes = store.usage().segment_bytes;
        assert_eq!(segment_bytes, page_bytes as u64);

        for (megabytes, lengths) in [(2, 9000), (4, 40), (2, 300), (16, 9000), (3, 40)] {
            column.limit_memory(megabytes * MIB).expect("within bounds");
            let mut stored = std::collections::HashMap::new();
            for _ in 0..8000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (key, length) = ((random >> 8) % 9000, (random >> 7) as usize % lengths);
                set(&mut column, key, length).expect("room is made");
                stored.insert(key, length);
            }
            settle(&mut column, &mut now);
            let usage = store.usage();
            assert_eq!(present_bytes(&store), (megabytes * MIB) as u64, "{usage:?}");
            let mut hits = 0;
            for (key, length) in stored {
                let Some(hit) = column.get(&key.to_le_bytes()) else { continue };
                let Value::Log(value) = hit.value else { continue };
                let byte = u8::try_from(key % 251).unwrap();
                assert!(value.len() == length && value.iter().all(|there| *there == byte));
                hits += 1;
            }
            assert!(hits > 50, "{hits} of {:?}", store.stats());
            (0..9000_u32).filter(|key| key % 9 != 0).for_each(|key| {
                column.delete(&key.to_le_bytes());
            });
            settle(&mut column, &mut now);
        }
    }
}
