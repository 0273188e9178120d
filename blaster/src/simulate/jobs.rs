//! The work: one job for each trace, size and policy, taken by as many threads as asked for.
//!
//! Where: between a plan and its report. Invariant: a job that cannot be done ends the simulation
//! with its reason; none is left out silently.

use super::{Outcome, Plan, SimulateError};
use crate::cache::Shape;
use crate::live::MEMORY_BYTES_MIN;
use crate::simulate::contestant::Contestant;
use crate::sizes::mix;
use crate::trace::Trace;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps the choice of rewriting hits independent of everything else.
const REWRITE_SALT: u64 = 0x5e77;

/// A trace and the sizes of its items.
struct Replay {
    trace: Trace,
    item_bytes: Vec<u32>,
    capacities: Vec<u64>,
}

/// A cell of the result.
#[derive(Clone, Copy)]
struct Job {
    replay: usize,
    size: usize,
    contestant: usize,
}

/// Runs all of it, telling how far it is on stderr.
///
/// # Errors
/// A trace cannot be used, or the real store not made.
pub fn run(plan: &Plan) -> Result<Vec<Outcome>, SimulateError> {
    let replays = plan.traces.iter().map(|path| {
        let trace = Trace::read(path)?.copied(plan.copies)?;
        Ok(Replay::new(plan, trace))
    });
    let replays = replays.collect::<Result<Vec<_>, SimulateError>>()?;
    replay(plan, &replays)
}

/// As `run`, over a trace already there.
///
/// # Errors
/// As `run`.
pub fn run_trace(plan: &Plan, trace: Trace) -> Result<Outcome, SimulateError> {
    let replays = [Replay::new(plan, trace.copied(plan.copies)?)];
    let empty = || SimulateError::Trace(crate::trace::TraceError::Empty(std::path::PathBuf::new()));
    replay(plan, &replays)?.pop().ok_or_else(empty)
}

impl Replay {
    fn new(plan: &Plan, trace: Trace) -> Replay {
        let item_bytes: Vec<u32> = (0..trace.keys).map(|key| plan.items.bytes(key)).collect();
        let capacities = plan.sizes.iter().map(|size| size.bytes(&item_bytes)).collect();
        Replay { trace, item_bytes, capacities }
    }
}

fn replay(plan: &Plan, replays: &[Replay]) -> Result<Vec<Outcome>, SimulateError> {
    let jobs = jobs(plan, replays);
    let mut outcomes: Vec<Outcome> = replays
        .iter()
        .map(|replay| Outcome {
            trace: replay.trace.name.clone(),
            requests: replay.trace.requests.len() as u64,
            keys: replay.trace.keys,
            sizes: replay
                .capacities
                .iter()
                .map(|bytes| (*bytes, vec![0; plan.contestants.len()]))
                .collect(),
        })
        .collect();
    for (job, misses) in jobs.iter().zip(spread(plan, replays, &jobs)?) {
        outcomes[job.replay].sizes[job.size].1[job.contestant] = misses;
    }
    Ok(outcomes)
}

/// All jobs, the longest first, so that no thread begins one when the others are done.
fn jobs(plan: &Plan, replays: &[Replay]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for replay in 0..replays.len() {
        for size in 0..plan.sizes.len() {
            let cells = 0..plan.contestants.len();
            jobs.extend(cells.map(|contestant| Job { replay, size, contestant }));
        }
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(replays[job.replay].trace.requests.len()));
    jobs
}

/// Does the jobs on several threads; the misses of each.
fn spread(plan: &Plan, replays: &[Replay], jobs: &[Job]) -> Result<Vec<u64>, SimulateError> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let results = Mutex::new(vec![0; jobs.len()]);
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed); // unique by itself
            let Some(job) = jobs.get(at) else { return };
            match simulate(plan, &replays[job.replay], *job) {
                Ok(misses) => {
                    // Poisoned: another thread has panicked, and the scope will too.
                    if let Ok(mut results) = results.lock() {
                        results[at] = misses;
                    }
                    tell(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
                Err(error) => {
                    next.store(jobs.len(), Ordering::Relaxed); // the others stop soon
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Some(error);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..plan.threads.clamp(1, jobs.len().max(1))).for_each(|_| {
            scope.spawn(work);
        });
    });
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(results.into_inner().unwrap_or_default()),
    }
}

/// How far it is: one line that stays where it is on a terminal, every tenth of it elsewhere.
fn tell(done: usize, all: usize) {
    let mut out = io::stderr().lock();
    let _closed = if out.is_terminal() {
        let end = if done == all { "\n" } else { "" };
        write!(out, "\r{done} of {all} simulations{end}")
    } else if (done * 10 / all) != ((done - 1) * 10 / all) {
        writeln!(out, "{done} of {all} simulations")
    } else {
        Ok(())
    };
}

/// The misses of one cell.
fn simulate(plan: &Plan, replay: &Replay, job: Job) -> Result<u64, SimulateError> {
    let contestant = plan.contestants[job.contestant];
    let capacity_bytes = replay.capacities[job.size];
    if matches!(contestant, Contestant::Live(_)) && capacity_bytes < MEMORY_BYTES_MIN {
        return Err(SimulateError::Small {
            trace: replay.trace.name.clone(),
            size: plan.sizes[job.size].to_string(),
            bytes: capacity_bytes,
        });
    }
    let shape = Shape { item_bytes: &replay.item_bytes, capacity_bytes };
    let requests = &replay.trace.requests;
    let mut cache = contestant.cache(shape, requests, &plan.items, plan.settings)?;
    let mut misses = 0;
    for (at, key) in requests.iter().enumerate() {
        let rewrites =
            plan.set_percent > 0 && { mix(at as u64 ^ REWRITE_SALT) % 100 < plan.set_percent };
        misses += u64::from(!cache.request(*key, rewrites));
    }
    Ok(misses)
}
