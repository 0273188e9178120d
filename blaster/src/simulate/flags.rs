//! The flags of `simulate`: one row each, from which parsing and `--help` derive.
//!
//! Where: called by `flags`. Invariant: every row has a line of help; what is given twice holds as
//! given last, traces add up.

use super::Plan;
use crate::flags::{Asked, Flag, Refusal, Rows, lines, list, number};
use simulate::contestant::Contestant;
use simulate::engine::{Budget, Settings};
use simulate::sizes::Items;

/// More threads than anybody has cores.
const THREADS_MAX: usize = 1024;
const COPIES_MAX: u32 = 1 << 16;
const SEGMENTS_MAX: u32 = 1 << 20;
/// A ghost of so many keys an item remembers everything.
const GHOST_MAX: f64 = 16.0;

const FLAGS: &[Flag<Plan>] = &[
    Flag {
        long: "sizes",
        short: Some('s'),
        value: "LIST",
        help: &[
            "sizes of the caches: 1% of the distinct keys, 5000 objects,",
            "or bytes as in 64m (default 0.3%,1%,3%,10%,30%)",
        ],
        apply: |plan, text| list(text).map(|sizes| plan.sizes = sizes),
    },
    Flag {
        long: "policies",
        short: Some('p'),
        value: "LIST",
        help: &[
            "whom to simulate (default all but live:): lru, memcached, clock,",
            "sieve, arc, lirs, belady;",
            "ours: fifo, nbq-clock, s3-fifo, clock2q;",
            "ours in the real store, by bytes: live:fifo and so on",
        ],
        apply: |plan, text| list(text).map(|contestants| plan.contestants = contestants),
    },
    Flag {
        long: "items",
        short: Some('i'),
        value: "SIZES",
        help: &[
            "sizes of items, drawn from hash(id): equal (default), KEY/VALUE",
            "in bytes as 20/20 or 30/1-100, or etc for Facebook's ETC",
        ],
        apply: |plan, text| text.parse().map(|items| plan.items = items),
    },
    Flag {
        long: "segments",
        short: None,
        value: "N",
        help: &["segments of our stores (default 256), or item for one an item"],
        apply: |plan, text| {
            let count = || number(text, 1, SEGMENTS_MAX).map(Some);
            plan.settings.segments = if text == "item" { None } else { count()? };
            Ok(())
        },
    },
    Flag {
        long: "budget",
        short: None,
        value: "WHAT",
        help: &[
            "memory: whole segments count, free ones too, as in the server",
            "(default); live: only live items, the policy by itself",
        ],
        apply: |plan, text| {
            plan.settings.budget = match text {
                "memory" => Budget::Memory,
                "live" => Budget::Live,
                _ => return Err(format!("memory or live: {text}")),
            };
            Ok(())
        },
    },
    Flag {
        long: "ghost",
        short: None,
        value: "PART",
        help: &["keys our ghosts remember for each item (default 0.71)"],
        apply: |plan, text| number(text, 0.0, GHOST_MAX).map(|part| plan.settings.ghost = part),
    },
    Flag {
        long: "set-ratio",
        short: None,
        value: "PART",
        help: &["so many of the hits rewrite the value (default 0)"],
        apply: |plan, text| {
            let part = number(text, 0.0, 1.0)?;
            let nearest = (0..=100_u8).find(|whole| f64::from(*whole) >= part * 100.0 - 0.5);
            plan.set_percent = nearest.map_or(100, u64::from);
            Ok(())
        },
    },
    Flag {
        long: "copies",
        short: None,
        value: "N",
        help: &["each key stands for so many, asked for one by one (default 1)"],
        apply: |plan, text| number(text, 1, COPIES_MAX).map(|copies| plan.copies = copies),
    },
    Flag {
        long: "threads",
        short: Some('t'),
        value: "N",
        help: &["simulations at a time (default: as many as there are cores)"],
        apply: |plan, text| number(text, 1, THREADS_MAX).map(|threads| plan.threads = threads),
    },
    Flag {
        long: "json",
        short: None,
        value: "",
        help: &["print JSON instead of tables"],
        apply: |plan, _| {
            plan.json = true;
            Ok(())
        },
    },
    Flag {
        long: "svg",
        short: None,
        value: "FILE",
        help: &["draw miss ratio against size, a panel for each trace"],
        apply: |plan, text| {
            plan.svg = Some(text.into());
            Ok(())
        },
    },
];

const ABOUT: &str = "\
Usage: kvblaster simulate [OPTIONS] TRACE...

Replays traces against caches that are refilled on every miss, and tells how
many misses each policy has, also against LRU. A trace is a file of u32 key
numbers, little endian, compressed with zstd.

Our policies run in a model of the server's store: segments, two queues, ghost,
counters of two bits, compaction. The others are item by item and exact.

";

/// Parses what follows `simulate`.
///
/// # Errors
/// A flag is unknown or has a wrong value, or there is no trace.
pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Asked, Refusal> {
    let mut plan = plan();
    let free = |plan: &mut Plan, path: std::ffi::OsString| {
        plan.traces.push(path.into());
        Ok(())
    };
    let rows = Rows { flags: &[FLAGS], names: Vec::new, set: |_, _, _| Ok(()), free };
    if rows.apply(&mut parser, &mut plan)?.is_none() {
        return Ok(Asked::Print(format!("{ABOUT}{}", lines(FLAGS))));
    }
    finish(plan)
}

/// What holds unless something else is said.
#[must_use]
pub fn plan() -> Plan {
    Plan {
        traces: Vec::new(),
        sizes: list("0.3%,1%,3%,10%,30%").unwrap_or_default(),
        contestants: Contestant::all(),
        items: Items::Equal,
        settings: Settings::default(),
        set_percent: 0,
        copies: 1,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        json: false,
        svg: None,
    }
}

/// Checks what only shows together.
fn finish(mut plan: Plan) -> Result<Asked, Refusal> {
    if plan.traces.is_empty() {
        return Err(Refusal("which trace?".to_owned()));
    }
    if plan.items.is_equal() {
        if let Some(size) = plan.sizes.iter().find(|size| size.is_bytes()) {
            let why = format!("--sizes {size}: bytes need sizes of items, see --items");
            return Err(Refusal(why));
        }
        let live = |contestant: &&Contestant| matches!(contestant, Contestant::Live(_));
        if let Some(live) = plan.contestants.iter().find(live) {
            let why = format!("--policies {live}: the real store needs sizes, see --items");
            return Err(Refusal(why));
        }
    }
    // The baseline stands first, whoever else is asked for.
    plan.contestants.retain(|contestant| *contestant != Contestant::BASELINE);
    plan.contestants.insert(0, Contestant::BASELINE);
    Ok(Asked::Simulate(Box::new(plan)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Asked, Refusal> {
        parse(lexopt::Parser::from_args(words.split_whitespace()))
    }

    fn planned(words: &str) -> Plan {
        match asked(words).unwrap() {
            Asked::Simulate(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_flag_does_what_it_says() {
        let plan = planned("a.zst -s 1%,64m -i etc --segments item --budget live --ghost 1 b.zst");
        assert_eq!(plan.traces.len(), 2);
        assert_eq!((plan.items, plan.sizes.len()), (Items::Etc, 2));
        assert_eq!((plan.settings.segments, plan.settings.budget), (None, Budget::Live));
        let plan = planned("a --set-ratio 0.3 --copies 7 -t 3 --json --svg b.svg --segments 64");
        assert_eq!((plan.set_percent, plan.copies, plan.threads), (30, 7, 3));
        assert!(plan.json && plan.svg.is_some());
        assert_eq!(plan.settings.segments, Some(64));
    }

    #[test]
    fn lru_is_always_there_and_first() {
        let names =
            |plan: Plan| plan.contestants.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(planned("a -p sieve,lru,fifo")), ["lru", "sieve", "fifo"]);
        assert_eq!(planned("a").contestants, Contestant::all());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, why) in [
            ("", "which trace"),
            ("a -s 0", "--sizes"),
            ("a -s 64m", "--items"),
            ("a -p lfu", "no policy called lfu"),
            ("a -p live", "--items"),
            ("a --segments 0", "--segments"),
            ("a --set-ratio 2", "--set-ratio"),
            ("a --ghost nan", "--ghost"),
            ("a --copies", "--copies"),
            ("a --speed", "--speed"),
        ] {
            let error = asked(words).unwrap_err().to_string();
            assert!(error.contains(why), "{words}: {error}");
        }
    }

    #[test]
    fn help_has_every_flag() {
        let Asked::Print(text) = asked("--help").unwrap() else { panic!("no help") };
        assert!(FLAGS.iter().all(|flag| text.contains(&format!("--{}", flag.long))));
        for contestant in Contestant::all() {
            assert!(text.contains(&contestant.to_string()), "{contestant}");
        }
        assert!(text.lines().all(|line| line.len() <= 90), "{text}");
    }
}
