//! Findings that are computed from a record: ratios of servers, the knee of a closed loop, remarks.
//!
//! Where: in each section of the report, in sentences.
//! Invariant: the first server's losses are told like its wins. A difference is told only if the
//! interval of the ratio excludes 1 and the ratios of equal servers.
//! Source: the notes on a memcached baseline (the knee); the KV-Cache paper, section 6.1 (rates
//! below 1 ms).

use super::charts::{cell, labels, numbers};
use crate::lab::claims::{Estimate, estimate, noise_of};
use crate::lab::experiment::{Experiment, Method};
use crate::lab::figures::{self, Figure};
use crate::lab::record::{Record, Row};
use crate::words::grouped;
use std::collections::BTreeMap;

/// Throughput near the greatest: this share of it.
const NEAR: f64 = 0.95;
/// The limit of p99 in ns.
const P99_NS: f64 = 1e6;
const RATE: &str = "requests/s";
/// Words in the names of axes along which a closed loop has a knee.
const GROWING: [&str; 2] = ["connection", "thread"];

/// Compares the first server with each other one, by the first figure. `noise` is the record of the
/// experiment `NOISE`, if there is one.
#[must_use]
pub fn compared(experiment: &Experiment, record: &Record, noise: Option<&Record>) -> Vec<String> {
    let figure = experiment.figures.first().and_then(|one| Some((&one.y, figures::named(&one.y)?)));
    let (Some((name, figure)), Some(first)) = (figure, experiment.servers.first()) else {
        return Vec::new();
    };
    let noise = noise.map_or(1.0, |noise| noise_of(noise, name));
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
    let points = record.points(experiment);
    let ratios = points.iter().map(|at| (at, ratio(record, [first, other], at, name)));
    let ratios: Vec<(&Vec<String>, Estimate)> =
        ratios.filter_map(|(at, ratio)| Some((at, ratio?))).collect();
    let by_value = |one: &&(&Vec<String>, Estimate), two: &&(&Vec<String>, Estimate)| {
        one.1.value.total_cmp(&two.1.value)
    };
    let (least, most) = (ratios.iter().min_by(by_value)?, ratios.iter().max_by(by_value)?);
    let verdict = |(_, one): &(&Vec<String>, Estimate)| match one.interval {
        None => "too few rounds to tell",
        Some((low, high)) if low <= noise && high >= 1.0 / noise => "no difference shown",
        Some((low, _)) if (low > 1.0) == figure.less_is_better => "worse",
        Some(_) => "better",
    };
    let place = |at: &[String]| match place(experiment, at) {
        at if at.is_empty() => at,
        at => format!(" ({at})"),
    };
    let mut text = match ratios.as_slice() {
        [(at, only)] => {
            let verdict = verdict(&ratios[0]);
            format!(
                "{first} has {} times the {name} of {other}{}: {verdict}",
                told(only),
                place(at)
            )
        }
        all => {
            let range = match [least, most].map(|(at, one)| (times(one.value), place(at))) {
                [(least, _), (most, _)] if least == most => format!("{least} times"),
                [(least, low), (most, high)] => format!("{least} times{low} to {most} times{high}"),
            };
            let words = ["better", "worse", "no difference shown", "too few rounds to tell"];
            let counts =
                words.map(|word| (all.iter().filter(|one| verdict(one) == word).count(), word));
            let counts = counts.iter().filter(|(count, _)| *count > 0);
            let counts: Vec<String> =
                counts.map(|(count, word)| format!("{word} at {count}")).collect();
            let (counts, all) = (counts.join(", "), all.len());
            format!("{first} has {range} the {name} of {other}: {counts} of {all} points")
        }
    };
    let is_either = |row: &&Row| row.server == first || row.server == other;
    let rows = || record.rows.iter().filter(is_either);
    let bound = rows().filter(|row| row.bound.is_some()).count();
    if figure.is_bound && bound > 0 {
        text += &format!("; kvblaster was the limit in {bound} of {} measurements", rows().count());
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
    let others = record.values(other, at, figure);
    let firsts = record.values(first, at, figure);
    let ratios = firsts.iter().filter_map(|(round, value)| Some(value / others.get(round)?));
    estimate(&ratios.filter(|ratio| ratio.is_finite()).collect::<Vec<f64>>())
}

/// A ratio in digits.
pub(crate) fn times(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// A ratio and its interval.
pub(crate) fn told(ratio: &Estimate) -> String {
    let interval = ratio.interval.map(|(low, high)| format!(" [{}, {}]", times(low), times(high)));
    times(ratio.value) + &interval.unwrap_or_default()
}

/// A point in words: `connections = 16, server threads = 4`.
pub(crate) fn place(experiment: &Experiment, at: &[String]) -> String {
    let words =
        experiment.axes.iter().zip(at).map(|(axis, label)| format!("{} = {label}", axis.name));
    words.collect::<Vec<_>>().join(", ")
}

/// Finds the knee of each server's throughput, if a closed loop grows along the first axis.
#[must_use]
pub fn knees(experiment: &Experiment, record: &Record) -> Vec<String> {
    let flags =
        |text: &str| text.split_whitespace().any(|word| word == "-r" || word.starts_with("--rate"));
    let is_open =
        flags(&experiment.drive.flags) || experiment.servers.iter().any(|one| flags(&one.drive));
    let Some(axis) = experiment.axes.first() else { return Vec::new() };
    let grows = GROWING.iter().any(|word| axis.name.contains(word));
    if experiment.drive.method != Method::Run || is_open || !grows {
        return Vec::new();
    }
    let points = record.points(experiment);
    let mut firsts = labels(&points, 0);
    if let Some(numbers) = numbers(&firsts) {
        let mut sorted: Vec<(f64, String)> = numbers.into_iter().zip(firsts).collect();
        sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
        firsts = sorted.into_iter().map(|(_, label)| label).collect();
    }
    // Without a second axis there is one course of points for each server.
    let seconds = match labels(&points, 1) {
        none if none.is_empty() => vec![None],
        some => some.into_iter().map(Some).collect(),
    };
    let mut found = Vec::new();
    for server in &experiment.servers {
        for second in &seconds {
            let at = |first: &String| std::iter::once(first).chain(second).cloned().collect();
            let course: Vec<Step<'_>> = firsts
                .iter()
                .filter_map(|first| step(record, &server.name, (first, &at(first))))
                .collect();
            let of = second.as_ref().zip(experiment.axes.get(1));
            let of =
                of.map(|(label, axis)| format!(" at {} = {label}", axis.name)).unwrap_or_default();
            found.extend(
                knee(&course, &axis.name).map(|knee| format!("{}{of}: {knee}", server.name)),
            );
        }
    }
    found
}

/// Throughput and p99 at one point of the first axis.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    label: &'a str,
    rate: f64,
    p99_ns: Option<f64>,
}

fn step<'a>(
    record: &Record,
    server: &str,
    (label, at): (&'a str, &Vec<String>),
) -> Option<Step<'a>> {
    let value = |figure: &str| Some(cell(record, server, at, figure)?.estimate.value);
    Some(Step { label, rate: value(RATE)?, p99_ns: value("p99") })
}

/// Tells the first step whose rate is near the greatest, and the greatest rate with a low p99.
fn knee(course: &[Step<'_>], axis: &str) -> Option<String> {
    let by_rate = |one: &&Step<'_>, other: &&Step<'_>| one.rate.total_cmp(&other.rate);
    let best = course.iter().max_by(by_rate).filter(|best| best.rate > 0.0)?;
    let (first, last) = (course.iter().find(|one| one.rate >= NEAR * best.rate)?, course.last()?);
    let mut text = match () {
        () if course.len() < 2 => return None,
        () if first.label == last.label => {
            format!("no knee, {RATE} still grow at {axis} = {}, the last point", last.label)
        }
        () => format!(
            "the knee is at {axis} = {}, with {RATE} within 5 % of the greatest, {}",
            first.label,
            grouped(best.rate)
        ),
    };
    let is_low = |one: &&Step<'_>| one.p99_ns.is_some_and(|ns| ns < P99_NS);
    match course.iter().filter(is_low).max_by(by_rate) {
        Some(low) => {
            let (rate, label) = (grouped(low.rate), low.label);
            text += &format!(
                "; the greatest {RATE} with a p99 below 1 ms are {rate}, at {axis} = {label}"
            );
        }
        None if course.iter().any(|one| one.p99_ns.is_some()) => {
            text += "; no point has a p99 below 1 ms";
        }
        None => {}
    }
    Some(text)
}

/// Counts equal remarks, the most frequent first. Remarks that differ in numbers only are equal.
#[must_use]
pub fn remarks(record: &Record) -> Vec<String> {
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
        let such = if *differs { ", such as" } else { "" };
        format!("in {count} of {all} measurements{such}: {first}")
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

    fn course(steps: &[(&'static str, f64, f64)]) -> Option<String> {
        let step = |(label, rate, p99): &(&'static str, f64, f64)| Step {
            label,
            rate: *rate,
            p99_ns: Some(*p99),
        };
        knee(&steps.iter().map(step).collect::<Vec<_>>(), "connections")
    }

    #[test]
    fn the_knee_is_the_first_point_near_the_greatest() {
        let told =
            course(&[("1", 10.0, 1e5), ("2", 96.0, 5e5), ("4", 100.0, 2e6), ("8", 90.0, 9e6)]);
        let expected = "the knee is at connections = 2, with requests/s within 5 % of the \
                        greatest, 100; the greatest requests/s with a p99 below 1 ms are 96, \
                        at connections = 2";
        assert_eq!(told.unwrap(), expected);
        let told = course(&[("1", 10.0, 2e6), ("2", 20.0, 3e6)]).unwrap();
        let expected = "no knee, requests/s still grow at connections = 2, the last point; \
                        no point has a p99 below 1 ms";
        assert_eq!(told, expected);
        assert_eq!(
            [course(&[]), course(&[("1", 10.0, 1e5)]), course(&[("1", 0.0, 1e5); 2])],
            [None, None, None]
        );
    }

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
            "in 2 of 4 measurements: same",
            "in 2 of 4 measurements, such as: steal 3.5 %",
            "in 1 of 4 measurements: kvblaster was the limit: busy",
        ];
        assert_eq!(told, expected);
    }
}
