//! The settings of a workload: one table that flags, files, `--help` and manifests share.
//!
//! Where: before a run. Invariant: a setting reads back what it prints as the same.

use super::draw::Whole;
use super::gaps::{Gap, Pace};
use super::law::{Law, Usage};
use super::listed::Listed;
use super::mix::Mix;
use super::popularity::{Popularity, Table};
use super::replay::Replay;
use super::{BATCH_MAX, EXPTIME_S_MAX, KEYS_MAX, VALUE_BYTES_MAX, Workload, WorkloadError};
use crate::words::written_out;
use std::path::Path;
use std::sync::Arc;

/// One setting: `--NAME VALUE`, or `NAME = VALUE` in a file.
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// The placeholder of its value in `--help`.
    pub value: &'static str,
    /// Its help.
    pub help: &'static str,
    /// Changes it; paths are relative to the given folder.
    pub(crate) set: fn(&mut Workload, &str, &Path) -> Result<(), WorkloadError>,
    /// Prints it; none if it is not set.
    pub(crate) get: fn(&Workload) -> Option<String>,
}

/// Most times that a trace is replayed.
const LOOPS_MAX: u64 = 1 << 32;
/// Most bytes of a prefix, so that a number fits behind it.
const PREFIX_BYTES_MAX: usize = 200;

pub(crate) const KEY_SIZE: Usage = Usage {
    etc: Some(["gev:30.7984,8.20449,0.078688,1,250"; 2]),
    ..Usage::whole("key-size", "bytes", 1.0, 250.0)
};
pub(crate) const VALUE_SIZE: Usage = Usage {
    etc: Some(["pareto:214.476,0.348238,64,1024", "pareto:0.348238,214.476,64,1024"]),
    ..Usage::whole("value-size", "bytes", 0.0, VALUE_BYTES_MAX as f64)
};
const BATCH: Usage = Usage::whole("batch", "keys", 1.0, BATCH_MAX as f64);
const TTL: Usage = Usage::whole("ttl", "seconds", 0.0, EXPTIME_S_MAX as f64);

/// A row of a distribution.
macro_rules! drawn {
    ($usage:expr, $field:ident, $help:expr) => {
        Setting {
            name: $usage.name,
            value: "HOW",
            help: $help,
            set: |to, text, base| Drawn::parse(text, &$usage, base).map(|law| to.$field = law),
            get: |of| Some(of.$field.law.to_string()),
        }
    };
}

/// A row of two words, of which the first is the default.
macro_rules! either {
    ($name:literal, $no:literal, $yes:literal, $field:ident, $help:expr) => {
        Setting {
            name: $name,
            value: concat!($no, "|", $yes),
            help: $help,
            set: |to, text, _| either($name, text, [$no, $yes]).map(|is| to.$field = is),
            get: |of| Some([$no, $yes][usize::from(of.$field)].to_owned()),
        }
    };
}

/// All settings.
pub const SETTINGS: [Setting; 19] = [
    Setting {
        name: "keys",
        value: "N",
        help: "How many keys there are, 1 to 2^40",
        set: |to, text, _| {
            let keys = count("keys", text, 1, KEYS_MAX)?;
            let drawn = to.listed.as_ref().map_or(keys, |listed| listed.keys());
            to.table = table("keys", text, &to.popularity, drawn)?;
            to.keys = keys;
            Ok(())
        },
        get: |of| Some(of.keys.to_string()),
    },
    Setting {
        name: "key-file",
        value: "PATH",
        help: "The keys themselves, one a line, the most popular first, as many as there are; \
               keys, key-size and key-prefix are not asked then",
        set: |to, text, base| {
            let listed = Listed::read(&base.join(text))?;
            to.table = table("key-file", text, &to.popularity, listed.keys())?;
            to.listed = Some(Arc::new(listed));
            Ok(())
        },
        get: |of| of.listed.as_ref().map(|listed| listed.path.display().to_string()),
    },
    Setting {
        name: "population-seed",
        value: "N",
        help: "Which keys are popular, and the sizes and bytes of each key and value (default 1); \
               with another --seed the requests are another sample of the same population",
        set: |to, text, _| {
            count("population-seed", text, 0, u64::MAX).map(|seed| to.population_seed = seed)
        },
        get: |of| Some(of.population_seed.to_string()),
    },
    Setting {
        name: "popularity",
        value: "WHICH",
        help: "How often each key is asked for (below)",
        set: |to, text, base| {
            let popularity = Popularity::parse(text, base)?;
            to.table = table("popularity", text, &popularity, to.drawn_keys())?;
            to.popularity = popularity;
            Ok(())
        },
        get: |of| Some(of.popularity.to_string()),
    },
    either!(
        "keys-per",
        "run",
        "connection",
        per_connection,
        "Do all connections ask for all keys, or each for an equal part of its own?"
    ),
    drawn!(
        KEY_SIZE,
        key_size,
        "Bytes of a key, 1 to 250 (below); longer where its number does not fit in"
    ),
    Setting {
        name: "key-prefix",
        value: "TEXT",
        help: "What every key begins with; it counts as part of the size",
        set: |to, text, _| {
            let is_fit = |byte: u8| (0x21..=0x7e).contains(&byte);
            if text.len() > PREFIX_BYTES_MAX || !text.bytes().all(is_fit) {
                let why = "must be at most 200 printable bytes without spaces";
                return Err(WorkloadError(format!("key-prefix: {text}: {why}")));
            }
            to.key_prefix = text.to_owned();
            Ok(())
        },
        get: |of| (!of.key_prefix.is_empty()).then(|| of.key_prefix.clone()),
    },
    drawn!(VALUE_SIZE, value_size, "Bytes of a value, 0 to 2^27 (below)"),
    either!(
        "value-size-per",
        "key",
        "request",
        size_per_request,
        "Is a value's size drawn once for its key, or anew for each request?"
    ),
    Setting {
        name: "mix",
        value: "VERB=SHARE,...",
        help: "Shares of get, set, delete, append, add and replace; a multiget counts as its keys. \
               Or file:PATH",
        set: |to, text, base| Mix::parse(text, base).map(|mix| to.mix = mix),
        get: |of| Some(of.mix.to_string()),
    },
    either!(
        "mix-order",
        "drawn",
        "dealt",
        is_dealt,
        "Are verbs drawn at random, or dealt in turn as evenly as their shares allow?"
    ),
    either!(
        "set-order",
        "drawn",
        "oldest",
        sets_oldest,
        "Are the keys of sets drawn like those of gets, or is it the turn of the one that was set \
         longest ago?"
    ),
    drawn!(BATCH, batch, "Keys that one get asks for, 1 to 1024 (below)"),
    Setting {
        name: "gap",
        value: "HOW",
        help: "The shape of the times between requests, in an open loop (below)",
        set: |to, text, base| {
            let gap = Gap::parse(text, base)?;
            let pace = Pace::new(&gap).ok_or_else(|| no_table("gap", text))?;
            (to.gap, to.pace) = (gap, pace);
            Ok(())
        },
        get: |of| Some(of.gap.to_string()),
    },
    drawn!(TTL, ttl, "Seconds that what is written lives, 0 (for ever) to 30 days (below)"),
    Setting {
        name: "cache-aside",
        value: "yes|no",
        help: "Is a get that misses followed by a set of that key, as applications do?",
        set: |to, text, _| {
            let text = text.replace("true", "yes").replace("false", "no");
            either("cache-aside", &text, ["no", "yes"]).map(|is| to.cache_aside = is)
        },
        get: |of| Some(of.cache_aside.to_string()),
    },
    Setting {
        name: "trace",
        value: "PATH",
        help: "Replays a trace: numbers of keys (.u32.zst), to which the mix, sizes and ttl \
               of this workload are added; or a cache-trace CSV (timestamp, key, key size, value \
               size, client, operation, ttl; plain or .zst), which has its own",
        set: |to, text, base| {
            let replay = Replay::read(&base.join(text), to.trace_requests);
            replay.map(|replay| to.trace = Some(Arc::new(replay)))
        },
        get: |of| of.trace.as_ref().map(|trace| trace.path.display().to_string()),
    },
    Setting {
        name: "trace-requests",
        value: "N",
        help: "Takes only this many requests from the beginning of the trace; 0: all",
        set: |to, text, _| {
            let requests = count("trace-requests", text, 0, u64::MAX)?;
            if let Some(trace) = &to.trace {
                to.trace = Some(Arc::new(Replay::read(&trace.path, requests)?));
            }
            to.trace_requests = requests;
            Ok(())
        },
        get: |of| (of.trace_requests > 0).then(|| of.trace_requests.to_string()),
    },
    Setting {
        name: "trace-loops",
        value: "N",
        help: "Replays the trace this many times; 0: until the run ends (default 1)",
        set: |to, text, _| {
            count("trace-loops", text, 0, LOOPS_MAX).map(|loops| to.trace_loops = loops)
        },
        get: |of| of.trace.is_some().then(|| of.trace_loops.to_string()),
    },
];

/// The names of all settings.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name)
}

/// A law and its sampler.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) law: Law,
    pub(crate) whole: Whole,
}

impl Drawn {
    fn parse(text: &str, usage: &Usage, base: &Path) -> Result<Drawn, WorkloadError> {
        let law = Law::parse(text, usage, base)?;
        let whole = Whole::new(&law).ok_or_else(|| no_table(usage.name, text))?;
        Ok(Drawn { law, whole })
    }

    pub(crate) fn fixed(value: u32) -> Drawn {
        Drawn { law: Law::Fixed(f64::from(value)), whole: Whole::Fixed(value) }
    }
}

/// Reads a whole number, which may have underscores between its digits, or k, m or g behind them.
fn count(name: &str, text: &str, min: u64, max: u64) -> Result<u64, WorkloadError> {
    let digits = text.replace('_', "");
    let digits = written_out(&digits);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_plain && (min..=max).contains(number));
    number.ok_or_else(|| {
        WorkloadError(format!("{name}: {text}: must be a whole number from {min} to {max}"))
    })
}

/// Reads one of two words; true if it is the second.
fn either(name: &str, text: &str, words: [&str; 2]) -> Result<bool, WorkloadError> {
    let at = words.iter().position(|word| *word == text);
    let wrong = || WorkloadError(format!("{name}: {text}: must be {} or {}", words[0], words[1]));
    at.map(|at| at == 1).ok_or_else(wrong)
}

fn table(
    name: &str,
    text: &str,
    popularity: &Popularity,
    keys: u64,
) -> Result<Arc<Table>, WorkloadError> {
    popularity.table(keys).map(Arc::new).ok_or_else(|| no_table(name, text))
}

fn no_table(name: &str, text: &str) -> WorkloadError {
    WorkloadError(format!("{name}: {text}: has no usable weights"))
}
