//! Requests of any origin, with sizes, TTLs and times, sent to the real store on a virtual clock.
//!
//! Where: for callers that want the hit ratio of a workload at given memory sizes. Invariant: this
//! module keeps no requests, so a sequence of requests may have any length.
//! Source: samples of keys: Waldspurger et al., "Cache Modeling and Optimization using Miniature
//! Simulations", USENIX ATC 2017.

use crate::live::{Answer, LiveStore};
use crate::sizes::{Size, mix};
use crate::spread::spread;
use std::ops::Range;
use store::policy::Eviction;
use store::{MakeError, Stats};

/// Salt that makes a sample of keys independent of all other hashes of the keys.
const SAMPLE_SALT: u64 = 0x5a3b_1e00;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks the key up.
    Get,
    /// Looks the key up, and stores the key's item on a miss (cache-aside).
    Fetch,
    /// Stores the key's item.
    Set,
    /// Stores the key's item if the key has none.
    Add,
    /// Stores the key's item if the key has one already.
    Replace,
    /// Appends the request's value to the value of the existing item.
    Append,
    /// Deletes the key's item.
    Delete,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the requested key, below 2^62.
    pub key: u64,
    /// Bytes of the key and of the value that is stored.
    pub size: Size,
    /// Seconds that the stored item lives; 0 for no expiry.
    pub ttl_s: u32,
    /// The operation.
    pub operation: Operation,
    /// Nanoseconds since the first request. A decrease does not set the store's clock back.
    pub at_ns: u64,
}

/// Counts of lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounts {
    /// Number of keys looked up.
    pub gets: u64,
    /// Number of looked-up keys that were found.
    pub hits: u64,
}

/// The result of a sequence of requests in one store.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunResult {
    /// The store's memory.
    pub memory_bytes: u64,
    /// The lookups in each half of the counted time. If the hit ratios of the halves differ, the
    /// store had not reached a steady state.
    pub halves: [LookupCounts; 2],
    /// Number of items of the whole sequence that were too large to be stored.
    pub refused: u64,
    /// The store's counters over the whole sequence.
    pub stats: Stats,
}

impl RunResult {
    /// Returns the lookups in the whole counted time.
    #[must_use]
    pub fn lookups(&self) -> LookupCounts {
        let [first, second] = self.halves;
        LookupCounts { gets: first.gets + second.gets, hits: first.hits + second.hits }
    }

    /// Hits per key looked up; 0 if no keys were looked up.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.lookups().hits as f64 / self.lookups().gets.max(1) as f64
    }
}

/// Sends all requests to a store of `memory_bytes`; only lookups in the time `counted_ns` count.
///
/// # Errors
/// The store cannot be made: its size must be 1 MiB to 1 TiB.
pub fn run(
    memory_bytes: u64,
    policy: Eviction,
    counted_ns: Range<u64>,
    requests: impl IntoIterator<Item = Request>,
) -> Result<RunResult, MakeError> {
    let middle_ns = u64::midpoint(counted_ns.start, counted_ns.end);
    let mut live = LiveStore::new(memory_bytes, policy)?;
    let mut result = RunResult { memory_bytes, ..RunResult::default() };
    for request in requests {
        let answer = live.execute(&request);
        if !counted_ns.contains(&request.at_ns) {
            continue;
        }
        if matches!(request.operation, Operation::Get | Operation::Fetch) {
            let half = &mut result.halves[usize::from(request.at_ns >= middle_ns)];
            half.gets += 1;
            half.hits += u64::from(answer == Answer::Hit);
        }
    }
    result.refused = live.refused();
    result.stats = live.store().stats();
    Ok(result)
}

/// Calls `run` for each size in `memory_bytes`, on `threads` threads. `requests` is called once for
/// each size.
pub fn curve<R: IntoIterator<Item = Request>>(
    memory_bytes: &[u64],
    policy: Eviction,
    threads: usize,
    counted_ns: Range<u64>,
    requests: impl Fn() -> R + Sync,
) -> Result<Vec<RunResult>, MakeError> {
    let one = |at: usize| run(memory_bytes[at], policy, counted_ns.clone(), requests());
    spread(memory_bytes.len(), threads, one, |_| ())
}

/// Returns a predicate for `Iterator::filter` that keeps the requests for one key in `one_in`. The
/// kept requests have about the hit ratio of all requests if the store's memory is divided by
/// `one_in`, too. With few segments or few keys, the two ratios differ more.
pub fn sampled(one_in: u64) -> impl Fn(&Request) -> bool {
    let one_in = one_in.max(1);
    move |request| request.key == chosen(request.key / one_in, one_in)
}

/// Returns the keys below `keys` that `sampled(one_in)` keeps, in ascending order.
pub fn sample(one_in: u64, keys: u64) -> impl Iterator<Item = u64> {
    let one_in = one_in.max(1);
    (0..keys.div_ceil(one_in)).map(move |nth| chosen(nth, one_in)).filter(move |key| *key < keys)
}

/// Returns the one key that is kept of the `one_in` keys from `nth * one_in` on.
fn chosen(nth: u64, one_in: u64) -> u64 {
    nth * one_in + mix(nth ^ SAMPLE_SALT) % one_in
}

#[cfg(test)]
mod tests;
