//! A dump shows each present item once, however the store changes during the dump.
//!
//! Where: one column that dumps and changes the store in turns; in one test also other threads.
//! Invariant: an item that is present during a whole dump is shown exactly once, while the index
//! grows and contracts. An item is shown with its own exptime, flags and CAS unique.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::policy::Eviction;
use store::{Body, Column, Config, DumpPlace, Put, Store, Verb};

const STAYING: u32 = 20_000;
/// Number of keys set and deleted in turn: enough to make the index several times as large.
const PASSING: u32 = 150_000;

fn store(columns: usize) -> Arc<Store> {
    let config = Config {
        memory_bytes: 64 << 20,
        item_bytes_max: 1 << 20,
        columns,
        eviction: Some(Eviction::default()),
        cas: true,
        now: 62,
    };
    Store::new(&config).unwrap()
}

fn set(column: &mut Column, number: u32) {
    let key = number.to_le_bytes();
    let put = Put { client_flags: number, exptime: 100 + number, ..Put::new(Verb::Set, &key) };
    column.put(&put, Body::Bytes(b"a value")).unwrap();
    column.quiesce();
}

/// Takes one step of a dump, counts each key shown, and checks the fields shown.
fn step(column: &mut Column, at: DumpPlace, shown: &mut HashMap<u32, u32>) -> Option<DumpPlace> {
    let next = column.dump(at, |item| {
        let number = u32::from_le_bytes(item.key.try_into().unwrap());
        *shown.entry(number).or_default() += 1;
        assert_eq!((item.client_flags, item.exptime), (number, 100 + number));
        assert!(item.cas > 0 && item.value_bytes == 7 && item.item_bytes > 11);
    });
    column.quiesce();
    next
}

fn assert_each_once(shown: &HashMap<u32, u32>) {
    assert!(shown.values().all(|&times| times == 1), "some key is shown more than once");
    let missed = (0..STAYING).filter(|number| !shown.contains_key(number)).count();
    assert_eq!(missed, 0, "of {STAYING}");
}

fn settle(column: &mut Column) {
    for _ in 0..100_000 {
        if !column.maintain() {
            break;
        }
        column.quiesce();
    }
    column.quiesce();
}

#[test]
fn each_key_is_shown_once_while_the_index_grows() {
    let mut column = store(1).column();
    (0..STAYING).for_each(|number| set(&mut column, number));
    let mut passing = STAYING..STAYING + PASSING;
    let (mut at, mut shown, mut steps) = (Some(DumpPlace::default()), HashMap::new(), 0);
    while let Some(from) = at {
        at = step(&mut column, from, &mut shown);
        passing.by_ref().take(500).for_each(|number| set(&mut column, number));
        steps += 1;
    }
    assert!(passing.is_empty() && steps > 300, "the index has grown meanwhile, in {steps} steps");
    shown.retain(|number, _| *number < STAYING);
    assert_each_once(&shown);
}

type DumpState = (Option<DumpPlace>, HashMap<u32, u32>);

/// Returns the states of a dump: before its first step, and after each step.
fn begun(column: &mut Column) -> Vec<DumpState> {
    let mut all: Vec<DumpState> = vec![(Some(DumpPlace::default()), HashMap::new())];
    while let Some((Some(at), shown)) = all.last() {
        let (at, mut shown) = (*at, shown.clone());
        let next = step(column, at, &mut shown);
        all.push((next, shown));
    }
    all
}

/// Continues each dump to its end, and checks that it has shown each key below `stay` once.
fn end(column: &mut Column, begun: Vec<DumpState>, stay: u32) {
    for (mut at, mut shown) in begun {
        let from = at;
        while let Some(from) = at {
            at = step(column, from, &mut shown);
        }
        for number in 0..stay {
            let times = shown.get(&number).copied().unwrap_or(0);
            assert_eq!(times, 1, "key {number} by the dump that stood at {from:?}");
        }
    }
}

#[test]
fn wherever_a_dump_stands_when_the_index_contracts_or_grows_it_shows_each_key_once() {
    let (stay, all) = (2000, 25_000);
    let store = store(1);
    let mut column = store.column();
    let least = store.stats().hash_bytes;
    (0..all).for_each(|number| set(&mut column, number));
    let most = store.stats().hash_bytes;
    let before = begun(&mut column);
    for number in stay..all {
        assert!(column.delete(&number.to_le_bytes()));
        column.quiesce();
    }
    settle(&mut column);
    assert!(store.stats().hash_bytes < most / 2, "the index has contracted from {most}");
    end(&mut column, before, stay);
    let before = begun(&mut column);
    (stay..all).for_each(|number| set(&mut column, number));
    assert!(store.stats().hash_bytes > 2 * least, "the index has grown from {least}");
    end(&mut column, before, stay);
}

#[test]
fn dead_items_are_not_shown() {
    let mut column = store(1).column();
    (0..10).for_each(|number| set(&mut column, number));
    column.set_now(105); // items up to number 5 have expired
    let mut shown = HashMap::new();
    let mut at = Some(DumpPlace::default());
    while let Some(from) = at {
        at = step(&mut column, from, &mut shown);
    }
    let mut numbers: Vec<u32> = shown.into_keys().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [6, 7, 8, 9]);
    column.flush(None);
    let mut at = Some(DumpPlace::default());
    while let Some(from) = at {
        at = column.dump(from, |_| panic!("everything was flushed"));
    }
}

#[test]
fn each_key_is_shown_once_beside_threads_that_store_and_delete() {
    let store = store(3);
    let mut column = store.column();
    (0..STAYING).for_each(|number| set(&mut column, number));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for half in 0..2 {
            let mut other = store.column();
            let done = &done;
            scope.spawn(move || {
                let all = || (STAYING..STAYING + PASSING).filter(|number| number % 2 == half);
                // Relaxed: the flag publishes no other data.
                while !done.load(Ordering::Relaxed) {
                    all().for_each(|number| set(&mut other, number));
                    (half..STAYING).step_by(2).for_each(|number| set(&mut other, number));
                    for number in all() {
                        other.delete(&number.to_le_bytes());
                        other.maintain();
                        other.quiesce();
                    }
                }
                other.offline();
            });
        }
        for _ in 0..3 {
            let (mut at, mut shown) = (Some(DumpPlace::default()), HashMap::new());
            while let Some(from) = at {
                at = step(&mut column, from, &mut shown);
            }
            shown.retain(|number, _| *number < STAYING);
            assert_each_once(&shown);
        }
        done.store(true, Ordering::Relaxed); // publishes no other data
    });
}
