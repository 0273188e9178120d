//! Workloads that have a name.
//!
//! Where: `Workload::preset`. Invariant: each one is made of settings, so that a file or flags can
//! make it as well, and change it.
//! Source: the paper, table 2 and section 6 (mix-a to mix-c, etc); Atikoglu et al. and mutilate
//! (facebook); a thesis that compares memcached with Redis, tables 2.1 and 3.2 (thesis);
//! Solarflare's OpenOnload report on memcached (solarflare-48).

/// A workload and what it is.
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// The settings in which it is not the default.
    pub settings: &'static [(&'static str, &'static str)],
}

/// The power law of the paper's four traffic generators, each with its own quarter of the keys.
const POWER_LAW: (&str, &str) = ("popularity", "power-law:0.01,0.001,10000,4");
const ETC_KEYS: (&str, &str) = ("key-size", "etc");
const MIX_C: (&str, &str) = ("mix", "get=70,set=25,delete=5");
const FIXED_GAP: (&str, &str) = ("gap", "fixed");
const SMALL: (&str, &str) = ("value-size", "64");

/// All of them.
pub const PRESETS: [Preset; 10] = [
    Preset {
        name: "uniform",
        about: "a million keys of 32 bytes asked for equally, values of 128 bytes, 9 gets to a set",
        settings: &[("popularity", "uniform")],
    },
    Preset {
        name: "zipf",
        about: "the same with popularity by Zipf's law, exponent 0.99",
        settings: &[("popularity", "zipf:0.99")],
    },
    Preset {
        name: "mix-a",
        about: "KV-Cache's mix A: gets only; ETC's key sizes, power-law keys, values of 64 bytes",
        settings: &[("mix", "get=100"), POWER_LAW, ETC_KEYS, SMALL, FIXED_GAP],
    },
    Preset {
        name: "mix-b",
        about: "KV-Cache's mix B: the same with 30 gets to a set",
        settings: &[("mix", "get=96.77,set=3.23"), POWER_LAW, ETC_KEYS, SMALL, FIXED_GAP],
    },
    Preset {
        name: "mix-c",
        about: "KV-Cache's mix C: the same with 70 % gets, 25 % sets, 5 % deletes",
        settings: &[MIX_C, POWER_LAW, ETC_KEYS, SMALL, FIXED_GAP],
    },
    Preset {
        name: "etc",
        about: "KV-Cache's realistic load: mix C with values of 64 to 1024 bytes and gaps by the \
                Pareto laws of its table 2, corrected where scale and shape stand in each other's \
                place",
        settings: &[MIX_C, POWER_LAW, ETC_KEYS, ("value-size", "etc"), ("gap", "etc")],
    },
    Preset {
        name: "etc-as-printed",
        about: "the same with the Pareto laws as they are printed",
        settings: &[
            MIX_C,
            POWER_LAW,
            ETC_KEYS,
            ("value-size", "etc-as-printed"),
            ("gap", "etc-as-printed"),
        ],
    },
    Preset {
        name: "facebook",
        about: "Facebook's ETC pool: its key and value sizes, 30 gets to a set, Zipf 0.99",
        settings: &[
            ("popularity", "zipf:0.99"),
            ETC_KEYS,
            ("value-size", "facebook"),
            ("mix", "get=30,set=1"),
        ],
    },
    Preset {
        name: "thesis",
        about: "memtier as in the thesis: ten gets to a set in turn, a hundred million keys asked \
                for equally, values of 64 bytes",
        settings: &[
            ("keys", "100000000"),
            ("key-size", "16"),
            SMALL,
            ("mix", "get=10,set=1"),
            ("mix-order", "dealt"),
            FIXED_GAP,
        ],
    },
    Preset {
        name: "solarflare-48",
        about: "OpenOnload's test: gets of 48 keys at once, each followed by 5 or 6 sets (9 keys \
                read to one written), the oldest first; 983040 keys and values of 20 bytes, of \
                which each connection has its own",
        settings: &[
            ("keys", "983040"),
            ("key-size", "20"),
            ("value-size", "20"),
            ("batch", "48"),
            ("mix", "get=9,set=1"),
            ("mix-order", "dealt"),
            ("keys-per", "connection"),
            ("set-order", "oldest"),
            FIXED_GAP,
        ],
    },
];

/// The names.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

/// The names, with commas between them.
#[must_use]
pub fn listed() -> String {
    names().collect::<Vec<_>>().join(", ")
}
