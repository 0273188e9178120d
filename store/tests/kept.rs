//! Tests of values that stay in the chunk in which they were received.
//!
//! Where: the whole store, under a virtual clock, with a ring that overwrites each free chunk.
//! Invariant: a value that can stay in place is not copied. Its bytes stay until its item and all
//! its readers are gone; then its chunk is free. The number of the ring's chunks is constant.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

#[path = "ring/mod.rs"]
mod ring;

use memory::arena::{Arena, VALUE_AT};
use ring::Ring;
use std::sync::Arc;
use store::policy::Eviction;
use store::{
    Body, Column, Config, Delta, DeltaResult, Pinned, Put, PutResult, Start, Store, Value, Verb,
};

const CHUNK_BYTES: usize = 2048;
const BYTES_MIN: usize = 500;
/// Bytes of a chunk before a value: headroom, the datagram's headers, and the request's beginning.
const BEFORE: usize = 256 + 42 + 8 + 30;

struct World {
    arena: Arc<Arena>,
    ring: Ring,
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
    let arena = Arena::new(5, chunks, CHUNK_BYTES).expect("address space").keeping(true);
    let arena = Arc::new(arena);
    let start = Start {
        arena: Some(Arc::clone(&arena)),
        arena_value_bytes_min: BYTES_MIN,
        ..Start::default()
    };
    let store = Store::with_start(&config, start).expect("address space");
    let column = store.column();
    World { ring: Ring::new(&arena, 0, 1), arena, store, column, now: 100 }
}

/// Returns `length` bytes that differ for each `seed`.
fn bytes(seed: u32, length: usize) -> Vec<u8> {
    let word =
        |at: u32| (seed.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x85eb_ca6b)).to_le_bytes();
    (0..).flat_map(word).take(length).collect()
}

fn put(column: &mut Column, verb: Verb, key: u32, value: &[u8]) {
    let key = key.to_le_bytes();
    let stored = column.put(&Put::new(verb, &key), Body::Bytes(value));
    assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
    column.quiesce();
}

impl World {
    fn put(&mut self, verb: Verb, key: u32, value: &[u8]) {
        let Self { ring, column, .. } = self;
        ring.receive(BEFORE, value, |value| put(column, verb, key, value));
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

    /// Bytes of values kept where they were received, and bytes copied into the arena.
    fn counted(&self) -> (u64, u64) {
        let stats = self.store.stats();
        (stats.arena_kept_bytes, stats.arena_copied_bytes)
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
fn a_value_lies_where_it_was_received_and_none_of_it_is_copied() {
    let mut world = world(8, 100);
    let mut kept = 0;
    for (key, length) in (0..).zip([BYTES_MIN, 700, 1400, CHUNK_BYTES - BEFORE]) {
        let value = bytes(key, length);
        let World { ring, column, .. } = &mut world;
        let at = ring.receive(BEFORE, &value, |shown| {
            put(column, Verb::Set, key, shown);
            shown.as_ptr()
        });
        kept += length as u64;
        let held = world.hold(key).expect("in the arena");
        assert_eq!(held.pieces().map(<[u8]>::as_ptr).collect::<Vec<_>>(), [at]);
        assert_eq!((world.used(), world.counted()), (key + 1, (kept, 0)));
    }
    world.set(9, &bytes(9, BYTES_MIN - 1));
    assert_eq!((world.used(), world.counted()), (4, (kept, 0)), "a short one is in the log");
    for (key, length) in (0..).zip([BYTES_MIN, 700, 1400, CHUNK_BYTES - BEFORE]) {
        assert!(world.get(key) == Some(bytes(key, length)));
    }
    let usage = world.store.usage();
    let in_use = 4 * CHUNK_BYTES as u64;
    assert_eq!((usage.arena_bytes, usage.arena_free_bytes), (in_use, 24 * in_use));
    world.is_sound();
}

#[test]
fn of_two_values_in_one_chunk_the_second_is_copied() {
    let mut world = world(8, 100);
    let [one, other] = [bytes(1, 600), bytes(2, 700)];
    let World { ring, column, .. } = &mut world;
    ring.receive(BEFORE, &[&one[..], b"\r\nset", &other].concat(), |both| {
        put(column, Verb::Set, 1, &both[..600]);
        put(column, Verb::Set, 2, &both[605..]);
    });
    assert_eq!((world.used(), world.counted()), (2, (600, 700)));
    assert!(world.column.delete(&1_u32.to_le_bytes()));
    assert_eq!((world.used(), world.get(2)), (1, Some(other)));
    // The second value replaces the first value while the ring's chunk still has both.
    let World { ring, column, .. } = &mut world;
    ring.receive(BEFORE, &[one.clone(), one.clone()].concat(), |both| {
        put(column, Verb::Set, 1, &both[..600]);
        put(column, Verb::Set, 1, &both[600..]);
        assert!(both[..600] == one && both[600..] == one);
    });
    assert_eq!((world.used(), world.get(1)), (2, Some(one)));
    world.is_sound();
}

#[test]
fn a_value_that_is_held_stays_what_it_was_however_its_item_goes() {
    type Ending = fn(&mut World);
    let endings: [(&str, Ending); 8] = [
        ("overwritten", |world| world.set(1, &bytes(2, 1400))),
        ("overwritten from elsewhere", |world| {
            put(&mut world.column, Verb::Set, 1, &bytes(2, 1400));
        }),
        ("rewritten short", |world| world.set(1, b"short")),
        ("extended", |world| world.put(Verb::Append, 1, &bytes(3, 900))),
        ("deleted", |world| assert!(world.column.delete(&1_u32.to_le_bytes()))),
        ("flushed", |world| {
            world.column.flush(None);
            world.settle();
        }),
        ("evicted", |world| (1000..20_000).for_each(|key| world.set(key, &[7; 400]))),
        ("evicted by a lower limit", |world| {
            world.column.limit_memory(1 << 20).expect("within bounds");
            (1000..10_000).for_each(|key| world.set(key, &[7; 400]));
            world.settle();
        }),
    ];
    for (ending, end) in endings {
        let mut world = world(2, 40);
        let value = bytes(1, 1400);
        world.set(1, &value);
        let held = world.hold(1).expect("in the arena");
        end(&mut world);
        assert!(world.get(1).is_none_or(|now| now != value), "{ending}");
        for seed in 100..200 {
            world.set(seed, &bytes(seed, 1500));
        }
        assert!(read(&held) == value, "{ending}");
        let used = world.used();
        drop(held);
        assert_eq!(world.used(), used - 1, "{ending}");
        world.is_sound();
    }
}

#[test]
fn what_extends_or_counts_a_value_that_was_kept_copies_it() {
    let mut world = world(8, 100);
    let (value, more) = (bytes(1, 1200), bytes(2, 1100));
    for (verb, expected) in [
        (Verb::Append, [&value[..], &more].concat()),
        (Verb::Prepend, [&more[..], &value].concat()),
    ] {
        world.set(1, &value);
        let before = world.counted();
        world.put(verb, 1, &more);
        assert!(world.get(1).as_ref() == Some(&expected), "{verb:?}");
        let after = world.counted();
        assert_eq!((after.0 - before.0, after.1 - before.1), (0, 2300));
        assert_eq!(world.used() as usize, 2300_usize.div_ceil(CHUNK_BYTES - VALUE_AT));
        world.is_sound();
    }
    world.set(1, format!("{:<1000}", 41).as_bytes());
    let key = &1_u32.to_le_bytes();
    let delta =
        Delta { key, incr: true, delta: 1, cas: 0, cas_in: None, vivify: None, exptime: None };
    let counted = world.column.delta(&delta).expect("room");
    assert!(matches!(counted, DeltaResult::Stored { value: 42, .. }));
    assert!(world.get(1) == Some(format!("{:<1000}", 42).into_bytes()));
    assert!(world.column.touch(&1_u32.to_le_bytes(), 500).expect("room"));
    assert!(world.get(1) == Some(format!("{:<1000}", 42).into_bytes()));
    assert!(world.column.delete(&1_u32.to_le_bytes()));
    assert_eq!(world.used(), 0);
}

#[test]
fn a_full_arena_evicts_nothing_and_keeps_again_when_chunks_are_free() {
    let mut world = world(16, 30);
    (0..50).for_each(|key| world.set(key, &bytes(key, 1000)));
    assert_eq!((world.used(), world.store.stats().arena_full), (30, 20));
    let held: Vec<(u32, Pinned)> =
        (0..50).filter_map(|key| Some((key, world.hold(key)?))).collect();
    assert_eq!(held.len(), 30);
    // All items are overwritten while readers hold their chunks, as when a network link is down.
    (0..50).for_each(|key| world.set(key, &bytes(key + 1000, 1100)));
    assert_eq!((world.used(), world.counted()), (30, (30_000, 0)));
    for (key, held) in held {
        assert!(read(&held) == bytes(key, 1000));
        assert!(world.get(key) == Some(bytes(key + 1000, 1100)));
    }
    assert_eq!((world.used(), world.store.stats().evictions), (0, 0));
    (0..50).for_each(|key| world.set(key, &bytes(key + 2000, 1200)));
    assert_eq!((world.used(), world.counted()), (30, (66_000, 0)));
    assert!((0..50).all(|key| world.get(key) == Some(bytes(key + 2000, 1200))));
    world.is_sound();
}

#[test]
fn items_that_are_moved_and_evicted_keep_and_give_back_their_chunks() {
    let mut world = world(2, 3000);
    let value = |key: u32| bytes(key, 450 + (key as usize * 37) % 1000);
    for key in 0..60_000_u32 {
        let key = if key % 3 == 0 { key } else { key % 1000 + 1_000_000 };
        world.set(key, &value(key));
    }
    let stats = world.store.stats();
    assert!(stats.evictions > 0, "{stats:?}");
    assert!(stats.compacted_bytes + stats.spared_bytes > 0, "{stats:?}");
    assert_eq!(stats.arena_copied_bytes, 0);
    for key in (0..60_000).chain(1_000_000..1_001_000) {
        assert!(world.get(key).is_none_or(|there| there == value(key)), "key {key}");
    }
    world.is_sound();
    world.column.flush(None);
    world.settle();
    assert_eq!((world.store.stats().curr_items, world.used()), (0, 0));
}

/// The request arrives in three packets. Its value first becomes a `Draft`, a value that is not
/// stored yet, as in the server.
#[test]
fn a_value_of_many_pieces_lies_in_as_many_chunks_and_is_read_in_order() {
    let mut world = world(8, 40);
    let value = bytes(1, 4200);
    let World { ring, column, arena, .. } = &mut world;
    let request = [&b"set k 0 0 4200\r\n"[..], &value[..1400]].concat();
    let packets = [(300, &request[..]), (310, &value[1400..2800]), (301, &value[2800..])];
    let key = 1_u32.to_le_bytes();
    let mut draft = ring.receive_all(packets, |shown| {
        assert!(column.keeps(4200) && column.keeps(BYTES_MIN) && !column.keeps(BYTES_MIN - 1));
        let mut kept = shown.map(|shown| arena.keep(shown).expect("a free chunk"));
        kept[0].cut(16..1416);
        column.draft_of(4200, kept)
    });
    (2..20).for_each(|key| world.set(key, &bytes(key, 1500)));
    let stored = world.column.put(&Put::new(Verb::Set, &key), Body::Draft(&mut draft));
    assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
    drop(draft);
    assert_eq!((world.used(), world.counted()), (21, (4200 + 18 * 1500, 0)));
    let held = world.hold(1).expect("in the arena");
    assert_eq!(held.pieces().map(<[u8]>::len).collect::<Vec<_>>(), [1400; 3]);
    (2..60).for_each(|key| world.set(key, &bytes(key, 1500)));
    assert!(world.get(1) == Some(value) && world.used() == 40);
    drop(held);
    world.is_sound();
}

#[test]
fn a_draft_that_is_given_up_or_extends_a_value_gives_back_what_it_keeps() {
    let mut world = world(8, 5);
    let text = bytes(1, 1400);
    let World { ring, column, arena, .. } = &mut world;
    let packets = [(300, &text[..]), (300, &text[..])];
    ring.receive_all(packets, |shown| {
        let kept = shown.map(|shown| arena.keep(shown).expect("a free chunk"));
        drop(column.draft_of(2800, kept));
        assert!(arena.keep(shown[0]).is_none(), "nobody can tell whose the chunk is");
    });
    assert_eq!(world.used(), 0);
    world.set(1, &text);
    let World { ring, column, arena, .. } = &mut world;
    let mut draft = ring.receive_all(packets, |shown| {
        let kept = shown.map(|shown| arena.keep(shown).expect("a free chunk"));
        column.draft_of(2800, kept)
    });
    let key = 1_u32.to_le_bytes();
    let stored = world.column.put(&Put::new(Verb::Append, &key), Body::Draft(&mut draft));
    assert!(matches!(stored, Ok(PutResult::Stored { value_bytes: 4200, .. })), "{stored:?}");
    drop(draft);
    assert!(world.get(1) == Some([&text[..]; 3].concat()));
    assert_eq!(world.used() as usize, 4200_usize.div_ceil(CHUNK_BYTES - VALUE_AT));
    world.is_sound();
}
