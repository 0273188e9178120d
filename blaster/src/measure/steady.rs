//! Tests whether the reports of a run agree. If reports disagree, merged figures mean little.
//!
//! Where: the run calls `remark` after the self-check. HTML reports call `apart` to mark figures.
//! Invariant: the order of the reports does not matter. The median is not an outlier if fewer than
//! half of the reports are outliers.
//! Source: Iglewicz and Hoaglin, "How to Detect and Handle Outliers" (1993), which replaces the
//! mean and the standard deviation by the median and the median absolute deviation. This module
//! computes both from the figures' logarithms.

use super::interval::Interval;
use super::verdict::{Remark, Severity};
use crate::words::{grouped, time, whole};

/// The name of the rule that the reports of a run agree.
pub const UNSTEADY: &str = "unsteady";
/// An outlier is more than this many median absolute deviations from the median. In a normal
/// distribution, this distance is 3.5 standard deviations.
const DEVIATIONS_MAX: f64 = 3.5 * 1.4826;
/// A time within this factor of the median is never an outlier.
pub const TIMES_NEAR: f64 = 2.0;
/// A rate within this factor of the median is never an outlier.
pub const RATES_NEAR: f64 = 1.25;
/// A sentence names at most this number of reports, and counts the other ones.
const NAMED_MAX: usize = 4;

/// The median. For an even number of values, this is the mean of the two middle values.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// Indices of the reports whose figure is an outlier. A figure within a factor of `near` of the
/// median is never an outlier; a figure beyond the square of `near` always is an outlier.
pub(crate) fn apart(
    reports: &[Interval],
    near: f64,
    of: impl Fn(&Interval) -> Option<f64>,
) -> Vec<usize> {
    let log = |report| of(report).filter(|value| *value > 0.0).map(f64::ln);
    let logs: Vec<Option<f64>> = reports.iter().map(log).collect();
    let middle = median(logs.iter().flatten().copied().collect()).unwrap_or_default();
    let off = |log: &Option<f64>| log.map_or(0.0, |log| (log - middle).abs());
    let usual = median(logs.iter().flatten().map(|log| (log - middle).abs()).collect());
    let most = DEVIATIONS_MAX * usual.unwrap_or_default();
    let most = most.clamp(near.ln(), 2.0 * near.ln());
    logs.iter().enumerate().filter(|(_, log)| off(log) > most).map(|(nth, _)| nth).collect()
}

/// A figure's name, the factor within which reports agree, and functions to read and format it.
type Figure = (&'static str, f64, fn(&Interval) -> Option<f64>, fn(f64) -> String);
/// The rate is last, so that it can be left out if the reports' requested rates differ.
const FIGURES: [Figure; 3] = [
    (
        "p99",
        TIMES_NEAR,
        |report| report.tally.total().response_ns.reliable_quantile_ns(0.99),
        time_of,
    ),
    ("mean", TIMES_NEAR, |report| report.tally.total().response_ns.mean_ns(), time_of),
    ("rate", RATES_NEAR, |report| Some(report.achieved_per_s()), |rate| grouped(rate) + "/s"),
];

fn time_of(ns: f64) -> String {
    time(whole(ns))
}

fn figures(is_even: bool) -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().take(if is_even { FIGURES.len() } else { FIGURES.len() - 1 })
}

/// Indices of the reports that are outliers in any figure. `is_even` is true if all reports have
/// the same requested rate.
pub(crate) fn all_apart(reports: &[Interval], is_even: bool) -> Vec<usize> {
    figures(is_even).flat_map(|(_, near, of, _)| apart(reports, *near, of)).collect()
}

/// Returns a remark that names the reports that differ, and their figures.
pub(crate) fn remark(reports: &[Interval], is_even: bool) -> Option<Remark> {
    let told: Vec<String> =
        figures(is_even).filter_map(|figure| disagreement(reports, figure)).collect();
    let sentence = format!(
        "the reports disagree: {}. Something disturbed the measurement, or the server is sometimes \
         slow. The figures of another run may differ by as much",
        told.join("; ")
    );
    let remark = Remark { rule: UNSTEADY.to_owned(), severity: Severity::Warning, sentence };
    (!told.is_empty()).then_some(remark)
}

/// Describes the reports of which one figure is an outlier.
fn disagreement(reports: &[Interval], (name, near, of, words): &Figure) -> Option<String> {
    let apart = apart(reports, *near, of);
    let named = apart.iter().take(NAMED_MAX).filter_map(|nth| {
        Some(format!("{} in report {}", words(of(reports.get(*nth)?)?), nth + 1))
    });
    let mut named: Vec<String> = named.collect();
    if apart.len() > NAMED_MAX {
        named.push(format!("far from the median in {} more reports", apart.len() - NAMED_MAX));
    }
    let middle = words(median(reports.iter().filter_map(of).collect())?);
    let all = reports.len();
    let told = || {
        let named = named.join(", ");
        format!("the {name} was {named}, but the median of all {all} reports is {middle}")
    };
    (!apart.is_empty()).then(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::workload::Verb;

    const NONE: [usize; 0] = [];

    /// Returns a report per time in `ms`: half of its requests take this time, the others 0.1 ms.
    fn reports(ms: &[f64]) -> Vec<Interval> {
        let report = |ms: &f64| {
            let mut tally = Tally::new(1_000_000);
            tally.answered_n(Verb::Get, 100_000, None, 1000);
            let ns = std::time::Duration::from_secs_f64(ms / 1e3).as_nanos().try_into().unwrap();
            tally.answered_n(Verb::Get, ns, None, 1000);
            Interval { seconds: 10.0, tally, ..Interval::default() }
        };
        ms.iter().map(report).collect()
    }

    fn apart_of(ms: &[f64]) -> Vec<usize> {
        apart(&reports(ms), TIMES_NEAR, FIGURES[0].2)
    }

    #[test]
    fn reports_that_disagree_are_named() {
        let six = reports(&[0.7, 1.4, 92.0, 299.0, 0.9, 0.7]);
        let remark = remark(&six, true).unwrap();
        let named = "the p99 was 92.0 ms in report 3, 299 ms in report 4, but the median of all 6 \
                     reports is 1.15 ms; the mean was 46.0 ms in report 3, 150 ms in report 4,";
        assert!(remark.sentence.contains(named), "{}", remark.sentence);
        assert!(!remark.sentence.contains("the rate"), "{}", remark.sentence);
        assert_eq!((remark.rule.as_str(), remark.severity), (UNSTEADY, Severity::Warning));
        assert_eq!(all_apart(&six, true), [2, 3, 2, 3]);
        let many = reports(&[[1.0; 11].as_slice(), &[50.0; 6]].concat());
        let many = super::remark(&many, true).unwrap().sentence;
        assert!(
            many.contains(
                "50.0 ms in report 15, far from the median in 2 more reports, but the median of \
                 all 17 reports is 1.00 ms"
            ),
            "{many}"
        );
    }

    #[test]
    fn reports_that_agree_are_not() {
        assert_eq!(apart_of(&[0.7, 1.4, 0.8, 1.3, 0.9, 0.7]), NONE);
        // A report within twice the median agrees, even if all other reports are equal. A report a
        // little above twice the median agrees only if the other reports differ as well.
        assert_eq!(apart_of(&[1.0, 1.0, 1.0, 1.0, 1.9]), NONE);
        assert_eq!(apart_of(&[1.0, 1.0, 1.0, 1.0, 2.1]), [4]);
        assert_eq!(apart_of(&[0.7, 1.0, 1.4, 0.8, 2.1]), NONE);
        assert_eq!(apart_of(&[0.3, 1.0, 1.0, 1.0, 1.0]), [0]);
        assert_eq!([apart_of(&[]), apart_of(&[5.0])], [NONE; 2]);
        assert_eq!(remark(&reports(&[1.0, 1.0, 1.0]), true), None);
    }

    #[test]
    fn where_the_reports_are_of_two_kinds_none_is_the_right_one() {
        assert_eq!(apart_of(&[0.7, 0.7, 0.7, 80.0, 80.0, 80.0]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(apart_of(&[0.7, 80.0]), [0, 1]);
    }

    #[test]
    fn a_rate_counts_where_as_much_is_asked_for_in_each_report() {
        let mut slow = reports(&[1.0; 6]);
        slow[2].seconds = 15.0;
        let sentence = remark(&slow, true).unwrap().sentence;
        assert!(
            sentence.contains(
                "the rate was 133/s in report 3, but the median of all 6 reports is 200/s"
            ),
            "{sentence}"
        );
        assert_eq!(remark(&slow, false), None);
        slow[2].seconds = 12.0;
        assert_eq!(remark(&slow, true), None);
    }

    #[test]
    fn a_percentile_of_too_few_answers_accuses_nobody() {
        let mut few = reports(&[1.0; 6]);
        few[0].tally = Tally::default();
        few[0].tally.answered_n(Verb::Get, 9_000_000_000, None, 1);
        assert_eq!(apart(&few, TIMES_NEAR, FIGURES[0].2), NONE);
        few[0].tally = Tally::default();
        assert_eq!(remark(&few, true), None);
    }
}
