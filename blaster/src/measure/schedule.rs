//! The schedule of a measurement: traffic that is not reported, then reports of equal length.
//!
//! Where: the run increments the epoch, which numbers the reports, according to the schedule.
//! Invariant: epoch 0, before the first report, is not reported. Epochs 1 to `reports` are
//! reported; later epochs are not.
//! Source: the KV-Cache paper, section 6.1: six consecutive reports in the stable state.

use super::Tally;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Maximum number of reports of a run.
pub const REPORTS_MAX: u32 = 10_000;
/// Maximum length of a report, and of the time before the first report.
pub const SPAN_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Minimum length of a report.
pub const REPORT_MIN: Duration = Duration::from_millis(10);

/// The schedule of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The length of the unreported traffic in which the server settles.
    pub settle: Duration,
    /// Number of reports.
    pub reports: u32,
    /// The length of each report.
    pub report: Duration,
}

impl Default for Schedule {
    /// The KV-Cache paper's schedule, except that the first report begins after only ten seconds.
    fn default() -> Schedule {
        Schedule { settle: TEN_S, ..PAPER }
    }
}

const TEN_S: Duration = Duration::from_secs(10);
/// The schedule of the KV-Cache paper; the first report begins 100 seconds after populating.
const PAPER: Schedule = Schedule { settle: Duration::from_secs(100), reports: 6, report: TEN_S };

/// The reason why a schedule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a schedule: {1}")]
pub struct ScheduleError(String, &'static str);

impl Schedule {
    /// The length of the whole schedule.
    pub(crate) fn total(&self) -> Duration {
        self.settle + self.report * self.reports
    }

    /// The end of an epoch, as the time since the start of the schedule.
    pub(crate) fn end_of(&self, epoch: u32) -> Duration {
        self.settle + self.report * epoch.min(self.reports)
    }

    /// True if an epoch is reported.
    pub(crate) fn is_reported(&self, epoch: u32) -> bool {
        (1..=self.reports).contains(&epoch)
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    /// Reads `6x10s`, or `10s+6x10s` (traffic before the first report), or `paper` (`100s+6x10s`).
    fn from_str(text: &str) -> Result<Schedule, ScheduleError> {
        if text.trim() == "paper" {
            return Ok(PAPER);
        }
        let refused = |why| ScheduleError(text.to_owned(), why);
        let (settle, reports) = match text.split_once('+') {
            Some((settle, reports)) => (span(settle), reports),
            None => (Some(Schedule::default().settle), text),
        };
        let settle = settle.ok_or(refused("the text before the + is not a time"))?;
        let why = "write COUNTxTIME (6x10s means 6 reports of 10 s), TIME+COUNTxTIME (5s+6x10s \
                   means the same after 5 s without a report) or the word paper";
        let (count, report) = reports.split_once('x').ok_or(refused(why))?;
        let reports = count.trim().parse::<u32>().map_err(|_| refused(why))?;
        let report = span(report).ok_or(refused(why))?;
        if reports == 0 || reports > REPORTS_MAX {
            return Err(refused("a schedule has 1 to 10000 reports"));
        }
        if report < REPORT_MIN {
            return Err(refused("a report takes at least 10 ms"));
        }
        Ok(Schedule { settle, reports, report })
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |span: Duration| span.as_secs_f64();
        let Schedule { settle, reports, report } = self;
        write!(f, "{}s+{reports}x{}s", seconds(*settle), seconds(*report))
    }
}

/// Parses a time (`10s`, `1.5ms`, `2m`, `1h`, or seconds); `None` if invalid or above a week.
pub(crate) fn span(text: &str) -> Option<Duration> {
    let text = text.trim();
    let at = text.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(text.len());
    let (figure, unit) = text.split_at(at);
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let span = Duration::try_from_secs_f64(figure.parse::<f64>().ok()? * seconds).ok()?;
    (span <= SPAN_MAX).then_some(span)
}

/// The times that flags may have.
const TIME: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3600);

/// Parses a time, such as 500us.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = span(text).filter(|time| TIME.contains(time));
    time.ok_or_else(|| {
        format!("must be a time from 1us to an hour, such as 500us, 1ms or 2s, not {text}")
    })
}

/// Merges the threads' tallies by epoch.
#[derive(Debug)]
pub struct Collector {
    threads: u32,
    /// For each epoch of which some threads' tallies are missing: the number of tallies that
    /// have arrived, and their sum.
    open: BTreeMap<u32, (u32, MergedTally)>,
}

/// The counts of all threads in one epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedTally {
    /// The sum of the threads' tallies.
    pub tally: Tally,
    /// The share of time for which the busiest thread was on a CPU.
    pub busiest: f64,
}

impl MergedTally {
    /// Adds one thread's tally.
    pub fn merge(&mut self, tally: &Tally) {
        self.tally.merge(tally);
        if tally.wall_ns > 0 {
            self.busiest = self.busiest.max(tally.busy_ns as f64 / tally.wall_ns as f64);
        }
    }

    /// Adds a later tally of the same threads. `busiest` becomes the mean, which is too high if the
    /// two tallies had different busiest threads.
    pub(crate) fn join(&mut self, other: &MergedTally) {
        let (ours, theirs) = (self.tally.wall_ns as f64, other.tally.wall_ns as f64);
        let all = (ours + theirs).max(1.0);
        self.busiest = (self.busiest * ours + other.busiest * theirs) / all;
        self.tally.merge(&other.tally);
    }
}

impl Collector {
    /// Returns a collector for `threads` threads, each of which hands over one tally per epoch.
    pub(crate) fn new(threads: u32) -> Collector {
        Collector { threads, open: BTreeMap::new() }
    }

    /// Adds a thread's tally of an epoch. After the epoch's last tally, returns the epoch and the
    /// sum of its tallies.
    pub fn take(&mut self, epoch: u32, tally: &Tally) -> Option<(u32, MergedTally)> {
        let (tallies, merged) = self.open.entry(epoch).or_default();
        *tallies += 1;
        merged.merge(tally);
        if *tallies < self.threads {
            return None;
        }
        self.open.remove(&epoch).map(|(_, merged)| (epoch, merged))
    }

    /// The epochs for which tallies are missing because the run was stopped, in ascending order.
    pub(crate) fn rest(self) -> Vec<(u32, MergedTally)> {
        self.open.into_iter().map(|(epoch, (_, merged))| (epoch, merged)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_default_is_the_papers_but_for_its_ten_reports_of_settling() {
        let schedule = Schedule::default();
        assert_eq!((schedule.reports, schedule.report), (6, s(10)));
        assert_eq!(schedule.total(), s(70));
        assert_eq!("6x10s".parse(), Ok(schedule));
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
        let paper: Schedule = "paper".parse().unwrap();
        assert_eq!(paper, Schedule { settle: s(100), ..schedule });
        assert_eq!(paper.to_string(), "100s+6x10s");
    }

    #[test]
    fn epochs_have_their_ends_and_some_are_reported() {
        let schedule: Schedule = "500ms+3x1s".parse().unwrap();
        assert_eq!(schedule.end_of(0), Duration::from_millis(500));
        assert_eq!(schedule.end_of(3), schedule.total());
        let reported: Vec<u32> = (0..6).filter(|epoch| schedule.is_reported(*epoch)).collect();
        assert_eq!(reported, [1, 2, 3]);
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in
            ["", "6", "x", "0x1s", "6x", "6x1y", "6x1ms", "10001x1s", "q+6x1s", "6x9e9s", "papers"]
        {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
        assert_eq!(span("1.5ms"), Some(Duration::from_micros(1500)));
        assert_eq!(
            (span("2 min"), span("-1s"), span("s"), span("8000h")),
            (Some(s(120)), None, None, None)
        );
    }

    #[test]
    fn an_epoch_is_given_when_all_threads_are_in() {
        let mut tally = Tally::new(1);
        (tally.offered, tally.busy_ns, tally.wall_ns) = (5, 9, 10);
        let mut collector = Collector::new(2);
        assert_eq!(collector.take(1, &tally), None);
        assert_eq!(collector.take(2, &tally), None);
        tally.busy_ns = 5;
        let (epoch, merged) = collector.take(1, &tally).unwrap();
        assert_eq!((epoch, merged.tally.offered, merged.busiest), (1, 10, 0.9));
        let rest = collector.rest();
        assert_eq!((rest.len(), rest[0].0, rest[0].1.tally.offered), (1, 2, 5));
    }
}
