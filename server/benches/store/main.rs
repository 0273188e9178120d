//! The store alone, in process: the cost of its operations, and its use of memory.
//!
//! Where: outside the cache; no sockets, no protocol.
//! Invariant: time is CPU time of the working thread, so that other load on the machine affects a
//! figure only through shared caches; each operation's outcome is checked.

mod batch;
mod expiry;
mod growth;
#[path = "../measure/mod.rs"]
mod measure;
mod mixes;
mod overwrite;
mod scaling;
mod threads;
mod time;

use std::path::PathBuf;
use std::process::ExitCode;

use measure::Outcome;
use measure::in_process::{KEYS_END, VALUE_BYTES_MAX, eviction};
use measure::report::Report;
use store::policy::Eviction;

/// Measures the store within this process. Keys have 36 bytes. Some options belong to one
/// experiment, and some defaults (in parentheses) differ by experiment.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    #[arg(default_value = "time")]
    what: Experiment,
    /// Number of stored keys (time: 100000,2000000; scaling: 1000000; mixes: 1000000; growth,
    /// expiry: 10000000; batch, overwrite: as many as fit)
    #[arg(long, value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(KEYS_END / 2)))]
    pub(crate) keys: Option<Vec<u32>>,
    /// Length of each value in bytes (64; growth, expiry: 20)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(VALUE_BYTES_MAX / 2)))]
    pub(crate) value_bytes: Option<u32>,
    /// Memory of the store in MiB (batch: 4096, or less if the machine has less; overwrite: 256)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) memory_mb: Option<u32>,
    /// Operations per round (2000000; overwrite: 10 for each key)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub(crate) ops: Option<u32>,
    /// Number of rounds (time: 7; growth: 3), or of pairs of measured windows (others: 9)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// time: measure only operations whose name contains this text
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// batch: number of GETs that are prefetched together
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) together: u32,
    /// Numbers of columns (threads) to measure (scaling: 1,2, where 1 shows the error of the
    /// measurement; mixes: 1)
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) columns: Option<Vec<u32>>,
    /// expiry: the distribution of the exptimes
    #[arg(long, value_enum, default_value_t = Ttl::Log)]
    pub(crate) ttl: Ttl,
    /// overwrite: percentage of the memory that live bytes and the index take
    #[arg(long, value_delimiter = ',', default_value = "85,90,93")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) live_percent: Vec<u32>,
    /// overwrite: percentage of the keys that get nine of ten SETs (100: all keys alike)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) hot_percent: u32,
    /// overwrite: lengths of the values that overwrite items
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same,random")]
    pub(crate) sizes: Vec<Sizes>,
    /// Eviction policy
    #[arg(long, default_value = Eviction::default().name(), value_parser = eviction)]
    pub(crate) eviction: Eviction,
    /// Also write the result to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The distribution of exptimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ttl {
    /// Uniform in the logarithm of time
    Log,
    /// Uniform in time
    Even,
}

/// The length of the value that overwrites an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sizes {
    /// The same length
    Same,
    /// Uniform, from 1 to twice --value-bytes
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    /// CPU time of each operation by itself
    Time,
    /// GETs prefetched in batches, compared with single GETs; the store exceeds the CPU's caches
    Batch,
    /// GETs of several columns compared with one column, with the same and with disjoint keys
    Scaling,
    /// 70 % GET, 25 % SET, 5 % DELETE with eviction, compared with GETs that all hit
    Mixes,
    /// The slowest single insert while a store grows to --keys items in memory touched beforehand
    Growth,
    /// Items that expire within a day: the time until their memory is free, and the CPU time
    Expiry,
    /// A working set that fits and is overwritten repeatedly: evictions, compaction
    Overwrite,
}

impl Options {
    pub(crate) fn keys_or(&self, default: u32) -> u32 {
        self.keys.as_ref().and_then(|keys| keys.first().copied()).unwrap_or(default)
    }

    pub(crate) fn value_bytes_or(&self, default: u32) -> Outcome<usize> {
        Ok(usize::try_from(self.value_bytes.unwrap_or(default))?)
    }
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut report = Report::new();
    report.fact("eviction", options.eviction.name().to_owned());
    report.open()?;
    let measure = match options.what {
        Experiment::Time => time::measure,
        Experiment::Batch => batch::measure,
        Experiment::Scaling => scaling::measure,
        Experiment::Mixes => mixes::measure,
        Experiment::Growth => growth::measure,
        Experiment::Expiry => expiry::measure,
        Experiment::Overwrite => overwrite::measure,
    };
    measure(&options, &mut report)?;
    report.close(options.json.as_deref())
}
