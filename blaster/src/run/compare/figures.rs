//! The figures by which servers are compared, and the test of whether two servers differ.
//!
//! Where: computed from the rounds of a comparison.
//! Invariant: a difference is reported only if there are enough rounds for an interval, and the
//! interval of the rounds' ratios excludes "no difference". A figure is marked if its rounds
//! disagree, or if kvblaster was the limit.
//! Source: the median of paired ratios, and the interval of the sign test, which is valid for any
//! distribution. One disturbed round of ten hardly changes the median and the interval.

use crate::measure::Interval;
use crate::measure::cpu::Categories;
use crate::measure::process::TICKS_MIN;
use crate::measure::steady::{self, RATES_NEAR, TIMES_NEAR};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Least confidence of each interval. With ten rounds, the interval from the second-least to the
/// second-greatest ratio has a confidence of 97.9 %. At 95 %, about every third comparison of a
/// server with itself would report a difference in one of the ten figures.
pub const CONFIDENCE: f64 = 0.97;
/// Least number of rounds for an interval. The interval from the least to the greatest of seven
/// ratios has a confidence of 98.4 % (1 - 2 / 2^7). Fewer rounds cannot reach `CONFIDENCE`.
pub const ROUNDS_MIN: usize = 7;
/// Two servers count as the same if the interval of their ratio is within this distance of 1.
pub const SAME_WITHIN: f64 = 0.03;
/// Two shares count as the same if the interval of their difference is within this distance of 0.
pub const SAME_SHARES_WITHIN: f64 = 0.001;

/// The unit of a figure, and the way in which two figures are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Requests per second, or per second of CPU time.
    Rate,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// A fraction between 0 and 1. Shares are compared by their difference, not by their ratio.
    Share,
}

struct Figure {
    name: &'static str,
    kind: Kind,
    /// True if the figure gets worse when kvblaster is the limit.
    is_bound: bool,
    of: fn(&Interval, &[usize]) -> Option<f64>,
}

const fn time(name: &'static str, of: fn(&Interval, &[usize]) -> Option<f64>) -> Figure {
    Figure { name, kind: Kind::Time, is_bound: true, of }
}

const fn other(
    name: &'static str,
    kind: Kind,
    of: fn(&Interval, &[usize]) -> Option<f64>,
) -> Figure {
    Figure { name, kind, is_bound: false, of }
}

/// The name of the figure that counts requests per second of the server's CPU time.
pub const PER_CPU: &str = "requests per CPU-second";
const USER_TIME: &str = "user time per request";

const FIGURES: [Figure; 10] = [
    Figure {
        name: "requests per second",
        kind: Kind::Rate,
        is_bound: true,
        of: |window, _| Some(window.achieved_per_s()),
    },
    other(PER_CPU, Kind::Rate, |window, cpus| {
        let seconds = cpu_seconds(window, cpus).filter(|seconds| *seconds > 0.0)?;
        Some(window.tally.total().answered as f64 / seconds)
    }),
    other(USER_TIME, Kind::Time, user_ns),
    time("mean response time", |window, _| window.tally.total().response_ns.mean_ns()),
    time("p50", |window, _| window.tally.total().response_ns.reliable_quantile_ns(0.5)),
    time("p99", |window, _| window.tally.total().response_ns.reliable_quantile_ns(0.99)),
    time("p99.9", |window, _| window.tally.total().response_ns.reliable_quantile_ns(0.999)),
    other("hits", Kind::Share, |window, _| window.tally.total().hit_ratio()),
    other("failures", Kind::Share, |window, _| window.tally.total().failure_ratio()),
    other("resident memory", Kind::Bytes, |window, _| Some(window.usage.server?.rss_bytes? as f64)),
];

/// Returns the servers' CPU time in user mode, in nanoseconds per answer. Time in the kernel is
/// left out, because it is not spent in the servers' code. `None` if the servers run on other
/// machines.
pub(crate) fn user_ns(window: &Interval, _: &[usize]) -> Option<f64> {
    let answered = window.tally.total().answered as f64;
    (answered > 0.0).then_some(user_seconds(window, &[])? * 1e9 / answered)
}

fn user_seconds(window: &Interval, _: &[usize]) -> Option<f64> {
    Some(window.usage.server?.usr_cpus * window.seconds)
}

/// True if the CPU time is too short to be measured: less than `TICKS_MIN` ticks of the kernel's
/// clock. If the kernel counts nanoseconds, there is no such limit.
fn is_too_little(figure: &str, window: &Interval, cpus: &[usize]) -> bool {
    let Some(server) = window.usage.server else { return false };
    let ticks =
        |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds < TICKS_MIN * server.tick_s);
    match figure {
        PER_CPU if cpus.is_empty() => !server.is_measurable(),
        PER_CPU => ticks(cpu_seconds(window, cpus)),
        USER_TIME => ticks(user_seconds(window, cpus)),
        _ => false,
    }
}

/// Returns the CPU seconds of the servers: if `cpus` are reserved for the servers, the busy time of
/// `cpus`, including softirq; otherwise the CPU time of the servers' processes. `None` if the
/// servers run on other machines.
pub(crate) fn cpu_seconds(window: &Interval, cpus: &[usize]) -> Option<f64> {
    let processes = window.usage.server?;
    match cpus {
        [] => Some(processes.cpu_s),
        _ => Some(on_cpus(window, cpus, Categories::busy)? * window.seconds),
    }
}

/// Returns the share of the servers' CPUs that other programs used. `None` if no CPUs are reserved
/// for the servers.
pub(crate) fn others(window: &Interval, cpus: &[usize]) -> Option<f64> {
    let programs = on_cpus(window, cpus, |shares| shares.usr + shares.nice + shares.sys)?;
    let all = (programs - window.usage.server?.cpus()) / cpus.len() as f64;
    (!cpus.is_empty()).then_some(all)
}

fn on_cpus(window: &Interval, cpus: &[usize], of: impl Fn(&Categories) -> f64) -> Option<f64> {
    let cores = &window.usage.machine.as_ref()?.cores;
    let share = |cpu: &usize| {
        let core = cores.iter().find(|core| core.cpu as usize == *cpu)?;
        Some(of(&core.shares))
    };
    cpus.iter().map(share).sum()
}

/// The rounds of one server.
#[derive(Clone, Debug)]
pub struct Series {
    /// The measurements, one item per round.
    pub windows: Vec<Interval>,
    /// True if kvblaster was the limit in one of the rounds.
    pub is_bound: bool,
}

/// One figure for all servers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The figure's name.
    pub figure: Cow<'static, str>,
    /// The figure's unit.
    pub kind: Kind,
    /// The median of each server's rounds.
    pub medians: Vec<Option<f64>>,
    /// For each server but the first: the comparison with the first server.
    pub against: Vec<Option<Against>>,
    /// True if in some round a server used too little CPU time for the figure to be computed.
    #[serde(default)]
    pub is_too_little: bool,
}

/// The comparison of a server with the first server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The median of the rounds' ratios, or of the rounds' differences if the figure is a share.
    pub value: f64,
    /// The interval that contains the true value with `CONFIDENCE`. `None` if there are too few
    /// rounds.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds compared.
    pub rounds: usize,
    /// The verdict that follows from the interval.
    pub finding: Finding,
    /// True if one of the two servers has a round that is far from the server's other rounds.
    pub is_unsteady: bool,
    /// True if kvblaster was the limit in a round of one of the two servers.
    pub is_bound: bool,
}

/// The verdict on the difference of two servers in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The servers differ.
    Differs,
    /// The servers differ by less than `SAME_WITHIN`; if the figure is a share, by less than 0.001.
    Same,
    /// The difference is no larger than the variation between rounds.
    Noise,
    /// There are too few rounds for an interval.
    TooFew,
}

/// Returns a row for each figure that at least one server has.
pub(crate) fn rows(series: &[Series], cpus: &[usize]) -> Vec<Row> {
    let rows = FIGURES.iter().map(|figure| row(figure, series, cpus));
    let is_told = |row: &Row| row.medians.iter().flatten().any(|median| *median > 0.0);
    rows.filter(|row| row.is_too_little || is_told(row)).collect()
}

fn row(figure: &Figure, series: &[Series], cpus: &[usize]) -> Row {
    let few = |window: &Interval| is_too_little(figure.name, window, cpus);
    let is_few = |one: &Series| one.windows.iter().any(few);
    let is_too_little = series.iter().any(is_few);
    let of = |window: &Interval| (figure.of)(window, cpus).filter(|_| !is_too_little);
    let near = if figure.kind == Kind::Time { TIMES_NEAR } else { RATES_NEAR };
    let is_unsteady = |one: &Series| {
        figure.kind != Kind::Share && !steady::apart(&one.windows, near, of).is_empty()
    };
    // If a round lacks the figure, there is no median: rounds differ too much to leave a round out.
    let all = |one: &Series| one.windows.iter().map(of).collect::<Option<Vec<f64>>>();
    let against = |(first, other): (&Series, &Series)| {
        all(first).and(all(other))?;
        let both = first.windows.iter().zip(&other.windows);
        let pairs: Vec<(f64, f64)> = both.filter_map(|(one, two)| of(one).zip(of(two))).collect();
        let found = found(&pairs, figure.kind)?;
        Some(Against {
            is_unsteady: is_unsteady(first) || is_unsteady(other),
            is_bound: figure.is_bound && (first.is_bound || other.is_bound),
            ..found
        })
    };
    let median = |one: &Series| all(one).and_then(steady::median);
    let (first, others) = series.split_at(series.len().min(1));
    Row {
        figure: Cow::Borrowed(figure.name),
        kind: figure.kind,
        medians: series.iter().map(median).collect(),
        against: first.iter().cycle().zip(others).map(against).collect(),
        is_too_little,
    }
}

/// Compares two servers. Each pair has the first and the second server's figure in one round.
/// `None` if no pair has a finite ratio or difference.
pub fn found(pairs: &[(f64, f64)], kind: Kind) -> Option<Against> {
    let is_share = kind == Kind::Share;
    let sample = |(one, two): &(f64, f64)| if is_share { two - one } else { two / one };
    let samples: Vec<f64> = pairs.iter().map(sample).filter(|one| one.is_finite()).collect();
    let interval = interval(samples.clone());
    let (none, same) = if is_share { (0.0, SAME_SHARES_WITHIN) } else { (1.0, SAME_WITHIN) };
    let finding = match interval {
        Some((low, high)) => match (low - none, high - none) {
            (low, high) if low > -same && high < same => Finding::Same,
            (low, high) if low <= 0.0 && high >= 0.0 => Finding::Noise,
            _ => Finding::Differs,
        },
        None => Finding::TooFew,
    };
    let value = steady::median(samples.clone())?;
    let (is_unsteady, is_bound) = (false, false);
    Some(Against { value, interval, rounds: samples.len(), finding, is_unsteady, is_bound })
}

/// Returns the two samples between which the median of the distribution lies with `CONFIDENCE`. By
/// the sign test, the number of samples below the median is distributed like the number of heads in
/// as many tosses of a fair coin. `None` if there are too few samples.
fn interval(mut samples: Vec<f64>) -> Option<(f64, f64)> {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    // `below` is the probability of fewer than `heads` heads, and `chance_ln` the logarithm of the
    // probability of `heads` heads. Without the logarithm, the first probability, 2^-count, could
    // underflow to 0.
    let (mut heads, mut chance_ln, mut below) = (0, -count * std::f64::consts::LN_2, 0.0);
    while heads < samples.len() / 2 && below + f64::exp(chance_ln) <= (1.0 - CONFIDENCE) / 2.0 {
        below += f64::exp(chance_ln);
        chance_ln += ((count - heads as f64) / (heads as f64 + 1.0)).ln();
        heads += 1;
    }
    let least = heads.checked_sub(1)?;
    Some((samples[least], samples[samples.len() - 1 - least]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::measure::cpu::{Core, CpuShares};
    use crate::measure::process::ProcessUse;
    use crate::workload::Verb;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Returns pairs of figures from a machine whose speed drifts, with one round in ten disturbed.
    /// The second server's figure is `ratio` times the first's.
    fn pairs(seed: u64, rounds: u32, ratio: f64) -> Vec<(f64, f64)> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut unit = move || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut noisy = move |round: u32| {
            let disturbed = if unit() < 0.1 { 0.7 } else { 1.0 };
            (1.0 - 0.03 * f64::from(round % 10)) * disturbed * (0.95 + 0.1 * unit())
        };
        (0..rounds).map(|round| (noisy(round), ratio * noisy(round))).collect()
    }

    fn count(finding: Finding, ratio: f64, rounds: u32) -> usize {
        let found = |seed| found(&pairs(seed, rounds, ratio), Kind::Rate).unwrap().finding;
        (0..100).filter(|seed| found(*seed) == finding).count()
    }

    #[test]
    fn a_server_is_no_other_than_itself() {
        let differs = count(Finding::Differs, 1.0, 10);
        assert!(differs <= 5, "{differs} of 100");
        assert_eq!(count(Finding::TooFew, 1.0, 6), 100);
        let same = count(Finding::Same, 1.0, 200);
        assert!(same >= 95, "{same} of 100");
    }

    #[test]
    fn a_planted_difference_is_found() {
        // With ten rounds, two rounds that are disturbed in the same way can hide the difference.
        for (rounds, least) in [(10, 75), (20, 95)] {
            let counts = [1.4, 0.7].map(|ratio| count(Finding::Differs, ratio, rounds));
            assert!(counts.iter().all(|count| *count >= least), "{counts:?} of 100");
        }
        let told = found(&pairs(1, 10, 2.0), Kind::Rate).unwrap();
        let (low, high) = told.interval.unwrap();
        assert!(low > 1.5 && low <= told.value && told.value <= high && high < 2.9, "{told:?}");
    }

    #[test]
    fn intervals_are_those_of_the_sign_tests_table() {
        let of = |count: u32| interval((1..=count).rev().map(f64::from).collect());
        let table = [(6, None), (7, Some((1.0, 7.0))), (9, Some((1.0, 9.0)))];
        let more = [(10, Some((2.0, 9.0))), (20, Some((5.0, 16.0))), (1000, Some((466.0, 535.0)))];
        for (count, expected) in table.into_iter().chain(more) {
            assert_eq!(of(count), expected, "{count}");
        }
    }

    #[test]
    fn shares_are_told_by_their_difference() {
        let hits = |with: f64| (0..10).map(|_| (0.90, 0.90 + with)).collect::<Vec<_>>();
        let told = |with| found(&hits(with), Kind::Share).unwrap().finding;
        assert_eq!(
            [0.0, 0.000_5, 0.05].map(told),
            [Finding::Same, Finding::Same, Finding::Differs]
        );
        assert_eq!(found(&[], Kind::Share), None);
        assert_eq!(found(&[(0.0, 1.0)], Kind::Bytes), None);
    }

    /// Returns rounds of one second with these answers, 0.5 s of CPU time and one busy core.
    fn series(answered: &[u64]) -> Series {
        let window = |answered: &u64| {
            let mut tally = Tally::new(1_000_000);
            tally.answered_n(Verb::Get, 1_000_000_000 / answered, None, *answered);
            let mut window = Interval { seconds: 1.0, tally, ..Interval::default() };
            let server = ProcessUse { cpu_s: 0.5, usr_cpus: 0.2, ..ProcessUse::default() };
            window.usage.server = Some(server);
            let shares = Categories { usr: 0.5, softirq: 0.3, idle: 0.2, ..Categories::default() };
            let cores = vec![Core { cpu: 3, shares, ..Core::default() }];
            window.usage.machine = Some(CpuShares { total: shares, cores });
            window
        };
        Series { windows: answered.iter().map(window).collect(), is_bound: false }
    }

    #[test]
    fn figures_are_told_by_server_and_what_they_rest_on_is_marked() {
        let mut both = [series(&[1000; 10]), series(&[1500; 10])];
        both[1].windows[3] = series(&[100]).windows[0].clone();
        both[0].is_bound = true;
        let told = rows(&both, &[]);
        let names: Vec<&str> = told.iter().map(|row| &*row.figure).collect();
        let expected = ["requests per second", PER_CPU, "user time per request"];
        assert_eq!(names[..3], expected);
        assert_eq!(names[3..], ["mean response time", "p50", "p99"]);
        let rate = told[0].against[0].clone().unwrap();
        assert_eq!((rate.value, rate.finding), (1.5, Finding::Differs));
        assert!(rate.is_unsteady && rate.is_bound);
        assert_eq!(told[1].medians, [Some(2000.0), Some(3000.0)]);
        assert!(!told[1].against[0].clone().unwrap().is_bound);
        assert_eq!(told[2].medians, [Some(200_000.0), Some(1e9 / 7500.0)]);
        // With `--server-cpus`, the busy time of these CPUs is the servers' CPU time.
        assert_eq!(rows(&both, &[3])[1].medians, [Some(1250.0), Some(1875.0)]);
        let other = others(&both[0].windows[0], &[3]).unwrap();
        assert!((other - 0.3).abs() < 1e-9, "{other}");
        assert_eq!(others(&both[0].windows[0], &[]), None);
        let mut few = both.clone();
        let servers = few.iter_mut().flat_map(|one| &mut one.windows);
        servers.filter_map(|one| one.usage.server.as_mut()).for_each(|it| it.tick_s = 0.01);
        few[1].windows[0].usage.server.as_mut().unwrap().usr_cpus = 0.02;
        let told = rows(&few, &[]);
        assert_eq!((told[1].is_too_little, told[2].is_too_little), (false, true));
        assert_eq!((&told[2].medians, &told[2].against), (&vec![None; 2], &vec![None]));
        // `PER_CPU` is left out if a server's CPU does not exist or is on another machine.
        assert_ne!(rows(&both, &[4])[1].figure, PER_CPU);
        both.iter_mut().flat_map(|one| &mut one.windows).for_each(|one| one.usage.server = None);
        assert_ne!(rows(&both, &[3])[1].figure, PER_CPU);
    }
}
