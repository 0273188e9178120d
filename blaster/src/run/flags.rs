//! The flags of `run` and `capacity`: one row each, from which parsing and `--help` derive.
//!
//! Where: called by `flags`. Invariant: every row has a line of help; what is given twice holds as
//! given last, servers and asserts add up. A workload's settings are its own table's.

use super::{Capacity, Plan};
use crate::flags::{Asked, Flag, NUMBERS, Refusal, Rows, cpus, lines, number, time};
use crate::measure::objective::Objective;
use crate::measure::schedule::Schedule;
use crate::search::{Aim, GOALS_MAX, Goal};
use crate::target::{Family, TARGETS_MAX};
use crate::wire::Speech;
use crate::words::{meant, written_out};
use crate::workload::{VERBS, Verb, Workload, help, presets, settings};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const THREADS_MAX: u32 = 1024;
const CONNECTIONS_MAX: u32 = 1 << 20;
const DEPTH_MAX: u32 = 1 << 16;
const RATE_MAX: f64 = 1e10;
const OUTSTANDING_MAX: u32 = 1 << 20;
const REPEATS_MAX: u32 = 1000;
const VOTES_MAX: u32 = 99;
/// The workload of those who name none.
const WORKLOAD: &str = "mix-b";

const TRAFFIC: &[Flag<Plan>] = &[
    Flag {
        long: "workload",
        short: Some('w'),
        value: "NAME",
        help: &["a preset or a TOML file (default mix-b), see below"],
        apply: |plan, text| {
            plan.workload = match Workload::preset(text) {
                Some(workload) => workload,
                None if !Path::new(text).exists() => {
                    let (names, meant) = (presets::listed(), meant(text, presets::names()));
                    return Err(format!("neither a preset ({names}) nor a file: {text}{meant}"));
                }
                None => Workload::read(Path::new(text)).map_err(|error| error.to_string())?,
            };
            text.clone_into(&mut plan.workload_name);
            Ok(())
        },
    },
    Flag {
        long: "seed",
        short: None,
        value: "N",
        help: &["what the requests are drawn with: the same gives the same (default 1)"],
        apply: |plan, text| number(text, 0, u64::MAX).map(|seed| plan.seed = seed),
    },
    Flag {
        long: "protocol",
        short: Some('P'),
        value: "NAME",
        help: &["text (default), meta, binary or resp (redis:// means it)"],
        apply: |plan, text| {
            plan.speech = Some(match text {
                "text" => Speech::Text,
                "meta" => Speech::Meta,
                "binary" => Speech::Binary,
                "resp" => Speech::Resp,
                _ => return Err(format!("text, meta, binary or resp: {text}")),
            });
            Ok(())
        },
    },
    Flag {
        long: "no-populate",
        short: None,
        value: "",
        help: &["the servers hold what they are to hold already"],
        apply: |plan, _| {
            plan.populate = false;
            Ok(())
        },
    },
    Flag {
        long: "verify",
        short: None,
        value: "",
        help: &["compare each value read with what was set"],
        apply: |plan, _| {
            plan.verify = true;
            Ok(())
        },
    },
];

/// What a search decides by itself.
const PACE: &[Flag<Plan>] = &[
    Flag {
        long: "rate",
        short: Some('r'),
        value: "N",
        help: &[
            "open loop: so many requests a second are due, whatever the",
            "server does; without it the loop is closed; own: as the",
            "workload's gaps say",
        ],
        apply: |plan, text| {
            let rate = if text == "own" { f64::NAN } else { count(text, RATE_MAX)? };
            plan.rate_per_s = Some(rate);
            Ok(())
        },
    },
    Flag {
        long: "depth",
        short: Some('d'),
        value: "N",
        help: &["requests under way on a connection, closed loop (default 1)"],
        apply: |plan, text| number(text, 1, DEPTH_MAX).map(|depth| plan.depth = depth),
    },
];

const DRIVING: &[Flag<Plan>] = &[
    Flag {
        long: "threads",
        short: Some('t'),
        value: "N",
        help: &["driving threads (default 1)"],
        apply: |plan, text| number(text, 1, THREADS_MAX).map(|threads| plan.threads = threads),
    },
    Flag {
        long: "connections",
        short: Some('c'),
        value: "N",
        help: &["connections to each server, over all threads (default 16)"],
        apply: |plan, text| number(text, 1, CONNECTIONS_MAX).map(|n| plan.connections = n),
    },
    Flag {
        long: "outstanding",
        short: None,
        value: "N",
        help: &["most under way in a thread, open loop (default 8192)"],
        apply: |plan, text| number(text, 1, OUTSTANDING_MAX).map(|n| plan.outstanding_max = n),
    },
    Flag {
        long: "cpus",
        short: None,
        value: "LIST",
        help: &["CPUs the threads are pinned to, in turn (default none)"],
        apply: |plan, text| cpus(text).map(|cpus| plan.cpus = cpus),
    },
    Flag {
        long: "receive-cpus",
        short: None,
        value: "LIST",
        help: &["receive on threads of their own, pinned to these CPUs"],
        apply: |plan, text| cpus(text).map(|cpus| plan.receive_cpus = cpus),
    },
    Flag {
        long: "timeout",
        short: None,
        value: "TIME",
        help: &["give an answer up after this long (default 1s)"],
        apply: |plan, text| time(text).map(|timeout| plan.timeout = timeout),
    },
    Flag {
        long: "churn",
        short: None,
        value: "N",
        help: &["make a connection anew after so many requests"],
        apply: |plan, text| number(text, 1, u64::MAX).map(|n| plan.churn_requests = Some(n)),
    },
    Flag {
        long: "gso",
        short: None,
        value: "",
        help: &["send UDP requests in bursts (UDP_SEGMENT)"],
        apply: |plan, _| {
            plan.gso = true;
            Ok(())
        },
    },
    Flag {
        long: "ipv4",
        short: Some('4'),
        value: "",
        help: &["use only IPv4 addresses of a name"],
        apply: |plan, _| {
            plan.family = Family::V4;
            Ok(())
        },
    },
    Flag {
        long: "ipv6",
        short: Some('6'),
        value: "",
        help: &["use only IPv6 addresses of a name"],
        apply: |plan, _| {
            plan.family = Family::V6;
            Ok(())
        },
    },
];

const MEASURING: &[Flag<Plan>] = &[
    Flag {
        long: "schedule",
        short: None,
        value: "WHEN",
        help: &[
            "settling and reports: 2s+6x10s is two seconds, and then six",
            "reports of ten (default 1s+5x1s)",
        ],
        apply: |plan, text| {
            plan.schedule = text.parse().map_err(|error| format!("{error}"))?;
            Ok(())
        },
    },
    Flag {
        long: "warm",
        short: None,
        value: "TIME",
        help: &[
            "before the schedule, traffic until the hit ratio has settled, at",
            "most so long: in the last quarter of the time so far it is what",
            "it was in the quarter before, to half a point and to a fiftieth",
            "of hits or misses, or as near as chance lets it be",
        ],
        apply: |plan, text| time(text).map(|limit| plan.warm = Some(limit)),
    },
    Flag {
        long: "requests",
        short: Some('n'),
        value: "N",
        help: &["end after so many requests, if the schedule lasts so long"],
        apply: |plan, text| number(text, 1, u64::MAX).map(|n| plan.requests = Some(n)),
    },
    Flag {
        long: "late",
        short: None,
        value: "TIME",
        help: &["an answer later than this, or none, is late (default 1ms)"],
        apply: |plan, text| time(text).map(|late| plan.late = late),
    },
    Flag {
        long: "assert",
        short: Some('a'),
        value: "WHAT",
        help: &[
            "exit with 1 unless this holds: 'p99<1ms', 'mean<800us',",
            "'errors<0.1%', 'hit>95%', 'rate>100k'; may be given often",
        ],
        apply: |plan, text| {
            plan.asserts.push(text.parse().map_err(|error| format!("{error}"))?);
            Ok(())
        },
    },
    Flag {
        long: "server-pid",
        short: None,
        value: "LIST",
        help: &["processes of the servers, if they are not found by themselves"],
        apply: |plan, text| {
            let pids = text.split(',').map(|one| number(one, 1, 1 << 22));
            pids.collect::<Result<_, _>>().map(|pids| plan.server_pids = pids)
        },
    },
    Flag {
        long: "label",
        short: None,
        value: "NAME",
        help: &["what the run is called in reports (default the targets)"],
        apply: |plan, text| {
            plan.label = Some(text.to_owned());
            Ok(())
        },
    },
    Flag {
        long: "out",
        short: Some('o'),
        value: "DIR",
        help: &["write results there: JSON, CSV, HDR logs"],
        apply: |plan, text| {
            plan.out = Some(text.into());
            Ok(())
        },
    },
    Flag {
        long: "json",
        short: None,
        value: "",
        help: &["print the result as JSON"],
        apply: |plan, _| {
            plan.json = true;
            Ok(())
        },
    },
    Flag {
        long: "quiet",
        short: Some('q'),
        value: "",
        help: &["show no progress"],
        apply: |plan, _| {
            plan.quiet = true;
            Ok(())
        },
    },
];

const SEARCHING: &[Flag<Plan>] = &[
    Flag {
        long: "objective",
        short: Some('O'),
        value: "WHAT",
        help: &[
            "what must hold at the capacity; may be given often (default:",
            "mean, p99 and p99.9 below --late, and no request late or lost)",
        ],
        apply: |plan, text| {
            let objective: Objective = text.parse().map_err(|error| format!("{error}"))?;
            let name = text.split(['<', '>']).next().unwrap_or(text).trim().to_owned();
            search(plan, |search| search.aim.goals.push(Goal { name, objective }))
        },
    },
    Flag {
        long: "start",
        short: None,
        value: "N",
        help: &["the first rate tried (default 10k)"],
        apply: |plan, text| {
            let rate = count(text, RATE_MAX)?;
            search(plan, |search| search.aim.start_per_s = rate)
        },
    },
    Flag {
        long: "highest",
        short: None,
        value: "N",
        help: &["no higher rate is tried (default 1000m)"],
        apply: |plan, text| {
            let rate = count(text, RATE_MAX)?;
            search(plan, |search| search.aim.rate_per_s_max = rate)
        },
    },
    Flag {
        long: "precision",
        short: None,
        value: "PART",
        help: &["find the rate to this part of it (default 0.02)"],
        apply: |plan, text| {
            let part = number(text, 0.001, 0.5)?;
            search(plan, |search| search.aim.precision = part)
        },
    },
    Flag {
        long: "votes",
        short: None,
        value: "N",
        help: &["trials at each rate, the majority decides (default 3)"],
        apply: |plan, text| {
            let votes = number(text, 1, VOTES_MAX)?;
            search(plan, |search| search.aim.votes = votes)
        },
    },
    Flag {
        long: "populate-once",
        short: None,
        value: "",
        help: &["fill the servers once, not before each trial"],
        apply: |plan, _| search(plan, |search| search.populate_once = true),
    },
    Flag {
        long: "repeats",
        short: None,
        value: "N",
        help: &["search so often, for an interval of confidence (default 5)"],
        apply: |plan, text| {
            let repeats = number(text, 1, REPEATS_MAX)?;
            search(plan, |search| search.aim.rounds = repeats)
        },
    },
];

const ABOUT_RUN: &str = "\
Usage: kvblaster run [OPTIONS] TARGET...

Fills the servers, drives them with a workload, and tells what they did: rates,
times, hits, errors, CPU. Keys are spread over several servers by ketama, as
libmemcached does.

A target is HOST:PORT, [IPV6]:PORT, udp://HOST:PORT, unix:/PATH or
redis://HOST:PORT; the port may be left out if it is 11211, or Redis's 6379.
Behind several, /WEIGHT shares keys unequally.

  kvblaster run localhost:11211                        a first look
  kvblaster run -r 50k -a 'p99<1ms' localhost:11211    does it bear this rate?
  kvblaster run -w etc --schedule 10s+6x10s -o mine localhost:11211
                                                       to compare with others

";

const ABOUT_CAPACITY: &str = "\
Usage: kvblaster capacity [OPTIONS] TARGET...

Finds the highest rate at which the servers answer 99 % of what is asked, with
hardly an error, and each objective is met. Prints the way there, latency
against throughput, as a table and a plot. Targets and workloads are those of
kvblaster run.

  kvblaster capacity localhost:11211
  kvblaster capacity -O 'p99.9<500us' --start 50k -o mine localhost:11211

";

/// Parses what follows `run`, or `capacity`.
///
/// # Errors
/// A flag is unknown or has a wrong value, or there is no target.
pub(crate) fn parse(mut parser: lexopt::Parser, searches: bool) -> Result<Asked, Refusal> {
    let mut plan = plan(searches).map_err(Refusal)?;
    let search = if searches { SEARCHING } else { &[] };
    let rows = Rows {
        flags: &[search, TRAFFIC, PACE, DRIVING, MEASURING],
        names: || settings::names().collect(),
        set: |plan: &mut Plan, name, value| {
            plan.workload.set(name, value).map_err(|error| error.to_string())
        },
        free: target,
    };
    let Some(given) = rows.apply(&mut parser, &mut plan)? else {
        return Ok(Asked::Print(usage(searches)));
    };
    plan.given = given;
    finish(plan)
}

fn target(plan: &mut Plan, word: OsString) -> Result<(), String> {
    let text = word.into_string().map_err(|word| format!("{}: not UTF-8", word.display()))?;
    if plan.targets.len() == TARGETS_MAX {
        return Err(format!("more than {TARGETS_MAX} targets"));
    }
    plan.targets.push(text);
    Ok(())
}

/// What holds unless something else is said.
pub(crate) fn plan(searches: bool) -> Result<Plan, String> {
    Ok(Plan {
        targets: Vec::new(),
        family: Family::Any,
        speech: None,
        workload: Workload::preset(WORKLOAD).ok_or("no preset")?,
        workload_name: WORKLOAD.to_owned(),
        seed: 1,
        threads: 1,
        cpus: Vec::new(),
        receive_cpus: Vec::new(),
        connections: 16,
        depth: 1,
        rate_per_s: None,
        outstanding_max: 8192,
        timeout: Duration::from_secs(1),
        churn_requests: None,
        verify: false,
        gso: false,
        populate: true,
        schedule: Schedule {
            settle: Duration::from_secs(1),
            reports: if searches { 1 } else { 5 },
            report: Duration::from_secs(if searches { 2 } else { 1 }),
        },
        requests: None,
        warm: None,
        late: Duration::from_millis(1),
        asserts: Vec::new(),
        label: None,
        out: None,
        server_pids: Vec::new(),
        json: false,
        quiet: false,
        given: Vec::new(),
        capacity: searches.then(|| Capacity { aim: Aim::new(Vec::new()), populate_once: false }),
    })
}

/// Checks what only shows together.
fn finish(mut plan: Plan) -> Result<Asked, Refusal> {
    if plan.targets.is_empty() {
        return Err(Refusal("which server? For instance localhost:11211".to_owned()));
    }
    plan.workload.check().map_err(|error| Refusal(error.to_string()))?;
    let is_own = plan.rate_per_s.is_some_and(f64::is_nan);
    if is_own && plan.workload.own_gap_ns(plan.threads).is_none() {
        return Err(Refusal("--rate own: the workload has no gaps of its own".to_owned()));
    }
    let gets = |shares: [f64; VERBS.len()]| shares[Verb::Get as usize] > 0.0;
    if plan.warm.is_some() && !plan.workload.shares().is_none_or(gets) {
        return Err(Refusal("--warm: the workload reads nothing, and has no hits".to_owned()));
    }
    if plan.connections < plan.threads {
        let threads = plan.threads;
        let why = format!("--threads {threads}: more than --connections; give {threads} of those");
        return Err(Refusal(why));
    }
    if plan.is_open() && plan.depth != 1 {
        let why = "--depth: only of the closed loop; --outstanding is the open loop's";
        return Err(Refusal(why.to_owned()));
    }
    if let Some(search) = &mut plan.capacity {
        if plan.rate_per_s.is_some() {
            return Err(Refusal("--rate: capacity chooses the rates, see --start".to_owned()));
        }
        search.aim.seed = plan.seed;
        if search.aim.goals.is_empty() {
            let usual = Aim::usual_goals(plan.late);
            search.aim.goals = usual.map_err(|error| Refusal(error.to_string()))?;
        }
        if search.aim.goals.len() > GOALS_MAX {
            return Err(Refusal(format!("--objective: more than {GOALS_MAX}")));
        }
    }
    Ok(Asked::Run(Box::new(plan)))
}

fn search(plan: &mut Plan, change: impl FnOnce(&mut Capacity)) -> Result<(), String> {
    plan.capacity.as_mut().map(change).ok_or_else(|| "only of capacity".to_owned())
}

/// `--help`.
fn usage(searches: bool) -> String {
    let (about, search, pace) = match searches {
        true => (ABOUT_CAPACITY, format!("The search:\n{}\n", lines(SEARCHING)), String::new()),
        false => (ABOUT_RUN, String::new(), lines(PACE)),
    };
    format!(
        "{about}{NUMBERS}\n{search}What is asked:\n{}\nHow it is driven:\n{pace}{}\n\
         What is measured:\n{}\nWorkloads:\n{}\n\
         Settings of a workload, behind --workload; in files NAME = VALUE:\n{}",
        lines(TRAFFIC),
        lines(DRIVING),
        lines(MEASURING),
        help::presets(),
        help::settings(),
    )
}

/// A count as in 500, 20k, 1.5m.
fn count(text: &str, max: f64) -> Result<f64, String> {
    let number = written_out(text).parse::<f64>().ok();
    let number = number.filter(|number| number.is_finite() && *number > 0.0 && *number <= max);
    number.ok_or_else(|| format!("a rate as in 500, 20k or 1.5m: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str, searches: bool) -> Result<Asked, Refusal> {
        parse(lexopt::Parser::from_args(words.split_whitespace()), searches)
    }

    fn planned(words: &str) -> Plan {
        match asked(words, words.contains("--start")).unwrap() {
            Asked::Run(plan) => *plan,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_flag_does_what_it_says() {
        let plan = planned("a:1 b:2 -w etc --keys 5000 --seed 7 -P meta --no-populate --verify");
        assert_eq!((plan.targets.len(), plan.workload.keys(), plan.seed), (2, 5000, 7));
        assert_eq!((plan.speech, plan.populate, plan.verify), (Some(Speech::Meta), false, true));
        let plan = planned("a -r 20k -t 2 -c 8 --outstanding 9 --cpus 0,2-3 --receive-cpus 4 -4");
        assert_eq!((plan.rate_per_s, plan.threads, plan.connections), (Some(20_000.0), 2, 8));
        assert_eq!((plan.cpus, plan.receive_cpus), (vec![0, 2, 3], vec![4]));
        assert_eq!((plan.outstanding_max, plan.family), (9, Family::V4));
        let plan = planned("a -d 3 --timeout 20ms --churn 5 --gso --schedule 1s+2x3s -n 9 -6 -q");
        assert_eq!((plan.depth, plan.timeout.as_millis(), plan.churn_requests), (3, 20, Some(5)));
        assert_eq!((plan.schedule.reports, plan.requests, plan.gso), (2, Some(9), true));
        assert!(plan.quiet && !plan.json && plan.capacity.is_none());
        let plan = planned("a --late 2ms -a p99<1ms -a hit>90% --server-pid 4,5 -o dir --json");
        assert_eq!((plan.late.as_millis(), plan.asserts.len()), (2, 2));
        assert_eq!(planned("a --warm 2m").warm, Some(Duration::from_secs(120)));
        assert_eq!((plan.server_pids, plan.json), (vec![4, 5], true));
        assert!(plan.out.is_some());
        let plan = planned("a --keys 5m -n 20k --outstanding 1k --churn 1.5k -w etc-as-printed");
        assert_eq!((plan.requests, plan.churn_requests), (Some(20_000), Some(1500)));
        assert_eq!((plan.outstanding_max, plan.workload_name.as_str()), (1000, "etc-as-printed"));
    }

    #[test]
    fn a_search_has_goals() {
        let search = planned("a --start 5k --late 2ms").capacity.unwrap();
        let goals = |search: &Capacity| {
            let names = search.aim.goals.iter().map(|goal| goal.name.clone());
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            (search.aim.start_per_s, goals(&search)),
            (5000.0, "avg p99 p999 max".to_owned())
        );
        let more = "a --start 5k -O p95<3ms -O hit>50% --precision 0.1 --votes 5 --repeats 2";
        let search = planned(more).capacity.unwrap();
        assert_eq!(goals(&search), "p95 hit");
        assert_eq!((search.aim.votes, search.aim.rounds, search.populate_once), (5, 2, false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, why) in [
            ("", "which server"),
            ("a -r 0", "--rate"),
            ("a -r 1e99", "--rate"),
            ("a -w uniform -r own", "own"),
            ("a -w nosuch.toml", "nosuch.toml"),
            ("a --keys many", "--keys"),
            ("a -t 3 -c 2", "--threads 3"),
            ("a -r 3 -d 2", "--outstanding"),
            ("a -w nosuch", "mix-b"),
            ("a --cpus 9-3", "--cpus"),
            ("a --timeout 0s", "--timeout"),
            ("a -a p99", "--assert"),
            ("a --start 3", "--start"),
            ("a --mix get=x", "--mix: get=x: "),
            ("a --speed 3", "--speed"),
            ("a --thread 3", "; do you mean --threads?"),
            ("a --value-sizes 3", "; do you mean --value-size?"),
            ("a -w mixa", "; do you mean mix-a?"),
            ("a --schedule soon", "--schedule"),
            ("a --warm 10s --mix set", "--warm"),
        ] {
            let error = asked(words, false).unwrap_err().to_string();
            assert!(error.contains(why), "{words}: {error}");
        }
        let error = asked("a -r 3", true).unwrap_err().to_string();
        assert!(error.contains("--start"), "{error}");
    }

    #[test]
    fn help_has_every_flag_and_fits() {
        for searches in [false, true] {
            let Asked::Print(text) = asked("--help", searches).unwrap() else { panic!("no help") };
            let mut rows = [TRAFFIC, DRIVING, MEASURING].into_iter().flatten();
            assert!(rows.all(|flag| text.contains(&format!("--{}", flag.long))));
            assert_eq!(text.contains("--precision"), searches);
            assert_eq!(text.contains("--rate"), !searches);
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{text}");
        }
    }
}
