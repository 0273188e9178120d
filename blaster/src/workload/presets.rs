//! Presets: named workloads.
//!
//! Where: used by `Workload::preset`.
//! Invariant: a preset is a list of settings, so files and flags can define the same workload or
//! change it.
//! Source: the KV-Cache paper, table 2 and section 6 (mix-a to mix-c, etc); Atikoglu et al. and
//! mutilate (facebook); M. Pavlik, "Memcached vs Redis: Benchmarking In-memory Object Caches"
//! (Edinburgh, 2016), tables 2.1 and 3.2 (thesis); Solarflare's OpenOnload report
//! (solarflare-1, solarflare-48).

/// A named workload.
pub(crate) struct Preset {
    /// The preset's name.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// The settings that differ from the default, as `NAME=VALUE`, separated by spaces.
    settings: &'static str,
}

impl Preset {
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.settings.split(' ').filter_map(|row| row.split_once('='))
    }
}

const fn preset(name: &'static str, about: &'static str, settings: &'static str) -> Preset {
    Preset { name, about, settings }
}

/// All presets. The power laws from the KV-Cache paper have four groups, because each of the
/// paper's four traffic generators used a separate quarter of the keys.
pub(crate) const PRESETS: [Preset; 11] = [
    preset(
        "uniform",
        "a million keys of 32 bytes, all requested equally often, values of 128 bytes, 9 gets per \
         set",
        "popularity=uniform",
    ),
    preset(
        "zipf",
        "like uniform, but popularity by Zipf's law with exponent 0.99",
        "popularity=zipf:0.99",
    ),
    preset(
        "mix-a",
        "mix A of the KV-Cache paper: gets only; key sizes of Facebook's ETC, popularity by a \
         power law, values of 64 bytes",
        "mix=get=100 popularity=power-law:0.01,0.001,10000,4 key-size=etc value-size=64 gap=fixed",
    ),
    preset(
        "mix-b",
        "mix B of the KV-Cache paper: like mix A, but 30 gets per set",
        "mix=get=96.77,set=3.23 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=64 gap=fixed",
    ),
    preset(
        "mix-c",
        "mix C of the KV-Cache paper: like mix A, but 70 % gets, 25 % sets, 5 % deletes",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=64 gap=fixed",
    ),
    preset(
        "etc",
        "the realistic load of the KV-Cache paper: mix C, but values of 64 to 1024 bytes, and \
         value sizes and gaps by the Pareto laws in table 2 of the paper, whose scale and shape \
         are swapped in print and corrected here",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=etc gap=etc",
    ),
    preset(
        "etc-as-printed",
        "like etc, but with scale and shape of the Pareto laws as printed in the paper",
        "mix=get=70,set=25,delete=5 popularity=power-law:0.01,0.001,10000,4 key-size=etc \
         value-size=etc-as-printed gap=etc-as-printed",
    ),
    preset(
        "facebook",
        "Facebook's ETC pool: its key and value sizes, 30 gets per set, popularity by Zipf's law \
         with exponent 0.99",
        "popularity=zipf:0.99 key-size=etc value-size=facebook mix=get=30,set=1",
    ),
    preset(
        "thesis",
        "the memtier_benchmark load of a thesis that compares memcached with Redis: always ten \
         gets and then a set, a hundred million keys, all requested equally often, values of 64 \
         bytes",
        "keys=100000000 key-size=16 value-size=64 mix=get=10,set=1 mix-order=dealt gap=fixed",
    ),
    preset(
        "solarflare-1",
        "like solarflare-48, but with gets of one key: nine gets, and then a set of the key that \
         was set longest ago",
        "keys=983040 key-size=20 value-size=20 mix=get=9,set=1 mix-order=dealt \
         keys-per=connection set-order=oldest gap=fixed",
    ),
    preset(
        "solarflare-48",
        "memcached test of Solarflare's OpenOnload: gets of 48 keys at once, each followed by 5 or \
         6 sets of the keys that were set longest ago (9 keys read per key written); 983040 keys \
         of 20 bytes, which are divided among the connections; values of 20 bytes",
        "keys=983040 key-size=20 value-size=20 batch=48 mix=get=9,set=1 mix-order=dealt \
         keys-per=connection set-order=oldest gap=fixed",
    ),
];

/// The names of all presets.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The names of all presets, separated by commas.
pub(crate) fn listed() -> String {
    names().collect::<Vec<_>>().join(", ")
}
