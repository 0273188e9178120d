//! Tests of values in the arena, which the rings share: a chunk stays in use while it may be read.
//!
//! Where: the whole store, under a virtual clock, without rings.
//! Invariant: a held value keeps its bytes, even if its item goes. A chunk is free again once its
//! item and all its readers are gone. Nothing is evicted for lack of chunks.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

use memory::arena::{Arena, VALUE_AT};
use std::sync::Arc;
use store::policy::Eviction;
use store::{
    Body, Column, Config, Delta, DeltaResult, Pinned, Put, PutResult, Start, Store, Value, Verb,
};

const CHUNK_BYTES: usize = 2048;
const ROOM_BYTES: usize = CHUNK_BYTES - VALUE_AT;
const BYTES_MIN: usize = 1000;

struct World {
    arena: Arc<Arena>,
    store: Arc<Store>,
    column: Column,
    now: u32,
}

fn world(memory_mb: usize, chunks: u32) -> World {
    let config = Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 512 << 10,
        columns: 1,
        eviction: Some(Eviction::default()),
        cas: true,
        now: 100,
    };
    let arena = Arc::new(Arena::new(5, chunks, CHUNK_BYTES).expect("address space"));
    let start = Start {
        arena: Some(Arc::clone(&arena)),
        arena_value_bytes_min: BYTES_MIN,
        ..Start::default()
    };
    let store = Store::with_start(&config, start).expect("address space");
    let column = store.column();
    World { arena, store, column, now: 100 }
}

/// Returns `length` bytes that differ for each `seed`.
fn bytes(seed: u32, length: usize) -> Vec<u8> {
    let word =
        |at: u32| (seed.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x85eb_ca6b)).to_le_bytes();
    (0..).flat_map(word).take(length).collect()
}

impl World {
    fn put(&mut self, verb: Verb, key: u32, value: &[u8]) {
        let key = key.to_le_bytes();
        let stored = self.column.put(&Put::new(verb, &key), Body::Bytes(value));
        assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
        self.column.quiesce();
    }

    fn set(&mut self, key: u32, value: &[u8]) {
        self.put(Verb::Set, key, value);
    }

    fn get(&mut self, key: u32) -> Option<Vec<u8>> {
        Some(match self.column.get(&key.to_le_bytes())?.value {
            Value::Log(log) => log.to_vec(),
            Value::Frames(pinned, log) => [&read(&pinned)[..], log].concat(),
        })
    }

    /// Returns a reference that holds the key's value, if the whole value lies in the arena.
    fn hold(&mut self, key: u32) -> Option<Pinned> {
        let hit = self.column.get(&key.to_le_bytes())?;
        let Value::Frames(pinned, []) = hit.value else { return None };
        let is_there = |piece: &[u8]| self.arena.value_chunk_of(piece.as_ptr()).is_some();
        pinned.pieces().all(is_there).then_some(pinned)
    }

    fn used(&self) -> u32 {
        self.arena.chunks() - self.arena.ring_chunks() - self.arena.free()
    }

    /// Advances the clock by a few seconds, and does all background work.
    fn settle(&mut self) {
        for _ in 0..3 {
            self.now += 1;
            self.column.set_now(self.now);
            while self.column.maintain() {
                self.column.quiesce();
            }
            self.column.quiesce();
        }
    }

    fn is_sound(&self) {
        #[cfg(debug_assertions)]
        assert_eq!(self.store.audit(), [""; 0]);
    }
}

fn read(pinned: &Pinned) -> Vec<u8> {
    pinned.pieces().flatten().copied().collect()
}

#[test]
fn values_from_the_shortest_on_lie_in_as_many_chunks_as_they_fill() {
    let mut world = world(8, 600);
    let at_edges = [1, 2, 3, 8, 17].map(|chunks| chunks * ROOM_BYTES);
    let lengths = at_edges.into_iter().flat_map(|at| [at - 1, at, at + 1]);
    for length in lengths.chain([0, 1, BYTES_MIN - 1, BYTES_MIN, 500_000]) {
        let (value, before) = (bytes(7, length), world.store.stats());
        world.set(1, &value);
        assert!(world.get(1).as_deref() == Some(&value[..]), "{length} bytes");
        let is_long = length >= BYTES_MIN;
        assert_eq!(world.hold(1).is_some(), is_long, "{length} bytes");
        let chunks = if is_long { length.div_ceil(ROOM_BYTES) } else { 0 };
        assert_eq!(world.used() as usize, chunks, "{length} bytes");
        let (usage, stats) = (world.store.usage(), world.store.stats().since(&before));
        assert_eq!(usage.arena_bytes, (chunks * CHUNK_BYTES) as u64);
        assert_eq!(usage.arena_bytes + usage.arena_free_bytes, 600 * CHUNK_BYTES as u64);
        assert_eq!(stats.arena_copied_bytes, if is_long { length as u64 } else { 0 });
        world.is_sound();
    }
    assert!(world.column.delete(&1_u32.to_le_bytes()));
    assert_eq!((world.used(), world.store.stats().arena_full), (0, 0));
}

#[test]
fn a_value_that_is_held_stays_what_it_was_however_its_item_goes() {
    type Ending = fn(&mut World);
    let endings: [(&str, Ending); 6] = [
        ("overwritten", |world| world.set(1, &bytes(2, 5000))),
        ("rewritten short", |world| world.set(1, b"short")),
        ("extended", |world| world.put(Verb::Append, 1, b"more")),
        ("deleted", |world| assert!(world.column.delete(&1_u32.to_le_bytes()))),
        ("flushed", |world| {
            world.column.flush(None);
            world.settle();
        }),
        ("evicted", |world| (1000..20_000).for_each(|key| world.set(key, &[7; 900]))),
    ];
    for (ending, end) in endings {
        let mut world = world(2, 40);
        let value = bytes(1, 5000);
        world.set(1, &value);
        let held = world.hold(1).expect("in the arena");
        end(&mut world);
        assert!(world.get(1).is_none_or(|now| now != value), "{ending}");
        for seed in 100..150 {
            world.set(seed, &bytes(seed, 2 * ROOM_BYTES));
        }
        assert!(read(&held) == value, "{ending}");
        let used = world.used();
        drop(held);
        assert_eq!(world.used(), used - 3, "{ending}");
        world.is_sound();
    }
}

#[test]
fn a_full_arena_evicts_nothing_and_takes_values_again() {
    let mut world = world(16, 30);
    let value = |key: u32| bytes(key, 3 * ROOM_BYTES - 100);
    let values = |world: &mut World, seed: u32| {
        (0..40).for_each(|key| world.set(key, &value(key + seed)));
    };
    values(&mut world, 0);
    assert_eq!((world.used(), world.store.stats().arena_full), (30, 30));
    let held: Vec<(u32, Pinned)> =
        (0..40).filter_map(|key| Some((key, world.hold(key)?))).collect();
    assert_eq!(held.len(), 10);
    // All items are overwritten while readers hold their chunks, as when a network link is down.
    values(&mut world, 1000);
    assert_eq!((world.used(), world.store.stats().arena_full), (30, 70));
    for (key, held) in held {
        assert!(read(&held) == value(key));
        assert!(world.hold(key).is_none() && world.get(key) == Some(value(key + 1000)));
    }
    assert_eq!((world.used(), world.store.stats().evictions), (0, 0));
    values(&mut world, 2000);
    assert_eq!(world.used(), 30);
    for key in 0..40 {
        assert!(world.get(key) == Some(value(key + 2000)));
    }
    // A value for which too few chunks are free is stored elsewhere, and its chunks are given back.
    world.set(100, &bytes(100, 100_000));
    assert!(world.get(100) == Some(bytes(100, 100_000)));
    (0..41_u32).chain([100]).for_each(|key| _ = world.column.delete(&key.to_le_bytes()));
    assert_eq!(world.used(), 0);
    world.is_sound();
}

#[test]
fn items_that_are_moved_and_evicted_keep_and_give_back_their_chunks() {
    let mut world = world(2, 3000);
    let value = |key: u32| bytes(key, 1000 + (key as usize * 37) % 3000);
    // Two of three sets overwrite earlier items, so that segments are compacted.
    for key in 0..60_000_u32 {
        let key = if key % 3 == 0 { key } else { key % 1000 + 1_000_000 };
        world.set(key, &value(key));
    }
    let stats = world.store.stats();
    assert!(stats.evictions > 0, "{stats:?}");
    assert!(stats.compacted_bytes + stats.spared_bytes > 0, "{stats:?}");
    for key in (0..60_000).chain(1_000_000..1_001_000) {
        assert!(world.get(key).is_none_or(|there| there == value(key)), "key {key}");
    }
    world.is_sound();
    world.column.flush(None);
    world.settle();
    assert_eq!((world.store.stats().curr_items, world.used()), (0, 0));
}

#[test]
fn a_lower_limit_of_memory_leaves_the_arena_as_it_is() {
    let mut world = world(32, 100);
    let value = |key: u32| bytes(key, 4000);
    (0..50).for_each(|key| world.set(key, &value(key)));
    let held: Vec<Pinned> = (0..10).filter_map(|key| world.hold(key)).collect();
    for megabytes in [8, 64, 8] {
        world.column.limit_memory(megabytes << 20).expect("within bounds");
        world.settle();
        (1000..1400).for_each(|key| world.set(key, &bytes(key, 20_000)));
        world.settle();
        for key in 0..50 {
            assert!(world.get(key).is_none_or(|there| there == value(key)), "key {key}");
        }
        for (key, held) in (0..).zip(&held) {
            assert!(read(held) == value(key), "key {key}");
        }
    }
    assert_eq!(held.len(), 10);
    drop(held);
    world.is_sound();
    assert_eq!(world.store.arena_bytes(), 100 * CHUNK_BYTES);
}

#[test]
fn what_expires_gives_its_chunks_back() {
    let mut world = world(8, 100);
    for key in 0..30_u32 {
        let key = key.to_le_bytes();
        let put = Put { exptime: 110, ..Put::new(Verb::Set, &key) };
        assert!(world.column.put(&put, Body::Bytes(&[7; 3000])).is_ok());
    }
    assert_eq!(world.used(), 60);
    world.now = 120;
    world.settle();
    assert_eq!((world.used(), world.store.stats().curr_items), (0, 0));
    world.is_sound();
}

#[test]
fn numbers_and_extended_values_are_what_they_are_in_the_log() {
    let mut world = world(64, 100);
    let count = |world: &mut World, by: u64| {
        let key = &1_u32.to_le_bytes();
        let delta =
            Delta { key, incr: true, delta: by, cas: 0, cas_in: None, vivify: None, exptime: None };
        world.column.delta(&delta).expect("room")
    };
    let padded = |number: &str| format!("{number:<2500}").into_bytes();
    world.set(1, &padded("41"));
    assert_eq!(world.used(), 2);
    assert!(matches!(count(&mut world, 1), DeltaResult::Stored { value: 42, .. }));
    assert!(world.get(1) == Some(padded("42")));
    world.set(1, &[&[b' '; 2100][..], b"9"].concat());
    assert!(matches!(count(&mut world, 1), DeltaResult::Stored { value: 10, .. }));
    let long = |number: u32| format!("{number:<60000}").into_bytes();
    world.set(1, &long(5));
    assert!(matches!(count(&mut world, 1), DeltaResult::Stored { value: 6, .. }));
    assert!(world.get(1) == Some(long(6)));
    world.set(1, &bytes(1, 2500));
    assert!(matches!(count(&mut world, 1), DeltaResult::NonNumeric));
    let mut expected = bytes(3, 1500);
    world.set(1, &expected);
    for (verb, more) in [(Verb::Append, 700), (Verb::Prepend, 10), (Verb::Append, 30_000)] {
        let more = bytes(4, more);
        world.put(verb, 1, &more);
        expected = match verb {
            Verb::Append => [&expected[..], &more].concat(),
            _ => [&more[..], &expected].concat(),
        };
        assert!(world.get(1).as_ref() == Some(&expected), "{verb:?}");
        assert_eq!(world.used() as usize, expected.len().div_ceil(ROOM_BYTES));
        world.is_sound();
    }
    world.column.delete(&1_u32.to_le_bytes());
    assert_eq!(world.used(), 0);
}
