//! If address space is scarce, the index is full of very small items before the memory is full.
//! Then items are evicted or refused, as if the memory were full.
//!
//! Where: a process with a limit of its address space.
//! Invariant: only evicted items are lost, and the index takes no more than its part of the memory.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod patient;

use patient::at_last;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::policy::Eviction;
use store::{Body, Column, Config, Put, PutResult, Store, StoreError, Verb};

/// Limit of the address space. The test needs far less; only the existence of a limit matters.
const LIMIT_BYTES: u64 = 64 << 30;
const MEMORY_BYTES: usize = 2 << 20;
/// Twice as many keys as the index has address space for.
const KEYS: u32 = 200_000;

fn set(column: &mut Column, key: u32) -> Result<PutResult, StoreError> {
    let key = &key.to_le_bytes()[..3];
    at_last(column, |column| {
        let stored = column.put(&Put::new(Verb::Set, key), Body::Bytes(b""));
        column.maintain();
        column.quiesce();
        stored
    })
}

fn get(column: &mut Column, key: u32) -> bool {
    column.get(&key.to_le_bytes()[..3]).is_some()
}

#[test]
fn the_smallest_items_fill_the_index_and_others_leave_for_them() {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(LIMIT_BYTES), maximum }).unwrap();
    for eviction in [Some(Eviction::default()), None] {
        let store = Store::new(&Config {
            memory_bytes: MEMORY_BYTES,
            item_bytes_max: 100 << 10,
            columns: 1,
            eviction,
            cas: false,
            now: 1000,
        });
        let store = store.expect("address space");
        let mut column = store.column();
        let mut refused = 0;
        for key in 0..KEYS {
            match set(&mut column, key) {
                Ok(PutResult::Stored { .. }) => {
                    assert!(get(&mut column, key), "{key}, just stored")
                }
                Err(StoreError::NoMemory) if eviction.is_none() => refused += 1,
                other => panic!("key {key}: {other:?}"),
            }
        }
        let (stats, usage) = (store.stats(), store.usage());
        let there = (0..KEYS).filter(|key| get(&mut column, *key)).count() as u64;
        assert_eq!(there, stats.curr_items, "counted and readable");
        assert_eq!(stats.evictions > 0, eviction.is_some(), "{stats:?}");
        assert_eq!(refused > 0, eviction.is_none(), "{refused} refused");
        assert!(there > u64::from(KEYS) / 4, "{there} items");
        let of_index = usage.segments_index * usage.segment_bytes;
        assert!(of_index < MEMORY_BYTES as u64 * 6 / 10, "{usage:?}");
        #[cfg(debug_assertions)]
        {
            column.offline();
            assert_eq!(store.audit(), Vec::<String>::new());
        }
    }
}
