//! Compares hypostyle and memcached: memory per item, and items and misses with equal memory.
//!
//! Where: outside the cache; the program starts both servers and sends them requests.
//! Invariant: memory is resident memory of the whole process, as the system counts it.

mod density;
mod equal;
mod feeder;
mod fills;
mod hits;
mod large;
#[path = "../measure/mod.rs"]
mod measure;
mod overwrite;
mod sizes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use measure::launched::{memcached, subject, version_of};
use measure::report::Report;
use measure::{Outcome, real};
use sizes::Mix;

/// Compares the resident memory of hypostyle (the subject) and memcached (the rival). The variable
/// MEMCACHED names memcached's program; without it, the program is the first memcached on PATH.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    what: Experiment,
    /// Lengths of keys/values in bytes, or the ETC pool (default: all three; hits: 20/20 and etc)
    #[arg(long = "mix", value_enum, value_delimiter = ',')]
    named_mixes: Vec<Mix>,
    /// density: number of items at the last of 5 points (each point has twice the items of the
    /// point before it); fills: twice the number of items of the first of 8 fills (each fill has
    /// 2^(1/8) times the items of the fill before it)
    #[arg(long, default_value_t = 2_222_976)]
    pub(crate) items: u32,
    /// -m of the subject, in megabytes (default: 128; hits: 64; overwrite: 256)
    #[arg(long = "memory-mb", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    named_memory_mb: Option<u32>,
    /// fills, items, hits: longest wait for the system to form huge pages, in seconds; khugepaged
    /// scans 16 MiB every 10 seconds, over all processes
    #[arg(long = "settle", default_value = "300", value_parser = real(0.0, 600.0))]
    settle_seconds: f64,
    /// hits: file with the numbers of the requested keys, as little-endian u32; compressed by zstd
    /// if its name ends in .zst
    #[arg(long = "trace", value_delimiter = ',')]
    pub(crate) traces: Vec<PathBuf>,
    /// hits: number of requests to take from each trace (default: all)
    #[arg(long)]
    pub(crate) requests: Option<u32>,
    /// hits: share of all keys that the rival can hold; if a trace has too few keys for this share,
    /// each of its numbers stands for several keys
    #[arg(long, default_value = "0.1", value_parser = real(0.0001, 1.0))]
    pub(crate) part: f64,
    /// large: one value in N is 1 MiB long; this option is N
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,
    /// overwrite: total length of the values, in megabytes
    #[arg(long, default_value_t = 78, value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub(crate) live_mb: u32,
    /// overwrite: mean length of the values, which vary by up to an eighth
    #[arg(long, default_value_t = 16 << 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=900_000))]
    pub(crate) value_bytes: u32,
    /// large: the lower limit, in megabytes (default: a quarter of -m)
    #[arg(long)]
    pub(crate) down_mb: Option<u32>,
    /// large: time within which the server must comply with the lower limit, in seconds
    #[arg(long, default_value_t = 120)]
    pub(crate) seconds_max: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Further arguments of the subject, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    subject_args: String,
    /// Further arguments of memcached, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    rival_args: String,
    /// Also write the result to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Experiment {
    /// Bytes that an item takes in addition to key and value (how much resident memory grows with
    /// each item), with and without exptime, client flags and CAS uniques
    Density,
    /// Resident memory per item with the same items in both servers, at eight numbers of items, and
    /// at the number that is worst for the subject
    Fills,
    /// Number of items that each server holds in equal resident memory, after it has evicted as
    /// many items as it holds; and the uses of the subject's memory
    Items,
    /// Misses in equal resident memory, when a trace of keys is replayed; a key that misses is
    /// stored. A hash of a key's number determines the lengths of the key and its value
    Hits,
    /// The subject alone: gets more values of 100 B and 1 MiB than fit, then a lower
    /// cache_memlimit, then flush_all. Fails if the subject refuses a value or has too much
    /// resident memory, or if less than 3 GiB of the machine's memory is available
    Large,
    /// Values that fit and are overwritten at random, each ten times on average: resident memory,
    /// and CPU time and page faults per SET
    Overwrite,
}

pub(crate) struct TestedServer {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) extra: Vec<String>,
}

impl Options {
    pub(crate) fn tested_servers(&self) -> Outcome<[TestedServer; 2]> {
        let tested = |name, program, extra: &str| {
            let extra = extra.split_whitespace().map(str::to_owned).collect();
            TestedServer { name, program, extra }
        };
        let program = subject(self.subject.as_ref());
        let subject = tested("subject", program, &self.subject_args);
        Ok([subject, tested("rival", memcached(), &self.rival_args)])
    }

    pub(crate) fn mixes(&self) -> &[Mix] {
        match (self.what, self.named_mixes.as_slice()) {
            (Experiment::Hits, []) => &[Mix::Small, Mix::Etc],
            (_, []) => &[Mix::Small, Mix::Varied, Mix::Etc],
            (_, named) => named,
        }
    }

    pub(crate) fn memory_mb(&self) -> u32 {
        self.named_memory_mb.unwrap_or(match self.what {
            Experiment::Hits => 64,
            Experiment::Overwrite => 256,
            _ => 128,
        })
    }

    pub(crate) fn settle(&self) -> Duration {
        Duration::from_secs_f64(self.settle_seconds)
    }
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut report = Report::new();
    for tested in &options.tested_servers()? {
        let version = version_of(&tested.program)?;
        report.fact(tested.name, format!("{version} {}", tested.extra.join(" ")));
    }
    report.open()?;
    let measure = match options.what {
        Experiment::Density => density::measure,
        Experiment::Fills => fills::measure,
        Experiment::Items => equal::measure,
        Experiment::Hits => hits::measure,
        Experiment::Large => large::measure,
        Experiment::Overwrite => overwrite::measure,
    };
    measure(&options, &mut report)?;
    report.close(options.json.as_deref())
}
