//! The settings of a workload: one table for flags, files, `--help` and manifests.
//!
//! Where: used before a run. Invariant: if the printed value of a setting is parsed, the result is
//! the same value.

use super::draw::SampledLaw;
use super::files::Files;
use super::gaps::{Gap, GapSampler};
use super::key_file::KeyFile;
use super::law::Usage;
use super::limits::{BATCH_MAX, EXPTIME_S_MAX, KEYS_MAX, VALUE_BYTES_MAX, WorkloadError};
use super::mix::Mix;
use super::popularity::{Popularity, Table};
use super::presets;
use super::replay::Replay;
use super::traffic::{KEYS_PER, Workload};
use crate::words::{suggestion, without_suffix};
use std::sync::Arc;

/// One setting: `--NAME VALUE`, or `NAME = VALUE` in a file.
pub(crate) struct Setting {
    /// The setting's name.
    pub name: &'static str,
    /// The placeholder of the value in `--help`.
    pub value: &'static str,
    /// The explanation in `--help`.
    pub help: &'static str,
    /// Parses a value and stores it in a workload. A path in the value names a file of `Files`.
    pub(crate) set: fn(&mut Workload, &str, &Files<'_>) -> Result<(), WorkloadError>,
    /// Formats the value that a workload has. Returns `None` if the setting has no value.
    pub(crate) get: fn(&Workload) -> Option<String>,
}

/// The maximum number of times that a trace can be replayed.
const LOOPS_MAX: u64 = 1 << 32;
/// The maximum length of a prefix in bytes, which leaves room for a key's number.
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

macro_rules! law_setting {
    ($usage:expr, $field:ident, $help:expr) => {
        Setting {
            name: $usage.name,
            value: "HOW",
            help: $help,
            set: |to, text, files| {
                SampledLaw::parse(text, &$usage, files).map(|law| to.$field = law)
            },
            get: |of| Some(of.$field.law.to_string()),
        }
    };
}

/// A setting whose value is one of two words; the first word is the default.
macro_rules! either {
    ($name:literal, $no:literal, $yes:literal, $field:ident, $help:expr) => {
        Setting {
            name: $name,
            value: concat!($no, "|", $yes),
            help: $help,
            set: |to, text, _| one_of($name, text, [$no, $yes]).map(|at| to.$field = at == 1),
            get: |of| Some([$no, $yes][usize::from(of.$field)].to_owned()),
        }
    };
}

/// All settings.
pub(crate) const SETTINGS: [Setting; 19] = [
    Setting {
        name: "keys",
        value: "N",
        help: "Number of keys, 1 to 2^40",
        set: |to, text, _| {
            let keys = count("keys", text, 1, KEYS_MAX)?;
            let drawn = to.key_file.as_ref().map_or(keys, |file| file.keys());
            to.table = table("keys", text, &to.popularity, drawn)?;
            to.keys = keys;
            Ok(())
        },
        get: |of| Some(of.keys.to_string()),
    },
    Setting {
        name: "key-file",
        value: "PATH",
        help: "File of keys, one per line, the most popular first; it replaces keys, key-size and \
               key-prefix",
        set: |to, text, files| {
            let key_file = KeyFile::read(files, &files.path(text))?;
            to.table = table("key-file", text, &to.popularity, key_file.keys())?;
            to.key_file = Some(Arc::new(key_file));
            Ok(())
        },
        get: |of| of.key_file.as_ref().map(|file| file.path.display().to_string()),
    },
    Setting {
        name: "population-seed",
        value: "N",
        help: "Seed that determines which keys are popular, and the size and bytes of each key and \
               value (default 1). --seed draws another sample of requests for the same keys and \
               values",
        set: |to, text, _| {
            count("population-seed", text, 0, u64::MAX).map(|seed| to.population_seed = seed)
        },
        get: |of| Some(of.population_seed.to_string()),
    },
    Setting {
        name: "popularity",
        value: "WHICH",
        help: "Distribution of the requests over the keys (see the forms below)",
        set: |to, text, files| {
            let popularity = Popularity::parse(text, files)?;
            to.table = table("popularity", text, &popularity, to.drawn_keys())?;
            to.popularity = popularity;
            Ok(())
        },
        get: |of| Some(of.popularity.to_string()),
    },
    Setting {
        name: "keys-per",
        value: "run|connection|agent",
        help: "run: each connection requests all keys; connection: each connection requests only \
               its own, equal part of the keys; agent: each agent (--agent) requests only its \
               own, equal part of the keys",
        set: |to, text, _| {
            let at = one_of("keys-per", text, KEYS_PER.map(|(_, name)| name))?;
            to.keys_per = KEYS_PER[at].0;
            Ok(())
        },
        get: |of| Some(KEYS_PER[of.keys_per as usize].1.to_owned()),
    },
    law_setting!(
        KEY_SIZE,
        key_size,
        "Bytes of a key, 1 to 250 (see the forms below); a key contains its number, so it may be \
         longer than this"
    ),
    Setting {
        name: "key-prefix",
        value: "TEXT",
        help: "Text at the start of every key; key-size includes this text",
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
    law_setting!(VALUE_SIZE, value_size, "Bytes of a value, 0 to 2^27 (see the forms below)"),
    either!(
        "value-size-per",
        "key",
        "request",
        size_per_request,
        "key: one size is drawn for all values of a key; request: a new size for each request"
    ),
    Setting {
        name: "mix",
        value: "VERB=SHARE,...",
        help: "Shares of get, set, delete, append, add and replace, as in get=9,set=1, or \
               file:PATH, a file of rows such as get 9; each key of a multiget counts as one get",
        set: |to, text, files| Mix::parse(text, files).map(|mix| to.mix = mix),
        get: |of| Some(of.mix.to_string()),
    },
    either!(
        "mix-order",
        "drawn",
        "dealt",
        is_dealt,
        "drawn: verbs are drawn at random; dealt: verbs alternate, as evenly as their shares allow"
    ),
    either!(
        "set-order",
        "drawn",
        "oldest",
        sets_oldest,
        "drawn: the keys of sets are drawn like those of gets; oldest: each set takes the key \
         that was set longest ago"
    ),
    law_setting!(BATCH, batch, "Number of keys in each get, 1 to 1024 (see the forms below)"),
    Setting {
        name: "gap",
        value: "HOW",
        help: "Distribution of the times between requests, in an open loop (see the forms below)",
        set: |to, text, files| {
            let gap = Gap::parse(text, files)?;
            let pace = GapSampler::new(&gap).ok_or_else(|| WorkloadError::no_table("gap", text))?;
            (to.gap, to.gap_sampler) = (gap, pace);
            Ok(())
        },
        get: |of| Some(of.gap.to_string()),
    },
    law_setting!(
        TTL,
        ttl,
        "Time to live of written items, in seconds: 0 (never expires) to 2592000 (30 days); for \
         the forms see below"
    ),
    Setting {
        name: "cache-aside",
        value: "yes|no",
        help: "yes: a set of the same key follows each get that misses, as in applications",
        set: |to, text, _| {
            let text = text.replace("true", "yes").replace("false", "no");
            one_of("cache-aside", &text, ["no", "yes"]).map(|at| to.cache_aside = at == 1)
        },
        get: |of| Some(of.cache_aside.to_string()),
    },
    Setting {
        name: "trace",
        value: "PATH",
        help: "Trace to replay. A .u32.zst file has only key numbers; mix, sizes and ttl are \
               those of the workload. A cache-trace CSV (timestamp, key, key size, value size, \
               client, operation, ttl; plain or .zst) also has operations, sizes and ttl",
        set: |to, text, files| {
            let replay = Replay::read(files, &files.path(text), to.trace_requests);
            replay.map(|replay| to.trace = Some(Arc::new(replay)))
        },
        get: |of| of.trace.as_ref().map(|trace| trace.path.display().to_string()),
    },
    Setting {
        name: "trace-requests",
        value: "N",
        help: "Number of requests that are replayed, from the beginning of the trace; 0 means all",
        set: |to, text, files| {
            let requests = count("trace-requests", text, 0, u64::MAX)?;
            if let Some(trace) = &to.trace {
                to.trace = Some(Arc::new(Replay::read(files, &trace.path, requests)?));
            }
            to.trace_requests = requests;
            Ok(())
        },
        get: |of| (of.trace_requests > 0).then(|| of.trace_requests.to_string()),
    },
    Setting {
        name: "trace-loops",
        value: "N",
        help: "Number of times that the trace is replayed; 0 repeats it until the run ends \
               (default 1)",
        set: |to, text, _| {
            count("trace-loops", text, 0, LOOPS_MAX).map(|loops| to.trace_loops = loops)
        },
        get: |of| of.trace.is_some().then(|| of.trace_loops.to_string()),
    },
];

/// The names of all settings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.name)
}

impl Workload {
    /// Returns the workload of the preset with this name (see `presets`).
    pub fn preset(name: &str) -> Option<Workload> {
        let preset = presets::PRESETS.iter().find(|preset| preset.name == name)?;
        let mut workload = Workload::default();
        let mut rows = preset.settings();
        rows.try_for_each(|(name, value)| workload.set(name, value)).ok()?;
        Some(workload)
    }

    /// Changes one setting, as a flag `--name value` does. Paths are relative to the working
    /// directory. Fails if there is no such setting, or the setting cannot have this value. The
    /// workload is then unchanged.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WorkloadError> {
        self.set_from(name, value, &Files::here(""))
    }

    pub(super) fn set_from(
        &mut self,
        name: &str,
        value: &str,
        files: &Files<'_>,
    ) -> Result<(), WorkloadError> {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let (listed, meant) = (names().collect::<Vec<_>>(), suggestion(name, names()));
            return Err(WorkloadError(format!(
                "{name}: no such setting; the settings are {}{meant}",
                listed.join(", ")
            )));
        };
        (setting.set)(self, value.trim(), files)
    }
}

/// Parses a whole number, which may contain underscores and have the suffix k, m or g.
fn count(name: &str, text: &str, min: u64, max: u64) -> Result<u64, WorkloadError> {
    let digits = text.replace('_', "");
    let digits = without_suffix(&digits);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|number| is_plain && (min..=max).contains(number));
    number.ok_or_else(|| {
        WorkloadError(format!("{name}: {text}: must be a whole number from {min} to {max}"))
    })
}

fn one_of<const N: usize>(
    name: &str,
    text: &str,
    words: [&str; N],
) -> Result<usize, WorkloadError> {
    let at = words.iter().position(|word| *word == text);
    at.ok_or_else(|| WorkloadError(format!("{name}: {text}: must be {}", words.join(" or "))))
}

fn table(
    name: &str,
    text: &str,
    popularity: &Popularity,
    keys: u64,
) -> Result<Arc<Table>, WorkloadError> {
    popularity.table(keys).map(Arc::new).ok_or_else(|| WorkloadError::no_table(name, text))
}
