//! The store alone, in process: what its operations cost, and what it does with its memory.
//!
//! Where: outside the cache; no sockets, no protocol.
//! Invariant: time is CPU time of the thread that works, so that others on the machine disturb a
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

use measure::in_process::{self, KEYS_END, VALUE_BYTES_MAX, eviction_name};
use measure::options::{each, one_of, unknown, whole, wholes};
use measure::report::{Report, say};
use measure::{Outcome, fail};
use store::policy::Eviction;

/// Most operations and rounds.
const OPS_MAX: u32 = 1_000_000_000;
/// Most megabytes of a store.
const MEMORY_MB_MAX: u32 = 1_048_576;
/// Most columns.
const COLUMNS_MAX: u32 = 256;

const USAGE: &str = "\
usage: cargo bench --bench store -- [time|batch|scaling|mixes|growth|expiry|overwrite] [options]
The store in process. Keys have 36 bytes. Defaults differ by what is measured, in this order:

  time               CPU time of each operation, one by one (this, if nothing is named)
  batch              GETs prefetched together against one by one, in a store larger than caches
  scaling            GETs of several columns against one: same keys, and disjoint keys
  mixes              70 % GET, 25 % SET, 5 % DELETE with eviction, against GETs that hit
  growth             the worst single insert from nothing to --keys items, memory touched before
  expiry             items with exptimes up to a day: when their memory is free, and at what cost
  overwrite          a working set that fits, overwritten for ever: evictions, compaction

  --keys N,N         keys stored (time: 100000,2000000; scaling: 1000000; mixes: 1000000; growth,
                     expiry: 10000000; batch, overwrite: as many as fit)
  --value-bytes N    length of each value (64; growth, expiry: 20)
  --memory-mb N      the store (batch: 4096, less where memory lacks; overwrite: 256)
  --ops N            operations per round (2000000; overwrite: for each key, 10)
  --rounds N         rounds (time: 7; growth: 3); elsewhere pairs (9)
  --only TEXT        time: only operations whose name has TEXT in it
  --together N       batch: GETs prefetched together (32)
  --columns N,N      scaling: columns (1,2: one against one
                     tells how far figures can be trusted); mixes: columns (1)
  --ttl NAME         expiry: exptimes log (each scale as likely) or even (log)
  --live-percent N,N overwrite: live bytes and index, of all memory (85,90,93)
  --hot-percent N    overwrite: of ten SETs nine are of so many of the keys (100: all alike)
  --sizes NAME       overwrite: same, random (1 to twice --value-bytes) or both (both)
  --eviction NAME    policy (the server's default)
  --json FILE        the result as JSON too
";

/// What to measure. What is `None` has a default of its own in each measurement.
pub(crate) struct Options {
    what: What,
    pub(crate) keys: Option<Vec<u32>>,
    pub(crate) value_bytes: Option<u32>,
    pub(crate) memory_mb: Option<u32>,
    pub(crate) ops: Option<u32>,
    pub(crate) rounds: Option<u32>,
    pub(crate) only: String,
    pub(crate) together: u32,
    pub(crate) columns: Option<Vec<u32>>,
    pub(crate) ttl: Ttl,
    pub(crate) live_percent: Vec<u32>,
    pub(crate) hot_percent: u32,
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) eviction: Eviction,
    json: Option<PathBuf>,
}

/// How exptimes are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    Log,
    Even,
}

/// What an item is overwritten with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sizes {
    Same,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Time,
    Batch,
    Scaling,
    Mixes,
    Growth,
    Expiry,
    Overwrite,
}

impl What {
    const ALL: [(&'static str, What); 7] = [
        ("time", What::Time),
        ("batch", What::Batch),
        ("scaling", What::Scaling),
        ("mixes", What::Mixes),
        ("growth", What::Growth),
        ("expiry", What::Expiry),
        ("overwrite", What::Overwrite),
    ];
}

impl Options {
    /// The number of keys, where there is one.
    pub(crate) fn keys_or(&self, default: u32) -> u32 {
        self.keys.as_ref().and_then(|keys| keys.first().copied()).unwrap_or(default)
    }

    /// The length of values.
    pub(crate) fn value_bytes_or(&self, default: u32) -> Outcome<usize> {
        Ok(usize::try_from(self.value_bytes.unwrap_or(default))?)
    }
}

fn main() -> ExitCode {
    measure::run("store", run)
}

fn run() -> Outcome<()> {
    let Some(options) = parse()? else { return say(USAGE) };
    let mut report = Report::of("store")?;
    report.fact("eviction", eviction_name(options.eviction).to_owned());
    report.open()?;
    match options.what {
        What::Time => time::measure(&options, &mut report)?,
        What::Batch => batch::measure(&options, &mut report)?,
        What::Scaling => scaling::measure(&options, &mut report)?,
        What::Mixes => mixes::measure(&options, &mut report)?,
        What::Growth => growth::measure(&options, &mut report)?,
        What::Expiry => expiry::measure(&options, &mut report)?,
        What::Overwrite => overwrite::measure(&options, &mut report)?,
    }
    report.close(options.json.as_deref())
}

fn parse() -> Outcome<Option<Options>> {
    let mut options = Options {
        what: What::Time,
        keys: None,
        value_bytes: None,
        memory_mb: None,
        ops: None,
        rounds: None,
        only: String::new(),
        together: 32,
        columns: None,
        ttl: Ttl::Log,
        live_percent: vec![85, 90, 93],
        hot_percent: 100,
        sizes: vec![Sizes::Same, Sizes::Random],
        eviction: Eviction::default(),
        json: None,
    };
    let mut words: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if words.first().is_some_and(|word| !word.starts_with('-')) {
        options.what = one_of("what", &words.remove(0), &What::ALL)?;
    }
    let go = each(words, &[], |name, value| options.take(name, value))?;
    Ok(go.then_some(options))
}

impl Options {
    fn take(&mut self, name: &str, value: &str) -> Outcome<()> {
        let count = |max: u32| whole(name, value, max);
        match name {
            "--keys" => self.keys = Some(wholes(name, value, KEYS_END / 2)?),
            "--value-bytes" => self.value_bytes = Some(count(VALUE_BYTES_MAX / 2)?),
            "--memory-mb" => self.memory_mb = Some(count(MEMORY_MB_MAX)?),
            "--ops" => self.ops = Some(count(OPS_MAX)?),
            "--rounds" => self.rounds = Some(count(OPS_MAX)?),
            "--only" => self.only = value.to_owned(),
            "--together" => self.together = count(1_000)?,
            "--columns" => self.columns = Some(wholes(name, value, COLUMNS_MAX)?),
            "--ttl" => {
                self.ttl = one_of(name, value, &[("log", Ttl::Log), ("even", Ttl::Even)])?;
            }
            "--hot-percent" => self.hot_percent = count(100)?.max(1),
            "--live-percent" => self.live_percent = wholes(name, value, 100)?,
            "--sizes" => {
                self.sizes = match value {
                    "both" => vec![Sizes::Same, Sizes::Random],
                    "same" => vec![Sizes::Same],
                    "random" => vec![Sizes::Random],
                    _ => return fail(format!("{name}: {value:?} is none of same, random, both")),
                }
            }
            "--eviction" => self.eviction = in_process::eviction(name, value)?,
            "--json" => self.json = Some(value.into()),
            _ => return unknown(name),
        }
        Ok(())
    }
}
