//! Tests when the memory of expired items is free again, what it costs to find them, and touches.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod each;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use store::policy::Eviction;
use store::{Body, Column, Config, Put, PutResult, Store, Verb};

each::policies! {
    what_has_expired_is_free_within_its_second_for_a_few_looks_an_item,
    what_expires_makes_room_and_nothing_is_evicted,
    an_open_segment_is_due_again_when_its_last_item_expires,
    a_life_cut_short_is_found_without_a_lookup,
    a_life_prolonged_is_not_ended_by_the_walk,
    those_that_live_for_ever_do_not_keep_the_others,
    what_dies_together_goes_in_steps_and_a_life_prolonged_between_them_does_not,
    frames_of_what_expires_are_free_again,
    frames_of_what_a_lookup_finds_expired_are_free_again,
    a_life_prolonged_by_a_set_in_place_is_not_ended_with_its_segment,
}

const START: u32 = 100;
/// Maximum number of items in an open segment of 32 KiB.
const OPEN: u64 = 300;

fn make(eviction: Eviction, memory_mb: usize, columns: usize) -> (Arc<Store>, Vec<Column>) {
    make_with(Some(eviction), memory_mb, columns)
}

fn make_with(
    eviction: Option<Eviction>,
    memory_mb: usize,
    columns: usize,
) -> (Arc<Store>, Vec<Column>) {
    let config = Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 100 << 10,
        columns,
        eviction,
        cas: true,
        now: START,
    };
    let store = Store::new(&config).expect("address space");
    let columns = (0..columns).map(|_| store.column()).collect();
    (store, columns)
}

fn one(eviction: Eviction, memory_mb: usize) -> (Arc<Store>, Column) {
    let (store, mut columns) = make(eviction, memory_mb, 1);
    (store, columns.pop().expect("one"))
}

fn set(column: &mut Column, key: u32, value: &[u8], exptime: u32) {
    let key = key.to_le_bytes();
    let put = Put { exptime, ..Put::new(Verb::Set, &key) };
    let stored = column.put(&put, Body::Bytes(value)).expect("room");
    assert!(matches!(stored, PutResult::Stored { .. }));
}

fn idle(column: &mut Column, now: u32) {
    column.set_now(now);
    while column.maintain() {
        column.quiesce();
    }
    column.quiesce();
    while column.maintain() {}
}

/// A pseudo-random number from 0 to 1, derived from `number`.
fn unit(number: u32) -> f64 {
    f64::from(number.wrapping_mul(0x9e37_79b1).rotate_left(16).wrapping_mul(0x85eb_ca6b) >> 8)
        / f64::from(1 << 24)
}

/// A time to live from a second to a day, log-uniformly distributed.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 86400")]
fn life(number: u32) -> u32 {
    86_400_f64.powf(unit(number)) as u32
}

fn what_has_expired_is_free_within_its_second_for_a_few_looks_an_item(eviction: Eviction) {
    const ITEMS: u32 = 240_000;
    let (store, mut column) = one(eviction, 64);
    let mut ends = vec![0_u64; 86_401];
    for key in 0..ITEMS {
        let seconds = life(key);
        set(&mut column, key, &[7; 100], START + seconds);
        ends[seconds as usize] += 1;
    }
    let full = store.stats();
    assert_eq!((full.curr_items, full.evictions), (ITEMS.into(), 0));
    let item_bytes = full.bytes / u64::from(ITEMS);
    let mut live = u64::from(ITEMS);
    for (second, ended) in (0..).zip(&ends) {
        live -= ended;
        if second > 3600 && second % 600 != 0 && live > 0 {
            continue;
        }
        idle(&mut column, START + second);
        let (stats, used) = (store.stats(), store.used_bytes() as u64);
        // Live items, the index, and 12 % of the memory for segments of up to 50 classes.
        let most = live * item_bytes + stats.hash_bytes + (64 << 20) * 12 / 100;
        assert!(used <= most, "{used} bytes, not {most}, for {live} items in second {second}");
        assert!(stats.curr_items >= live, "nothing goes before its time");
    }
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.bytes, stats.evictions), (0, 0, 0));
    assert_eq!(stats.crawler_reclaimed, ITEMS.into());
    let looks = stats.crawler_items_checked;
    assert!(looks <= u64::from(ITEMS) * 4, "{looks} looks for {ITEMS} items");
}

/// Live items take half of the memory, and sets fill the memory many times over. The store must
/// free expired items before it evicts live items, even if the column is never idle.
fn what_expires_makes_room_and_nothing_is_evicted(eviction: Eviction) {
    for is_idle in [true, false] {
        let (store, mut column) = one(eviction, 8);
        let lasting = 8_000_u32;
        (0..lasting).for_each(|key| set(&mut column, key, &[1; 100], 0));
        let mut key = lasting;
        for second in 0..200_u32 {
            column.set_now(START + second);
            for _ in 0..1000 {
                key += 1;
                set(&mut column, key, &[2; 200], START + second + 5 + key * 7 % 16);
                column.quiesce();
            }
            if is_idle {
                idle(&mut column, START + second);
            }
        }
        let stats = store.stats();
        assert_eq!(stats.evictions, 0, "idle: {is_idle}, {stats:?}");
        assert!((0..lasting).all(|key| column.get(&key.to_le_bytes()).is_some()));
    }
}

fn an_open_segment_is_due_again_when_its_last_item_expires(eviction: Eviction) {
    let (store, mut column) = one(eviction, 8);
    set(&mut column, 1, b"first", START + 17);
    set(&mut column, 2, b"last", START + 19);
    let open = store.usage().segments_open;
    idle(&mut column, START + 18);
    assert_eq!(store.usage().segments_open, open, "sealed before its last item has expired");
    idle(&mut column, START + 21);
    assert_eq!((store.stats().curr_items, store.usage().segments_open < open), (0, true));
}

fn a_life_cut_short_is_found_without_a_lookup(eviction: Eviction) {
    let (store, mut column) = one(eviction, 8);
    (0..20_000).for_each(|key| set(&mut column, key, &[3; 100], START + 50_000));
    column.set_now(START + 10);
    let short = |key: &u32| key.is_multiple_of(2);
    for key in (0..20_000).filter(short) {
        assert_eq!(column.touch(&key.to_le_bytes(), START + 20), Ok(true));
    }
    idle(&mut column, START + 100);
    let left = store.stats().curr_items;
    assert!((10_000..10_000 + OPEN).contains(&left), "{left} left, of which 10,000 live");
    (0..20_000).filter(|key| !short(key)).for_each(|key| {
        set(&mut column, key, &[4; 100], START + 200);
    });
    // An item is not rewritten if another item with the same tag precedes it in its index line.
    let rewritten = store.stats().rewritten;
    assert!(rewritten > 9_900, "{rewritten} in place");
    idle(&mut column, START + 400);
    let left = store.stats().curr_items;
    assert!(left < OPEN, "{left} left, of which none lives");
}

fn a_life_prolonged_is_not_ended_by_the_walk(eviction: Eviction) {
    let (store, mut column) = one(eviction, 8);
    (0..20_000).for_each(|key| set(&mut column, key, &[5; 100], START + 10));
    let long = |key: &u32| key % 10 == 3;
    for key in (0..20_000).filter(long) {
        assert_eq!(column.touch(&key.to_le_bytes(), START + 5_000), Ok(true));
    }
    idle(&mut column, START + 10);
    let left = store.stats().curr_items;
    assert!((2_000..2_000 + OPEN).contains(&left), "{left} left, of which 2,000 live");
    idle(&mut column, START + 4_999);
    assert!((0..20_000).filter(long).all(|key| column.get(&key.to_le_bytes()).is_some()));
    idle(&mut column, START + 5_000);
    assert_eq!(store.stats().curr_items, 0);
    assert_eq!(store.stats().get_expired, 0, "all of it unprompted");
}

/// In 1 MiB of memory there are too few segments to sort items by exptime, so a segment has items
/// of different exptimes.
fn those_that_live_for_ever_do_not_keep_the_others(eviction: Eviction) {
    let (store, mut column) = one(eviction, 1);
    for key in 0..3_000_u32 {
        let exptime = if key % 2 == 0 { 0 } else { START + 1 + key % 500 };
        set(&mut column, key, &[6; 100], exptime);
    }
    assert_eq!(store.stats().evictions, 0);
    idle(&mut column, START + 250);
    let half = store.stats().curr_items;
    assert!((1500..=2600).contains(&half), "{half} items when half of those that expire had");
    [502, 1_100].iter().for_each(|after| idle(&mut column, START + after));
    let left = store.stats().curr_items;
    assert!((1500..1500 + OPEN / 2).contains(&left), "{left} left, of which 1500 live");
}

/// One column's clock is a second behind: this column touches items that another column unlinks as
/// expired.
fn what_dies_together_goes_in_steps_and_a_life_prolonged_between_them_does_not(eviction: Eviction) {
    const ITEMS: u32 = 200_000;
    let (store, mut columns) = make(eviction, 64, 2);
    let (mut late, mut early) = (columns.pop().expect("two"), columns.pop().expect("two"));
    late.offline();
    (0..ITEMS).for_each(|key| set(&mut early, key, &[9; 100], START + 10));
    let full = store.stats();
    early.set_now(START + 10);
    late.online();
    late.set_now(START + 9);
    let (mut kept, mut key) = (Vec::new(), 0);
    while early.maintain() {
        early.quiesce();
        let before = store.stats().curr_items;
        for next in key..(key + 200).min(ITEMS) {
            if late.touch(&next.to_le_bytes(), START + 5_000).expect("room") {
                kept.push(next);
            }
        }
        assert_eq!(store.stats().curr_items, before, "it is not over for the late one");
        late.quiesce();
        key += 200;
    }
    assert!(kept.len() > 200 && kept.len() < key as usize, "{} of {key}", kept.len());
    late.offline();
    (0..3).for_each(|_| idle(&mut early, START + 11));
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.evictions), (kept.len() as u64, 0));
    let item_bytes = full.bytes / u64::from(ITEMS);
    assert_eq!(stats.bytes, kept.len() as u64 * item_bytes);
    assert!(kept.iter().all(|key| early.get(&key.to_le_bytes()).is_some()));
    let used = store.used_bytes() as u64;
    assert!(used <= stats.hash_bytes + (64 << 20) / 16, "{used} bytes for {} items", kept.len());
    (0..3).for_each(|_| idle(&mut early, START + 5_000));
    assert_eq!((store.stats().curr_items, store.stats().bytes), (0, 0));
}

/// While there is no room, touched items cannot be moved, so their segments stay.
#[test]
fn what_dies_together_and_cannot_be_rid_of_what_lives_is_rid_of_it_later() {
    const ITEMS: u32 = 60_000;
    const LARGE: std::ops::Range<u32> = 1_000_000..1_001_000;
    let (store, mut columns) = make_with(None, 16, 2);
    let (mut late, mut early) = (columns.pop().expect("two"), columns.pop().expect("two"));
    late.offline();
    (0..ITEMS).for_each(|key| set(&mut early, key, &[9; 100], START + 10));
    let large = LARGE.take_while(|key: &u32| {
        let key = key.to_le_bytes();
        early.put(&Put::new(Verb::Set, &key), Body::Bytes(&[9; 10_000])).is_ok()
    });
    assert!(large.count() < LARGE.len(), "memory is full");
    early.set_now(START + 10);
    late.online();
    late.set_now(START + 9);
    // From here on column `late` passes no quiescent point, so memory of moved items is not freed.
    let (mut kept, mut key) = (0, 0);
    while early.maintain() {
        early.quiesce();
        for next in (key..(key + 4_000).min(ITEMS)).step_by(4) {
            kept += u32::from(late.touch(&next.to_le_bytes(), START + 5_000) == Ok(true));
        }
        key += 4_000;
    }
    let stuck = store.usage().segments_sealed;
    assert!(kept > 2_000 && stuck > 0, "{kept} of {key} are kept, {stuck} segments are left");
    late.offline();
    (0..ITEMS).chain(LARGE).for_each(|key| _ = early.delete(&key.to_le_bytes()));
    (11..14).for_each(|after| idle(&mut early, START + after));
    let (stats, sealed) = (store.stats(), store.usage().segments_sealed);
    assert_eq!((stats.curr_items, stats.bytes, sealed), (0, 0, 0));
}

fn frames_of_what_expires_are_free_again(eviction: Eviction) {
    let (store, mut column) = one(eviction, 64);
    for round in 0..20_u32 {
        let now = START + round * 10;
        column.set_now(now);
        for key in 0..300_u32 {
            let mut draft = column.draft(90_000);
            while draft.missing_bytes() > 0 {
                let room = draft.space(&mut column).expect("room");
                let bytes = room.len();
                room.fill(5);
                draft.filled(bytes);
            }
            let key = key.to_le_bytes();
            let put = Put { exptime: now + 5, ..Put::new(Verb::Set, &key) };
            assert!(column.put(&put, Body::Draft(&mut draft)).is_ok());
            (0..100).for_each(|small| set(&mut column, 1000 + small, &[1; 100], now + 5));
        }
        idle(&mut column, now + 5);
        let stats = store.stats();
        assert_eq!((stats.curr_items, stats.bytes, stats.evictions), (0, 0, 0), "round {round}");
        assert_eq!(store.usage().frame_bytes, 0, "round {round}");
    }
}

fn frames_of_what_a_lookup_finds_expired_are_free_again(eviction: Eviction) {
    let (store, mut column) = one(eviction, 16);
    (0..50).for_each(|key| set(&mut column, key, &[5; 90_000], START + 5));
    assert!(store.usage().frame_bytes >= 50 * 80_000);
    column.set_now(START + 5);
    assert!((0..50_u32).all(|key| column.get(&key.to_le_bytes()).is_none()));
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.bytes, stats.get_expired), (0, 0, 50));
    assert_eq!(store.usage().frame_bytes, 0);
}

/// Items get a later exptime by sets in place, but their segments are walked at the first exptime.
fn a_life_prolonged_by_a_set_in_place_is_not_ended_with_its_segment(eviction: Eviction) {
    const ITEMS: u32 = 50_000;
    let (store, mut column) = one(eviction, 16);
    for exptime in [START + 10, START + 5_000] {
        (0..ITEMS).for_each(|key| set(&mut column, key, &[5; 100], exptime));
    }
    assert!(store.stats().rewritten > u64::from(ITEMS / 10 * 9), "nearly all of it in place");
    (10..13).for_each(|after| idle(&mut column, START + after));
    assert_eq!(store.stats().curr_items, u64::from(ITEMS));
    assert!((0..ITEMS).all(|key| column.get(&key.to_le_bytes()).is_some()));
    (0..3).for_each(|after| idle(&mut column, START + 5_000 + after));
    assert_eq!(store.stats().curr_items, 0);
}

/// Columns with different clocks set, touch and sweep items. An item touched in time must stay.
#[test]
fn a_touch_that_races_a_walk_is_kept() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 60;
    const KEYS: u32 = 400;
    let (store, columns) = make(Eviction::default(), 64, THREADS as usize);
    let (clock, start) = (AtomicU32::new(START), Barrier::new(THREADS as usize));
    let prolonged = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (thread, mut column) in (0..THREADS).zip(columns) {
            let (clock, start, prolonged) = (&clock, &start, &prolonged);
            scope.spawn(move || {
                column.offline();
                start.wait();
                column.online();
                for round in 0..ROUNDS {
                    // Relaxed: any value of the clock will do.
                    let now = clock.fetch_add(1, Ordering::Relaxed);
                    column.set_now(now);
                    let key = |key: u32| (thread << 24) | (round << 12) | key;
                    (0..KEYS).for_each(|at| set(&mut column, key(at), &[8; 64], now + 2 + at % 3));
                    column.quiesce();
                    column.maintain();
                    for at in 0..KEYS {
                        if !column.touch(&key(at).to_le_bytes(), now + 100_000).expect("room") {
                            continue; // by another column's clock the item had expired
                        }
                        column.maintain();
                        let there = column.get(&key(at).to_le_bytes()).is_some();
                        assert!(there, "{at} of thread {thread} in round {round}");
                        prolonged.fetch_add(1, Ordering::Relaxed);
                        column.quiesce();
                    }
                }
                column.offline();
            });
        }
    });
    let kept = u64::from(prolonged.load(Ordering::Relaxed));
    assert!(kept > 0, "nothing was prolonged in time");
    let stats = store.stats();
    assert!(stats.curr_items >= kept && stats.evictions == 0, "{kept} prolonged, {stats:?}");
}
