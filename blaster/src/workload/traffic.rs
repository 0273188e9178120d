//! The definition of a workload, and the figures that follow from it.
//!
//! Where: `settings` and `file` fill the definition; `stream` and `names` draw from it.
//! Invariant: each field has been checked by its setting; `check` compares the fields with each
//! other.
//! Source: the KV-Cache paper, section 5.2.2 and table 2.

use super::draw::{self, SampledLaw};
use super::gaps::{Gap, GapSampler};
use super::key_file::KeyFile;
use super::limits::WorkloadError;
use super::mix::Mix;
use super::popularity::{Popularity, Table};
use super::replay::Replay;
use super::request::VERBS;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysPer {
    /// The keys are not divided: each connection requests all keys.
    Run,
    /// Each connection requests a separate part of the keys.
    Connection,
    /// Each agent requests a separate part of the keys.
    Agent,
}

/// All values of the setting `keys-per` with their names, in the order of `KeysPer`.
pub(super) const KEYS_PER: [(KeysPer, &str); 3] =
    [(KeysPer::Run, "run"), (KeysPer::Connection, "connection"), (KeysPer::Agent, "agent")];

/// The definition of the traffic, without its rate and targets.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(super) keys: u64,
    pub(super) key_file: Option<Arc<KeyFile>>,
    pub(super) population_seed: u64,
    pub(super) popularity: Popularity,
    pub(super) table: Arc<Table>,
    pub(super) key_size: SampledLaw,
    pub(super) key_prefix: String,
    pub(super) value_size: SampledLaw,
    pub(super) size_per_request: bool,
    pub(super) mix: Mix,
    pub(super) is_dealt: bool,
    pub(super) sets_oldest: bool,
    pub(super) keys_per: KeysPer,
    pub(super) batch: SampledLaw,
    pub(super) gap: Gap,
    pub(super) gap_sampler: GapSampler,
    pub(super) ttl: SampledLaw,
    /// True if, after a miss, a SET stores the missed key.
    pub(crate) cache_aside: bool,
    pub(super) trace: Option<Arc<Replay>>,
    pub(super) trace_requests: u64,
    pub(super) trace_loops: u64,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            keys: 1_000_000,
            key_file: None,
            population_seed: 1,
            popularity: Popularity::Uniform,
            table: Arc::new(Table::Uniform),
            key_size: SampledLaw::fixed(32),
            key_prefix: String::new(),
            value_size: SampledLaw::fixed(128),
            size_per_request: false,
            mix: Mix([9.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
            is_dealt: false,
            sets_oldest: false,
            keys_per: KeysPer::Run,
            batch: SampledLaw::fixed(1),
            gap: Gap::Exponential,
            gap_sampler: GapSampler::Exponential,
            ttl: SampledLaw::fixed(0),
            cache_aside: false,
            trace: None,
            trace_requests: 0,
            trace_loops: 1,
        }
    }
}

impl Workload {
    /// Fails if two settings, of which each is valid, contradict each other.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let has_times = self.trace.as_ref().is_some_and(|trace| trace.details.is_some());
        if self.gap == Gap::Trace && !has_times {
            let why = "gap: trace: the workload has no trace that records times (only a \
                       cache-trace CSV does)";
            return Err(WorkloadError(why.to_owned()));
        }
        let chosen = [
            ("key-file", self.key_file.is_some()),
            ("keys-per", self.keys_per != KeysPer::Run),
            ("set-order", self.sets_oldest),
        ];
        if let Some((name, _)) = chosen.iter().find(|(_, is)| *is && self.trace.is_some()) {
            let why = format!("{name}: cannot be set with a trace, which determines all keys");
            return Err(WorkloadError(why));
        }
        Ok(())
    }

    /// The number of keys. Keys are numbered from 0.
    pub(crate) fn keys(&self) -> u64 {
        self.trace.as_ref().map_or_else(|| self.drawn_keys(), |trace| u64::from(trace.keys))
    }

    pub(super) fn drawn_keys(&self) -> u64 {
        self.key_file.as_ref().map_or(self.keys, |file| file.keys())
    }

    /// Part `nth` (from 0) of `count` equal parts of the keys.
    pub(crate) fn share(&self, nth: u32, count: u32) -> Range<u64> {
        part(&(0..self.keys()), nth, count)
    }

    /// If each agent has its own keys: the keys that one thread of an agent stores when it
    /// populates the cache. `thread` and `agent` count from 0.
    pub(crate) fn share_of_agent(
        &self,
        (agent, agents): (u32, u32),
        (thread, threads): (u32, u32),
    ) -> Range<u64> {
        part(&self.share(agent, agents), thread, threads)
    }

    /// The seed that shuffles keys over ranks of popularity. `None` if there is a key file, because
    /// the order of its lines gives the ranks.
    pub(super) fn order_seed(&self) -> Option<u64> {
        self.key_file.is_none().then_some(self.population_seed)
    }

    /// True if each connection requests a separate part of the keys.
    pub(crate) fn per_connection(&self) -> bool {
        self.keys_per == KeysPer::Connection
    }

    pub(crate) fn per_agent(&self) -> bool {
        self.keys_per == KeysPer::Agent
    }

    /// The share of each verb in the requests, in the order of `VERBS`. `None` if a trace records
    /// the verbs.
    pub(crate) fn shares(&self) -> Option<[f64; VERBS.len()]> {
        let is_recorded = self.trace.as_ref().is_some_and(|trace| trace.details.is_some());
        (!is_recorded).then(|| self.mix.shares(self.keys_per_get()))
    }

    /// The mean number of keys in a GET.
    pub(crate) fn keys_per_get(&self) -> f64 {
        draw::mean(&self.batch.law).max(1.0)
    }

    /// The longest time to live of written items, in seconds; 0 if no item expires.
    pub(crate) fn exptime_s_max(&self) -> u32 {
        let recorded = self.trace.as_ref().and_then(|trace| trace.details.as_ref());
        let recorded = recorded.into_iter().flat_map(|details| &details.operations);
        let longest = recorded.map(|operation| operation.exptime_s).max().unwrap_or(0);
        longest.max(draw::greatest(&self.ttl.law))
    }

    /// The number of requests in all loops of the trace. `None` if there is no trace, or if the
    /// trace is repeated without end.
    pub(crate) fn trace_requests(&self) -> Option<f64> {
        let trace = self.trace.as_ref().filter(|_| self.trace_loops > 0)?;
        Some(trace.requests.len() as f64 * self.trace_loops as f64)
    }

    /// The mean size of drawn values, in bytes.
    pub(crate) fn value_bytes_mean(&self) -> f64 {
        draw::mean(&self.value_size.law)
    }

    /// The sum of the sizes of all keys and values, in bytes.
    pub(crate) fn items_bytes(&self) -> f64 {
        if let Some(details) = self.trace.as_ref().and_then(|trace| trace.details.as_ref()) {
            let keys: f64 = details.key_bytes.iter().map(|bytes| f64::from(*bytes)).sum();
            return keys + details.value_bytes.iter().map(|bytes| f64::from(*bytes)).sum::<f64>();
        }
        let made = || self.keys() as f64 * draw::mean(&self.key_size.law);
        let names = self.key_file.as_ref().map_or_else(made, |file| file.bytes() as f64);
        names + self.keys() as f64 * self.value_bytes_mean()
    }

    /// The mean gap in ns between requests of one thread, if the workload itself sets the gaps. A
    /// distribution sets the gaps of each thread; a trace sets the gaps of all threads together.
    pub(crate) fn own_gap_ns(&self, threads: u32) -> Option<f64> {
        if self.gap == Gap::Trace {
            let trace = self.trace.as_ref()?;
            let each = trace.length_ns()? as f64 / trace.requests.len().max(1) as f64;
            return Some(each * f64::from(threads));
        }
        self.gap_sampler.own_ns()
    }

    /// The number of operations in the trace that `Verb` lacks. The nearest verb replaces such
    /// operations.
    pub(crate) fn replaced_operations(&self) -> u64 {
        let details = self.trace.as_ref().and_then(|trace| trace.details.as_ref());
        details.map_or(0, |details| details.replaced)
    }
}

/// Part `nth` of `count` parts of a range of keys. The parts' lengths differ by at most one.
fn part(keys: &Range<u64>, nth: u32, count: u32) -> Range<u64> {
    let (all, count) = (u128::from(keys.end - keys.start), u128::from(count.max(1)));
    // An edge is at most the number of keys, so at most 2^40.
    let edge = |nth: u32| {
        let edge = all * u128::from(nth).min(count) / count;
        keys.start + u64::try_from(edge).unwrap_or(0)
    };
    edge(nth)..edge(nth.saturating_add(1))
}
