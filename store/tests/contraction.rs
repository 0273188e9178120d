//! The index's memory follows the number of items, down as well as up.
//!
//! Where: one column, whose functions the test calls in the same order as the server's loop.
//! Invariant: a lookup finds each item that is not deleted; items can use memory that the index
//! gave up.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, Put, Store, Verb};

const MEMORY_BYTES: usize = 64 << 20;
const SEGMENT_BYTES: usize = MEMORY_BYTES / 256;
const ITEMS: u32 = 500_000;
/// Maximum number of slices of background work; more slices mean that the work never ends.
const SLICES_MAX: u32 = 100_000;

fn store() -> (Arc<Store>, Column) {
    let config = Config {
        memory_bytes: MEMORY_BYTES,
        item_bytes_max: 1 << 20,
        columns: 1,
        eviction: Some(Eviction::default()),
        cas: true,
        now: 62,
    };
    let store = Store::new(&config).unwrap();
    let column = store.column();
    (store, column)
}

fn fill(column: &mut Column, numbers: std::ops::Range<u32>, value: &[u8]) {
    for number in numbers {
        let key = number.to_le_bytes();
        column.put(&Put::new(Verb::Set, &key), Body::Bytes(value)).unwrap();
        column.quiesce();
    }
}

fn rest(column: &mut Column) {
    let mut slices = 0;
    while column.maintain() {
        column.quiesce();
        slices += 1;
        assert!(slices < SLICES_MAX, "there is always more to do");
    }
    // The next round does work that waited for a quiescent point.
    column.quiesce();
}

fn settle(column: &mut Column) {
    (0..3).for_each(|_| rest(column));
}

fn is_there(column: &mut Column, number: u32) -> bool {
    column.get(&number.to_le_bytes()).is_some()
}

#[test]
fn deleted_items_give_the_indexs_memory_back_and_others_get_it() {
    let (store, mut column) = store();
    let mut most_bytes = 0;
    for _ in 0..2 {
        fill(&mut column, 0..ITEMS, b"a value");
        let (full_bytes, full_used) = (store.stats().hash_bytes, store.used_bytes());
        assert!(full_bytes > u64::from(ITEMS) * 8 && store.stats().evictions == 0);
        for number in (0..ITEMS).filter(|number| number % 20 != 0) {
            assert!(column.delete(&number.to_le_bytes()));
            column.quiesce();
        }
        settle(&mut column);
        let bytes = store.stats().hash_bytes;
        assert!(bytes < full_bytes / 5, "{full_bytes} bytes became {bytes}");
        most_bytes = full_bytes;
        let gone = usize::try_from(full_bytes - bytes).unwrap();
        let freed = full_used.saturating_sub(store.used_bytes());
        assert!(freed + 4 * SEGMENT_BYTES > gone, "{freed} of {gone} bytes are others' again");
        assert!((0..ITEMS).all(|number| is_there(&mut column, number) == (number % 20 == 0)));
    }
    (0..ITEMS).step_by(20).for_each(|number| assert!(column.delete(&number.to_le_bytes())));
    settle(&mut column);
    assert!(store.stats().hash_bytes < most_bytes / 8, "{}", store.stats().hash_bytes);
    let (value, large) = ([b'v'; 10_000], u32::try_from(MEMORY_BYTES / 10_000 * 9 / 10).unwrap());
    fill(&mut column, 0..large, &value);
    assert_eq!(store.stats().evictions, 0);
    assert!((0..large).all(|number| is_there(&mut column, number)));
}

#[test]
fn a_flush_gives_the_indexs_memory_back_too() {
    let (store, mut column) = store();
    fill(&mut column, 0..ITEMS, b"a value");
    let full_bytes = store.stats().hash_bytes;
    column.flush(None);
    column.set_now(63);
    settle(&mut column);
    let bytes = store.stats().hash_bytes;
    assert!(bytes < full_bytes / 5, "{full_bytes} bytes became {bytes}");
    fill(&mut column, 0..ITEMS, b"a value");
    assert!((0..ITEMS).all(|number| is_there(&mut column, number)));
}

#[test]
fn what_lookups_find_expired_gives_the_indexs_memory_back_too() {
    let (store, mut column) = store();
    for number in 0..ITEMS {
        let key = number.to_le_bytes();
        let put = Put { exptime: 70, ..Put::new(Verb::Set, &key) };
        column.put(&put, Body::Bytes(b"a value")).unwrap();
        column.quiesce();
    }
    let full_bytes = store.stats().hash_bytes;
    column.set_now(70);
    assert!((0..ITEMS).all(|number| !is_there(&mut column, number)));
    assert_eq!(store.stats().get_expired, u64::from(ITEMS), "each by a lookup");
    settle(&mut column);
    let bytes = store.stats().hash_bytes;
    assert!(bytes < full_bytes / 5, "{full_bytes} bytes became {bytes}");
}
