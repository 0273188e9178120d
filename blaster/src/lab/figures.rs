//! The figures of a measurement, each with a name by which experiments show or claim the figure.
//!
//! Where: `measure` computes all figures of a run; experiments, claims and reports name them.
//! Invariant: a figure that could not be measured is absent, never 0.
//! Source: the KV-Cache paper, sections 6.1 and 6.2 (rate, RTT, capacity); Pavlik's thesis,
//! sections 2.1 and 3.1 (p99, CPU categories); Solarflare's white paper (times of a transaction).

use crate::measure::cpu::Categories;
use crate::measure::{Interval, VerbTally};
use crate::result::RunResult;
use crate::run::compare::figures::{cpu_seconds, others, user_ns};
use crate::words::{grouped, percent, size, time, whole};
use crate::workload::Verb;
use std::collections::BTreeMap;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events per second, or per second of CPU time.
    PerSecond,
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// A fraction between 0 and 1.
    Share,
    /// A number of CPUs.
    Number,
}

impl Unit {
    /// Formats a value in this unit.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Unit::PerSecond => grouped(value),
            Unit::Ns => time(whole(value)),
            Unit::Bytes => size(value),
            Unit::Share => percent(value),
            Unit::Number => format!("{value:.2}"),
        }
    }
}

/// A measured value that experiments can name.
#[derive(Debug)]
pub struct Figure {
    /// The name in experiments and reports.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// True if a smaller value is better.
    pub less_is_better: bool,
    /// True if the figure does not describe the server when kvblaster is the limit.
    pub is_bound: bool,
    of: fn(&Measured<'_>) -> Option<f64>,
}

/// A measurement: the run's result and the CPUs that were reserved for the servers.
struct Measured<'a> {
    result: &'a RunResult,
    merged: Option<&'a Interval>,
    server_cpus: &'a [usize],
}

impl Measured<'_> {
    fn total(&self) -> Option<VerbTally> {
        self.merged.map(|merged| merged.tally.total())
    }

    fn of_verb<T>(&self, verb: Verb, of: impl Fn(&VerbTally) -> Option<T>) -> Option<T> {
        self.merged
            .map(|merged| merged.tally.verb(verb))
            .filter(|one| one.answered > 0)
            .and_then(of)
    }

    fn per_s(&self, verb: Verb) -> Option<f64> {
        self.of_verb(verb, |one| Some(one.answered as f64 / self.merged?.seconds))
    }

    fn cpu(&self, of: fn(&Categories) -> f64) -> Option<f64> {
        let cores = &self.merged?.usage.machine.as_ref()?.cores;
        let cores = cores.iter().filter(|core| self.server_cpus.contains(&(core.cpu as usize)));
        cores.map(|core| of(&core.shares)).reduce(|a, b| a + b)
    }

    /// Returns the highest rate that met the objective `goal`, or 0 if no rate met the objective.
    fn capacity(&self, goal: &str) -> Option<f64> {
        let all = &self.result.search.as_ref()?.capacities;
        let found = all.iter().find(|one| one.name == goal)?;
        Some(found.rate_per_s.unwrap_or(0.0))
    }
}

const fn figure(
    name: &'static str,
    unit: Unit,
    less_is_better: bool,
    of: fn(&Measured<'_>) -> Option<f64>,
) -> Figure {
    Figure { name, unit, less_is_better, is_bound: false, of }
}

const fn bound(
    name: &'static str,
    unit: Unit,
    less_is_better: bool,
    of: fn(&Measured<'_>) -> Option<f64>,
) -> Figure {
    Figure { name, unit, less_is_better, is_bound: true, of }
}

/// The prefix of a figure's name if the figure is the share of a kind of work.
pub const PREFIX: &str = "profile: ";
/// The name of the figure for the highest rate with a mean response time below 1 ms.
pub const CAPACITY_AVG: &str = "capacity, mean < 1 ms";

/// The name of the figure of the servers' resident memory.
pub const RESIDENT: &str = "resident memory";
/// The name of the figure for the memory limit (`-m`, `maxmemory`) that led to `resident_mb`.
pub const MEMORY_LIMIT: &str = "memory limit";
const HITS: &str = "hits";
/// The name of the figure for the share of the requested keys that the server did not find.
pub const NOT_FOUND: &str = "not found";

/// All figures, without the kinds of work (`PROFILE`).
pub const FIGURES: [Figure; 37] = [
    bound("requests/s", Unit::PerSecond, false, |it| Some(it.merged?.achieved_per_s())),
    bound("keys/s", Unit::PerSecond, false, |it| Some(it.merged?.keys_per_s())),
    bound("gets/s", Unit::PerSecond, false, |it| it.per_s(Verb::Get)),
    bound("sets/s", Unit::PerSecond, false, |it| it.per_s(Verb::Set)),
    bound("deletes/s", Unit::PerSecond, false, |it| it.per_s(Verb::Delete)),
    bound("bytes/s", Unit::Bytes, false, |it| {
        let merged = it.merged?;
        Some((merged.tally.received_bytes + merged.tally.sent_bytes) as f64 / merged.seconds)
    }),
    bound(CAPACITY_AVG, Unit::PerSecond, false, |it| it.capacity("mean")),
    bound("capacity, p99 < 1 ms", Unit::PerSecond, false, |it| it.capacity("p99")),
    bound("capacity, none late", Unit::PerSecond, false, |it| it.capacity("late")),
    bound("mean", Unit::Ns, true, |it| it.total()?.response_ns.mean_ns()),
    bound("deviation", Unit::Ns, true, |it| it.total()?.response_ns.sd_ns()),
    bound("min", Unit::Ns, true, |it| it.total()?.response_ns.min_ns().map(|ns| ns as f64)),
    bound("p50", Unit::Ns, true, |it| quantile(&it.total()?, 0.5)),
    bound("p99", Unit::Ns, true, |it| quantile(&it.total()?, 0.99)),
    bound("p99.9", Unit::Ns, true, |it| quantile(&it.total()?, 0.999)),
    bound("max", Unit::Ns, true, |it| it.total()?.response_ns.max_ns().map(|ns| ns as f64)),
    bound("get mean", Unit::Ns, true, |it| it.of_verb(Verb::Get, |one| one.response_ns.mean_ns())),
    bound("get p99", Unit::Ns, true, |it| it.of_verb(Verb::Get, |one| quantile(one, 0.99))),
    bound("get max", Unit::Ns, true, |it| {
        it.of_verb(Verb::Get, |one| one.response_ns.max_ns().map(|ns| ns as f64))
    }),
    bound("set mean", Unit::Ns, true, |it| it.of_verb(Verb::Set, |one| one.response_ns.mean_ns())),
    bound("set p99", Unit::Ns, true, |it| it.of_verb(Verb::Set, |one| quantile(one, 0.99))),
    bound("late", Unit::Share, true, |it| it.total()?.late_ratio()),
    figure(HITS, Unit::Share, false, |it| it.total()?.hit_ratio()),
    figure("failures", Unit::Share, true, |it| it.total()?.failure_ratio()),
    figure(NOT_FOUND, Unit::Share, true, |it| it.merged?.tally.not_found_ratio()),
    figure("requests/CPU-s", Unit::PerSecond, false, |it| {
        let seconds = cpu_seconds(it.merged?, it.server_cpus).filter(|seconds| *seconds > 0.0)?;
        Some(it.total()?.answered as f64 / seconds)
    }),
    figure("user time/request", Unit::Ns, true, |it| user_ns(it.merged?, &[])),
    figure("server CPUs", Unit::Number, true, |it| it.cpu(Categories::busy)),
    figure("server user", Unit::Number, true, |it| it.cpu(|shares| shares.usr + shares.nice)),
    figure("server system", Unit::Number, true, |it| it.cpu(|shares| shares.sys)),
    figure("server softirq", Unit::Number, true, |it| it.cpu(|shares| shares.softirq)),
    figure("fullest CPU", Unit::Share, true, |it| {
        let cores = &it.merged?.usage.machine.as_ref()?.cores;
        cores.iter().map(|core| core.shares.busy()).reduce(f64::max)
    }),
    figure("client CPUs", Unit::Number, true, |it| Some(it.merged?.usage.client?.cpus())),
    figure("others on server CPUs", Unit::Share, true, |it| others(it.merged?, it.server_cpus)),
    figure(RESIDENT, Unit::Bytes, true, |it| Some(it.merged?.usage.server?.rss_bytes? as f64)),
    figure(MEMORY_LIMIT, Unit::Bytes, true, |_| None),
    figure("lost datagrams", Unit::Share, true, |it| {
        let merged = it.merged?;
        Some(merged.tally.udp.lost as f64 / it.total()?.sent.max(1) as f64)
    }),
];

/// The figures of a profile: the share of each kind of work in the servers' CPU time.
pub const PROFILE: [Figure; 17] = [
    profiled("profile: driver"),
    profiled("profile: TCP/IP stack"),
    profiled("profile: copy"),
    profiled("profile: system call"),
    profiled("profile: socket layer"),
    profiled("profile: wake-up"),
    profiled("profile: wait"),
    profiled("profile: lock"),
    profiled("profile: kernel allocation"),
    profiled("profile: allocation"),
    profiled("profile: parse"),
    profiled("profile: hash"),
    profiled("profile: store"),
    profiled("profile: reply"),
    profiled("profile: other server code"),
    profiled("profile: other kernel"),
    profiled("profile: unmapped"),
];

const fn profiled(name: &'static str) -> Figure {
    figure(name, Unit::Share, true, |_| None)
}

/// The prefix of the names of the figures of a second load (`Drive::beside`).
pub const BESIDE: &str = "beside: ";
/// The names of the figures of a second load that the record has.
const BESIDE_KEPT: [&str; 4] = ["requests/s", "requests/CPU-s", "failures", "p99"];

/// Returns the figures of a second load that the record has, with `BESIDE` before each name.
pub(crate) fn beside(figures: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let kept = BESIDE_KEPT.iter().filter_map(|name| Some((name, *figures.get(*name)?)));
    kept.map(|(name, value)| (format!("{BESIDE}{name}"), value)).collect()
}

fn quantile(tally: &VerbTally, quantile: f64) -> Option<f64> {
    tally.response_ns.reliable_quantile_ns(quantile)
}

/// Returns the percentile in a figure's name: `p99` for `get p99`. `None` if there is none.
pub fn quantile_of(figure: &str) -> Option<&str> {
    let last = figure.rsplit(' ').next()?;
    last.strip_prefix('p')?.parse::<f64>().ok().map(|_| last)
}

/// Returns the figure with this name.
pub(crate) fn named(name: &str) -> Option<&'static Figure> {
    let name = name.strip_prefix(BESIDE).unwrap_or(name);
    FIGURES.iter().chain(&PROFILE).find(|figure| figure.name == name)
}

/// Writes a figure's value in a sentence: `the p99 of redis is 2 ms`.
pub(crate) fn told(figure: &str, of: &str, value: &str) -> String {
    let (words, is_plural) = in_words(figure);
    format!("the {words} of {of} {} {value}", if is_plural { "are" } else { "is" })
}

/// Writes a ratio in a sentence: `the p99 of redis is 2 times that of memcached`.
pub(crate) fn compared(figure: &str, [of, to]: [&str; 2], times: &str) -> String {
    let that = if in_words(figure).1 { "those" } else { "that" };
    told(figure, of, &format!("{times} {that} of {to}"))
}

/// Returns a figure's name for a sentence, without article, and true if this name is a plural.
fn in_words(figure: &str) -> (String, bool) {
    if let Some(name) = figure.strip_prefix(BESIDE) {
        let (words, is_plural) = in_words(name);
        return (format!("second load's {words}"), is_plural);
    }
    if let Some(kind) = figure.strip_prefix(PREFIX) {
        return (format!("share of the work \"{kind}\" in the CPU time"), false);
    }
    if let Some((verb @ ("get" | "set"), name)) = figure.split_once(' ') {
        return (format!("{} of {verb}s", in_words(name).0), false);
    }
    let (words, is_plural) = match figure {
        CAPACITY_AVG => ("capacity (mean response time below 1 ms)", false),
        "capacity, p99 < 1 ms" => ("capacity (p99 below 1 ms)", false),
        "capacity, none late" => ("capacity (no late response)", false),
        "mean" => ("mean response time", false),
        "deviation" => ("standard deviation of the response times", false),
        "min" => ("shortest response time", false),
        "max" => ("longest response time", false),
        "late" => ("share of late requests", false),
        NOT_FOUND => ("misses", true),
        "server CPUs" => ("number of busy server CPUs", false),
        "server user" => ("number of server CPUs in user mode", false),
        "server system" => ("number of server CPUs in the kernel", false),
        "server softirq" => ("number of server CPUs in soft interrupts", false),
        "fullest CPU" => ("utilization of the busiest CPU", false),
        "client CPUs" => ("number of busy client CPUs", false),
        "others on server CPUs" => {
            ("share of the server CPUs' time that other programs used", false)
        }
        name => (name, name.ends_with('s')),
    };
    (words.to_owned(), is_plural)
}

/// The names of all figures, separated by semicolons.
pub(crate) fn listed() -> String {
    let names = FIGURES.iter().chain(&PROFILE).map(|figure| figure.name);
    names.collect::<Vec<_>>().join("; ")
}

/// Computes all figures of a run that were measured.
pub(crate) fn all(result: &RunResult, server_cpus: &[usize]) -> BTreeMap<String, f64> {
    let measured = Measured { result, merged: result.merged.as_ref(), server_cpus };
    let value = |figure: &Figure| {
        let value = (figure.of)(&measured).filter(|value| value.is_finite())?;
        Some((figure.name.to_owned(), rounded(value)))
    };
    FIGURES.iter().filter_map(value).collect()
}

/// Returns the figures of a simulation in which `misses` is the share of requests that missed.
pub(crate) fn of_misses(misses: f64) -> BTreeMap<String, f64> {
    [(HITS, 1.0 - misses), (NOT_FOUND, misses)]
        .map(|(name, share)| (name.to_owned(), rounded(share)))
        .into()
}

/// Rounds to five significant digits. No measurement here is more precise.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::KeyAnswer;
    use crate::result::sample;

    #[test]
    fn a_runs_figures_have_names_and_five_digits() {
        let figures = all(&sample::result("ours", 50), &[]);
        let rate = figures["requests/s"];
        assert!(rate > 0.0 && rate == rounded(rate), "{figures:?}");
        assert!(figures["p50"] <= figures["p99"] && figures["p99"] <= figures["max"]);
        assert!(!figures.contains_key(CAPACITY_AVG), "no search, no capacity");
        assert_eq!(rounded(1_234_567.0), 1_234_600.0);
    }

    #[test]
    fn figures_that_a_run_reports_too_are_the_same() {
        let mut result = sample::result("ours", 50);
        let merged = result.merged.as_mut().unwrap();
        // Three gets of two keys each: one get is late, two gets time out. A set is in time.
        merged.tally = crate::measure::Tally::new(1_000);
        for _ in 0..3 {
            merged.tally.sent(Verb::Get, 2, 0, 0);
        }
        merged.tally.found(Verb::Get, KeyAnswer::Hit);
        merged.tally.found(Verb::Get, KeyAnswer::Miss);
        merged.tally.answered(Verb::Get, false, 0, 0, 2_000);
        merged.tally.sent(Verb::Set, 1, 0, 0);
        merged.tally.found(Verb::Set, KeyAnswer::Done);
        merged.tally.answered(Verb::Set, false, 0, 0, 1);
        (0..2).for_each(|_| merged.tally.timed_out(Verb::Get));
        let (keys_per_s, seconds) = (merged.keys_per_s(), merged.seconds);
        let figures = all(&result, &[]);
        assert_eq!(figures["keys/s"], rounded(keys_per_s), "{}", 3.0 / seconds);
        assert_eq!((figures["late"], figures["not found"]), (0.75, 0.5));
    }

    #[test]
    fn a_percentile_needs_ten_slower_answers() {
        let has_p99 = |answers: usize| {
            let mut result = sample::result("ours", 50);
            let merged = result.merged.as_mut().unwrap();
            merged.tally = crate::measure::Tally::new(1_000);
            for _ in 0..answers {
                merged.tally.sent(Verb::Get, 1, 0, 0);
                merged.tally.answered(Verb::Get, false, 0, 0, 2_000);
            }
            let figures = all(&result, &[]);
            ["p99", "get p99"].map(|name| figures.contains_key(name))
        };
        assert_eq!([has_p99(999), has_p99(1000)], [[false; 2], [true; 2]]);
        let quantiles = ["p99", "beside: p99", "get p99", "p99.9", "profile: parse"];
        let expected = [Some("p99"), Some("p99"), Some("p99"), Some("p99.9"), None];
        assert_eq!(quantiles.map(quantile_of), expected);
    }

    #[test]
    fn figures_are_told_in_sentences() {
        for (figure, told) in [
            ("not found", "the misses of a are 2 times those of b"),
            ("requests/CPU-s", "the requests/CPU-s of a are 2 times those of b"),
            ("get mean", "the mean response time of gets of a is 2 times that of b"),
            ("beside: p99", "the second load's p99 of a is 2 times that of b"),
            (
                "profile: copy",
                "the share of the work \"copy\" in the CPU time of a is 2 times that of b",
            ),
        ] {
            assert_eq!(compared(figure, ["a", "b"], "2 times"), told);
        }
    }

    #[test]
    fn names_are_unique() {
        for (nth, figure) in FIGURES.iter().enumerate() {
            let is_same = |one: &Figure| {
                one.name == figure.name || in_words(one.name) == in_words(figure.name)
            };
            assert!(!FIGURES[..nth].iter().any(is_same), "{}", figure.name);
        }
        assert_eq!(named("beside: p99").map(|figure| figure.name), Some("p99"));
        assert!(named("beside p99").is_none());
    }
}
