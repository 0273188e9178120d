//! A report: all measurements of one span of time.
//!
//! Where: made when all threads have handed over their tallies of an epoch. Used by the self-check,
//! the search and the result.
//! Invariant: a merged report has the sums of counts, and the time-weighted means of rates.
//! Source: the KV-Cache paper, sections 5.2.2 and 6.1; Pavlik's thesis, section 3.1.2.

use super::schedule::MergedTally;
use super::tally::{Tally, TimedTally};
use super::watch::Usage;
use crate::workload::VERBS;
use serde::Deserialize;

/// A server keeps up if it answers at least this share of the offered requests.
pub(crate) const ACHIEVED_SHARE_MIN: f64 = 0.99;
/// A deficit of due requests counts as chance up to this many times the square root of the
/// requested number. The root is the standard deviation if the gaps between requests are
/// exponential; Pareto gaps have a greater standard deviation.
const GAP_DEVIATIONS: f64 = 6.0;

/// One report.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Interval {
    /// The number of the report's run, from 0.
    pub run: u32,
    /// The start of the report, in seconds from the start of the run's traffic.
    pub start_s: f64,
    /// The length of the report in seconds.
    pub seconds: f64,
    /// The requested rate; `None` in a closed loop.
    pub asked_per_s: Option<f64>,
    /// The rate at which a null server answers the same traffic, if measured.
    pub reflected_per_s: Option<f64>,
    /// The share of time for which the busiest driving thread was on a CPU.
    pub busiest: f64,
    /// The sum of the threads' counts.
    pub tally: Tally,
    /// The use of this machine's CPUs and memory.
    pub usage: Usage,
}

impl Interval {
    /// Makes a report from the threads' counts and the machine's usage.
    pub fn new(merged: MergedTally, start_s: f64, seconds: f64, usage: Usage) -> Interval {
        let MergedTally { tally, busiest } = merged;
        Interval { start_s, seconds, busiest, tally, usage, ..Interval::default() }
    }

    /// Merges reports; `None` if there are no reports.
    pub fn merged(intervals: &[Interval]) -> Option<Interval> {
        let (first, others) = intervals.split_first()?;
        let mut merged = first.clone();
        for other in others {
            merged.merge(other);
        }
        Some(merged)
    }

    fn merge(&mut self, other: &Interval) {
        let (ours, theirs) = (self.seconds, other.seconds);
        let all = (ours + theirs).max(f64::MIN_POSITIVE);
        let mean = |one: Option<f64>, two: Option<f64>| {
            one.zip(two).map(|(one, two)| (one * ours + two * theirs) / all)
        };
        self.asked_per_s = mean(self.asked_per_s, other.asked_per_s);
        self.reflected_per_s = mean(self.reflected_per_s, other.reflected_per_s);
        self.busiest = self.busiest.max(other.busiest);
        self.tally.merge(&other.tally);
        self.usage = self.usage.merged_with(ours, &other.usage, theirs);
        self.start_s = self.start_s.min(other.start_s);
        self.seconds += theirs;
    }

    pub(crate) fn per_s(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Requests answered per second.
    pub fn achieved_per_s(&self) -> f64 {
        self.per_s(self.tally.verbs.iter().map(|verb| verb.answered).sum())
    }

    /// Keys answered per second: all keys of answered gets, and one key for each other request.
    pub(crate) fn keys_per_s(&self) -> f64 {
        let verbs = VERBS.into_iter().zip(&self.tally.verbs);
        self.per_s(verbs.map(|(verb, tally)| tally.keys_answered(verb)).sum())
    }

    /// The null server's rate divided by the achieved rate; `None` if either is unknown.
    pub(crate) fn headroom(&self) -> Option<f64> {
        let achieved = self.achieved_per_s();
        self.reflected_per_s.filter(|_| achieved > 0.0).map(|reflected| reflected / achieved)
    }

    /// Requests per second that were due. In a closed loop, requests per second that were sent.
    pub fn offered_per_s(&self) -> f64 {
        let sent: u64 = self.tally.verbs.iter().map(|verb| verb.sent).sum();
        self.per_s(if self.tally.offered > 0 { self.tally.offered } else { sent })
    }

    /// True if as many requests fell due as requested, apart from chance (see `GAP_DEVIATIONS`).
    pub(crate) fn is_offered_in_full(&self) -> bool {
        let Some(asked) = self.asked_per_s else { return true };
        let due = asked * self.seconds;
        self.tally.offered as f64 >= ACHIEVED_SHARE_MIN * due - GAP_DEVIATIONS * due.sqrt()
    }

    pub(crate) fn judged(&self) -> TimedTally<'_> {
        TimedTally { tally: &self.tally, seconds: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::KeyAnswer;
    use crate::measure::process::ProcessUse;
    use crate::workload::Verb;

    fn interval(seconds: f64, answered: u64, cpus: f64) -> Interval {
        let mut tally = Tally::new(1_000_000);
        for _ in 0..answered {
            tally.offered += 1;
            tally.sent(Verb::Get, 1, 0, 0);
            tally.answered(Verb::Get, false, 0, 0, 100);
        }
        let server = ProcessUse { usr_cpus: cpus, cpu_s: cpus * seconds, ..ProcessUse::default() };
        let usage = Usage { server: Some(server), ..Usage::default() };
        let interval = Interval::new(MergedTally { tally, busiest: cpus }, 0.0, seconds, usage);
        Interval { asked_per_s: Some(answered as f64), ..interval }
    }

    #[test]
    fn rates_merge_by_time() {
        let all = [interval(1.0, 100, 1.0), interval(3.0, 900, 0.2)];
        let merged = Interval::merged(&all).unwrap();
        assert_eq!((merged.achieved_per_s(), merged.offered_per_s()), (250.0, 250.0));
        assert_eq!((merged.asked_per_s, merged.busiest), (Some(700.0), 1.0));
        assert_eq!((merged.reflected_per_s, merged.headroom()), (None, None));
        let reflected =
            |rate| move |one: &Interval| Interval { reflected_per_s: Some(rate), ..one.clone() };
        let both = [reflected(200.0)(&all[0]), reflected(600.0)(&all[1])];
        let merged_both = Interval::merged(&both).unwrap();
        assert_eq!((merged_both.reflected_per_s, merged_both.headroom()), (Some(500.0), Some(2.0)));
        let server = merged.usage.server.unwrap();
        assert!((server.cpus() - 0.4).abs() < 1e-9 && (server.cpu_s - 1.6).abs() < 1e-9);
        assert_eq!(Interval::merged(&[]), None);
    }

    #[test]
    fn chance_in_the_gaps_is_not_held_against_the_generator() {
        let mut short = interval(1.0, 900, 0.0);
        let mut is_full = |asked| {
            short.asked_per_s = Some(asked);
            short.is_offered_in_full()
        };
        assert_eq!([is_full(1_000.0), is_full(1_100.0), is_full(1_200.0)], [true, true, false]);
        assert!(Interval::default().is_offered_in_full());
    }

    #[test]
    fn a_multiget_has_several_keys_a_second_and_a_set_has_one() {
        let mut mixed = interval(2.0, 0, 0.0);
        for _ in 0..10 {
            (0..3).for_each(|_| mixed.tally.found(Verb::Get, KeyAnswer::Hit));
            mixed.tally.found(Verb::Get, KeyAnswer::Miss);
            mixed.tally.answered(Verb::Get, false, 0, 0, 1);
            mixed.tally.found(Verb::Set, KeyAnswer::Done);
            mixed.tally.answered(Verb::Set, false, 0, 0, 1);
        }
        // The keys of an unanswered request do not count.
        mixed.tally.sent(Verb::Get, 4, 0, 0);
        mixed.tally.timed_out(Verb::Get);
        assert_eq!((mixed.achieved_per_s(), mixed.keys_per_s()), (10.0, 25.0));
    }

    #[test]
    fn no_time_has_no_rate() {
        assert_eq!(Interval::default().achieved_per_s(), 0.0);
    }
}
