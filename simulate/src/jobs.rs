//! Replays traces: one job for each trace, size and policy, on the requested number of threads.
//!
//! Where: between traces and reports. Invariant: each number of misses depends only on its trace,
//! size and policy, not on the number of threads.

use crate::cache::Shape;
use crate::contestant::SimulatedPolicy;
use crate::engine::Settings;
use crate::live::MEMORY_BYTES_MIN;
use crate::size::CacheSize;
use crate::sizes::{Items, mix};
use crate::spread::spread;
use crate::trace::{Trace, TraceError};

/// Salt that makes the choice of hits that rewrite independent of all other hashes.
const REWRITE_SALT: u64 = 0x5e77;

/// The simulations to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sizes of the caches.
    pub sizes: Vec<CacheSize>,
    /// The policies to simulate. The first policy is the baseline, LRU.
    pub policies: Vec<SimulatedPolicy>,
    /// Sizes of the items.
    pub items: Items,
    /// The settings of the `Engine`.
    pub settings: Settings,
    /// Percentage of the hits that rewrite the value.
    pub set_percent: u64,
    /// Number of new keys that replace each key of a trace.
    pub copies: u32,
    /// Number of simulations that run at a time.
    pub threads: usize,
}

/// The reason why a simulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] store::MakeError),
    /// The requested cache is too small for the real store.
    #[error(
        "{trace} at {size}: {bytes} bytes are too little for the real store, which needs 1 MiB; \
        use --copies, larger items (--items) or larger sizes (--sizes)"
    )]
    Small {
        /// The name of the trace.
        trace: String,
        /// The size as the user wrote it.
        size: String,
        /// The size in bytes.
        bytes: u64,
    },
}

/// A trace, and the misses of each simulation on this trace.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the trace.
    pub trace: String,
    /// Number of requests in the trace.
    pub requests: u64,
    /// Number of keys in the trace.
    pub keys: u32,
    /// For each cache size, the size in bytes and the misses of each policy.
    pub sizes: Vec<(u64, Vec<u64>)>,
}

impl Outcome {
    /// Percentage by which a policy reduces the baseline's misses; `size` and `policy` are indices.
    #[must_use]
    pub fn reduction_percent(&self, size: usize, policy: usize) -> f64 {
        let misses = &self.sizes[size].1;
        100.0 * (1.0 - misses[policy] as f64 / (misses[0] as f64).max(1.0))
    }
}

struct Replay {
    trace: Trace,
    item_bytes: Vec<u32>,
    capacities: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Job {
    replay: usize,
    size: usize,
    policy: usize,
}

/// Runs all simulations. `report` gets the number of finished simulations and of all simulations.
///
/// # Errors
/// There would be too many requests, or the real store cannot be made.
pub fn run(
    plan: &Plan,
    traces: Vec<Trace>,
    report: impl Fn(usize, usize) + Sync,
) -> Result<Vec<Outcome>, SimulateError> {
    let replays = traces.into_iter().map(|trace| Ok(Replay::new(plan, trace.copied(plan.copies)?)));
    let replays = replays.collect::<Result<Vec<_>, SimulateError>>()?;
    let jobs = jobs(plan, &replays);
    let mut outcomes: Vec<Outcome> = replays
        .iter()
        .map(|replay| Outcome {
            trace: replay.trace.name.clone(),
            requests: replay.trace.requests.len() as u64,
            keys: replay.trace.keys,
            sizes: replay
                .capacities
                .iter()
                .map(|bytes| (*bytes, vec![0; plan.policies.len()]))
                .collect(),
        })
        .collect();
    let job = |at: usize| simulate(plan, &replays[jobs[at].replay], jobs[at]);
    let misses = spread(jobs.len(), plan.threads, job, |done| report(done, jobs.len()))?;
    for (job, misses) in jobs.iter().zip(misses) {
        outcomes[job.replay].sizes[job.size].1[job.policy] = misses;
    }
    Ok(outcomes)
}

impl Replay {
    fn new(plan: &Plan, trace: Trace) -> Replay {
        let item_bytes: Vec<u32> = (0..trace.keys).map(|key| plan.items.bytes(key)).collect();
        let capacities = plan.sizes.iter().map(|size| size.bytes(&item_bytes)).collect();
        Replay { trace, item_bytes, capacities }
    }
}

/// Returns all jobs, the longest first, so that no thread begins a long job at the very end.
fn jobs(plan: &Plan, replays: &[Replay]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for replay in 0..replays.len() {
        for size in 0..plan.sizes.len() {
            let cells = 0..plan.policies.len();
            jobs.extend(cells.map(|policy| Job { replay, size, policy }));
        }
    }
    jobs.sort_by_key(|job| std::cmp::Reverse(replays[job.replay].trace.requests.len()));
    jobs
}

fn simulate(plan: &Plan, replay: &Replay, job: Job) -> Result<u64, SimulateError> {
    let policy = plan.policies[job.policy];
    let capacity_bytes = replay.capacities[job.size];
    if matches!(policy, SimulatedPolicy::Live(_)) && capacity_bytes < MEMORY_BYTES_MIN {
        return Err(SimulateError::Small {
            trace: replay.trace.name.clone(),
            size: plan.sizes[job.size].to_string(),
            bytes: capacity_bytes,
        });
    }
    let shape = Shape { item_bytes: &replay.item_bytes, capacity_bytes };
    let requests = &replay.trace.requests;
    let mut cache = policy.cache(shape, requests, &plan.items, plan.settings)?;
    let mut misses = 0;
    for (at, key) in requests.iter().enumerate() {
        let rewrites =
            plan.set_percent > 0 && { mix(at as u64 ^ REWRITE_SALT) % 100 < plan.set_percent };
        misses += u64::from(!cache.request(*key, rewrites));
    }
    Ok(misses)
}
