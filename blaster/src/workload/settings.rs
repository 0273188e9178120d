//! The settings of a workload: one table that flags, files, `--help` and manifests share.
//!
//! Where: before a run. Invariant: what a setting prints, it reads back as the same.

use super::draw::Whole;
use super::gaps::{Gap, Pace};
use super::law::{Law, Usage};
use super::listed::Listed;
use super::mix::Mix;
use super::popularity::Popularity;
use super::replay::Replay;
use super::{BATCH_MAX, EXPTIME_S_MAX, KEYS_MAX, VALUE_BYTES_MAX, Workload, WorkloadError};
use crate::words::written_out;
use std::path::Path;
use std::sync::Arc;

/// One setting: `--NAME VALUE`, or `NAME = VALUE` in a file.
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What stands for its value in `--help`.
    pub value: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Changes it; paths are relative to the folder.
    pub(crate) set: fn(&mut Workload, &str, &Path) -> Result<(), WorkloadError>,
    /// Prints it; nothing where it is not set.
    pub(crate) get: fn(&Workload) -> Option<String>,
}

/// The greatest number of times that a trace is replayed.
const LOOPS_MAX: u64 = 1 << 32;
/// Bytes of a prefix, so that a number fits behind it.
const PREFIX_BYTES_MAX: usize = 200;

pub(crate) const KEY_SIZE: Usage = Usage {
    name: "key-size",
    unit: "bytes",
    min: 1.0,
    max: 250.0,
    is_whole: true,
    etc: Some(["gev:30.7984,8.20449,0.078688,1,250"; 2]),
};
pub(crate) const VALUE_SIZE: Usage = Usage {
    name: "value-size",
    unit: "bytes",
    min: 0.0,
    max: VALUE_BYTES_MAX as f64,
    is_whole: true,
    etc: Some(["pareto:214.476,0.348238,64,1024", "pareto:0.348238,214.476,64,1024"]),
};
const BATCH: Usage = Usage {
    name: "batch",
    unit: "keys",
    min: 1.0,
    max: BATCH_MAX as f64,
    is_whole: true,
    etc: None,
};
const TTL: Usage = Usage {
    name: "ttl",
    unit: "seconds",
    min: 0.0,
    max: EXPTIME_S_MAX as f64,
    is_whole: true,
    etc: None,
};

/// All settings.
pub const SETTINGS: [Setting; 19] = [
    Setting {
        name: "keys",
        value: "N",
        help: "How many keys there are, 1 to 2^40",
        set: |to, text, _| {
            let keys = count("keys", text, 1, KEYS_MAX)?;
            let drawn = to.listed.as_ref().map_or(keys, |listed| listed.keys());
            to.table = to.popularity.table(drawn).ok_or_else(|| no_table("keys", text))?.into();
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
            let table = to.popularity.table(listed.keys());
            to.table = table.ok_or_else(|| no_table("key-file", text))?.into();
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
            to.population_seed = count("population-seed", text, 0, u64::MAX)?;
            Ok(())
        },
        get: |of| Some(of.population_seed.to_string()),
    },
    Setting {
        name: "popularity",
        value: "WHICH",
        help: "How often each key is asked for (below)",
        set: |to, text, base| {
            let popularity = Popularity::parse(text, base)?;
            let table = popularity.table(to.drawn_keys());
            let table = table.ok_or_else(|| no_table("popularity", text))?;
            (to.popularity, to.table) = (popularity, Arc::new(table));
            Ok(())
        },
        get: |of| Some(of.popularity.to_string()),
    },
    Setting {
        name: "keys-per",
        value: "run|connection",
        help: "do all connections ask for all keys, or each for an equal part of its own?",
        set: |to, text, _| {
            to.per_connection = either("keys-per", text, ["run", "connection"])?;
            Ok(())
        },
        get: |of| Some(if of.per_connection { "connection" } else { "run" }.to_owned()),
    },
    Setting {
        name: "key-size",
        value: "HOW",
        help: "Bytes of a key, 1 to 250 (below); longer where its number does not fit in",
        set: |to, text, base| {
            to.key_size = Drawn::parse(text, &KEY_SIZE, base)?;
            Ok(())
        },
        get: |of| Some(of.key_size.law.to_string()),
    },
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
    Setting {
        name: "value-size",
        value: "HOW",
        help: "Bytes of a value, 0 to 2^27 (below)",
        set: |to, text, base| {
            to.value_size = Drawn::parse(text, &VALUE_SIZE, base)?;
            Ok(())
        },
        get: |of| Some(of.value_size.law.to_string()),
    },
    Setting {
        name: "value-size-per",
        value: "key|request",
        help: "Is a value's size drawn once for its key, or anew for each request?",
        set: |to, text, _| {
            to.size_per_request = either("value-size-per", text, ["key", "request"])?;
            Ok(())
        },
        get: |of| Some(if of.size_per_request { "request" } else { "key" }.to_owned()),
    },
    Setting {
        name: "mix",
        value: "VERB=SHARE,...",
        help: "Shares of get, set, delete and append; a multiget counts as its keys. Or file:PATH",
        set: |to, text, base| {
            to.mix = Mix::parse(text, base)?;
            Ok(())
        },
        get: |of| Some(of.mix.to_string()),
    },
    Setting {
        name: "mix-order",
        value: "drawn|dealt",
        help: "Are verbs drawn at random, or dealt in turn as evenly as their shares allow?",
        set: |to, text, _| {
            to.is_dealt = either("mix-order", text, ["drawn", "dealt"])?;
            Ok(())
        },
        get: |of| Some(if of.is_dealt { "dealt" } else { "drawn" }.to_owned()),
    },
    Setting {
        name: "set-order",
        value: "drawn|oldest",
        help: "are the keys of sets drawn like those of gets, or is it the turn of the one that was \
               set longest ago?",
        set: |to, text, _| {
            to.sets_oldest = either("set-order", text, ["drawn", "oldest"])?;
            Ok(())
        },
        get: |of| Some(if of.sets_oldest { "oldest" } else { "drawn" }.to_owned()),
    },
    Setting {
        name: "batch",
        value: "HOW",
        help: "Keys that one get asks for, 1 to 1024 (below)",
        set: |to, text, base| {
            to.batch = Drawn::parse(text, &BATCH, base)?;
            Ok(())
        },
        get: |of| Some(of.batch.law.to_string()),
    },
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
    Setting {
        name: "ttl",
        value: "HOW",
        help: "Seconds that what is written lives, 0 (for ever) to 30 days (below)",
        set: |to, text, base| {
            to.ttl = Drawn::parse(text, &TTL, base)?;
            Ok(())
        },
        get: |of| Some(of.ttl.law.to_string()),
    },
    Setting {
        name: "cache-aside",
        value: "yes|no",
        help: "Is a get that misses followed by a set of that key, as applications do?",
        set: |to, text, _| {
            let text = match text {
                "true" => "yes",
                "false" => "no",
                _ => text,
            };
            to.cache_aside = either("cache-aside", text, ["no", "yes"])?;
            Ok(())
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
            let replay = Replay::read(&base.join(text), to.trace_requests)?;
            to.trace = Some(Arc::new(replay));
            Ok(())
        },
        get: |of| of.trace.as_ref().map(|trace| trace.path.display().to_string()),
    },
    Setting {
        name: "trace-requests",
        value: "N",
        help: "Takes only so many requests from the beginning of the trace; 0: all",
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
        help: "Replays the trace so many times; 0: until the run ends (default 1)",
        set: |to, text, _| {
            to.trace_loops = count("trace-loops", text, 0, LOOPS_MAX)?;
            Ok(())
        },
        get: |of| of.trace.is_some().then(|| of.trace_loops.to_string()),
    },
];

/// Their names.
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

/// A whole number, also with underscores between its digits, or k, m or g behind them.
fn count(name: &str, text: &str, min: u64, max: u64) -> Result<u64, WorkloadError> {
    let digits = text.replace('_', "");
    let digits = written_out(&digits);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_plain && (min..=max).contains(number));
    number.ok_or_else(|| {
        WorkloadError(format!("{name}: {text}: must be a whole number from {min} to {max}"))
    })
}

/// One of two words; is it the second?
fn either(name: &str, text: &str, words: [&str; 2]) -> Result<bool, WorkloadError> {
    let at = words.iter().position(|word| *word == text);
    let wrong = || WorkloadError(format!("{name}: {text}: must be {} or {}", words[0], words[1]));
    at.map(|at| at == 1).ok_or_else(wrong)
}

fn no_table(name: &str, text: &str) -> WorkloadError {
    WorkloadError(format!("{name}: {text}: has no usable weights"))
}
