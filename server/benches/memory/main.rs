//! Memory per item, and items and misses at equal memory, of hypostyle and memcached, both live.
//!
//! Where: outside the cache; it starts both servers and stores into them.
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

/// Resident memory of hypostyle against memcached, which MEMCACHED= names, or the first on PATH.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    what: What,
    /// Lengths of keys and values (default: all three; hits: 20/20 and etc)
    #[arg(long = "mix", value_enum, value_delimiter = ',')]
    named_mixes: Vec<Mix>,
    /// density: items stored, in 5 steps that double; fills: the eight are from half of it on,
    /// each 2^(1/8) times the one before
    #[arg(long, default_value_t = 2_222_976)]
    pub(crate) items: u32,
    /// -m of the subject (default 128; hits: 64; overwrite: 256); large: 2 to what the machine has
    #[arg(long = "memory-mb", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    named_memory_mb: Option<u32>,
    /// fills, items, hits: waits at most this many seconds for huge pages, where the system is to
    /// put them: khugepaged takes 16 MiB every 10 seconds, of all processes
    #[arg(long = "settle", default_value = "300", value_parser = real(0.0, 600.0))]
    settle_seconds: f64,
    /// hits: key numbers, u32 little-endian; zstd if the name ends in .zst
    #[arg(long = "trace", value_delimiter = ',')]
    pub(crate) traces: Vec<PathBuf>,
    /// hits: only this many requests of each trace
    #[arg(long)]
    pub(crate) requests: Option<u32>,
    /// hits: share of all keys that the rival holds; each number of the trace becomes as many keys
    /// as that takes
    #[arg(long, default_value = "0.1", value_parser = real(0.0001, 1.0))]
    pub(crate) part: f64,
    /// large: one value in this number is of 1 MiB
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,
    /// overwrite: megabytes of values
    #[arg(long, default_value_t = 78, value_parser = clap::value_parser!(u32).range(1..=4095))]
    pub(crate) live_mb: u32,
    /// overwrite: their mean length; they differ by an eighth
    #[arg(long, default_value_t = 16 << 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=900_000))]
    pub(crate) value_bytes: u32,
    /// large: the lower limit (default: a quarter)
    #[arg(long)]
    pub(crate) down_mb: Option<u32>,
    /// large: the limit must be kept after this many seconds
    #[arg(long, default_value_t = 120)]
    pub(crate) seconds_max: u32,
    /// Measure this server instead of hypostyle
    #[arg(long)]
    subject: Option<PathBuf>,
    /// Further arguments of the subject, separated by spaces
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    subject_args: String,
    /// Further arguments of memcached
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    rival_args: String,
    /// The result as JSON too
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Bytes an item takes beyond key and value: the slope of resident memory over items; with and
    /// without exptime, client flags and CAS uniques
    Density,
    /// Resident memory with the same items, all of it, at eight fills between two doublings: what
    /// it comes to for an item, and the worst fill for the subject
    Fills,
    /// Items held at equal resident memory, after all memory was replaced once; and where each byte
    /// of the subject's is
    Items,
    /// Misses at equal resident memory, with a real order of keys: what misses is stored; lengths
    /// of keys and values are drawn from a hash of the key's number
    Hits,
    /// One server alone: values of 100 B and of 1 MiB past what its memory holds, then
    /// cache_memlimit to less, then flush_all; fails at the first refused value, at too much
    /// resident memory, and where less than 3 GiB remain to the machine
    Large,
    /// Values that fit, each overwritten ten times in no order: resident memory, CPU time and page
    /// faults a SET
    Overwrite,
}

/// One of the two servers.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) extra: Vec<String>,
}

impl Options {
    /// Returns the subject and the rival.
    pub(crate) fn sides(&self) -> Outcome<[Side; 2]> {
        let side = |name, program, extra: &str| {
            let extra = extra.split_whitespace().map(str::to_owned).collect();
            Side { name, program, extra }
        };
        let program = subject(self.subject.as_ref())?;
        let subject = side("subject", program, &self.subject_args);
        Ok([subject, side("rival", memcached(), &self.rival_args)])
    }

    /// The mixes of key and value lengths.
    pub(crate) fn mixes(&self) -> &[Mix] {
        match (self.what, self.named_mixes.as_slice()) {
            (What::Hits, []) => &[Mix::Small, Mix::Etc],
            (_, []) => &[Mix::Small, Mix::Varied, Mix::Etc],
            (_, named) => named,
        }
    }

    /// `-m` of the subject.
    pub(crate) fn memory_mb(&self) -> u32 {
        self.named_memory_mb.unwrap_or(match self.what {
            What::Hits => 64,
            What::Overwrite => 256,
            _ => 128,
        })
    }

    /// Longest wait for huge pages.
    pub(crate) fn settle(&self) -> Duration {
        Duration::from_secs_f64(self.settle_seconds)
    }
}

fn main() -> ExitCode {
    measure::run(run)
}

fn run(options: Options) -> Outcome<()> {
    let mut report = Report::new();
    for side in &options.sides()? {
        let version = version_of(&side.program)?;
        report.fact(side.name, format!("{version} {}", side.extra.join(" ")));
    }
    report.open()?;
    let measure = match options.what {
        What::Density => density::measure,
        What::Fills => fills::measure,
        What::Items => equal::measure,
        What::Hits => hits::measure,
        What::Large => large::measure,
        What::Overwrite => overwrite::measure,
    };
    measure(&options, &mut report)?;
    report.close(options.json.as_deref())
}
