//! The knee of a closed loop: at higher loads, only response times grow, not throughput.
//!
//! Where: among the findings of experiments whose first axis is a number of connections or threads.
//! Invariant: a knee is reported only if kvblaster was not the limit at any point near the greatest
//! throughput.
//! Source: the notes on a memcached baseline (the knee); the KV-Cache paper, section 6.1 (rates
//! below 1 ms).

use super::charts::{cell, labels, numbers};
use super::findings::CANNOT_TELL;
use crate::lab::experiment::{Experiment, Method};
use crate::lab::record::Record;
use crate::words::{grouped, time, whole};

/// Throughput is near the greatest throughput if it is at least this share of the greatest.
const NEAR: f64 = 0.95;
/// The report names the greatest throughput with a p99 below this number of nanoseconds.
const P99_NS: f64 = 1e6;
const RATE: &str = "requests/s";
/// Words in the names of axes that increase the load of a closed loop.
const GROWING: [&str; 2] = ["connection", "thread"];

/// Finds the knee of each server's throughput, if the first axis increases a closed loop's load.
pub(crate) fn knees(experiment: &Experiment, record: &Record) -> Vec<String> {
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
    // Without a second axis, each server has a single series of points.
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

/// A server's throughput and response times at one point of the first axis.
#[derive(Clone, Copy, Debug)]
struct Step<'a> {
    label: &'a str,
    rate: f64,
    mean_ns: f64,
    p99_ns: Option<f64>,
    /// True if kvblaster was the limit.
    is_bound: bool,
}

fn step<'a>(
    record: &Record,
    server: &str,
    (label, at): (&'a str, &Vec<String>),
) -> Option<Step<'a>> {
    let value = |figure: &str| Some(cell(record, server, at, figure)?.estimate.value);
    let rate = cell(record, server, at, RATE)?;
    let (mean_ns, p99_ns) = (value("mean")?, value("p99"));
    Some(Step { label, rate: rate.estimate.value, mean_ns, p99_ns, is_bound: rate.is_bound })
}

/// Describes the knee: the first step whose rate is near the greatest rate, if all later steps have
/// greater mean times. Adds the greatest rate with a p99 below 1 ms.
fn knee(course: &[Step<'_>], axis: &str) -> Option<String> {
    let by_rate = |one: &&Step<'_>, other: &&Step<'_>| one.rate.total_cmp(&other.rate);
    let best = course.iter().max_by(by_rate).filter(|best| best.rate > 0.0)?;
    let is_near = |one: &Step<'_>| one.rate >= NEAR * best.rate;
    let nth = course.iter().position(is_near).filter(|_| course.len() > 1)?;
    let (first, later, last) = (&course[nth], &course[nth + 1..], course.last()?);
    if let Some(bound) = course.iter().find(|one| is_near(one) && one.is_bound) {
        let at = bound.label;
        return Some(format!(
            "{CANNOT_TELL} where the knee is, because kvblaster was the limit at {axis} = {at}"
        ));
    }
    let near = format!(
        "{axis} = {}, where {RATE} are within 5 % of their maximum ({})",
        first.label,
        grouped(best.rate)
    );
    let mut text = match () {
        () if later.is_empty() => {
            format!(
                "there is no knee, because {RATE} still grow at the last point, {axis} = {}",
                last.label
            )
        }
        () if later.iter().all(|one| one.mean_ns > first.mean_ns) => {
            let [here, end] = [first, last].map(|one| time(whole(one.mean_ns)));
            format!(
                "the knee is at {near}; the mean response time grows from {here} there to {end} \
                 at {axis} = {}",
                last.label
            )
        }
        () => format!(
            "there is no knee at {near}, because the mean response time is not greater at every \
             later point"
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes the knee of steps that have a label, a rate, a mean time and a p99.
    fn course(steps: &[(&'static str, f64, f64, f64)]) -> Option<String> {
        knee(&steps.iter().map(step).collect::<Vec<_>>(), "connections")
    }

    fn step(&(label, rate, mean_ns, p99): &(&'static str, f64, f64, f64)) -> Step<'static> {
        Step { label, rate, mean_ns, p99_ns: Some(p99), is_bound: false }
    }

    /// The rate 96 is near the greatest rate, 100, and the mean time grows after this step.
    const KNEE_AT_2: [(&str, f64, f64, f64); 4] = [
        ("1", 10.0, 9e4, 1e5),
        ("2", 96.0, 1e5, 5e5),
        ("4", 100.0, 2e5, 2e6),
        ("8", 90.0, 4e5, 9e6),
    ];

    #[test]
    fn the_knee_is_the_first_point_near_the_greatest_if_the_mean_grows_from_there_on() {
        let expected = "the knee is at connections = 2, where requests/s are within 5 % of their \
                        maximum (100); the mean response time grows from 100 µs there to 400 µs \
                        at connections = 8; the greatest requests/s with a p99 below 1 ms are 96, \
                        at connections = 2";
        assert_eq!(course(&KNEE_AT_2).unwrap(), expected);
        let mut flat = KNEE_AT_2;
        flat[3].2 = 1e5;
        let told = course(&flat).unwrap();
        let expected = "there is no knee at connections = 2, where requests/s are within 5 % of \
                        their maximum (100), because the mean response time is not greater at \
                        every later point; ";
        assert!(told.starts_with(expected), "{told}");
        let told = course(&[("1", 10.0, 1e6, 2e6), ("2", 20.0, 1e6, 3e6)]).unwrap();
        let expected = "there is no knee, because requests/s still grow at the last point, \
                        connections = 2; \
                        no point has a p99 below 1 ms";
        assert_eq!(told, expected);
        let one = ("1", 10.0, 1e5, 1e5);
        assert_eq!(
            [course(&[]), course(&[one]), course(&[("1", 0.0, 1e5, 1e5); 2])],
            [None, None, None]
        );
    }

    #[test]
    fn a_course_that_kvblaster_limited_has_no_knee() {
        let mut steps = KNEE_AT_2.map(|one| step(&one));
        // The first point is far from the greatest throughput, so kvblaster may be the limit there.
        steps[0].is_bound = true;
        assert!(knee(&steps, "connections").unwrap().starts_with("the knee is at"));
        steps[2].is_bound = true;
        let expected = "this machine cannot tell where the knee is, because kvblaster was the \
                        limit at connections = 4";
        assert_eq!(knee(&steps, "connections").unwrap(), expected);
    }
}
