//! Threads over one store, each with its own column. The tests compare reads with writes.
//!
//! Invariant: a fault that any thread finds fails the test. The machine decides how the threads
//! interleave, but not how much they do. `STRESS_SEED`, a number, changes the random operations.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]

mod clocks;
#[path = "../each/mod.rs"]
mod each;
mod flushes;
mod limits;
#[path = "../patient/mod.rs"]
mod patient;
mod registers;
mod sums;
mod value;

use std::sync::{Arc, Barrier};
use std::thread;
use store::policy::Eviction;
use store::{Column, Config, Store};

/// Number of threads, usually more than the machine has cores.
pub(crate) const THREADS: usize = 4;

pub(crate) fn config(eviction: Eviction, memory_mb: usize) -> Config {
    Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 300 << 10,
        columns: THREADS + 1,
        eviction: Some(eviction),
        cas: true,
        now: 1000,
    }
}

pub(crate) fn random(id: usize) -> testing::Random {
    let seed = std::env::var("STRESS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    testing::Random::new(id as u64 ^ seed.unwrap_or(0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

pub(crate) fn key_of(key: u32) -> [u8; 7] {
    let mut name = *b"key....";
    name[3..].copy_from_slice(&key.to_le_bytes());
    name
}

pub(crate) fn at_once(
    store: &Arc<Store>,
    work: impl Fn(usize, &mut Column) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|id| {
                let mut column = store.column();
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    column.offline();
                    start.wait();
                    column.online();
                    work(id, &mut column)
                })
            })
            .collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter().try_for_each(|end| end.unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// Checks, once all threads have ended, that no item is lost and no memory leaks. If `least` is
/// given, first sets the limit to this number of eighths of a megabyte.
pub(crate) fn settle(
    store: &Arc<Store>,
    least: Option<usize>,
    keys: impl Iterator<Item = Vec<u8>>,
) {
    let mut column = store.column();
    limits::settle(store, &mut column, least, 1_000_000);
    #[cfg(debug_assertions)]
    assert_eq!(store.audit(), Vec::<String>::new());
    let keys: Vec<_> = keys.collect();
    let there = keys.iter().filter(|key| column.get(key).is_some()).count();
    assert_eq!(store.stats().curr_items, there as u64, "items counted and items readable");
    let deleted = keys.iter().filter(|key| column.delete(key)).count();
    assert_eq!(deleted, there);
    while column.maintain() {}
    column.quiesce();
    while column.maintain() {}
    #[cfg(debug_assertions)]
    assert_eq!(store.audit(), Vec::<String>::new());
    let stats = store.stats();
    assert_eq!((stats.curr_items, stats.bytes), (0, 0), "deleted all");
    let frame_bytes = column.log_value_bytes_max();
    let segment = if frame_bytes == 16 << 10 { 256 << 10 } else { frame_bytes * 8 };
    let hash = usize::try_from(stats.hash_bytes).unwrap().next_multiple_of(segment);
    // Each column may have four open segments: for each of the log's two queues, one for new items
    // and one that compaction fills.
    let most = hash + segment * (2 + 4 * (THREADS + 1));
    assert!(store.used_bytes() <= most, "{} bytes are still in use", store.used_bytes());
}
