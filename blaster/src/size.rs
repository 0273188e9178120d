//! Finds the memory that a workload needs: runs the real store in this process, on simulated time.
//!
//! ```text
//!   workload, rate -> Requests -> simulate::stream, at each -m -> Memory -> text, JSON
//! ```
//!
//! Where: the first step of `kvblaster size`, before any server is driven.
//! Invariant: all figures refer to simulated time. `doubts` reports a simulated time that is too
//! short, and a sample that is too small.
//! Source: Waldspurger et al., "Cache Modeling and Optimization using Miniature Simulations" and,
//! for hot keys, "Efficient MRC Construction with SHARDS".

pub(crate) mod flags;
mod requests;
mod servers;
#[cfg(test)]
mod tests;
mod text;

use crate::words::{clock, grouped, whole};
use crate::workload::{Names, Workload};
use requests::{Parameters, Requests};
use serde::Serialize;
use simulate::stream::{RunResult, curve};
use simulate::{Eviction, MakeError};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Maximum number of requests simulated for each memory size: a few seconds of work.
const REQUESTS_MAX: f64 = (1_u64 << 25) as f64;
/// Approximate minimum number of keys in a sample, unless the workload has fewer keys.
const SAMPLE_KEYS_MIN: f64 = 20_000.0;
/// Maximum size of a sample in bytes of items, unless such a sample would have too few keys.
const SAMPLE_BYTES_MAX: f64 = (256_u64 << 20) as f64;
/// Maximum size of a store in bytes, even if the sample then has too few keys, because several
/// stores exist at the same time.
const STORE_BYTES_MAX: f64 = (1_u64 << 30) as f64;
/// Minimum size of a simulated store in bytes. A smaller store has too few segments to be typical.
const SIMULATED_BYTES_MIN: u64 = 4 << 20;
const MIB: f64 = (1_u64 << 20) as f64;
/// The default sizes to simulate, as fractions of the memory that all live items take.
const PARTS: [f64; 9] = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0];
/// The estimated overhead of an item in bytes, in addition to its key and value.
const ITEM_BYTES: f64 = 50.0;
/// The estimated ratio of a store's memory to the bytes of its items.
const SPARE: f64 = 1.3;
/// The mean number of requests per key for which the simulated time should suffice.
const ROUNDS: f64 = 16.0;
/// The length that the simulated time should have, in multiples of the longest TTL.
const TTLS: f64 = 4.0;
/// Ratio of the memory that live items need to the bytes of the items and the index.
const LIVES_SPARE: f64 = 1.08;
/// Bytes of a store's segments that are being filled or are kept free.
const OPEN_BYTES: u64 = 2 << 20;
/// The hit ratio has not settled if the ratios of the two halves of the counted time differ by more
/// than `APART_MAX` and by more than `ERRORS` standard errors.
const APART_MAX: f64 = 0.005;
const ERRORS: f64 = 3.0;

const PROGRESS_EVERY: Duration = Duration::from_secs(3);
/// A memory size is enough if it has at least this share of the hits of the largest size.
const ENOUGH: f64 = 0.99;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) memory_bytes: u64,
    pub(crate) hit_ratio: f64,
    pub(crate) misses_per_s: f64,
    /// Number of live items at the end.
    pub(crate) items: u64,
    pub(crate) items_bytes: u64,
    pub(crate) evictions_per_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    /// The points in ascending order of memory. If the user gave no sizes, the largest memory holds
    /// all live items.
    pub(crate) points: Vec<Point>,
    /// Number of the workload's keys that each key of the sample represents.
    pub(crate) one_in: u64,
    pub(crate) span_s: f64,
    pub(crate) keys_per_s: f64,
    /// Sentences for the report on what the figures do not show.
    pub(crate) doubts: Vec<String>,
}

impl Memory {
    /// Returns the smallest simulated memory that has the share `part` of the largest memory's
    /// hits. If no key is looked up, returns the largest memory.
    pub(crate) fn enough_for(&self, part: f64) -> Option<&Point> {
        let last = self.points.last()?;
        if self.keys_per_s <= 0.0 {
            return Some(last);
        }
        let all = last.hit_ratio;
        self.points.iter().find(|point| point.hit_ratio >= all * part)
    }
}

/// Simulates the workload at each memory size. Fails if a store of one of the sizes cannot be made.
pub(crate) fn memory(parameters: &Parameters) -> Result<Memory, MakeError> {
    let names = Names::new(&parameters.workload);
    let (span_s, wanted_s) = span_s(parameters);
    let one_in = one_in(parameters);
    let requests = Requests { parameters, names: &names, one_in, span_ns: whole(span_s * 1e9) };
    let simulation = Simulation { requests, span_s };
    let mut memory_bytes = match parameters.memory_bytes.as_slice() {
        [] => {
            let least = one_in * SIMULATED_BYTES_MIN;
            let all = whole(SPARE * items_bytes(&parameters.workload)).max(least);
            let found = simulation.curve(&[all])?;
            let lives = found.iter().map(|found| found.live_bytes(one_in)).sum::<f64>();
            let part = |part: f64| whole((lives * part / MIB).ceil() * MIB).max(least);
            PARTS.map(part).to_vec()
        }
        given => given.to_vec(),
    };
    memory_bytes.sort_unstable();
    memory_bytes.dedup();
    let found = simulation.curve(&memory_bytes)?;
    let gets = found.first().map_or(0.0, |found| found.gets);
    Ok(Memory {
        points: found.iter().map(|found| simulation.point(found)).collect(),
        one_in,
        span_s,
        keys_per_s: gets / simulation.counted_s(),
        doubts: simulation.doubts(&found, wanted_s),
    })
}

/// Returns two times in seconds: the time that is simulated, and the time that the workload needs.
fn span_s(parameters: &Parameters) -> (f64, f64) {
    let workload = &parameters.workload;
    let own_s = workload.own_gap_ns(1).map_or(1e-3, |gap_ns| gap_ns / 1e9);
    let rate_per_s = parameters.rate_per_s;
    let gap_s = if rate_per_s.is_nan() { own_s } else { 1.0 / rate_per_s };
    let round_s = workload.keys() as f64 * gap_s / workload.keys_per_get();
    let wanted_s = (ROUNDS * round_s).max(TTLS * f64::from(workload.exptime_s_max()));
    let asked_s = parameters.span.map_or(wanted_s, |span| span.as_secs_f64());
    let drawn_max = workload.trace_requests().map_or(REQUESTS_MAX, |all| all.min(REQUESTS_MAX));
    (asked_s.clamp(2.0 * gap_s, drawn_max.max(2.0) * gap_s), wanted_s)
}

fn one_in(parameters: &Parameters) -> u64 {
    let by_bytes = items_bytes(&parameters.workload) / SAMPLE_BYTES_MAX;
    let by_keys = parameters.workload.keys() as f64 / SAMPLE_KEYS_MIN;
    let (least, most) =
        (parameters.memory_bytes.iter().min(), parameters.memory_bytes.iter().max());
    let by_memory = least.map_or(f64::INFINITY, |least| (least / SIMULATED_BYTES_MIN) as f64);
    let store_bytes = most.map_or(items_bytes(&parameters.workload), |most| *most as f64);
    let by_store = (store_bytes / STORE_BYTES_MAX).ceil();
    whole(by_bytes.min(by_keys).min(by_memory).max(by_store)).max(1)
}

/// Estimates the bytes of the items, assuming that each key has an item.
fn items_bytes(workload: &Workload) -> f64 {
    workload.items_bytes() + ITEM_BYTES * workload.keys() as f64
}

struct Simulation<'q> {
    requests: Requests<'q>,
    span_s: f64,
}

struct StoreCounts {
    memory_bytes: u64,
    counted: RunResult,
    /// Number of keys looked up in the counted time, including keys outside the sample.
    gets: f64,
}

impl StoreCounts {
    /// The memory needed by the items that are live at the end.
    fn live_bytes(&self, one_in: u64) -> f64 {
        let stats = &self.counted.stats;
        let simulated = (stats.bytes + stats.hash_bytes) as f64 * LIVES_SPARE;
        (simulated + OPEN_BYTES as f64) * one_in as f64
    }
}

impl Simulation<'_> {
    fn curve(&self, memory_bytes: &[u64]) -> Result<Vec<StoreCounts>, MakeError> {
        let Requests { parameters, one_in, span_ns, .. } = self.requests;
        let simulated: Vec<u64> = memory_bytes.iter().map(|bytes| bytes / one_in).collect();
        let counted_ns = span_ns / 2..span_ns;
        let (gets, passed_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let requests = || self.requests.of_sample(counted_ns.clone(), (&gets, &passed_ms));
        let policy = Eviction::default();
        let all_ms = memory_bytes.len() as u64 * (span_ns / 1_000_000);
        let counted = self.watched((&passed_ms, all_ms), || {
            curve(&simulated, policy, parameters.threads, counted_ns.clone(), requests)
        })?;
        // Relaxed: the counting threads have been joined. Each store added the same number of gets.
        let gets = gets.load(Ordering::Relaxed) as f64 / memory_bytes.len().max(1) as f64;
        let found = memory_bytes.iter().zip(counted);
        let found =
            found.map(|(bytes, counted)| StoreCounts { memory_bytes: *bytes, counted, gets });
        Ok(found.collect())
    }

    fn watched<T>(&self, (passed_ms, all_ms): (&AtomicU64, u64), work: impl FnOnce() -> T) -> T {
        let (done, ended) = mpsc::channel::<()>();
        let begin = Instant::now();
        let print = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PROGRESS_EVERY) {
                // Relaxed: the number is only displayed, and guards no other data.
                let passed = passed_ms.load(Ordering::Relaxed).min(all_ms) as f64;
                let part = passed / all_ms.max(1) as f64;
                let left_s = begin.elapsed().as_secs_f64() * (1.0 - part) / part.max(1e-6);
                let left = clock(text::span(left_s));
                let _ = writeln!(io::stderr(), "simulating: {:.0} %, {left} left", 100.0 * part);
            }
        };
        std::thread::scope(|scope| {
            // If the thread cannot be started, no progress is shown.
            let printer = std::thread::Builder::new();
            let printer =
                (!self.requests.parameters.is_quiet).then(|| printer.spawn_scoped(scope, print));
            let made = work();
            drop(done);
            drop(printer);
            made
        })
    }

    fn counted_s(&self) -> f64 {
        self.span_s / 2.0
    }

    fn point(&self, found: &StoreCounts) -> Point {
        let one_in = self.requests.one_in;
        let RunResult { stats, .. } = found.counted;
        let looked = found.counted.lookups();
        // The hottest keys hit at any size, but a sample may have too many or too few of them. So
        // the misses are divided by all lookups instead of the sample's lookups.
        let misses = (looked.gets - looked.hits) as f64 * one_in as f64;
        let miss_ratio = (misses / found.gets.max(1.0)).min(1.0);
        Point {
            memory_bytes: found.memory_bytes,
            hit_ratio: 1.0 - miss_ratio,
            misses_per_s: miss_ratio * found.gets / self.counted_s(),
            items: stats.curr_items * one_in,
            items_bytes: stats.bytes * one_in,
            evictions_per_s: (stats.evictions * one_in) as f64 / self.span_s,
        }
    }

    fn doubts(&self, found: &[StoreCounts], wanted_s: f64) -> Vec<String> {
        let mut doubts = Vec::new();
        if found.iter().all(|found| found.gets <= 0.0) {
            doubts.push("hits: this workload looks up no key in this time".to_owned());
        }
        let sampled = self.requests.parameters.workload.keys() as f64 / self.requests.one_in as f64;
        if self.requests.one_in > 1 && sampled < SAMPLE_KEYS_MIN * 0.9 {
            doubts.push(format!(
                "effects that a sample of {} keys does not show: more keys do not fit into the 1 \
                 GiB that a simulated store may have",
                grouped(sampled.round())
            ));
        }
        if self.span_s < wanted_s * 0.99 {
            doubts.push(format!(
                "hits over a longer time: {} of traffic were simulated, but it takes {} until each \
                 key is requested {ROUNDS} times and each TTL has passed {TTLS} times",
                clock(text::span(self.span_s)),
                clock(text::span(wanted_s)),
            ));
        }
        let is_moving = |found: &&StoreCounts| {
            let [first, second] = found.counted.halves.map(|half| {
                let gets = half.gets.max(1) as f64;
                (half.hits as f64 / gets, gets)
            });
            let mean = f64::midpoint(first.0, second.0);
            let error = (mean * (1.0 - mean) * (1.0 / first.1 + 1.0 / second.1)).sqrt();
            (first.0 - second.0).abs() > APART_MAX.max(ERRORS * error)
        };
        let moving = found.iter().filter(is_moving).count();
        if moving > 0 {
            doubts.push(format!(
                "at {moving} of {} sizes hits still rose or fell when the simulation ended: \
                 simulate more time (--span)",
                found.len()
            ));
        }
        let refused: u64 = found.iter().map(|found| found.counted.refused).sum();
        if refused > 0 {
            doubts.push(
                "hits of values that the store refused, because they are longer than an item may \
                 be (-I), or too long for the memory"
                    .to_owned(),
            );
        }
        doubts
    }
}
