//! Presets: named workloads.
//!
//! Where: `Workload::preset`.
//! Invariant: a preset is a list of settings. So files and flags can define the same workload, and
//! can change it.
//! Source: the paper, table 2 and section 6 (mix-a to mix-c, etc); Atikoglu et al. and mutilate
//! (facebook); a thesis that compares memcached with Redis, tables 2.1 and 3.2 (thesis);
//! Solarflare's OpenOnload report on memcached (solarflare-48).

/// A named workload.
pub struct Preset {
    /// The preset's name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The settings that differ from the default, as `NAME=VALUE`, separated by spaces.
    settings: &'static str,
}

impl Preset {
    /// The names and values of the preset's settings.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.settings.split(' ').filter_map(|row| row.split_once('='))
    }
}

const fn preset(name: &'static str, about: &'static str, settings: &'static str) -> Preset {
    Preset { name, about, settings }
}

/// All presets. The power laws of the paper's presets have four groups, because each of the paper's
/// four traffic generators had its own quarter of the keys.
pub const PRESETS: [Preset; 10] = [
    preset(
        "uniform",
        "a million keys of 32 bytes, all requested equally often, values of 128 bytes, 9 gets to \
         a set",
        "popularity=uniform",
    ),
    preset("zipf", "uniform, but popularity by Zipf's law, exponent 0.99", "popularity=zipf:0.99"),
    preset(
        "mix-a",
        "KV-Cache's mix A: gets only; ETC's key sizes, power-law keys, values of 64 bytes",
        "mix=get=100 popularity=power-law:0.01,0.001,10000,4 key-size=etc value-size=64 gap=fixed",
    ),
    preset(
        "mix-b",
        "KV-Cache's mix B: mix A, but 30 gets to a set",
        "mix=get=96.77,set=3.23 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=64 gap=fixed",
    ),
    preset(
        "mix-c",
        "KV-Cache's mix C: mix A, but 70 % gets, 25 % sets, 5 % deletes",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=64 gap=fixed",
    ),
    preset(
        "etc",
        "KV-Cache's realistic load: mix C with values of 64 to 1024 bytes and gaps by the Pareto \
         laws of its table 2, whose swapped scale and shape are corrected here",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=etc gap=etc",
    ),
    preset(
        "etc-as-printed",
        "etc, but with the Pareto laws as they are printed",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=etc-as-printed gap=etc-as-printed",
    ),
    preset(
        "facebook",
        "Facebook's ETC pool: its key and value sizes, 30 gets to a set, Zipf 0.99",
        "popularity=zipf:0.99 key-size=etc value-size=facebook mix=get=30,set=1",
    ),
    preset(
        "thesis",
        "memtier as in the thesis: ten gets to a set in turn, a hundred million keys, all \
         requested equally often, values of 64 bytes",
        "keys=100000000 key-size=16 value-size=64 mix=get=10,set=1 mix-order=dealt gap=fixed",
    ),
    preset(
        "solarflare-48",
        "OpenOnload's test: gets of 48 keys at once, each followed by 5 or 6 sets (9 keys read to \
         one written) of the keys set longest ago; 983040 keys and values of 20 bytes, divided \
         among the connections",
        "keys=983040 key-size=20 value-size=20 batch=48 mix=get=9,set=1 mix-order=dealt \
         keys-per=connection set-order=oldest gap=fixed",
    ),
];

/// The names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The names of all presets, separated by commas.
#[must_use]
pub fn listed() -> String {
    names().collect::<Vec<_>>().join(", ")
}
