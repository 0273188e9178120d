//! The flags of `simulate`.
//!
//! Where: a part of `flags`. Invariant: `--help` shows the default of each flag.

use super::drawn::KEYS_MAX;
use crate::words::values::{number, one, or};
use crate::workload::Workload;
use simulate::contestant::SimulatedPolicy;
use simulate::engine::{Budget, Settings};
use simulate::jobs;
use simulate::size::CacheSize;
use simulate::sizes::Items;
use simulate::trace::REQUESTS_MAX;
use std::path::PathBuf;
use std::thread::available_parallelism;

/// Maximum number of threads, which no machine's number of cores exceeds.
const THREADS_MAX: usize = 1024;
const COPIES_MAX: u32 = 1 << 16;
const SEGMENTS_MAX: u32 = 1 << 20;
/// Maximum of `--ghost`, the number of evicted keys that a policy remembers per item in the cache.
/// With the maximum, a policy remembers practically all keys.
const GHOST_MAX: f64 = 16.0;

const ABOUT: &str = "\
Replays traces against simulated caches, and compares the misses of each
eviction policy with the misses of LRU. After each miss, the cache stores the
key. Without a recorded trace, the requests are drawn from a workload.

Hypostyle's policies run in a model of its store, which has segments, two
queues, a ghost queue, two-bit counters and compaction. The other policies are
simulated exactly, item by item.";

/// The settings of a simulation.
#[derive(Debug, clap::Args)]
#[command(before_help = ABOUT)]
pub struct Plan {
    /// Traces to replay: files of key numbers (little-endian u32, compressed with zstd), or
    /// cache-trace CSV files as for `run --trace`, of which only the gets are replayed
    #[arg(required_unless_present = "workload_name", value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Workload to draw requests from: the name of a preset of `run`, or the path of a TOML file;
    /// only the gets are simulated
    #[arg(long = "workload", short, value_name = "NAME")]
    pub workload_name: Option<String>,
    /// The workload, with the number of keys applied.
    #[arg(skip)]
    pub workload: Option<Box<Workload>>,
    /// Number of the workload's keys (default: as in the workload)
    #[arg(long, value_name = "N", value_parser = number(1..=KEYS_MAX))]
    pub keys: Option<u64>,
    /// Number of requests that are drawn from the workload
    #[arg(long, value_name = "N", value_parser = number(1..=REQUESTS_MAX as u64))]
    #[arg(default_value = "1m")]
    pub requests: u64,
    /// Seed of the drawn requests: the same seed draws the same requests
    #[arg(long, value_name = "N", value_parser = number(0..=u64::MAX), default_value = "1")]
    pub seed: u64,
    /// Sizes of the caches, in percent of the distinct keys (1%), in items (5000) or in bytes (64m)
    #[arg(long, short, value_name = "LIST", default_value = "0.3%,1%,3%,10%,30%")]
    #[arg(value_parser = one::<CacheSize>, value_delimiter = ',', action = clap::ArgAction::Set)]
    pub sizes: Vec<CacheSize>,
    /// Policies to simulate: lru, memcached, clock, sieve, arc, lirs, belady; Hypostyle's own:
    /// fifo, nbq-clock, s3-fifo, clock2q. With the prefix `live:`, as in `live:fifo`, a policy of
    /// Hypostyle runs in the real store, whose size is limited in bytes (default: all policies,
    /// without this prefix)
    #[arg(long = "policies", short = 'p', value_name = "LIST", hide_default_value = true)]
    #[arg(value_parser = one::<SimulatedPolicy>)]
    #[arg(value_delimiter = ',', action = clap::ArgAction::Set)]
    #[arg(default_values_t = SimulatedPolicy::all())]
    pub contestants: Vec<SimulatedPolicy>,
    /// Sizes of items: `equal`, one size for all items; KEY/VALUE in bytes, as in 20/20 or
    /// 30/1-100; or `etc`, the sizes of Facebook's ETC pool. In a range, a hash of the key's number
    /// chooses the size
    #[arg(long, short, value_name = "SIZES", default_value = "equal")]
    pub items: Items,
    /// Number of segments of Hypostyle's store; `item` means one segment per item
    #[arg(long, value_name = "N", default_value = "256")]
    #[arg(value_parser = or("item", None, segments))]
    pub segments: std::option::Option<u32>,
    /// The memory that counts as the cache of Hypostyle's policies: with `memory`, all segments,
    /// also the free ones, as in the server; with `live`, only live items, which shows the policy
    /// without the effect of segments
    #[arg(long, value_name = "WHAT", value_parser = budget, default_value = "memory")]
    pub budget: Budget,
    /// Number of evicted keys that Hypostyle's policies remember for each item in the cache
    #[arg(long, value_name = "PART")]
    #[arg(value_parser = number(0.0..=GHOST_MAX), default_value = "0.71")]
    pub ghost: f64,
    /// Share of the hits that are followed by a set, which stores the value again
    #[arg(long = "set-ratio", value_name = "PART", value_parser = percent, default_value = "0")]
    pub set_percent: u64,
    /// Turn each request of the trace into this many requests in a row, each for a different key
    #[arg(long, value_name = "N", value_parser = number(1..=COPIES_MAX), default_value = "1")]
    pub copies: u32,
    /// Number of simulations that run at a time (default: one per core)
    #[arg(long, short, value_name = "N", value_parser = number(1..=THREADS_MAX))]
    #[arg(default_value_t = available_parallelism().map_or(1, usize::from))]
    #[arg(hide_default_value = true)]
    pub threads: usize,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// Draw a chart of the miss ratio against the cache size, for each trace, into this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

fn segments(text: &str) -> Result<Option<u32>, String> {
    number(1..=SEGMENTS_MAX)(text).map(Some)
}

fn budget(text: &str) -> Result<Budget, String> {
    match text {
        "memory" => Ok(Budget::Memory),
        "live" => Ok(Budget::Live),
        _ => Err(format!("must be memory or live, not {text}")),
    }
}

/// Converts a fraction to percent, rounded to an integer.
fn percent(text: &str) -> Result<u64, String> {
    let least = number(0.0..=1.0)(text)? * 100.0 - 0.5;
    Ok((0..100_u8).find(|whole| f64::from(*whole) >= least).map_or(100, u64::from))
}

impl Plan {
    /// Puts the baseline policy first, and checks that the flags agree with each other.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.contestants.retain(|contestant| *contestant != SimulatedPolicy::BASELINE);
        self.contestants.insert(0, SimulatedPolicy::BASELINE);
        if let Some(name) = &self.workload_name {
            let mut drawn = Workload::named(name).map_err(|why| format!("--workload: {why}"))?;
            if let Some(keys) = self.keys {
                drawn.set("keys", &keys.to_string()).map_err(|error| error.to_string())?;
            }
            drawn.check().map_err(|error| error.to_string())?;
            self.workload = Some(Box::new(drawn));
        }
        if !self.items.is_equal() {
            return Ok(());
        }
        if let Some(size) = self.sizes.iter().find(|size| size.is_bytes()) {
            return Err(format!(
                "--sizes {size}: a cache size in bytes needs the sizes of items; give --items"
            ));
        }
        let is_live =
            |contestant: &&SimulatedPolicy| matches!(contestant, SimulatedPolicy::Live(_));
        match self.contestants.iter().find(is_live) {
            Some(live) => {
                Err(format!("--policies {live}: the real store needs sizes of items; give --items"))
            }
            None => Ok(()),
        }
    }

    /// Returns the plan of the simulation.
    pub(crate) fn jobs_plan(&self) -> jobs::Plan {
        jobs::Plan {
            sizes: self.sizes.clone(),
            policies: self.contestants.clone(),
            items: self.items.clone(),
            settings: Settings { segments: self.segments, budget: self.budget, ghost: self.ghost },
            set_percent: self.set_percent,
            copies: self.copies,
            threads: self.threads,
        }
    }
}

/// Returns a plan in which all flags have their defaults.
#[cfg(test)]
pub(crate) fn plan() -> Plan {
    tests::planned("a")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Verb;
    use crate::flags::tests::{parse_words, refused};

    pub(super) fn planned(words: &str) -> Plan {
        match parse_words(&format!("simulate {words}")).unwrap() {
            Verb::Simulate(plan) => plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_flag_does_what_it_says() {
        let plan = planned("a.zst -s 1%,64m -i etc --segments item --budget live --ghost 1 b.zst");
        assert_eq!(plan.traces.len(), 2);
        assert_eq!((plan.items, plan.sizes.len()), (Items::Etc, 2));
        assert_eq!((plan.segments, plan.budget), (None, Budget::Live));
        let plan = planned("a --set-ratio 0.3 --copies 7 -t 3 --json --svg b.svg --segments 64");
        assert_eq!((plan.set_percent, plan.copies, plan.threads), (30, 7, 3));
        assert!(plan.json && plan.svg.is_some());
        assert_eq!(plan.segments, Some(64));
        let plan = planned("-w mix-a --keys 5k --requests 2m --seed 7");
        assert_eq!(plan.workload.map(|drawn| drawn.keys()), Some(5000));
        assert_eq!((plan.requests, plan.seed, plan.traces.len()), (2_000_000, 7, 0));
    }

    #[test]
    fn lru_is_always_there_and_first() {
        let names =
            |plan: Plan| plan.contestants.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(planned("a -p sieve,lru,fifo")), ["lru", "sieve", "fifo"]);
        assert_eq!(planned("a").contestants, SimulatedPolicy::all());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let rows = [
            ("", "not provided: <TRACE>..."),
            ("a -s 0", "--sizes"),
            ("a -s 64m", "--items"),
            ("a -p lfu", "no policy called lfu"),
            ("a -p live", "--items"),
            ("a --segments 0", "--segments"),
            ("a --set-ratio 2", "--set-ratio"),
            ("a --ghost nan", "--ghost"),
            ("a --copies", "--copies"),
            ("a --speed", "--speed"),
            ("-w mix-d", "--workload: mix-d is neither a preset"),
        ];
        refused("simulate", &rows);
    }

    #[test]
    fn help_has_every_policy() {
        let help = parse_words("simulate --help").unwrap_err();
        for contestant in SimulatedPolicy::all() {
            assert!(help.contains(&contestant.to_string()), "{contestant}");
        }
    }
}
