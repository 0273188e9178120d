//! Tests each verb on one column, at the default size and at 8 MiB, under every policy.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod each;

use std::sync::Arc;
use store::policy::Eviction;
use store::{
    Body, Column, Config, DeleteResult, Delta, DeltaResult, DumpPlace, MetaDelete, MetaGet,
    MetaStep, Put, PutResult, Store, StoreError, Value, Verb, Vivify,
};

each::policies! {
    values_of_every_size_come_back_and_their_memory_too,
    conditions_are_kept,
    append_crosses_into_frames_and_back_is_whole,
    a_draft_is_filled_piece_by_piece,
    a_pinned_value_outlives_its_item,
    items_expire_and_touch_prolongs,
    a_delete_by_cas_counts_what_it_finds_expired,
    numbers_count,
    meta_marks_and_wins,
    flushes_now_and_later,
    too_large_is_counted_as_memcached_does_and_leaves_nothing_stale,
    a_working_set_that_fits_is_overwritten_for_ever_without_eviction,
    what_keeps_its_shape_is_rewritten_in_place,
    memory_is_bounded_and_used_items_stay,
    small_and_large_values_mixed_never_fail_a_set,
    expired_items_go_without_being_touched,
    last_access_is_told_to_the_second,
    however_the_index_grows_no_age_comes_round,
}

fn store(eviction: Eviction, memory_mb: usize) -> (Arc<Store>, Column) {
    with(&Config { memory_bytes: memory_mb << 20, ..config(eviction) })
}

fn config(eviction: Eviction) -> Config {
    Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 1 << 20,
        columns: 1,
        eviction: Some(eviction),
        cas: true,
        now: 100,
    }
}

fn with(config: &Config) -> (Arc<Store>, Column) {
    let store = Store::new(config).expect("address space");
    let column = store.column();
    (store, column)
}

fn set(column: &mut Column, key: &[u8], value: &[u8]) -> u64 {
    match column.put(&Put::new(Verb::Set, key), Body::Bytes(value)) {
        Ok(PutResult::Stored { cas, .. }) => cas,
        other => panic!("set: {other:?}"),
    }
}

fn get(column: &mut Column, key: &[u8]) -> Option<Vec<u8>> {
    column.get(key).map(|hit| bytes(&hit.value))
}

fn bytes(value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Log(bytes) => bytes.to_vec(),
        Value::Frames(pinned, rest) => {
            pinned.pieces().flatten().copied().chain(rest.iter().copied()).collect()
        }
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from((i * 31 + i / 251 + seed) % 256).unwrap()).collect()
}

fn values_of_every_size_come_back_and_their_memory_too(eviction: Eviction) {
    for memory_mb in [4, 64] {
        let (store, mut column) = store(eviction, memory_mb);
        for len in [0, 1, 100, 4094, 4095, 4096, 16_383, 16_384, 16_385, 100_000, 1_000_000] {
            let value = pattern(len, len);
            set(&mut column, b"key", &value);
            assert_eq!(get(&mut column, b"key"), Some(value), "{len} bytes at {memory_mb} MiB");
        }
        assert!(column.delete(b"key"));
        assert!(!column.delete(b"key"));
        assert_eq!(get(&mut column, b"key"), None);
        let stats = store.stats();
        assert_eq!((stats.curr_items, stats.bytes, stats.evictions), (0, 0, 0));
    }
}

fn conditions_are_kept(eviction: Eviction) {
    let (_, mut column) = store(eviction, 8);
    let mut try_put = |verb, cas, value: &[u8]| {
        column.put(&Put { cas, ..Put::new(verb, b"k") }, Body::Bytes(value)).expect("room")
    };
    assert_eq!(try_put(Verb::Replace, 0, b"1"), PutResult::NotStored);
    assert_eq!(try_put(Verb::Append, 0, b"1"), PutResult::NotStored);
    assert_eq!(try_put(Verb::Cas, 5, b"1"), PutResult::NotFound);
    let PutResult::Stored { cas, .. } = try_put(Verb::Add, 0, b"one") else { panic!("added") };
    assert_eq!(try_put(Verb::Add, 0, b"2"), PutResult::NotStored);
    assert_eq!(try_put(Verb::Cas, cas + 1, b"2"), PutResult::Exists);
    let PutResult::Stored { cas: next, .. } = try_put(Verb::Cas, cas, b"two") else {
        panic!("cas")
    };
    assert!(next > cas);
    assert!(matches!(try_put(Verb::Append, 0, b"!"), PutResult::Stored { value_bytes: 4, .. }));
    assert!(matches!(try_put(Verb::Prepend, 0, b"> "), PutResult::Stored { value_bytes: 6, .. }));
    assert_eq!(get(&mut column, b"k").as_deref(), Some(&b"> two!"[..]));
}

fn append_crosses_into_frames_and_back_is_whole(eviction: Eviction) {
    let (_, mut column) = store(eviction, 8);
    let mut whole = Vec::new();
    set(&mut column, b"k", b"");
    for step in 0..40 {
        let piece = pattern(5000, step);
        let verb = if step % 3 == 0 { Verb::Prepend } else { Verb::Append };
        column.put(&Put::new(verb, b"k"), Body::Bytes(&piece)).expect("room");
        if step % 3 == 0 {
            whole.splice(0..0, piece);
        } else {
            whole.extend(piece);
        }
        assert_eq!(get(&mut column, b"k").as_ref(), Some(&whole), "step {step}");
    }
}

fn a_draft_is_filled_piece_by_piece(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    let value = pattern(300_000, 9);
    for publish in [false, true] {
        let mut draft = column.draft(300_000);
        let mut sent = 0;
        while draft.missing_bytes() > 0 {
            let space = draft.space(&mut column).expect("room");
            let bytes = space.len().min(1234);
            space[..bytes].copy_from_slice(&value[sent..sent + bytes]);
            draft.filled(bytes);
            sent += bytes;
        }
        if publish {
            column.put(&Put::new(Verb::Set, b"k"), Body::Draft(&mut draft)).expect("room");
        }
    }
    assert_eq!(get(&mut column, b"k"), Some(value));
    assert!(store.stats().bytes > 300_000);
    assert!(column.delete(b"k"));
    assert_eq!(store.stats().bytes, 0);
}

fn a_pinned_value_outlives_its_item(eviction: Eviction) {
    let (_, mut column) = store(eviction, 8);
    let value = pattern(200_000, 1);
    set(&mut column, b"k", &value);
    let hit = column.get(b"k").expect("there");
    let Value::Frames(pinned, rest) = hit.value else { panic!("in frames") };
    let rest = rest.to_vec();
    set(&mut column, b"k", &pattern(200_000, 2));
    for i in 0..100_u32 {
        set(&mut column, &i.to_le_bytes(), &pattern(200_000, i as usize));
        column.quiesce();
    }
    let seen: Vec<u8> = pinned.pieces().flatten().copied().chain(rest).collect();
    assert_eq!(seen, value);
}

fn items_expire_and_touch_prolongs(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    for (key, exptime) in [(b"a", 110), (b"b", 120), (b"c", 0)] {
        column.put(&Put { exptime, ..Put::new(Verb::Set, key) }, Body::Bytes(b"v")).expect("room");
    }
    assert_eq!(column.touch(b"a", 130), Ok(true));
    assert_eq!(column.touch(b"c", 115), Ok(true), "an item without exptime gets one");
    column.set_now(119);
    assert_eq!(get(&mut column, b"c"), None);
    column.set_now(120);
    assert_eq!(get(&mut column, b"b"), None);
    assert!(get(&mut column, b"a").is_some());
    assert_eq!(column.touch(b"b", 0), Ok(false));
    assert!(column.get_and_touch(b"a", 0).expect("room").is_some());
    column.set_now(100_000);
    assert!(get(&mut column, b"a").is_some());
    let stats = store.stats();
    // In memcached too, `get_expired` alone counts an item that a lookup finds expired.
    assert_eq!((stats.get_expired, stats.expired_unfetched, stats.curr_items), (2, 0, 1));
}

fn a_delete_by_cas_counts_what_it_finds_expired(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    for by_cas in [false, true] {
        let put = Put { exptime: 110, ..Put::new(Verb::Set, b"k") };
        column.put(&put, Body::Bytes(b"v")).expect("room");
        column.set_now(if by_cas { 1010 } else { 1000 });
        let delete = MetaDelete {
            key: b"k",
            cas: by_cas.then_some(1),
            cas_in: None,
            stale: false,
            exptime: None,
            remove_value: false,
            client_flags: 0,
        };
        assert_eq!(column.meta_delete(&delete), Ok(DeleteResult::NotFound));
        let stats = store.stats();
        assert_eq!((stats.get_expired, stats.curr_items), (1 + u64::from(by_cas), 0));
    }
}

fn numbers_count(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    let delta = |incr, by| Delta {
        key: b"n",
        incr,
        delta: by,
        cas: 0,
        cas_in: None,
        vivify: None,
        exptime: None,
    };
    let value = |counted| match counted {
        Ok(DeltaResult::Stored { value, .. }) => value,
        other => panic!("{other:?}"),
    };
    assert_eq!(column.delta(&delta(true, 1)), Ok(DeltaResult::NotFound));
    let vivify = Some(Vivify { initial: 9, exptime: 0 });
    assert_eq!(value(column.delta(&Delta { vivify, ..delta(true, 1) })), 9);
    assert_eq!(value(column.delta(&delta(true, 1))), 10);
    assert_eq!(value(column.delta(&delta(false, 1))), 9);
    assert_eq!(get(&mut column, b"n").as_deref(), Some(&b"9 "[..]), "decr keeps the length");
    assert_eq!(value(column.delta(&delta(false, 100))), 0);
    assert_eq!(value(column.delta(&delta(true, u64::MAX))), u64::MAX);
    assert_eq!(value(column.delta(&delta(true, 2))), 1, "incr wraps");
    // New items: one on the miss, one when 9 became 10, and one when 0 became `u64::MAX`.
    assert_eq!(store.stats().total_items, 3);
    set(&mut column, b"n", b"abc");
    assert_eq!(column.delta(&delta(true, 1)), Ok(DeltaResult::NonNumeric));
    counts_where_spaces_lie_in_frames(&store, &mut column);
}

fn counts_where_spaces_lie_in_frames(store: &Store, column: &mut Column) {
    let delta = |by, cas| Delta {
        key: b"n",
        incr: true,
        delta: by,
        cas,
        cas_in: None,
        vivify: None,
        exptime: Some(200),
    };
    let items = store.stats().total_items;
    for len in [20_000, 40_000, 500_000] {
        let padded = |before: usize, number: u64| {
            let mut text = vec![b' '; before];
            text.extend(number.to_string().into_bytes());
            text.resize(len, b' ');
            text
        };
        for before in [0, 1, len / 2, len - 2] {
            set(column, b"n", &padded(before, 97));
            let Ok(DeltaResult::Stored { value: 98, cas, .. }) = column.delta(&delta(1, 0)) else {
                panic!("{before} of {len}")
            };
            assert_eq!(get(column, b"n"), Some(padded(0, 98)), "{before} of {len}");
            assert_eq!(column.delta(&delta(1, cas + 1)), Ok(DeltaResult::Exists));
            let counted = column.delta(&delta(2, cas));
            assert!(matches!(counted, Ok(DeltaResult::Stored { value: 100, exptime: 200, .. })));
        }
        set(column, b"n", &[b"5x", &padded(0, 97)[2..]].concat());
        assert_eq!(column.delta(&delta(1, 0)), Ok(DeltaResult::NonNumeric));
    }
    assert_eq!(store.stats().total_items, items + 3 * 5);
    // memcached splits a value of this length into chunks, and refuses to increment it.
    set(column, b"n", &[&b"5"[..], &[b' '; 512 << 10]].concat());
    assert_eq!(column.delta(&delta(1, 1)), Ok(DeltaResult::NonNumeric));
}

/// The new value is built before the lock is taken, so the item's value may have changed meanwhile.
#[test]
fn what_several_columns_count_in_frames_adds_up() {
    const EACH: u64 = 1000;
    let (store, mut column) = with(&Config { columns: 3, ..config(Eviction::default()) });
    set(&mut column, b"n", &[&b"0"[..], &[b' '; 40_000]].concat());
    std::thread::scope(|scope| {
        for mut other in [store.column(), store.column()] {
            scope.spawn(move || {
                let one = Delta {
                    key: b"n",
                    incr: true,
                    delta: 1,
                    cas: 0,
                    cas_in: None,
                    vivify: None,
                    exptime: None,
                };
                let mut counted = 0;
                while counted < EACH {
                    match other.delta(&one) {
                        Ok(DeltaResult::Stored { .. }) => counted += 1,
                        Err(StoreError::Later) => {}
                        lost => panic!("{lost:?}"),
                    }
                    other.maintain();
                    other.quiesce();
                }
                other.offline();
            });
        }
    });
    let text = get(&mut column, b"n").unwrap();
    assert_eq!((text.len(), text.trim_ascii()), (40_001, (2 * EACH).to_string().as_bytes()));
}

fn meta_marks_and_wins(eviction: Eviction) {
    let (_, mut column) = store(eviction, 8);
    let steps = [MetaStep::Vivify(130)];
    let get =
        MetaGet { key: b"m", key_binary: true, cas_in: None, bump: true, win: true, steps: &steps };
    let hit = column.meta_get(&get).expect("room").expect("made");
    assert!(hit.vivified && hit.won && !hit.token_sent && hit.key_binary && hit.exptime == 0);
    let hit = column.meta_get(&get).expect("room").expect("there");
    assert!(!hit.vivified && !hit.won && hit.token_sent && hit.exptime == 130);
    let delete = MetaDelete {
        key: b"m",
        cas: None,
        cas_in: None,
        stale: true,
        exptime: Some(140),
        remove_value: false,
        client_flags: 0,
    };
    assert_eq!(column.meta_delete(&delete), Ok(DeleteResult::Deleted));
    let hit = column.meta_get(&MetaGet { steps: &[], ..get }).expect("room").expect("stale");
    assert!(hit.stale && hit.won && !hit.token_sent && hit.exptime == 140 && hit.fetched);
    let hit = column.meta_get(&MetaGet { steps: &[], ..get }).expect("room").expect("stale");
    assert!(hit.stale && !hit.won && hit.token_sent);
    assert_eq!(
        column.meta_delete(&MetaDelete { cas: Some(1 << 60), stale: false, ..delete }),
        Ok(DeleteResult::Exists)
    );
}

fn flushes_now_and_later(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    set(&mut column, b"a", b"1");
    column.flush(None);
    assert_eq!(get(&mut column, b"a"), None);
    set(&mut column, b"a", b"2");
    assert!(get(&mut column, b"a").is_some());
    column.flush(Some(109));
    assert!(get(&mut column, b"a").is_some());
    column.set_now(109);
    assert_eq!(get(&mut column, b"a"), None, "the last second is flushed whole");
    set(&mut column, b"a", b"3");
    column.set_now(110);
    assert_eq!(get(&mut column, b"a"), None);
    set(&mut column, b"a", b"4");
    assert!(get(&mut column, b"a").is_some());
    set(&mut column, b"b", b"5");
    column.flush(Some(200));
    column.flush(Some(0));
    column.set_now(300);
    assert!(get(&mut column, b"a").is_some(), "called off");
    column.flush(None);
    while column.maintain() {}
    column.quiesce();
    while column.maintain() {}
    assert_eq!(store.stats().curr_items, 0, "swept without being touched");
}

fn too_large_is_counted_as_memcached_does_and_leaves_nothing_stale(eviction: Eviction) {
    let (_, mut column) = with(&Config { item_bytes_max: 1024, ..config(eviction) });
    set(&mut column, b"kkkkk", b"old");
    let fits = vec![b'x'; 1024 - 59 - 5];
    assert!(column.put(&Put::new(Verb::Set, b"kkkkk"), Body::Bytes(&fits)).is_ok());
    let more = vec![b'x'; 1024 - 59 - 4];
    let refused = column.put(&Put::new(Verb::Set, b"kkkkk"), Body::Bytes(&more));
    assert_eq!(refused, Err(StoreError::TooLarge));
    assert_eq!(get(&mut column, b"kkkkk"), None);
}

#[test]
fn without_eviction_a_full_store_says_so_and_keeps_what_it_has() {
    let (store, mut column) =
        with(&Config { memory_bytes: 8 << 20, eviction: None, ..config(Eviction::Fifo) });
    let mut kept = 0_u32;
    while column.put(&Put::new(Verb::Set, &kept.to_le_bytes()), Body::Bytes(&[7; 1000])).is_ok() {
        kept += 1;
        column.quiesce();
        assert!(kept < 10_000, "memory is bounded");
    }
    assert!(kept > 7000, "{kept} items of 1 KB in 8 MiB");
    assert_eq!(store.stats().evictions, 0);
    assert!((0..kept).all(|i| get(&mut column, &i.to_le_bytes()).is_some()));
    (0..100_u32).for_each(|i| assert!(column.delete(&i.to_le_bytes())));
    (0..50_u32).for_each(|i| _ = set(&mut column, &i.to_le_bytes(), &[8; 1000]));
}

#[test]
fn without_eviction_what_has_expired_makes_room_at_once() {
    let (store, mut column) =
        with(&Config { memory_bytes: 8 << 20, eviction: None, ..config(Eviction::Fifo) });
    let set = |column: &mut Column, key: u32, exptime| {
        let key = key.to_le_bytes();
        column.put(&Put { exptime, ..Put::new(Verb::Set, &key) }, Body::Bytes(&[7; 1000])).is_ok()
    };
    let full = (0..).find(|key| !set(&mut column, *key, 110 * (key % 2))).unwrap();
    column.set_now(110);
    let again = (0..).find(|key| !set(&mut column, 100_000 + key, 0)).unwrap();
    assert!(again > full / 3, "{again} items in the place of {full} halved");
    assert_eq!(store.stats().evictions, 0);
    assert!((0..full).step_by(2).all(|key| get(&mut column, &key.to_le_bytes()).is_some()));
}

fn a_working_set_that_fits_is_overwritten_for_ever_without_eviction(eviction: Eviction) {
    for (memory_mb, value_bytes, part) in [(8, 100, 80), (8, 1000, 85), (16, 300, 85)] {
        let (store, mut column) = store(eviction, memory_mb);
        let per_item = value_bytes + 4 + 9 + 2 + 11;
        let count = u32::try_from((memory_mb << 20) * part / 100 / per_item).unwrap();
        let mut random = 1_u64;
        for round in 0..count * 12 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = if round < count { round } else { (random >> 33) as u32 % count };
            set(&mut column, &key.to_le_bytes(), &pattern(value_bytes, key as usize));
            if round % 64 == 0 {
                column.quiesce();
            }
        }
        let stats = store.stats();
        assert_eq!(stats.evictions, 0, "{memory_mb} MiB, {value_bytes} B: {stats:?}");
        assert_eq!(stats.curr_items, u64::from(count));
        for key in 0..count {
            let value = get(&mut column, &key.to_le_bytes());
            assert_eq!(value, Some(pattern(value_bytes, key as usize)));
        }
    }
}

/// Seven of eight sets rewrite the item. The eighth set appends a new item; the old item is dead.
fn what_keeps_its_shape_is_rewritten_in_place(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    let long = pattern(1025, 1);
    set(&mut column, b"long", &long);
    let put = |column: &mut Column, value: &[u8], flags, exptime| {
        let put = Put { client_flags: flags, exptime, ..Put::new(Verb::Set, b"k") };
        match column.put(&put, Body::Bytes(value)) {
            Ok(PutResult::Stored { cas, .. }) => cas,
            other => panic!("{other:?}"),
        }
    };
    let mut last = put(&mut column, &pattern(1024, 0), 1, 200);
    for round in 1..=24_u32 {
        let value = pattern(1024, round as usize);
        let cas = put(&mut column, &value, round + 1, 200 + round);
        assert!(cas > last, "{cas} after {last}");
        let look = MetaGet {
            key: b"k",
            key_binary: false,
            cas_in: None,
            bump: false,
            win: false,
            steps: &[],
        };
        let hit = column.meta_get(&look).expect("room").expect("there");
        let shown = (hit.hit.client_flags, hit.hit.cas, hit.exptime, hit.fetched);
        assert_eq!(shown, (round + 1, cas, 200 + round, false));
        assert_eq!(get(&mut column, b"k"), Some(value), "round {round}");
        last = cas;
    }
    let stats = store.stats();
    assert_eq!((stats.rewritten, stats.total_items, stats.curr_items), (21, 26, 2));
    let extent = 5 + 4 + 4 + 4 + 1 + 1024;
    assert_eq!(stats.dead_bytes, 3 * extent, "{stats:?}");
    // These sets append, because the value is too long, the shape differs, or the item was flushed.
    set(&mut column, b"long", &long);
    put(&mut column, &pattern(1023, 1), 5, 300);
    put(&mut column, &pattern(1023, 1), 0, 300);
    column.flush(None);
    put(&mut column, &pattern(1023, 1), 0, 300);
    assert_eq!(store.stats().rewritten, 21);
    assert_eq!(get(&mut column, b"k"), Some(pattern(1023, 1)));
    set(&mut column, b"n", b"100");
    let delta = Delta {
        key: b"n",
        incr: true,
        delta: 7,
        cas: 0,
        cas_in: None,
        vivify: None,
        exptime: None,
    };
    for _ in 0..7 {
        assert!(column.delta(&delta).is_ok());
    }
    assert_eq!(get(&mut column, b"n").as_deref(), Some(&b"149"[..]));
    assert_eq!(store.stats().rewritten, 28);
}

fn memory_is_bounded_and_used_items_stay(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    let hot: Vec<u32> = (0..500).collect();
    hot.iter().for_each(|key| _ = set(&mut column, &key.to_le_bytes(), &[1; 200]));
    for cold in 1000..200_000_u32 {
        set(&mut column, &cold.to_le_bytes(), &[2; 200]);
        let used = get(&mut column, &hot[cold as usize % 500].to_le_bytes());
        assert!(used.is_some() || eviction == Eviction::Fifo, "first in, first out, come what may");
        column.quiesce();
    }
    let stats = store.stats();
    assert!(stats.evictions > 100_000 && stats.bytes < 8 << 20, "{stats:?}");
    assert!(stats.bytes > (8 << 20) * 7 / 10, "{stats:?}");
}

fn small_and_large_values_mixed_never_fail_a_set(eviction: Eviction) {
    for memory_mb in [2, 8] {
        let (store, mut column) = store(eviction, memory_mb);
        let large = pattern(900_000, 3);
        for i in 0..3000_u32 {
            if i % 50 == 0 {
                set(&mut column, &(i % 400).to_le_bytes(), &large);
            } else {
                set(&mut column, &i.to_le_bytes(), &pattern(100, i as usize));
            }
            column.quiesce();
        }
        assert!(store.stats().bytes < (memory_mb as u64) << 20);
    }
}

fn expired_items_go_without_being_touched(eviction: Eviction) {
    let (store, mut column) = store(eviction, 8);
    for i in 0..20_000_u32 {
        let exptime = 110 + i % 10;
        let key = i.to_le_bytes();
        column
            .put(&Put { exptime, ..Put::new(Verb::Set, &key) }, Body::Bytes(&[0; 100]))
            .expect("room");
    }
    assert_eq!(store.stats().curr_items, 20_000);
    column.set_now(119);
    while column.maintain() {
        column.quiesce();
    }
    assert_eq!(store.stats().curr_items, 0);
    assert_eq!(store.stats().evictions, 0);
}

fn last_access_is_told_to_the_second(eviction: Eviction) {
    let (_, mut column) = store(eviction, 8);
    set(&mut column, b"k", b"v");
    let look =
        MetaGet { key: b"k", key_binary: false, cas_in: None, bump: false, win: true, steps: &[] };
    let idle = |column: &mut Column, now| {
        column.set_now(now);
        while column.maintain() {}
        column.meta_get(&look).expect("room").expect("there").idle_seconds
    };
    for (now, seconds) in [(100, 0), (159, 59), (160, 60)] {
        assert_eq!(idle(&mut column, now), seconds);
        column.get(b"k");
    }
    column.set_now(161);
    column.get(b"k");
    assert_eq!(idle(&mut column, 165), 4);
    // Idle times are exact to the second for hours, and to within minutes for months.
    for seconds in (4..48 * 86_400).step_by(1800) {
        let reported = idle(&mut column, 161 + seconds);
        let error = if seconds <= 8192 { 0 } else { 255 };
        assert!(reported <= seconds && reported + error >= seconds, "{reported} after {seconds}");
    }
    column.get(b"k");
    let now = 161 + 48 * 86_400;
    column.set_now(now);
    column.get(b"k");
    assert_eq!(idle(&mut column, now + 1), 1);
}

fn however_the_index_grows_no_age_comes_round(eviction: Eviction) {
    const STEP: u32 = 300;
    let (_, mut column) = store(eviction, 8);
    let key = |second: u32, nth: u32| format!("{second}/{nth}");
    let steps = 100..40_000;
    for now in steps.clone().step_by(STEP as usize) {
        column.set_now(now);
        while column.maintain() {
            column.quiesce();
        }
        for nth in 0..300 {
            set(&mut column, key(now, nth).as_bytes(), b"v");
        }
    }
    let now = steps.end;
    column.set_now(now);
    let mut next = Some(DumpPlace::default());
    let (mut items, mut told_coarsely) = (0, 0);
    while let Some(from) = next {
        next = column.dump(from, |item| {
            let key = std::str::from_utf8(item.key).expect("text");
            let (second, _) = key.split_once('/').expect("two numbers");
            let seconds = now - second.parse::<u32>().expect("a number");
            let error = seconds.checked_sub(item.idle_seconds);
            assert!(error.is_some_and(|error| error < 256), "{seconds}: {item:?}");
            assert!(error == Some(0) || seconds > 8192, "{seconds}: {item:?}");
            items += 1;
            told_coarsely += u32::from(error != Some(0));
        });
    }
    assert_eq!(items, (steps.end - steps.start).div_ceil(STEP) * 300);
    assert!(told_coarsely > items / 2);
}
