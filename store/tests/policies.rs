//! Tests how policies differ: which keys are left after a scan, and which keys the ghost knows.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

use std::ops::Range;
use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, MetaGet, Put, PutResult, Store, Verb};

/// The approximate number of items of `VALUE` that 4 MiB hold.
const ROOM: u32 = 17_000;
const VALUE: [u8; 200] = [7; 200];
const USED: u32 = ROOM / 10;
/// Number of keys in each tested group. The policy must keep or remember at least `MOST` keys of
/// one group, and at most `FEW` keys of another group. The ghost mistakes some new keys for
/// remembered ones, so a test cannot ask for all keys or for none.
const KEYS: u32 = 24;
const MOST: usize = 18;
const FEW: usize = 6;
/// The first key of a scan. A scan sets each of its keys once.
const SCAN: u32 = 1 << 20;

fn store(eviction: Eviction) -> (Arc<Store>, Column) {
    let store = Store::new(&Config {
        memory_bytes: 4 << 20,
        item_bytes_max: 1 << 20,
        columns: 1,
        eviction: Some(eviction),
        cas: true,
        now: 100,
    });
    let store = store.expect("address space");
    let column = store.column();
    (store, column)
}

fn set(column: &mut Column, key: u32) {
    let stored = column.put(&Put::new(Verb::Set, &key.to_le_bytes()), Body::Bytes(&VALUE));
    assert!(matches!(stored, Ok(PutResult::Stored { .. })), "{stored:?}");
    column.quiesce();
}

fn has(column: &mut Column, key: u32) -> bool {
    let key = &key.to_le_bytes();
    let look =
        MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] };
    column.meta_get(&look).expect("no steps").is_some()
}

fn count(column: &mut Column, keys: &Range<u32>) -> usize {
    keys.clone().filter(|key| has(column, *key)).count()
}

/// Sets `keys` keys, and reads every third of them `times` times. Returns the keys that were read.
fn fill(column: &mut Column, keys: u32, times: u32) -> Vec<u32> {
    (0..keys).for_each(|key| set(column, key));
    let used: Vec<u32> = (0..keys).step_by(3).collect();
    for key in &used {
        (0..times).for_each(|_| assert!(column.get(&key.to_le_bytes()).is_some()));
    }
    used
}

/// Reads `USED` keys often, then scans `scan` keys. Returns the number of used keys left.
fn left_of_used_after(eviction: Eviction, scan: u32) -> usize {
    let (_, mut column) = store(eviction);
    let used = fill(&mut column, USED * 3, 3);
    (SCAN..SCAN + scan).for_each(|key| set(&mut column, key));
    used.into_iter().filter(|key| has(&mut column, *key)).count()
}

#[test]
fn what_was_used_outlives_a_short_scan_unless_first_in_is_first_out() {
    let scan = 2 * ROOM;
    assert_eq!(left_of_used_after(Eviction::Fifo, scan), 0);
    assert_eq!(left_of_used_after(Eviction::NbqClock, scan), USED as usize);
    assert_eq!(left_of_used_after(Eviction::S3Fifo, scan), USED as usize);
}

#[test]
fn only_with_probation_it_outlives_a_long_one() {
    let scan = 12 * ROOM;
    assert_eq!(left_of_used_after(Eviction::Fifo, scan), 0);
    assert_eq!(left_of_used_after(Eviction::NbqClock, scan), 0);
    assert_eq!(left_of_used_after(Eviction::S3Fifo, scan), USED as usize);
}

#[test]
fn who_comes_back_soon_is_kept_and_who_is_new_must_prove_himself() {
    let (store, mut column) = store(Eviction::S3Fifo);
    // These keys fill the main queue, so that probation keeps only its share of memory.
    let used = fill(&mut column, ROOM, 3);
    let scan = SCAN + 100_000;
    (scan..scan + 2 * ROOM).for_each(|key| set(&mut column, key));
    let (known, new) = (SCAN..SCAN + KEYS, SCAN + KEYS..SCAN + 2 * KEYS);
    known.clone().for_each(|key| set(&mut column, key));
    let mut scan = SCAN + 2 * KEYS..;
    let gone = scan.by_ref().take(4 * ROOM as usize).find(|key| {
        set(&mut column, *key);
        count(&mut column, &known) <= FEW
    });
    assert!(gone.is_some(), "never used, they go");
    let hits = store.stats().ghost_hits;
    known.clone().for_each(|key| set(&mut column, key));
    let hits = store.stats().ghost_hits - hits;
    assert!(hits >= MOST as u64, "{hits} of {KEYS} are remembered");
    new.clone().for_each(|key| set(&mut column, key));
    let stats = store.stats();
    assert!(stats.bytes - stats.probation_bytes > u64::from(ROOM / 3) * 200, "{stats:?}");
    for key in scan.take(4 * ROOM as usize) {
        set(&mut column, key);
    }
    let (known, new) = (count(&mut column, &known), count(&mut column, &new));
    assert!(known >= MOST && new <= FEW, "{known} of the known, {new} of the new");
    assert!(used.iter().all(|key| has(&mut column, *key)), "nor did the scan cost any of these");
}

#[test]
fn hits_soon_after_insertion_do_not_count_where_there_is_a_window() {
    for (eviction, early_stay) in [(Eviction::Clock2Q, false), (Eviction::S3Fifo, true)] {
        let (_, mut column) = store(eviction);
        (SCAN..SCAN + 2 * ROOM).for_each(|key| set(&mut column, key));
        let (early, late) = (0..KEYS, KEYS..2 * KEYS);
        let use_thrice = |column: &mut Column, key: u32| {
            (0..3).for_each(|_| assert!(column.get(&key.to_le_bytes()).is_some()));
        };
        for key in early.clone().chain(late.clone()) {
            set(&mut column, key);
        }
        early.clone().for_each(|key| use_thrice(&mut column, key));
        (2 * SCAN..2 * SCAN + ROOM / 2).for_each(|key| set(&mut column, key));
        late.clone().for_each(|key| use_thrice(&mut column, key));
        (3 * SCAN..3 * SCAN + 4 * ROOM).for_each(|key| set(&mut column, key));
        let (early, late) = (count(&mut column, &early), count(&mut column, &late));
        let as_due = if early_stay { early >= MOST } else { early <= FEW };
        assert!(as_due && late >= MOST, "{eviction:?}: {early} of the early, {late} of the late");
    }
}

#[test]
fn who_comes_back_after_probation_widens_it_where_shares_follow() {
    for (eviction, follows) in [(Eviction::Clock2Q, true), (Eviction::S3Fifo, false)] {
        let (store, mut column) = store(eviction);
        fill(&mut column, ROOM, 3);
        let mut fresh = SCAN..;
        fresh.by_ref().take(2 * ROOM as usize).for_each(|key| set(&mut column, key));
        let before = store.stats();
        // When a key is requested again, probation has evicted it, and the ghost remembers it.
        for round in 0..3 {
            let again = 4 * SCAN + round * 5000..4 * SCAN + (round + 1) * 5000;
            for key in again.clone().chain(again) {
                if column.get(&key.to_le_bytes()).is_none() {
                    set(&mut column, key);
                }
                fresh.by_ref().take(2).for_each(|key| set(&mut column, key));
            }
        }
        let after = store.stats();
        assert!(after.ghost_hits > before.ghost_hits + 1000, "{after:?}");
        let widened = after.probation_percent > before.probation_percent + 2;
        assert_eq!(widened, follows, "{eviction:?}: {before:?} {after:?}");
    }
}

#[test]
fn an_overwritten_item_stays_in_its_queue_and_keeps_its_counter() {
    let (store, mut column) = store(Eviction::S3Fifo);
    let kept = fill(&mut column, USED * 3, 2);
    // An overwrite after an item's uses does not change how the policy then treats the item.
    for key in &kept {
        set(&mut column, *key);
        (1..=3).for_each(|other| set(&mut column, 2 * SCAN + key * 4 + other));
    }
    (SCAN..SCAN + 4 * ROOM).for_each(|key| set(&mut column, key));
    assert!(kept.iter().all(|key| has(&mut column, *key)));
    let main_bytes = |stats: store::Stats| stats.bytes - stats.probation_bytes;
    let before = main_bytes(store.stats());
    kept.iter().for_each(|key| set(&mut column, *key));
    let after = main_bytes(store.stats());
    assert!(after >= before, "{after} bytes in the main queue, {before} before");
    (3 * SCAN..3 * SCAN + 4 * ROOM).for_each(|key| set(&mut column, key));
    assert!(kept.iter().all(|key| has(&mut column, *key)));
}

#[test]
fn evictions_have_an_age_and_dead_bytes_are_counted() {
    for (name, eviction) in Eviction::ALL {
        let (store, mut column) = store(eviction);
        assert_eq!((store.stats().eviction_age(), store.stats().dead_bytes), (0, 0), "{name}");
        // A thousand items are set each second. So if `n` items fit, an item is evicted about
        // `n / 1000` seconds after it was set.
        for key in 0..4 * ROOM {
            column.set_now(100 + key / 1000);
            set(&mut column, SCAN + key);
        }
        let stats = store.stats();
        let fit = stats.curr_items / 1000;
        let age = stats.eviction_age();
        assert!(stats.evictions > u64::from(2 * ROOM), "{name}: {stats:?}");
        assert!((fit - 4..=fit + 2).contains(&age), "{name}: {age} seconds, {fit} fit");
        assert_eq!(stats.evicted_unfetched, stats.evictions, "{name}");
        let dead = stats.dead_bytes;
        // Only every fourth item is deleted, so that no segment becomes empty and is retired.
        let newest = (0..4000).step_by(4).map(|ago| SCAN + 4 * ROOM - 1 - ago);
        let deleted = newest.filter(|key| column.delete(&key.to_le_bytes())).count();
        let more = store.stats().dead_bytes - dead;
        assert_eq!(more, deleted as u64 * (200 + 4 + 8), "{name}");
    }
}
