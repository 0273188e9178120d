//! The store alone, in process: the cost of its operations, and its use of memory.
//!
//! Where: outside the cache; no sockets, no protocol.
//! Invariant: time is CPU time of the working thread, so that other load affects a figure only
//! through shared caches; each operation's outcome is checked.

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

/// The store in process. Keys have 36 bytes. Defaults differ by what is measured.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    #[arg(default_value = "time")]
    what: What,
    /// Keys stored (time: 100000,2000000; scaling: 1000000; mixes: 1000000; growth, expiry:
    /// 10000000; batch, overwrite: as many as fit)
    #[arg(long, value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(KEYS_END / 2)))]
    pub(crate) keys: Option<Vec<u32>>,
    /// Length of each value (64; growth, expiry: 20)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(VALUE_BYTES_MAX / 2)))]
    pub(crate) value_bytes: Option<u32>,
    /// The store (batch: 4096, less where memory lacks; overwrite: 256)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) memory_mb: Option<u32>,
    /// Operations per round (2000000; overwrite: for each key, 10)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    pub(crate) ops: Option<u32>,
    /// Rounds (time: 7; growth: 3); elsewhere pairs (9)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// time: only operations whose name has this in it
    #[arg(long, default_value = "")]
    pub(crate) only: String,
    /// batch: GETs prefetched together
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) together: u32,
    /// scaling: columns (1,2: one against one tells how far figures can be trusted); mixes:
    /// columns (1)
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) columns: Option<Vec<u32>>,
    /// expiry: how exptimes are drawn
    #[arg(long, value_enum, default_value_t = Ttl::Log)]
    pub(crate) ttl: Ttl,
    /// overwrite: live bytes and index, of all memory
    #[arg(long, value_delimiter = ',', default_value = "85,90,93")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) live_percent: Vec<u32>,
    /// overwrite: nine of ten SETs are of this per cent of the keys (100: all alike)
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) hot_percent: u32,
    /// overwrite: what items are overwritten with
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same,random")]
    pub(crate) sizes: Vec<Sizes>,
    /// Policy
    #[arg(long, default_value = Eviction::default().name(), value_parser = eviction)]
    pub(crate) eviction: Eviction,
    /// The result as JSON too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How exptimes are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ttl {
    /// Each scale as likely
    Log,
    /// Each time as likely
    Even,
}

/// The length of the value that overwrites an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sizes {
    /// The same length
    Same,
    /// Once to twice --value-bytes
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// CPU time of each operation, one by one
    Time,
    /// GETs prefetched together against one by one, in a store larger than caches
    Batch,
    /// GETs of several columns against one: same keys, and disjoint keys
    Scaling,
    /// 70 % GET, 25 % SET, 5 % DELETE with eviction, against GETs that hit
    Mixes,
    /// The worst single insert from nothing to --keys items, memory touched before
    Growth,
    /// Items with exptimes up to a day: when their memory is free, and at what cost
    Expiry,
    /// A working set that fits, overwritten for ever: evictions, compaction
    Overwrite,
}

impl Options {
    /// The first number of `--keys`, or a default.
    pub(crate) fn keys_or(&self, default: u32) -> u32 {
        self.keys.as_ref().and_then(|keys| keys.first().copied()).unwrap_or(default)
    }

    /// The length of values, or a default.
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
        What::Time => time::measure,
        What::Batch => batch::measure,
        What::Scaling => scaling::measure,
        What::Mixes => mixes::measure,
        What::Growth => growth::measure,
        What::Expiry => expiry::measure,
        What::Overwrite => overwrite::measure,
    };
    measure(&options, &mut report)?;
    report.close(options.json.as_deref())
}
