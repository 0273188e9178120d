//! The verdict on each claim that a source makes: confirmed, not reproduced, or undecided.
//!
//! ```text
//! rows -> a ratio per round -> mean and interval of the logarithms -> verdict, sentence
//! ```
//!
//! Where: after the last round; the report prints the verdicts and their reasons.
//! Invariant: a claim is confirmed or not reproduced only if an interval from at least `ROUNDS_MIN`
//! rounds contains no limit of the claim, or if the value is exact after one round. A claim is
//! undecided if kvblaster was the limit in most measurements, or if the servers found different
//! shares of the keys.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation".

use super::estimate::{Estimate, ROUNDS_MIN, centre, estimate};
use super::experiment::{Claim, Experiment, Method, Scale};
use super::figures::{self, Figure, NOT_FOUND, Unit};
use super::points::{Side, is_at, labels, side_of, sides};
use super::record::{Missing, Record, Row};
use super::simulated::is_exact;
use crate::measure::steady::median;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Two servers are not compared if, in the median of the rounds, their shares of keys not found
/// differ by more than this number.
pub(crate) const NOT_FOUND_APART_MAX: f64 = 0.01;
/// The first words of the reason if servers cannot be compared because they found different keys.
pub(crate) const VOID: &str = "not comparable";
/// The name of the experiment that compares each server with an equal server.
pub(crate) const NOISE: &str = "own-noise";
/// The ending of the name of an equal server in the experiment `NOISE`: `memcached again`.
pub(crate) const AGAIN: &str = " again";

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The interval lies within the claim's limits.
    Confirmed,
    /// The interval lies outside the claim's limits.
    NotReproduced,
    /// The interval lies only partly within the claim's limits, or there are too few rounds for an
    /// interval, or too few answers for a percentile.
    TooShort,
    /// The measurements say nothing about the servers, or cannot be made on this machine.
    CannotTell,
    /// The scale of the measurements has none of the claim's points.
    NotAtScale,
}

impl Verdict {
    /// The verdict in words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::NotReproduced => "not reproduced",
            Verdict::TooShort => "too short to tell",
            Verdict::CannotTell => "this machine cannot tell",
            Verdict::NotAtScale => "not measured at this scale",
        }
    }
}

/// A claim with its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// The claim in words.
    pub says: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The measured quantity and the verdict's reason, or only one of them, without a full stop.
    /// Without a reason: `the p99 of redis is 2 ms`.
    pub told: String,
}

/// Judges all claims of an experiment. `noise` is the record that `noise_for` returns.
pub(crate) fn judge(
    experiment: &Experiment,
    record: &Record,
    noise: Option<&Record>,
) -> Vec<Judged> {
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
    let (of, to) = sides(claim, &record.points(experiment));
    let here = quantity(record, &claim.figure, &of, to.as_deref());
    let here = here.map(|it| if to.is_some() { it } else { it.within(figure.unit) });
    let noise = noise_of(noise, &claim.figure);
    let (verdict, why) = match (&here, doubt(record, figure, &of, to.as_deref())) {
        (None, _) if sides(claim, &labels(experiment, record.scale)).0.is_empty() => {
            let scale = format!("{:?}", record.scale).to_lowercase();
            (
                Verdict::NotAtScale,
                format!("the claim's points are not measured at the scale {scale}"),
            )
        }
        (None, _) => missing((experiment, claim), record, (&of, to.as_deref().unwrap_or_default())),
        (_, Some(doubt)) => (Verdict::CannotTell, doubt),
        (Some(_), _) if record.scale == Scale::Smoke => {
            (Verdict::TooShort, "a smoke test is too short for a verdict".to_owned())
        }
        (Some(here), None) if is_exact(experiment) => exactly(claim, here),
        (Some(here), None) => verdict(claim, here, noise),
    };
    let quantity = here.as_ref().map(|here| shown((experiment, claim), figure, here));
    let told = match (quantity, why.is_empty()) {
        (Some(quantity), true) => quantity,
        (Some(quantity), false) => format!("{quantity}; {why}"),
        (None, _) => why,
    };
    Some(Judged { says: claim.says.clone(), verdict, told })
}

/// Returns the verdict on a value that is the same in each round.
fn exactly(claim: &Claim, here: &Estimate) -> (Verdict, String) {
    let certain = Estimate { interval: Some((here.value, here.value)), ..*here };
    let why = "each replay of a trace has the same result, so one round is enough";
    (verdict(claim, &certain, 1.0).0, why.to_owned())
}

/// Returns the verdict and its reason, which may be empty.
fn verdict(claim: &Claim, here: &Estimate, noise: f64) -> (Verdict, String) {
    let Some((low, high)) = here.interval else {
        let rounds = here.rounds;
        return (
            Verdict::TooShort,
            format!("a verdict needs {ROUNDS_MIN} rounds; the number of rounds measured: {rounds}"),
        );
    };
    // The noise between two equal servers widens the interval of a ratio.
    let is_widened = claim.to.is_some() && noise > 1.0;
    let widened = if is_widened { ", widened by the noise between equal servers," } else { "" };
    let (low, high) = if claim.to.is_some() { (low / noise, high * noise) } else { (low, high) };
    let (least, most) =
        (claim.at_least.unwrap_or(f64::NEG_INFINITY), claim.at_most.unwrap_or(f64::INFINITY));
    match () {
        () if low >= least && high <= most => (Verdict::Confirmed, String::new()),
        () if high < least || low > most => (Verdict::NotReproduced, String::new()),
        () => (
            Verdict::TooShort,
            format!("the 95 % interval{widened} lies only partly within the claim's limits"),
        ),
    }
}

/// Estimates a quantity from one number per round: the mean over all points of the figure's value
/// or, with `to`, of the ratio of a side in `of` to the side at the same index of `to`.
pub(crate) fn quantity(
    record: &Record,
    figure: &str,
    of: &[Side],
    to: Option<&[Side]>,
) -> Option<Estimate> {
    let mut rounds = Vec::new();
    for round in 0..record.rounds {
        let value = |(server, at): &Side| record.values(server, at, figure).get(&round).copied();
        let pairs: Option<Vec<f64>> = match to {
            None => of.iter().map(value).collect(),
            Some(to) => of.iter().zip(to).map(|(of, to)| Some(value(of)? / value(to)?)).collect(),
        };
        rounds.extend(pairs.and_then(|pairs| centre(&pairs)));
    }
    estimate(&rounds)
}

/// Returns the record of `NOISE` that widens the intervals of `record`. A simulation has no noise.
/// Fails if the noise was measured in another way than `record`; the error says in which way.
pub(crate) fn noise_for<'n>(
    (experiment, record): (&Experiment, &Record),
    noise: Option<&'n Record>,
) -> Result<Option<&'n Record>, String> {
    let noise = noise.filter(|_| experiment.drive.method != Method::Simulate);
    noise.and_then(|noise| noise.difference(record)).map_or(Ok(noise), Err)
}

/// Returns the greatest factor (1 or more) by which equal servers differed in a figure; 1 without
/// `noise`.
pub(crate) fn noise_of(noise: Option<&Record>, figure: &str) -> f64 {
    let Some(noise) = noise else { return 1.0 };
    let pair = |row: &Row| Some((row.server.strip_suffix(AGAIN)?.to_owned(), row.at.clone()));
    let pairs: BTreeSet<Side> = noise.rows.iter().filter_map(pair).collect();
    let factors = pairs.into_iter().filter_map(|(server, at)| {
        let again = (format!("{server}{AGAIN}"), at.clone());
        let found = quantity(noise, figure, &[again], Some(&[(server, at)]))?;
        let is_sure = found.rounds >= ROUNDS_MIN && found.value > 0.0;
        is_sure.then(|| found.value.max(1.0 / found.value))
    });
    factors.fold(1.0, f64::max)
}

/// Returns the reason why the measurements say nothing about the servers. `None` if there is no
/// such reason. Each side in `of` is compared with the side at the same index of `to`.
pub(crate) fn doubt(
    record: &Record,
    figure: &Figure,
    of: &[Side],
    to: Option<&[Side]>,
) -> Option<String> {
    if !figure.is_bound {
        return None;
    }
    let is_of = |row: &Row, side: &Side| row.server == side.0 && row.at == side.1;
    let sides = of.iter().chain(to.unwrap_or_default());
    let rows = record.rows.iter().filter(|row| sides.clone().any(|side| is_of(row, side)));
    let (bound, all) =
        rows.fold((0, 0), |(bound, all), row| (bound + usize::from(row.bound.is_some()), all + 1));
    if 2 * bound > all {
        return Some(format!("kvblaster was the limit in {bound} of {all} measurements"));
    }
    let apart = |sides: (&Side, &Side)| {
        let [of, to] = [sides.0, sides.1].map(|(name, at)| record.values(name, at, NOT_FOUND));
        let differences = of.iter().filter_map(|(round, of)| Some(of - to.get(round)?));
        let is_void = median(differences.collect())?.abs() > NOT_FOUND_APART_MAX;
        let mut shares = [of, to].map(|it| median(it.into_values().collect()).unwrap_or_default());
        shares.sort_by(f64::total_cmp);
        is_void.then_some(shares)
    };
    let [least, most] = of.iter().zip(to?).find_map(apart)?.map(|share| Unit::Share.format(share));
    Some(format!("{VOID}: the servers missed different shares of the keys ({least} and {most})"))
}

/// Returns the verdict on a claim whose quantity was not measured, and the reason. `of` and `to`
/// are the sides that the claim compares.
fn missing(
    (experiment, claim): (&Experiment, &Claim),
    record: &Record,
    (of, to): (&[Side], &[Side]),
) -> (Verdict, String) {
    let named: Vec<_> =
        std::iter::once(&claim.of).chain(&claim.to).map(|side| side_of(side)).collect();
    let is_of_claim = |missing: &&Missing| {
        named.iter().any(|(server, point)| {
            (missing.server.is_empty() || missing.server == *server)
                && (missing.at.is_empty() || point.is_none_or(|point| is_at(&missing.at, point)))
        })
    };
    if let Some(missing) = record.missing.iter().find(is_of_claim) {
        let server = &missing.server;
        let whose = if server.is_empty() { String::new() } else { format!("{server}: ") };
        return (Verdict::CannotTell, whose + &missing.why);
    }
    let is_short = |row: &Row| {
        let mut sides = of.iter().chain(to);
        !row.figures.contains_key(&claim.figure)
            && sides.any(|(server, at)| row.server == *server && row.at == *at)
    };
    let quantile = figures::quantile_of(&claim.figure);
    if let Some(quantile) = quantile.filter(|_| record.rows.iter().any(is_short)) {
        return (Verdict::TooShort, format!("too few answers for a {quantile}"));
    }
    let is_zero = |(server, at): &Side| {
        record.values(server, at, &claim.figure).values().any(|value| *value == 0.0)
    };
    let why = match claim.to.as_ref().filter(|_| to.iter().any(is_zero)) {
        Some(to) => {
            let zero = "0 here, so there is no ratio";
            figures::told(&claim.figure, &side_in_words(experiment, to), zero)
        }
        None => "the quantity of this claim was not measured".to_owned(),
    };
    (Verdict::CannotTell, why)
}

fn shown((experiment, claim): (&Experiment, &Claim), figure: &Figure, here: &Estimate) -> String {
    let of = side_in_words(experiment, &claim.of);
    let Some(to) = &claim.to else {
        let format = |value| figure.unit.format(value);
        let interval =
            here.interval.map(|(low, high)| format!(" [{}, {}]", format(low), format(high)));
        return figures::told(
            &claim.figure,
            &of,
            &(format(here.value) + &interval.unwrap_or_default()),
        );
    };
    // If both sides name the same point, the sentence names the point once.
    let (server, point) = side_of(to);
    let to = if point == side_of(&claim.of).1 {
        server.to_owned()
    } else {
        side_in_words(experiment, to)
    };
    figures::compared(&claim.figure, [&of, &to], &format!("{} times", here.as_ratio()))
}

/// A side of a claim in words: `hypostyle (connections = 16)`.
fn side_in_words(experiment: &Experiment, side: &str) -> String {
    match side_of(side) {
        (server, None) => server.to_owned(),
        (server, Some(point)) => {
            let labels: Vec<String> = point.split(',').map(|one| one.trim().to_owned()).collect();
            format!("{server} ({})", experiment.place(&labels))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Makes three rounds of rows in which hypostyle's rate is `ratio` times memcached's rate.
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
        let expected = [
            "the requests/s of hypostyle are 2.00 [2.00, 2.00] times those of memcached",
            "the requests/s of hypostyle (size = 128) are 0.50 [0.50, 0.50] times those of \
             hypostyle (size = 64)",
        ];
        assert_eq!([0, 1].map(|nth: usize| judged[nth].told.as_str()), expected);
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
    fn servers_are_compared_round_by_round_by_the_keys_that_they_found() {
        let with = |of: [f64; 3], to: [f64; 3]| {
            let mut record = record(2.0);
            for row in &mut record.rows {
                let shares = if row.server == "hypostyle" { of } else { to };
                let share = shares[row.round as usize];
                row.figures.insert(NOT_FOUND.to_owned(), share);
            }
            verdicts(&record)[0]
        };
        // The shares of keys not found vary alike at both servers, or differ in only one round.
        assert_eq!(with([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]), Verdict::Confirmed);
        assert_eq!(with([0.1, 0.9, 0.1], [0.1; 3]), Verdict::Confirmed);
        assert_eq!(with([0.1, 0.2, 0.3], [0.12, 0.22, 0.32]), Verdict::CannotTell);
    }

    #[test]
    fn a_point_that_the_scale_lacks_is_not_measured_at_this_scale() {
        let mut few = experiment();
        few.axes[0].points[1].scale = Scale::Default;
        let mut quick = Record { scale: Scale::Quick, ..record(2.0) };
        quick.rows.retain(|row| row.at == ["64"]);
        let judged = |record: &Record| judge(&few, record, None).remove(1);
        let one = judged(&quick);
        assert_eq!(one.verdict, Verdict::NotAtScale);
        assert_eq!(one.told, "the claim's points are not measured at the scale quick");
        assert_eq!(judged(&Record { scale: Scale::Full, ..quick }).verdict, Verdict::CannotTell);
    }

    #[test]
    fn the_sides_of_a_claim_are_compared_at_the_points_of_both() {
        let mut one = experiment();
        one.claims[0].of = "hypostyle @ 64".to_owned();
        let judged = judge(&one, &record(2.0), None).remove(0);
        assert_eq!(judged.verdict, Verdict::Confirmed, "{}", judged.told);
        let points = [["64", "a"], ["64", "b"], ["128", "b"]];
        let points = points.map(|at| at.map(str::to_owned).to_vec());
        one.claims[1].to = Some("memcached @ 64".to_owned());
        let side = |server: &str, at: &Vec<String>| (server.to_owned(), at.clone());
        let expected =
            (vec![side("hypostyle", &points[2])], Some(vec![side("memcached", &points[1])]));
        assert_eq!(sides(&one.claims[1], &points), expected);
    }

    #[test]
    fn a_percentile_of_too_few_answers_is_told() {
        let mut one = experiment();
        one.claims[0].figure = "get p99".to_owned();
        let judged = judge(&one, &record(2.0), None).remove(0);
        let told = (judged.verdict, judged.told.as_str());
        assert_eq!(told, (Verdict::TooShort, "too few answers for a p99"));
    }

    #[test]
    fn one_replay_of_a_trace_has_a_verdict_without_an_interval() {
        let mut replayed = experiment();
        replayed.drive.method = Method::Simulate;
        "$TRACES/a.u32.zst -s 1%".clone_into(&mut replayed.drive.flags);
        let mut once = record(2.0);
        once.rows.retain(|row| row.round == 0);
        let judged = judge(&replayed, &once, None);
        assert_eq!(judged[0].verdict, Verdict::Confirmed);
        let told = &judged[0].told;
        assert!(told.ends_with(
            "2.00 times those of memcached; each replay of a trace has the same result, so one \
             round is enough"
        ));
        // Drawn requests are a sample, so one round is not exact.
        "-w zipf -s 1%".clone_into(&mut replayed.drive.flags);
        assert_eq!(judge(&replayed, &once, None)[0].verdict, Verdict::TooShort);
    }

    #[test]
    fn the_reason_of_a_missing_claim_is_that_of_its_point_and_zero_has_no_ratio() {
        let mut record = record(2.0);
        record.rows.retain(|row| row.at == ["64"]);
        let missing = |at: &str, why: &str| Missing {
            at: vec![at.to_owned()],
            why: why.to_owned(),
            ..Missing::default()
        };
        record.missing = vec![missing("256", "wrong point"), missing("128", "it needs 4 CPUs")];
        let judged = judge(&experiment(), &record, None);
        assert_eq!(judged[1].told, "it needs 4 CPUs");
        for row in record.rows.iter_mut().filter(|row| row.server == "memcached") {
            row.figures.insert("requests/s".to_owned(), 0.0);
        }
        record.missing.clear();
        let judged = judge(&experiment(), &record, None);
        let told = "the requests/s of memcached are 0 here, so there is no ratio";
        assert_eq!((judged[0].verdict, judged[0].told.as_str()), (Verdict::CannotTell, told));
    }

    #[test]
    fn noise_between_equal_servers_widens_the_interval() {
        let mut noise = record(1.4);
        for row in &mut noise.rows {
            let name = if row.server == "hypostyle" { "memcached again" } else { "memcached" };
            name.clone_into(&mut row.server);
        }
        let (experiment, record) = (experiment(), record(2.0));
        let fitting = noise_for((&experiment, &record), Some(&noise)).unwrap();
        assert_eq!(judge(&experiment, &record, fitting)[0].verdict, Verdict::TooShort);
        assert_eq!(judge(&experiment, &record, None)[0].verdict, Verdict::Confirmed);
        // Noise that was measured at another scale or on another machine is not used.
        let other = Record { scale: Scale::Full, ..noise.clone() };
        assert!(noise_for((&experiment, &record), Some(&other)).is_err());
        noise.machine.cpu_model = Some("another".to_owned());
        assert!(noise_for((&experiment, &record), Some(&noise)).is_err());
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
}
