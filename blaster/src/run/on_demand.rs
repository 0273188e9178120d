//! Reports on demand: SIGUSR1 requests the figures since the last SIGUSR1, or since the start.
//!
//! ```text
//! schedule's epochs   |--- 0 ---|-------- 1 --------|-------- 2 --------|
//! what threads count  |--- 0 ---|-- 1 --|---- 2 ----|-------- 3 --------|
//!                                       ^ SIGUSR1: a cut
//! ```
//!
//! Where: `course` checks for a SIGUSR1 in each iteration of its loop.
//! Invariant: a cut does not change the schedule's reports, because the parts of an epoch are added
//! up. There is at most one report per `SPACING`; an earlier request waits until then.
//! Source: the KV-Cache paper, section 5.2.2: counts, throughput, RTT, late responses by type.

use super::context::RunContext;
use super::live::Live;
use crate::measure::Interval;
use crate::measure::schedule::MergedTally;
use crate::measure::watch::{Moment, Watch};
use crate::result::csv;
use crate::words::time_or_dash;
use crate::workload::VERBS;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

const SPACING: Duration = Duration::from_secs(1);
/// The file to which reports on demand are appended, in the folder of a result.
const FILE: &str = "asked.csv";

#[derive(Debug)]
pub(crate) struct OnDemandReports {
    /// For each report: the last epoch number of the threads that the report covers, and the report
    /// without the threads' counts, which arrive later.
    cuts: Vec<(u32, Interval)>,
    asked_per_s: Option<f64>,
    /// The counts since the last report on demand.
    seen: MergedTally,
    from: Duration,
    moment: Moment,
}

impl OnDemandReports {
    pub(crate) fn new(watch: &Watch, asked_per_s: Option<f64>) -> OnDemandReports {
        let (seen, from, moment) = (MergedTally::default(), Duration::ZERO, watch.moment());
        OnDemandReports { asked_per_s, cuts: Vec::new(), seen, from, moment }
    }

    /// Returns the threads' epoch number for `epoch`, or for its part after the last cut.
    pub(crate) fn number(&self, epoch: u32) -> u32 {
        epoch + u32::try_from(self.cuts.len()).unwrap_or(u32::MAX)
    }

    /// If a report on demand is requested, and the last one is at least `SPACING` old, ends the
    /// report now and returns true. Then the caller must move the threads to the next epoch number.
    pub(crate) fn cut_if_requested(
        &mut self,
        context: &RunContext,
        watch: &Watch,
        (epoch, elapsed): (u32, Duration),
    ) -> bool {
        let is_cut = elapsed.saturating_sub(self.from) >= SPACING && context.takes_report_request();
        if is_cut {
            self.cut(watch, (epoch, elapsed));
        }
        is_cut
    }

    fn cut(&mut self, watch: &Watch, (epoch, elapsed): (u32, Duration)) {
        let now = watch.moment();
        let (start_s, end_s) = (self.from.as_secs_f64(), elapsed.as_secs_f64());
        let usage = now.since(&self.moment);
        let interval = Interval::new(MergedTally::default(), start_s, end_s - start_s, usage);
        let interval = Interval { asked_per_s: self.asked_per_s, ..interval };
        self.cuts.push((self.number(epoch), interval));
        (self.from, self.moment) = (elapsed, now);
    }

    /// Adds the counts of all threads for epoch number `number`. Returns the schedule's epoch, and
    /// the report on demand that ends with `number`, if any.
    pub(crate) fn take(&mut self, number: u32, all: &MergedTally) -> (u32, Option<Report>) {
        self.seen.join(all);
        let before = self.cuts.iter().filter(|(cut, _)| *cut < number).count();
        let report = self.cuts.get(before).filter(|(cut, _)| *cut == number).map(|(_, report)| {
            let MergedTally { tally, busiest } = std::mem::take(&mut self.seen);
            Report { nth: before, interval: Interval { tally, busiest, ..report.clone() } }
        });
        (number - u32::try_from(before).unwrap_or(number), report)
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    nth: usize,
    interval: Interval,
}

impl Report {
    /// Displays the report, and appends it to `FILE` in the result's folder, if there is a folder.
    pub(crate) fn tell(&self, live: &Live, folder: Option<&Path>) {
        live.note(&table(&self.interval));
        if let Some(Err(error)) = folder.map(|folder| self.keep(folder)) {
            live.note(&format!("{FILE} cannot be written: {error}"));
        }
    }

    fn keep(&self, folder: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(folder.join(FILE))?;
        // A search or a comparison has many phases of traffic, so the file may exist.
        let head = if file.metadata()?.len() == 0 { csv::REPORTS } else { "" };
        file.write_all((head.to_owned() + &csv::rows(self.nth, &self.interval)).as_bytes())
    }
}

/// Formats a report as a table with a line for each type of request, at most 80 columns wide.
fn table(report: &Interval) -> String {
    let mut out = format!(
        "report on demand: {:.1} s, which began {:.1} s after the start\n\
         {:<8}{:>9}{:>9}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>6}",
        report.seconds,
        report.start_s,
        "",
        "sent",
        "answered",
        "failed",
        "sent/s",
        "answ./s",
        "min",
        "mean",
        "max",
        "late"
    );
    let total = report.tally.total();
    let named = VERBS.iter().map(|verb| (verb.name(), report.tally.verb(*verb)));
    for (name, tally) in named.chain([("all", &total)]) {
        if tally.sent + tally.answered + tally.never() == 0 && name != "all" {
            continue;
        }
        let times = &tally.response_ns;
        let _ = write!(
            out,
            "\n{name:<8}{:>9}{:>9}{:>8}{:>8.0}{:>8.0}{:>8}{:>8}{:>8}{:>6}",
            tally.sent,
            tally.answered,
            tally.failed(),
            report.per_s(tally.sent),
            report.per_s(tally.answered),
            time_or_dash(times.min_ns().map(|ns| ns as f64)),
            time_or_dash(times.mean_ns()),
            time_or_dash(times.max_ns().map(|ns| ns as f64)),
            tally.late_or_lost()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::workload::Verb;

    fn merged(gets: u64, busiest: f64, wall_ns: u64) -> MergedTally {
        let mut tally = Tally { wall_ns, ..Tally::new(1) };
        (0..gets).for_each(|_| tally.sent(Verb::Get, 1, 0, 0));
        tally.answered_n(Verb::Get, 60_000, None, gets);
        MergedTally { tally, busiest }
    }

    #[test]
    fn a_cut_parts_an_epoch_and_its_parts_are_the_whole() {
        let watch = Watch::new(std::iter::empty(), &[]);
        let mut asked = OnDemandReports::new(&watch, None);
        let mut cut = |epoch, at_s| {
            let number = asked.number(epoch);
            asked.cut(&watch, (epoch, Duration::from_secs(at_s)));
            number
        };
        // There are two cuts in the second epoch, and one in the fourth.
        assert_eq!([cut(1, 15), cut(1, 17), cut(3, 33)], [1, 2, 5]);
        assert_eq!(asked.number(4), 7);
        let mut seen = |number| {
            let (epoch, report) = asked.take(number, &merged(1 << number, 0.5, 10));
            let sent = |one: Report| one.interval.tally.verb(Verb::Get).sent;
            (epoch, report.map(sent))
        };
        let all: Vec<_> = (0..8).map(&mut seen).collect();
        let expected =
            [(0, None), (1, Some(3)), (1, Some(4)), (1, None), (2, None), (3, Some(56)), (3, None)];
        assert_eq!(all, [&expected[..], &[(4, None)]].concat());
        // `busiest` of joined parts is weighted by the lengths of the parts.
        let mut parts = merged(1, 0.2, 90);
        parts.join(&merged(2, 1.0, 10));
        assert!((parts.busiest - 0.28).abs() < 1e-9 && parts.tally == merged(3, 0.0, 100).tally);
    }

    #[test]
    fn a_report_is_told_by_type_in_lines_that_fit() {
        let interval = Interval { start_s: 1.0, seconds: 2.0, ..Interval::default() };
        let text = table(&Interval { tally: merged(10, 0.0, 0).tally, ..interval });
        let expected = "\
report on demand: 2.0 s, which began 1.0 s after the start
             sent answered  failed  sent/s answ./s     min    mean     max  late
get            10       10       0       5       5 60.0 µs 60.0 µs 60.0 µs    10
all            10       10       0       5       5 60.0 µs 60.0 µs 60.0 µs    10";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
