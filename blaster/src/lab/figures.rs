//! The figures of a measurement that experiments can show and claim, by name.
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
    /// A number of CPUs, or an index.
    Number,
}

impl Unit {
    /// Formats a value in this unit.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self {
            Unit::PerSecond => grouped(value),
            Unit::Ns => time(whole(value)),
            Unit::Bytes => size(value),
            Unit::Share => percent(value),
            Unit::Number => format!("{value:.2}"),
        }
    }
}

/// A figure.
#[derive(Debug)]
pub struct Figure {
    /// The name in experiments and reports.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// True if less is better.
    pub less_is_better: bool,
    /// True if the figure gets worse when kvblaster is the limit.
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

    /// The capacity for a goal; 0 if no rate met it.
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

/// The name of the figure that is the capacity for a mean time below 1 ms.
pub const CAPACITY_AVG: &str = "capacity, mean < 1 ms";

/// The name of the figure of the servers' resident memory.
pub const RESIDENT: &str = "resident memory";
/// The name of the figure of the limit (`-m`, `maxmemory`) that led to a given resident memory.
pub const MEMORY_LIMIT: &str = "memory limit";
const HITS: &str = "hits";
const NOT_FOUND: &str = "not found";

/// All figures.
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

/// The shares of the kinds of work in a profile of the servers' CPUs (`profile`).
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

/// The prefix of the names of a second load's figures.
pub const BESIDE: &str = "beside: ";
/// The figures of a second load that are kept.
const BESIDE_KEPT: [&str; 4] = ["requests/s", "requests/CPU-s", "failures", "p99"];

/// Returns the figures of a second load, under their names in the first load's row.
#[must_use]
pub fn beside(figures: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let kept = BESIDE_KEPT.iter().filter_map(|name| Some((name, *figures.get(*name)?)));
    kept.map(|(name, value)| (format!("{BESIDE}{name}"), value)).collect()
}

fn quantile(tally: &VerbTally, quantile: f64) -> Option<f64> {
    tally.response_ns.quantile_ns(quantile).map(|ns| ns as f64)
}

/// Returns the figure with this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Figure> {
    let name = name.strip_prefix(BESIDE).unwrap_or(name);
    FIGURES.iter().chain(&PROFILE).find(|figure| figure.name == name)
}

/// The names of all figures, separated by semicolons.
#[must_use]
pub fn listed() -> String {
    let names = FIGURES.iter().chain(&PROFILE).map(|figure| figure.name);
    names.collect::<Vec<_>>().join("; ")
}

/// Computes all figures of a run, as far as they were measured.
#[must_use]
pub fn all(result: &RunResult, server_cpus: &[usize]) -> BTreeMap<String, f64> {
    let measured = Measured { result, merged: result.merged.as_ref(), server_cpus };
    let value = |figure: &Figure| {
        let value = (figure.of)(&measured).filter(|value| value.is_finite())?;
        Some((figure.name.to_owned(), rounded(value)))
    };
    FIGURES.iter().filter_map(value).collect()
}

/// The figures of a simulation that missed this share of its requests.
#[must_use]
pub fn of_misses(misses: f64) -> BTreeMap<String, f64> {
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
        // Three gets of two keys: one is answered late, two time out. A set is answered in time.
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
    fn names_are_unique() {
        for (nth, figure) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..nth].iter().all(|one| one.name != figure.name), "{}", figure.name);
        }
        assert_eq!(named("beside: p99").map(|figure| figure.name), Some("p99"));
        assert!(named("beside p99").is_none());
    }
}
