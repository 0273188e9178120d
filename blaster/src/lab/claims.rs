//! The verdict on each claim of the source: confirmed, not reproduced, or not to be told here.
//!
//! ```text
//! rows -> a ratio per round -> mean and interval of the logarithms -> verdict, sentence
//! ```
//!
//! Where: after the rounds; the report prints the sentences.
//! Invariant: a verdict needs an interval that lies wholly on one side of the claim's limits, from
//! at least `ROUNDS_MIN` rounds. No verdict rests on measurements in which kvblaster was the limit,
//! nor on servers that found different shares of the keys.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation",
//! section 3.2: Student's t for few measurements.

use super::experiment::{Claim, Experiment, Scale, side_of};
use super::figures::{self, Figure, Unit};
use super::points::is_at;
use super::record::Record;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Least number of rounds for a verdict.
pub const ROUNDS_MIN: usize = 3;
/// The confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// Two servers were asked for the same if the shares that they did not find differ by less.
pub const NOT_FOUND_APART_MAX: f64 = 0.01;
/// The experiment that compares a server with itself.
pub const NOISE: &str = "own-noise";

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies within the claim's limits.
    Confirmed,
    /// The interval lies outside the claim's limits.
    NotReproduced,
    /// The interval contains a limit, or there are too few rounds for one.
    TooShort,
    /// The measurements do not show the servers, or cannot be made on this machine.
    CannotTell,
}

impl Verdict {
    /// The verdict in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::NotReproduced => "not reproduced",
            Verdict::TooShort => "too short to tell",
            Verdict::CannotTell => "this machine cannot tell",
        }
    }
}

/// An estimate from several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean; of ratios and positive values, the geometric mean.
    pub value: f64,
    /// The confidence interval of the mean. `None` if there are fewer rounds than `ROUNDS_MIN`.
    pub interval: Option<(f64, f64)>,
    /// The number of rounds.
    pub rounds: usize,
}

/// A claim with its verdict.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The source's sentence.
    pub says: String,
    /// The figure in question.
    pub figure: &'static Figure,
    /// The measured quantity. `None` if it was not measured.
    pub here: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
    /// The measured quantity and the verdict's reason, in a sentence without a full stop.
    pub told: String,
}

/// Judges all claims of an experiment. `noise` is the record of the experiment `NOISE`, if there is
/// one on the same machine.
#[must_use]
pub fn judge(experiment: &Experiment, record: &Record, noise: Option<&Record>) -> Vec<Judged> {
    let judged = |claim: &Claim| judged(claim, experiment, record, noise);
    experiment.claims.iter().filter_map(judged).collect()
}

fn judged(
    claim: &Claim,
    experiment: &Experiment,
    record: &Record,
    noise: Option<&Record>,
) -> Option<Judged> {
    let figure = figures::named(&claim.figure)?;
    let here = quantity(claim, experiment, record);
    let noise = noise.map_or(1.0, |noise| noise_of(noise, &claim.figure));
    let (verdict, why) = match (&here, doubt(claim, experiment, record, figure)) {
        (None, _) => (Verdict::CannotTell, missing(claim, record)),
        (_, Some(doubt)) => (Verdict::CannotTell, doubt),
        (Some(_), _) if record.scale == Scale::Smoke => {
            (Verdict::TooShort, "a smoke test concludes nothing".to_owned())
        }
        (Some(here), None) => verdict(claim, here, noise),
    };
    let quantity = here.as_ref().map(|here| shown(claim, figure, here));
    let told = match (quantity, why.is_empty()) {
        (Some(quantity), true) => quantity,
        (Some(quantity), false) => format!("{quantity}; {why}"),
        (None, _) => why,
    };
    Some(Judged { says: claim.says.clone(), figure, here, verdict, told })
}

/// Returns the verdict, and the reason if it needs one.
fn verdict(claim: &Claim, here: &Estimate, noise: f64) -> (Verdict, String) {
    let Some((low, high)) = here.interval else {
        let rounds = here.rounds;
        return (Verdict::TooShort, format!("{rounds} round(s), {ROUNDS_MIN} are needed"));
    };
    // The noise between two equal servers widens the interval of a ratio.
    let (low, high) = if claim.to.is_some() { (low / noise, high * noise) } else { (low, high) };
    let (least, most) =
        (claim.at_least.unwrap_or(f64::NEG_INFINITY), claim.at_most.unwrap_or(f64::INFINITY));
    match () {
        () if low >= least && high <= most => (Verdict::Confirmed, String::new()),
        () if high < least || low > most => (Verdict::NotReproduced, String::new()),
        () => (Verdict::TooShort, "the interval contains a limit of the claim".to_owned()),
    }
}

/// Returns the claimed quantity: by round, the value or the ratio, in the mean over the points.
fn quantity(claim: &Claim, experiment: &Experiment, record: &Record) -> Option<Estimate> {
    let points = record.points(experiment);
    let of = sides(&claim.of, &points);
    let to = claim.to.as_ref().map(|to| sides(to, &points));
    let mut rounds = Vec::new();
    for round in 0..record.rounds {
        let value = |(server, at): &(String, Vec<String>)| {
            record.values(server, at, &claim.figure).get(&round).copied()
        };
        let pairs: Option<Vec<f64>> = match &to {
            None => of.iter().map(value).collect(),
            Some(to) if of.len() == to.len() => {
                let pairs = of.iter().zip(to);
                pairs.map(|(of, to)| Some(value(of)? / value(to)?)).collect()
            }
            Some(_) => None,
        };
        rounds.extend(pairs.and_then(|pairs| centre(&pairs)));
    }
    estimate(&rounds)
}

/// The servers and points that one side of a claim names.
fn sides(side: &str, points: &[Vec<String>]) -> Vec<(String, Vec<String>)> {
    let (server, point) = side_of(side);
    let named = points.iter().filter(|at| point.is_none_or(|point| is_at(at, point)));
    named.map(|at| (server.to_owned(), at.clone())).collect()
}

/// The geometric mean of positive values, otherwise the arithmetic one.
fn centre(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let is_finite = values.iter().all(|value| value.is_finite());
    match values.iter().all(|value| *value > 0.0) {
        _ if values.is_empty() || !is_finite => None,
        true => Some((values.iter().map(|value| value.ln()).sum::<f64>() / count).exp()),
        false => Some(values.iter().sum::<f64>() / count),
    }
}

/// Estimates the mean of values from different rounds. `None` if there are none.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let value = centre(values)?;
    let is_log = values.iter().all(|value| *value > 0.0);
    let scaled: Vec<f64> =
        values.iter().map(|value| if is_log { value.ln() } else { *value }).collect();
    let back = |value: f64| if is_log { value.exp() } else { value };
    let rounds = values.len();
    let half = half_width(&scaled).filter(|_| rounds >= ROUNDS_MIN);
    let mean = scaled.iter().sum::<f64>() / rounds as f64;
    let interval = half.map(|half| (back(mean - half), back(mean + half)));
    Some(Estimate { value, interval, rounds })
}

/// Half the width of the confidence interval of the mean, by Student's t.
fn half_width(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let t = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    let t = t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    Some(t * (squares / (count - 1.0) / count).sqrt())
}

/// The factor by which two equal servers differed in a figure, at least 1.
pub(crate) fn noise_of(noise: &Record, figure: &str) -> f64 {
    let mut factor: f64 = 1.0;
    for (one, other) in [("memcached", "memcached again"), ("hypostyle", "hypostyle again")] {
        for at in noise.rows.iter().map(|row| &row.at) {
            let (one, other) = (noise.values(one, at, figure), noise.values(other, at, figure));
            let ratios: Vec<f64> = one
                .iter()
                .filter_map(|(round, value)| Some(other.get(round)? / value))
                .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
                .collect();
            let found = estimate(&ratios).filter(|found| found.rounds >= ROUNDS_MIN);
            factor = found.map_or(factor, |found| factor.max(found.value.max(1.0 / found.value)));
        }
    }
    factor
}

/// The reason why measurements do not show the servers, if there is one.
fn doubt(
    claim: &Claim,
    experiment: &Experiment,
    record: &Record,
    figure: &Figure,
) -> Option<String> {
    if !figure.is_bound {
        return None;
    }
    let points = record.points(experiment);
    let sides: Vec<_> =
        std::iter::once(&claim.of).chain(&claim.to).flat_map(|side| sides(side, &points)).collect();
    let is_of = |row: &&super::record::Row| {
        sides.iter().any(|(server, at)| row.server == *server && row.at == *at)
    };
    let rows = || record.rows.iter().filter(is_of);
    let bound = rows().filter(|row| row.bound.is_some()).count();
    if 2 * bound > rows().count() {
        let all = rows().count();
        return Some(format!("kvblaster was the limit in {bound} of {all} measurements"));
    }
    let not_found: Vec<f64> =
        rows().filter_map(|row| row.figures.get("not found").copied()).collect();
    let (least, most) = not_found
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, m), one| (l.min(*one), m.max(*one)));
    (claim.to.is_some() && most - least > NOT_FOUND_APART_MAX).then(|| {
        let [least, most] = [least, most].map(|share| Unit::Share.format(share));
        format!("void: the servers did not find the same keys ({least} to {most} were not found)")
    })
}

/// The reason why a quantity was not measured.
fn missing(claim: &Claim, record: &Record) -> String {
    let named: Vec<&str> =
        std::iter::once(&claim.of).chain(&claim.to).map(|side| side_of(side).0).collect();
    let of_claim = |server: &str| server.is_empty() || named.contains(&server);
    let why = record.missing.iter().find(|missing| of_claim(&missing.server));
    match why {
        Some(missing) if missing.server.is_empty() => missing.why.clone(),
        Some(missing) => format!("{}: {}", missing.server, missing.why),
        None => "it was not measured".to_owned(),
    }
}

fn shown(claim: &Claim, figure: &Figure, here: &Estimate) -> String {
    let format = |value: f64| match claim.to {
        Some(_) if value < 0.095 => format!("{value:.3}"),
        Some(_) => format!("{value:.2}"),
        None => figure.unit.format(value),
    };
    let interval = match here.interval {
        Some((low, high)) => format!(" [{}, {}]", format(low), format(high)),
        None => String::new(),
    };
    let value = format(here.value) + &interval;
    match &claim.to {
        Some(to) => format!("here {} of {} is {value} times that of {to}", claim.figure, claim.of),
        None => format!("here {} of {} is {value}", claim.figure, claim.of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::record::{Missing, Row};

    fn experiment() -> Experiment {
        let text = r#"
            title = "t"
            source = "own"
            place = "p"
            did = "d"
            found = ["f"]
            drive = { flags = "" }
            figures = [{ y = "requests/s" }]
            servers = [
                { name = "hypostyle", program = "hypostyle" },
                { name = "memcached", program = "memcached" },
            ]
            [[axes]]
            name = "size"
            points = [{ at = 64, scale = "quick" }, { at = 128, scale = "quick" }]
            [[claims]]
            says = "the paper: 2.3 times"
            figure = "requests/s"
            of = "hypostyle"
            to = "memcached"
            at_least = 1.5
            [[claims]]
            says = "less at 128"
            figure = "requests/s"
            of = "hypostyle @ 128"
            to = "hypostyle @ 64"
            at_most = 0.9
        "#;
        Experiment::parse("t", text).unwrap()
    }

    /// Rows of both servers at both points, in three rounds.
    fn record(ratio: f64) -> Record {
        let mut record = Record { rounds: 3, ..Record::default() };
        for round in 0..3 {
            for (at, factor) in [("64", 1.0), ("128", 0.5)] {
                for (server, rate) in [("hypostyle", ratio), ("memcached", 1.0)] {
                    let rate = rate * factor * (1.0 + 0.01 * f64::from(round)) * 1e5;
                    let figures = [("requests/s".to_owned(), rate)].into();
                    let (at, server) = (vec![at.to_owned()], server.to_owned());
                    record.rows.push(Row { round, at, server, figures, ..Row::default() });
                }
            }
        }
        record
    }

    fn verdicts(record: &Record) -> Vec<Verdict> {
        judge(&experiment(), record, None).iter().map(|one| one.verdict).collect()
    }

    #[test]
    fn a_claim_is_confirmed_or_not_by_all_rounds() {
        assert_eq!(verdicts(&record(2.0)), [Verdict::Confirmed; 2]);
        assert_eq!(verdicts(&record(1.1)), [Verdict::NotReproduced, Verdict::Confirmed]);
        let judged = judge(&experiment(), &record(2.0), None);
        let told = "here requests/s of hypostyle is 2.00 [2.00, 2.00] times that of memcached";
        assert_eq!(judged[0].told, told);
    }

    #[test]
    fn no_verdict_rests_on_two_rounds_or_on_a_bound_generator() {
        let mut few = record(2.0);
        few.rows.retain(|row| row.round < 2);
        assert_eq!(verdicts(&few), [Verdict::TooShort; 2]);
        let mut bound = record(2.0);
        bound.rows.iter_mut().for_each(|row| row.bound = Some("busy".to_owned()));
        assert_eq!(verdicts(&bound), [Verdict::CannotTell; 2]);
        let mut unequal = record(2.0);
        for row in unequal.rows.iter_mut().filter(|row| row.server == "hypostyle") {
            row.figures.insert("not found".to_owned(), 0.1);
        }
        for row in unequal.rows.iter_mut().filter(|row| row.server == "memcached") {
            row.figures.insert("not found".to_owned(), 0.0);
        }
        assert_eq!(verdicts(&unequal)[0], Verdict::CannotTell);
        let smoke = Record { scale: Scale::Smoke, ..record(2.0) };
        assert_eq!(verdicts(&smoke), [Verdict::TooShort; 2]);
    }

    #[test]
    fn noise_between_equal_servers_widens_the_interval() {
        let mut noise = record(1.4);
        for row in &mut noise.rows {
            let name = if row.server == "hypostyle" { "memcached again" } else { "memcached" };
            name.clone_into(&mut row.server);
        }
        let judged = judge(&experiment(), &record(2.0), Some(&noise));
        assert_eq!(judged[0].verdict, Verdict::TooShort);
    }

    #[test]
    fn a_server_that_is_missing_is_told_with_the_reason() {
        let mut record = record(2.0);
        record.rows.retain(|row| row.server == "hypostyle");
        let (server, why) = ("memcached".to_owned(), "it is not installed".to_owned());
        record.missing.push(Missing { server, why, ..Missing::default() });
        let judged = judge(&experiment(), &record, None);
        assert_eq!(judged[0].verdict, Verdict::CannotTell);
        assert_eq!(judged[0].told, "memcached: it is not installed");
    }

    #[test]
    fn intervals_are_those_of_students_t() {
        // Three values with mean 2 and deviation 1: t is 4.303 with two degrees of freedom.
        let found = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((found - 4.303 / 3f64.sqrt()).abs() < 0.001, "{found}");
        assert_eq!(estimate(&[1.0, 2.0]).unwrap().interval, None);
        assert!(estimate(&[]).is_none());
    }
}
