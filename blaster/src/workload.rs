//! A workload: the keys, sizes, verbs and gaps of the traffic, without its rate and targets.
//!
//! Where: a workload is made before a run, and the driving threads draw requests from it.
//! Invariant: a setting that would make a later step fail, or use unbounded time or memory, is
//! refused here. The error names the setting.
//! Source: the KV-Cache paper, section 5.2.2 and table 2.

mod alias;
mod curve;
mod draw;
mod file;
mod files;
mod gaps;
pub mod help;
mod histogram;
mod key_file;
mod law;
mod mix;
mod names;
mod popularity;
pub mod presets;
mod random;
pub(crate) mod replay;
pub mod settings;
mod stream;
mod zipf;

pub(crate) use files::{Files, SentFiles};
pub use names::Names;
pub(crate) use names::{DIGITS_MAX, Pattern};
pub use stream::Stream;

use crate::words::suggestion;
use gaps::{Gap, GapSampler};
use key_file::KeyFile;
use mix::Mix;
use popularity::{Popularity, Table};
use replay::Replay;
use settings::{SETTINGS, SampledLaw};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The maximum number of keys of a workload.
pub const KEYS_MAX: u64 = 1 << 40;
/// The maximum number of keys of one multiget.
pub const BATCH_MAX: u32 = 1024;
/// The maximum length of a value in bytes.
pub const VALUE_BYTES_MAX: u32 = 1 << 27;
/// The maximum length of a key in bytes.
pub const KEY_BYTES_MAX: usize = 250;
/// Longest time to live, in seconds: 30 days. memcached interprets a larger number as a Unix time.
pub const EXPTIME_S_MAX: u32 = 60 * 60 * 24 * 30;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads the value of one key, or of several keys at once.
    Get,
    /// Writes a value.
    Set,
    /// Removes an item.
    Delete,
    /// Appends to an item's value.
    Append,
    /// Writes a value if the key has no value.
    Add,
    /// Writes a value if the key already has a value.
    Replace,
}

/// All verbs, in the order of their numbers (`verb as usize`).
pub const VERBS: [Verb; 6] =
    [Verb::Get, Verb::Set, Verb::Delete, Verb::Append, Verb::Add, Verb::Replace];

impl Verb {
    /// The name in workload files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::Set => "set",
            Verb::Delete => "delete",
            Verb::Append => "append",
            Verb::Add => "add",
            Verb::Replace => "replace",
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::Delete)
    }

    /// True if the verb can create an item, so that its requests have a time to live.
    pub(crate) fn makes(self) -> bool {
        self.writes() && self != Verb::Append
    }
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadRequest {
    /// The kind of request.
    pub verb: Verb,
    /// The numbers of the keys: one key, or several keys for a multiget, which may repeat a key.
    pub keys: Vec<u64>,
    /// Bytes of the value that the request writes; 0 if the request writes no value.
    pub value_bytes: u32,
    /// The item's time to live in seconds. 0 means that the item never expires.
    pub exptime_s: u32,
}

impl WorkloadRequest {
    /// Returns an empty request, which `Stream::next` fills.
    #[must_use]
    pub fn new() -> WorkloadRequest {
        WorkloadRequest { verb: Verb::Get, keys: Vec::new(), value_bytes: 0, exptime_s: 0 }
    }
}

impl Default for WorkloadRequest {
    fn default() -> WorkloadRequest {
        WorkloadRequest::new()
    }
}

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
const KEYS_PER: [(KeysPer, &str); 3] =
    [(KeysPer::Run, "run"), (KeysPer::Connection, "connection"), (KeysPer::Agent, "agent")];

/// The reason why a workload cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkloadError(pub String);

/// The definition of the traffic, without its rate and targets.
#[derive(Clone, Debug)]
pub struct Workload {
    keys: u64,
    key_file: Option<Arc<KeyFile>>,
    population_seed: u64,
    popularity: Popularity,
    table: Arc<Table>,
    key_size: SampledLaw,
    key_prefix: String,
    value_size: SampledLaw,
    size_per_request: bool,
    mix: Mix,
    is_dealt: bool,
    sets_oldest: bool,
    keys_per: KeysPer,
    batch: SampledLaw,
    gap: Gap,
    gap_sampler: GapSampler,
    ttl: SampledLaw,
    cache_aside: bool,
    trace: Option<Arc<Replay>>,
    trace_requests: u64,
    trace_loops: u64,
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
    /// Returns the workload of the preset with this name (see `presets`).
    #[must_use]
    pub fn preset(name: &str) -> Option<Workload> {
        let preset = presets::PRESETS.iter().find(|preset| preset.name == name)?;
        let mut workload = Workload::default();
        let mut rows = preset.settings();
        rows.try_for_each(|(name, value)| workload.set(name, value)).ok()?;
        Some(workload)
    }

    /// Reads a TOML file of settings. If the file has `preset = "NAME"`, the file's other settings
    /// change this preset. Paths in the file are relative to the file's folder.
    ///
    /// # Errors
    /// The file cannot be read, or a setting is unknown or wrong; the message names the line.
    pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
        file::read(path)
    }

    /// Makes a workload from the output of `to_toml` and the files that a controller has sent.
    /// Fails if a file is missing or invalid.
    pub(crate) fn from_sent(text: &str, sent: &SentFiles) -> Result<Workload, WorkloadError> {
        file::parse(text, &Files::Sent(sent)).map_err(|(_, why)| WorkloadError(why))
    }

    /// Changes one setting, as a flag `--name value` does. Paths are relative to the working
    /// directory.
    ///
    /// # Errors
    /// There is no such setting, or the setting cannot have this value. The workload is then
    /// unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WorkloadError> {
        self.set_from(name, value, &Files::here(""))
    }

    fn set_from(
        &mut self,
        name: &str,
        value: &str,
        files: &Files<'_>,
    ) -> Result<(), WorkloadError> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let names: Vec<_> = settings::names().collect();
            let (names, meant) = (names.join(", "), suggestion(name, settings::names()));
            return Err(WorkloadError(format!(
                "{name}: no such setting; the settings are {names}{meant}"
            )));
        };
        (setting.set)(self, value.trim(), files)
    }

    /// Checks that individually valid settings do not contradict each other.
    ///
    /// # Errors
    /// Two settings contradict each other.
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

    /// Returns all settings as TOML for a manifest. Reading the TOML gives the same workload.
    #[must_use]
    pub fn to_toml(&self) -> String {
        file::print(self)
    }

    /// The number of keys. Keys are numbered from 0.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.trace.as_ref().map_or_else(|| self.drawn_keys(), |trace| u64::from(trace.keys))
    }

    fn drawn_keys(&self) -> u64 {
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
    fn order_seed(&self) -> Option<u64> {
        self.key_file.is_none().then_some(self.population_seed)
    }

    /// True if each connection requests a separate part of the keys.
    #[must_use]
    pub fn per_connection(&self) -> bool {
        self.keys_per == KeysPer::Connection
    }

    pub(crate) fn per_agent(&self) -> bool {
        self.keys_per == KeysPer::Agent
    }

    /// True if, after a miss, a SET stores the missed key.
    #[must_use]
    pub fn cache_aside(&self) -> bool {
        self.cache_aside
    }

    /// The share of each verb in the requests, in the order of `VERBS`. `None` if a trace records
    /// the verbs.
    #[must_use]
    pub fn shares(&self) -> Option<[f64; VERBS.len()]> {
        let is_recorded = self.trace.as_ref().is_some_and(|trace| trace.details.is_some());
        (!is_recorded).then(|| self.mix.shares(self.keys_per_get()))
    }

    /// The mean number of keys in a GET.
    #[must_use]
    pub fn keys_per_get(&self) -> f64 {
        draw::mean(&self.batch.law).max(1.0)
    }

    /// The longest time to live of written items, in seconds; 0 if no item expires.
    #[must_use]
    pub fn exptime_s_max(&self) -> u32 {
        let recorded = self.trace.as_ref().and_then(|trace| trace.details.as_ref());
        let recorded = recorded.into_iter().flat_map(|details| &details.operations);
        let longest = recorded.map(|operation| operation.exptime_s).max().unwrap_or(0);
        longest.max(draw::greatest(&self.ttl.law))
    }

    /// The number of requests in all loops of the trace. `None` if there is no trace, or if the
    /// trace is repeated without end.
    #[must_use]
    pub fn trace_requests(&self) -> Option<f64> {
        let trace = self.trace.as_ref().filter(|_| self.trace_loops > 0)?;
        Some(trace.requests.len() as f64 * self.trace_loops as f64)
    }

    /// The mean size of drawn values, in bytes.
    #[must_use]
    pub fn value_bytes_mean(&self) -> f64 {
        draw::mean(&self.value_size.law)
    }

    /// The sum of the sizes of all keys and values, in bytes.
    #[must_use]
    pub fn items_bytes(&self) -> f64 {
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
    #[must_use]
    pub fn own_gap_ns(&self, threads: u32) -> Option<f64> {
        if self.gap == Gap::Trace {
            let trace = self.trace.as_ref()?;
            let each = trace.length_ns()? as f64 / trace.requests.len().max(1) as f64;
            return Some(each * f64::from(threads));
        }
        self.gap_sampler.own_ns()
    }

    /// The number of operations in the trace that `Verb` lacks. The nearest verb replaces such
    /// operations.
    #[must_use]
    pub fn replaced_operations(&self) -> u64 {
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

#[cfg(test)]
mod tests;
