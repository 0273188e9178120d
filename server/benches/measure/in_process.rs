//! A store without a server: makes keys from numbers, executes operations, and checks outcomes.
//!
//! Where: the programs that measure the store alone.
//! Invariant: an operation with an unexpected outcome ends the program, so that no figure counts a
//! miss as a hit or a refusal as a set.

use std::hint::black_box;
use std::sync::Arc;

use store::policy::Eviction;
use store::{Body, Column, Config, Put, PutResult, Start, Store, StoreError, Value, Verb};

use super::{Outcome, fail};

/// Number of operations between two quiescent points: a column that receives 32 requests at once
/// executes all of them between two such points.
pub(crate) const BATCH: u32 = 32;
/// The store's clock at its start, in seconds. The server's clock starts at the same number.
pub(crate) const START: u32 = 62;
const KEY_DIGITS: usize = 8;

/// Maximum number of attempts at a SET while other columns still use the memory that the SET needs.
/// If all attempts fail, another thread hangs.
const ASKS_MAX: u32 = 1 << 20;
const KEY_PREFIX: &[u8; 28] = b"hypostyle:bench:cluster:key:";
/// Length of every key: the median of Twitter's published clusters.
pub(crate) const KEY_BYTES: usize = KEY_PREFIX.len() + KEY_DIGITS;
/// The number of each key is below this bound.
pub(crate) const KEYS_END: u32 = 100_000_000;
/// Length of the longest value. The log holds a value of this length in one piece.
pub(crate) const VALUE_BYTES_MAX: u32 = 8_192;

pub(crate) type Key = [u8; KEY_BYTES];

#[inline]
pub(crate) fn key_of(number: u32) -> Key {
    let mut key = [b'0'; KEY_BYTES];
    key[..KEY_PREFIX.len()].copy_from_slice(KEY_PREFIX);
    let mut rest = number;
    for digit in key[KEY_PREFIX.len()..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}

/// The seed of the keys' hash is the same in every run, so that the same keys collide.
pub(crate) const HASH_SEED: u64 = 1;

pub(crate) fn store_of(
    memory_bytes: usize,
    columns: usize,
    eviction: Option<Eviction>,
) -> Outcome<Arc<Store>> {
    let config =
        Config { memory_bytes, item_bytes_max: 1 << 20, columns, eviction, cas: true, now: START };
    let start = Start { hash_seed: Some(HASH_SEED), ..Start::default() };
    Ok(Store::with_start(&config, start)?)
}

pub(crate) fn column_of(store: &Arc<Store>) -> Column {
    let mut column = store.column();
    column.set_now(START);
    column.online();
    column
}

pub(crate) fn eviction(text: &str) -> Result<Eviction, String> {
    let known = || Eviction::ALL.iter().map(|(known, _)| *known).collect::<Vec<_>>();
    Eviction::named(text).ok_or_else(|| format!("must be one of {}", known().join(", ")))
}

#[inline]
pub(crate) fn between_batches(column: &mut Column) {
    column.quiesce();
    column.maintain();
}

pub(crate) fn fill(
    column: &mut Column,
    numbers: std::ops::Range<u32>,
    value: &[u8],
) -> Outcome<()> {
    for number in numbers {
        set(column, &key_of(number), value)?;
        if number % BATCH == 0 {
            between_batches(column);
        }
    }
    Ok(())
}

#[inline]
pub(crate) fn hit(column: &mut Column, key: &[u8], value_bytes: usize) -> Outcome<()> {
    match column.get(key) {
        Some(hit) => match hit.value {
            Value::Log(bytes) if bytes.len() == value_bytes => {
                black_box(bytes.last().copied());
                Ok(())
            }
            _ => fail(format!("the value of {} is wrong", String::from_utf8_lossy(key))),
        },
        None => fail(format!("{} was stored, but is missing", String::from_utf8_lossy(key))),
    }
}

#[inline]
pub(crate) fn miss(column: &mut Column, key: &[u8]) -> Outcome<()> {
    match column.get(key) {
        None => Ok(()),
        Some(_) => fail(format!("{} was never stored, but is found", String::from_utf8_lossy(key))),
    }
}

#[inline]
pub(crate) fn set(column: &mut Column, key: &[u8], value: &[u8]) -> Outcome<()> {
    put(column, &Put::new(Verb::Set, key), value)
}

/// Executes `put`. While other columns still use the memory that the value needs, this function
/// tries again, as a server would do in its next loop.
#[inline]
pub(crate) fn put(column: &mut Column, put: &Put<'_>, value: &[u8]) -> Outcome<()> {
    for _ in 0..ASKS_MAX {
        match column.put(put, Body::Bytes(value)) {
            Ok(PutResult::Stored { .. }) => return Ok(()),
            Err(StoreError::Later) => {
                column.quiesce();
                std::thread::yield_now();
            }
            other => {
                let key = String::from_utf8_lossy(put.key);
                return fail(format!("the set of {key} failed: {other:?}"));
            }
        }
    }
    fail(format!("there is no room to set {}", String::from_utf8_lossy(put.key)))
}

/// Returns the CPU time that this thread has used, in nanoseconds.
#[inline]
pub(crate) fn thread_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
