//! Findings that are computed from a record: ratios of servers, and counted remarks.
//!
//! Where: in each section of the report, in sentences.
//! Invariant: the first server's losses are reported in the same way as its wins. A difference is
//! reported only if the interval of the ratio excludes 1 and the ratios of equal servers, and if
//! `claims::doubt` finds no reason for doubt.
//! Source: none.

use crate::lab::claims::{VOID, doubt, noise_of, quantity};
use crate::lab::estimate::{self, Estimate};
use crate::lab::experiment::Experiment;
use crate::lab::figures::PREFIX;
use crate::lab::figures::{self, Figure};
use crate::lab::record::{Record, Row};
use crate::lab::simulated::is_exact;
use std::collections::BTreeMap;

/// The verdicts on a comparison of two servers at a point.
const VERDICTS: [&str; 6] =
    ["better", "worse", "no difference shown", "too few rounds to tell", CANNOT_TELL, VOID];
/// The verdict if kvblaster was the limit.
pub(crate) const CANNOT_TELL: &str = "this machine cannot tell";

/// Compares the first server with each other server, by the first figure that is not a kind of
/// work. `noise` is the record that `noise_for` returns.
pub(crate) fn compared(
    experiment: &Experiment,
    record: &Record,
    noise: Option<&Record>,
) -> Vec<String> {
    let figure = experiment.figures.iter().find(|one| !one.y.starts_with(PREFIX));
    let figure = figure.and_then(|one| Some((&one.y, figures::named(&one.y)?)));
    let (Some((name, figure)), Some(first)) = (figure, experiment.servers.first()) else {
        return Vec::new();
    };
    let noise = noise_of(noise, name);
    let others = experiment.servers.iter().skip(1);
    let one = |other: &str| pair((experiment, record), (name, figure), noise, [&first.name, other]);
    others.filter_map(|other| one(&other.name)).collect()
}

fn pair(
    (experiment, record): (&Experiment, &Record),
    (name, figure): (&str, &Figure),
    noise: f64,
    [first, other]: [&str; 2],
) -> Option<String> {
    let mut void = None;
    let mut judged = Vec::new();
    for at in record.points(experiment) {
        let Some(ratio) = ratio(record, [first, other], &at, name) else { continue };
        let [of, to] = [first, other].map(|server| [(server.to_owned(), at.clone())]);
        let certain = || is_exact(experiment).then_some((ratio.value, ratio.value));
        let verdict = match (doubt(record, figure, &of, Some(&to)), ratio.interval.or_else(certain))
        {
            (Some(why), _) if why.starts_with(VOID) => {
                void = Some(why);
                VOID
            }
            (Some(_), _) => CANNOT_TELL,
            (None, None) => "too few rounds to tell",
            (None, Some((low, high))) if low <= noise && high >= 1.0 / noise => {
                "no difference shown"
            }
            (None, Some((low, _))) if (low > 1.0) == figure.less_is_better => "worse",
            (None, Some(_)) => "better",
        };
        let place = match experiment.place(&at) {
            at if at.is_empty() => at,
            at => format!(" ({at})"),
        };
        judged.push((ratio, verdict, place));
    }
    let by_value = |one: &&Judged, two: &&Judged| one.0.value.total_cmp(&two.0.value);
    // A ratio with the verdict `VOID` is reported only if all ratios have this verdict.
    let is_void = |one: &Judged| one.1 == VOID;
    let told_of = || judged.iter().filter(|one| !is_void(one) || judged.iter().all(is_void));
    let (least, most) = (told_of().min_by(by_value)?, told_of().max_by(by_value)?);
    let mut text = match judged.as_slice() {
        [(only, verdict, at)] => {
            let (other, times) = (format!("{other}{at}"), format!("{} times", only.as_ratio()));
            format!("{}: {verdict}", figures::compared(name, [first, &other], &times))
        }
        all => {
            let range = match [least, most].map(|(one, _, at)| (estimate::ratio(one.value), at)) {
                [(least, _), (most, _)] if least == most => format!("{least} times"),
                [(least, low), (most, high)] => format!("{least} times{low} to {most} times{high}"),
            };
            let counts =
                VERDICTS.map(|word| (all.iter().filter(|one| one.1 == word).count(), word));
            let counts = counts.iter().filter(|(count, _)| *count > 0);
            let counts: Vec<String> =
                counts.map(|(count, word)| format!("{word} at {count}")).collect();
            let (counts, all) = (counts.join(", "), all.len());
            let compared = figures::compared(name, [first, other], &range);
            format!("{compared}: {counts} of {all} points")
        }
    };
    let is_either = |row: &&Row| row.server == first || row.server == other;
    let rows = || record.rows.iter().filter(is_either);
    let bound = rows().filter(|row| row.bound.is_some()).count();
    if figure.is_bound && bound > 0 {
        text += &format!("; kvblaster was the limit in {bound} of {} measurements", rows().count());
    }
    if let Some(why) = void.as_ref().and_then(|why| why.strip_prefix(VOID)) {
        text += &format!(";{}", why.trim_start_matches(':'));
    }
    Some(text)
}

/// Estimates the ratio of two servers at a point from the rounds in which both were measured.
pub(crate) fn ratio(
    record: &Record,
    [first, other]: [&str; 2],
    at: &[String],
    figure: &str,
) -> Option<Estimate> {
    let [first, other] = [first, other].map(|server| [(server.to_owned(), at.to_vec())]);
    quantity(record, figure, &first, Some(&other))
}

/// A ratio at a point, its verdict, and the point in words.
type Judged = (Estimate, &'static str, String);

/// Counts equal remarks; those that differ only in numbers are equal. Sorts by frequency.
pub(crate) fn remarks(record: &Record) -> Vec<String> {
    let mut counts: BTreeMap<String, (usize, String, bool)> = BTreeMap::new();
    for row in &record.rows {
        let bound = row.bound.iter().map(|why| format!("kvblaster was the limit: {why}"));
        for remark in bound.chain(row.remarks.iter().cloned()) {
            let entry = counts.entry(without_numbers(&remark));
            let (count, first, differs) = entry.or_insert_with(|| (0, remark.clone(), false));
            *count += 1;
            *differs |= *first != remark;
        }
    }
    let mut counts: Vec<(usize, String, bool)> = counts.into_values().collect();
    counts.sort_by_key(|(count, _, _)| std::cmp::Reverse(*count));
    let all = record.rows.len();
    let told = |(count, first, differs): &(usize, String, bool)| {
        let such = if *differs { ", for example" } else { "" };
        format!("In {count} of {all} measurements{such}: {first}")
    };
    counts.iter().map(told).collect()
}

fn without_numbers(text: &str) -> String {
    let is_digit = |one: char| one.is_ascii_digit() || one == '.' || one == ',';
    let mut out = String::new();
    for one in text.chars() {
        match is_digit(one) {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(one),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_that_differ_in_numbers_are_counted_together() {
        let row = |remarks: &[&str]| Row {
            remarks: remarks.iter().map(|one| (*one).to_owned()).collect(),
            ..Row::default()
        };
        let bound = Row { bound: Some("busy".to_owned()), ..Row::default() };
        let rows = vec![row(&["steal 3.5 %", "same"]), row(&["steal 12 %"]), row(&["same"]), bound];
        let told = remarks(&Record { rows, ..Record::default() });
        let expected = [
            "In 2 of 4 measurements: same",
            "In 2 of 4 measurements, for example: steal 3.5 %",
            "In 1 of 4 measurements: kvblaster was the limit: busy",
        ];
        assert_eq!(told, expected);
    }
}
