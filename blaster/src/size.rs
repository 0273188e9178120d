//! How much memory a workload needs: the real store in process, on the clock of the requests.
//!
//! ```text
//!   workload, rate -> Requests -> simulate::stream, at each -m -> Memory -> text, JSON
//! ```
//!
//! Where: behind `kvblaster size`, before any server is asked. Invariant: no figure of a time that
//! was not simulated; what the span or the sample is too small for is said.
//! Source: Waldspurger et al., "Cache Modeling and Optimization using Miniature Simulations" and,
//! for hot keys, "Efficient MRC Construction with SHARDS".

pub mod flags;
mod requests;
mod servers;
#[cfg(test)]
mod tests;
mod text;

use crate::words::{clock, grouped, whole};
use crate::workload::{Names, Workload};
use requests::Requests;
use serde::Serialize;
use simulate::stream::{Counted, curve};
use simulate::{Eviction, MakeError};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Requests drawn for each size of memory, at most: some seconds of work.
const REQUESTS_MAX: f64 = (1_u64 << 25) as f64;
/// A sample has about so many keys at least, if there are as many,
const SAMPLE_KEYS_MIN: f64 = 20_000.0;
/// and so many bytes of items at most, if it can.
const SAMPLE_BYTES_MAX: f64 = (256_u64 << 20) as f64;
/// but never more than so many, however few keys that leaves: several stores stand at once.
const STORE_BYTES_MAX: f64 = (1_u64 << 30) as f64;
/// The least memory that is simulated: with less the store has too few segments to be itself.
const SIMULATED_BYTES_MIN: u64 = 4 << 20;
/// What `-m` counts in.
const MIB: f64 = (1_u64 << 20) as f64;
/// Sizes that are simulated, as parts of what all items that live at once take.
const PARTS: [f64; 9] = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0];
/// Bytes of an item beside key and value, about, and memory that is not items: to begin with.
const ITEM_BYTES: f64 = 50.0;
const SPARE: f64 = 1.3;
/// Each key is asked for so many times on average, and each TTL passes so often, if it can be.
const ROUNDS: f64 = 16.0;
const TTLS: f64 = 4.0;
/// What lives takes so much more memory than its items and index, and so many bytes of segments
/// that are open or kept free.
const LIVES_SPARE: f64 = 1.08;
const OPEN_BYTES: u64 = 2 << 20;
/// The hit ratios of the two halves of the time that counts may differ by this,
const APART_MAX: f64 = 0.005;
/// or by so many standard errors.
const ERRORS: f64 = 3.0;

/// How often it is told how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(3);
/// As much of the hits of all memory is enough.
const ENOUGH: f64 = 0.99;

/// What is to be found out.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) workload: Arc<Workload>,
    pub(crate) seed: u64,
    /// Requests a second; not a number: as the workload's gaps say.
    pub(crate) rate_per_s: f64,
    pub(crate) populates: bool,
    /// Memory of each size, as `-m`; none: chosen from what lives.
    pub(crate) memory_bytes: Vec<u64>,
    /// How much time is simulated; none: as long as this workload needs.
    pub(crate) span: Option<Duration>,
    /// To the server: each may have keys of its own.
    pub(crate) connections: u32,
    pub(crate) threads: usize,
    /// Nobody wants to know how far it is.
    pub(crate) is_quiet: bool,
}

impl Question {
    /// What is asked of one key in `one_in`, for so long.
    fn requests<'q>(&'q self, names: &'q Names, one_in: u64, span_ns: u64) -> Requests<'q> {
        Requests {
            workload: &self.workload,
            names,
            seed: self.seed,
            rate_per_s: self.rate_per_s,
            populates: self.populates,
            connections: self.connections,
            one_in,
            span_ns,
        }
    }
}

/// What so much memory gives.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) memory_bytes: u64,
    pub(crate) hit_ratio: f64,
    pub(crate) misses_per_s: f64,
    /// What lives in the end.
    pub(crate) items: u64,
    pub(crate) items_bytes: u64,
    pub(crate) evictions_per_s: f64,
}

/// What was found out of memory.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    /// By memory, ascending; where none was asked for, the last one holds all that lives.
    pub(crate) points: Vec<Point>,
    /// Of two keys of how many one was simulated.
    pub(crate) one_in: u64,
    pub(crate) span_s: f64,
    pub(crate) keys_per_s: f64,
    /// What the figures do not know.
    pub(crate) doubts: Vec<String>,
}

impl Memory {
    /// The least memory simulated that gives this part of the hits of the largest; that one, where
    /// there are no lookups.
    pub(crate) fn enough_for(&self, part: f64) -> Option<&Point> {
        let last = self.points.last()?;
        if self.keys_per_s <= 0.0 {
            return Some(last);
        }
        let all = last.hit_ratio;
        self.points.iter().find(|point| point.hit_ratio >= all * part)
    }
}

/// Simulates.
///
/// # Errors
/// A store of one of the sizes cannot be made.
pub(crate) fn memory(question: &Question) -> Result<Memory, MakeError> {
    let names = Names::new(&question.workload);
    let (span_s, wanted_s) = span_s(question);
    let one_in = one_in(question);
    let requests = question.requests(&names, one_in, whole(span_s * 1e9));
    let (threads, is_quiet) = (question.threads, question.is_quiet);
    let simulation = Simulation { requests, threads, span_s, is_quiet };
    let mut memory_bytes = match question.memory_bytes.as_slice() {
        [] => {
            let least = one_in * SIMULATED_BYTES_MIN;
            let all = whole(SPARE * items_bytes(&question.workload)).max(least);
            let found = simulation.curve(&[all])?;
            let lives = found.iter().map(|found| found.lives_bytes(one_in)).sum::<f64>();
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

/// The time that is simulated, and what would be wanted, in seconds.
fn span_s(question: &Question) -> (f64, f64) {
    let workload = &question.workload;
    let own_s = workload.own_gap_ns(1).map_or(1e-3, |gap_ns| gap_ns / 1e9);
    let rate_per_s = question.rate_per_s;
    let gap_s = if rate_per_s.is_nan() { own_s } else { 1.0 / rate_per_s };
    let round_s = workload.keys() as f64 * gap_s / workload.keys_per_get();
    let wanted_s = (ROUNDS * round_s).max(TTLS * f64::from(workload.exptime_s_max()));
    let asked_s = question.span.map_or(wanted_s, |span| span.as_secs_f64());
    let drawn_max = workload.trace_requests().map_or(REQUESTS_MAX, |all| all.min(REQUESTS_MAX));
    (asked_s.clamp(2.0 * gap_s, drawn_max.max(2.0) * gap_s), wanted_s)
}

/// How many keys each key of the sample stands for.
fn one_in(question: &Question) -> u64 {
    let by_bytes = items_bytes(&question.workload) / SAMPLE_BYTES_MAX;
    let by_keys = question.workload.keys() as f64 / SAMPLE_KEYS_MIN;
    let (least, most) = (question.memory_bytes.iter().min(), question.memory_bytes.iter().max());
    let by_memory = least.map_or(f64::INFINITY, |least| (least / SIMULATED_BYTES_MIN) as f64);
    let store_bytes = most.map_or(items_bytes(&question.workload), |most| *most as f64);
    let by_store = (store_bytes / STORE_BYTES_MAX).ceil();
    whole(by_bytes.min(by_keys).min(by_memory).max(by_store)).max(1)
}

/// What all items take, about, if each key has one.
fn items_bytes(workload: &Workload) -> f64 {
    workload.items_bytes() + ITEM_BYTES * workload.keys() as f64
}

/// The stores to be asked, and for how long.
struct Simulation<'q> {
    requests: Requests<'q>,
    threads: usize,
    span_s: f64,
    is_quiet: bool,
}

/// What one store came to.
struct Found {
    memory_bytes: u64,
    counted: Counted,
    /// Keys that were looked up in the time that counts, in the sample or not.
    gets: f64,
}

impl Found {
    /// Memory for all that lived in the end.
    fn lives_bytes(&self, one_in: u64) -> f64 {
        let stats = &self.counted.stats;
        let simulated = (stats.bytes + stats.hash_bytes) as f64 * LIVES_SPARE;
        (simulated + OPEN_BYTES as f64) * one_in as f64
    }
}

impl Simulation<'_> {
    /// What stores of such sizes come to.
    fn curve(&self, memory_bytes: &[u64]) -> Result<Vec<Found>, MakeError> {
        let Requests { one_in, span_ns, .. } = self.requests;
        let simulated: Vec<u64> = memory_bytes.iter().map(|bytes| bytes / one_in).collect();
        let counted_ns = span_ns / 2..span_ns;
        let (gets, passed_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let requests = || self.requests.of_sample(counted_ns.clone(), (&gets, &passed_ms));
        let policy = Eviction::default();
        let all_ms = memory_bytes.len() as u64 * (span_ns / 1_000_000);
        let counted = self.watched((&passed_ms, all_ms), || {
            curve(&simulated, policy, self.threads, counted_ns.clone(), requests)
        })?;
        // Relaxed: those who counted have been joined. All have counted the same.
        let gets = gets.load(Ordering::Relaxed) as f64 / memory_bytes.len().max(1) as f64;
        let found = memory_bytes.iter().zip(counted);
        let found = found.map(|(bytes, counted)| Found { memory_bytes: *bytes, counted, gets });
        Ok(found.collect())
    }

    /// Does it, and tells every few seconds how far it is.
    fn watched<T>(&self, (passed_ms, all_ms): (&AtomicU64, u64), work: impl FnOnce() -> T) -> T {
        let (done, ended) = mpsc::channel::<()>();
        let begin = Instant::now();
        let tell = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TOLD_EVERY) {
                // Relaxed: as where it is counted.
                let passed = passed_ms.load(Ordering::Relaxed).min(all_ms) as f64;
                let part = passed / all_ms.max(1) as f64;
                let left_s = begin.elapsed().as_secs_f64() * (1.0 - part) / part.max(1e-6);
                let left = clock(text::span(left_s));
                let _ = writeln!(io::stderr(), "simulating: {:.0} %, {left} left", 100.0 * part);
            }
        };
        std::thread::scope(|scope| {
            // Without a thread it is done in silence.
            let told = std::thread::Builder::new();
            let told = (!self.is_quiet).then(|| told.spawn_scoped(scope, tell));
            let made = work();
            drop(done);
            drop(told);
            made
        })
    }

    fn counted_s(&self) -> f64 {
        self.span_s / 2.0
    }

    fn point(&self, found: &Found) -> Point {
        let one_in = self.requests.one_in;
        let Counted { stats, .. } = found.counted;
        let looked = found.counted.looked();
        // A sample has too many or too few of the hottest keys, which hit at any size: what all
        // were to be looked up in it decides, not what were.
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

    /// What the figures do not know.
    fn doubts(&self, found: &[Found], wanted_s: f64) -> Vec<String> {
        let mut doubts = Vec::new();
        if found.iter().all(|found| found.gets <= 0.0) {
            doubts.push("hits: nothing is looked up by this workload in this time".to_owned());
        }
        let sampled = self.requests.workload.keys() as f64 / self.requests.one_in as f64;
        if self.requests.one_in > 1 && sampled < SAMPLE_KEYS_MIN * 0.9 {
            doubts.push(format!(
                "more than a sample of {} keys tells: all of them do not fit this machine's memory",
                grouped(sampled.round())
            ));
        }
        if self.span_s < wanted_s * 0.99 {
            doubts.push(format!(
                "{} of traffic were simulated; {} would have each key asked for {ROUNDS} times, \
                 and each TTL pass {TTLS} times",
                clock(text::span(self.span_s)),
                clock(text::span(wanted_s)),
            ));
        }
        let is_moving = |found: &&Found| {
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
                "values that were not kept: longer than an item may be (-I), or too long for so \
                 little memory"
                    .to_owned(),
            );
        }
        doubts
    }
}
