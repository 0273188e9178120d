//! Tests that compare sizes and gaps with statrs, closed formulas, and the KV-Cache paper's table
//! 2.
//!
//! Where: unit tests. Invariant: see `tests`.
//! Source: the crate statrs, if needed after a transformation: a generalized Pareto law of positive
//! shape is a shifted Pareto law, and the inverse of a generalized extreme value has a Weibull law.

use super::super::curve::{Curve, Form};
use super::super::draw::{self, IntegerSampler};
use super::super::law::Law;
use super::super::settings::{KEY_SIZE, VALUE_SIZE};
use super::super::{Stream, random};
use super::{DISTANCE_MAX, Files, distance, distance_of_whole, made};
use statrs::distribution::{ContinuousCDF, Exp, Pareto, Weibull};

const DRAWS: u64 = 200_000;

fn fractions() -> impl Iterator<Item = f64> {
    (0..DRAWS).map(|n| random::fraction(random::hash(11, n)))
}

fn drawn(curve: &Curve) -> Vec<f64> {
    fractions().map(|fraction| curve.at(fraction)).collect()
}

#[test]
fn pareto_is_statrs_pareto_shifted() {
    let (scale, shape) = (214.476, 0.348_238);
    let reference = Pareto::new(scale / shape, 1.0 / shape).unwrap();
    let form = Form::Pareto { location: 0.0, scale, shape };
    let whole = Curve::new(form, 0.0, 1e12).unwrap();
    let below = |value: f64| reference.cdf(value + scale / shape);
    assert!(distance(&mut drawn(&whole), below) < DISTANCE_MAX);
    for value in [0.0, 1.0, 64.0, 1000.0, 1e5] {
        assert!((whole.share_below(value) - below(value)).abs() < 1e-9, "{value}");
    }
    // The same law with another location, cut off at two bounds.
    let form = Form::Pareto { location: 15.0, scale, shape };
    let part = Curve::new(form, 64.0, 1024.0).unwrap();
    let of = |value: f64| below(value - 15.0);
    let share = |value: f64| (of(value) - of(64.0)) / (of(1024.0) - of(64.0));
    assert!(distance(&mut drawn(&part), share) < DISTANCE_MAX);
    // The mean of a Pareto law is location + scale / (1 - shape).
    let long = Curve::new(Form::Pareto { location: 3.0, scale, shape }, 3.0, 1e12).unwrap();
    assert!((long.mean() / (3.0 + scale / (1.0 - shape)) - 1.0).abs() < 1e-4, "{}", long.mean());
}

#[test]
fn extreme_values_are_statrs_weibull_inverted() {
    let (location, scale, shape) = (30.7984, 8.20449, 0.078_688);
    let form = Form::Gev { location, scale, shape };
    let curve = Curve::new(form, -1e3, 1e9).unwrap();
    // P(X <= x) = exp(-t^(-1/k)), where t = 1 + k (x - location) / scale.
    let reference = Weibull::new(1.0 / shape, 1.0).unwrap();
    let below = |value: f64| 1.0 - reference.cdf(1.0 / (1.0 + shape * (value - location) / scale));
    assert!(distance(&mut drawn(&curve), below) < DISTANCE_MAX);
}

#[test]
fn exponential_is_statrs_exponential() {
    let curve = Curve::new(Form::Exponential { mean: 40.0 }, 0.0, 1e9).unwrap();
    let reference = Exp::new(1.0 / 40.0).unwrap();
    assert!(distance(&mut drawn(&curve), |value| reference.cdf(value)) < DISTANCE_MAX);
    assert!((curve.mean() - 40.0).abs() < 1e-3, "{}", curve.mean());
}

#[test]
fn shapes_of_zero_and_below_are_taken() {
    let flat =
        Curve::new(Form::Pareto { location: 0.0, scale: 40.0, shape: 0.0 }, 0.0, 1e6).unwrap();
    let reference = Exp::new(1.0 / 40.0).unwrap();
    assert!(distance(&mut drawn(&flat), |value| reference.cdf(value)) < DISTANCE_MAX);
    // With shape -1, the law is uniform from 0 to the scale.
    let even =
        Curve::new(Form::Pareto { location: 0.0, scale: 40.0, shape: -1.0 }, 0.0, 99.0).unwrap();
    assert!(distance(&mut drawn(&even), |value| (value / 40.0).min(1.0)) < DISTANCE_MAX);
    let gumbel = Form::Gev { location: 30.0, scale: 8.0, shape: 0.0 };
    let reference = statrs::distribution::Gumbel::new(30.0, 8.0).unwrap();
    let gumbel = Curve::new(gumbel, -500.0, 1e4).unwrap();
    assert!(distance(&mut drawn(&gumbel), |value| reference.cdf(value)) < DISTANCE_MAX);
}

/// Draws from a law of sizes. Returns the samples, the mean, and a function for quantiles.
fn sizes(text: &str) -> (Vec<u32>, f64, impl Fn(f64) -> u32 + use<>) {
    let usage = if text.starts_with("gev") { KEY_SIZE } else { VALUE_SIZE };
    let law = Law::parse(text, &usage, &Files::here("")).unwrap();
    let whole = IntegerSampler::new(&law).unwrap();
    let samples: Vec<u32> = (0..DRAWS).map(|n| whole.draw(random::hash(12, n))).collect();
    let mean = samples.iter().map(|bytes| f64::from(*bytes)).sum::<f64>() / samples.len() as f64;
    let exact = draw::mean(&law);
    assert!((mean / exact - 1.0).abs() < 0.01, "{text}: {mean} drawn, {exact} expected");
    let mut sorted = samples.clone();
    sorted.sort_unstable();
    // Rounds the share down to thousandths, because a float cannot be an index.
    let at = move |share: f64| {
        let place = (0..1000).rfind(|n| f64::from(*n) <= share * 1000.0 + 1e-6).unwrap();
        sorted[usize::try_from(place).unwrap() * sorted.len() / 1000]
    };
    (samples, mean, at)
}

#[test]
fn etc_keys_have_the_quantiles_of_table_2() {
    let (samples, mean, at) = sizes("gev:30.7984,8.20449,0.078688,1,250");
    assert!((mean - 36.2).abs() < 0.1, "{mean}");
    for (share, expected, off) in [(0.5, 34, 0), (0.99, 76, 1), (0.999, 106, 2)] {
        assert!(at(share).abs_diff(expected) <= off, "{share}: {}", at(share));
    }
    let form = Form::Gev { location: 30.7984, scale: 8.20449, shape: 0.078_688 };
    let curve = Curve::new(form, 0.5, 250.5).unwrap();
    let share_to = |bytes: u32| curve.share_below(f64::from(bytes) + 0.5);
    assert!(distance_of_whole(&samples, share_to) < DISTANCE_MAX);
    // These quantiles are computed from the law, without drawing.
    let exact = |share: f64| (1..=250).find(|bytes| share_to(*bytes) >= share).unwrap();
    assert_eq!([0.5, 0.99, 0.999].map(exact), [34, 76, 106]);
}

#[test]
fn etc_values_are_corrected_and_as_printed() {
    for (name, mean, median) in [("etc", 299.0, 226), ("etc-as-printed", 345.0, 254)] {
        let law = Law::parse(name, &VALUE_SIZE, &Files::here("")).unwrap();
        let (samples, drawn, at) = sizes(&law.to_string());
        assert!((draw::mean(&law) - mean).abs() < 0.5, "{name}: {}", draw::mean(&law));
        assert!((drawn - mean).abs() < 2.0, "{name}: {drawn}");
        assert!(at(0.5).abs_diff(median) <= 2, "{name}: {}", at(0.5));
        assert!(samples.iter().all(|bytes| (64..=1024).contains(bytes)));
    }
}

#[test]
fn etc_gaps_are_corrected_and_as_printed() {
    // Both rates are requests per second of one thread.
    for (name, mean_us, rate) in [("etc", 19.6, 51_100.0), ("etc-as-printed", 110.0, 9_100.0)] {
        let workload = made("etc", &[("gap", name)]);
        let own_us = workload.own_gap_ns(4).unwrap() / 1e3;
        assert!((own_us / mean_us - 1.0).abs() < 0.005, "{name}: {own_us}");
        assert!((1e6 / own_us / rate - 1.0).abs() < 0.005, "{name}: {own_us}");
        let mut stream = Stream::new(&workload, 3, 0, 4);
        let gaps: Vec<u64> = (0..DRAWS).map(|_| stream.gap_ns(f64::NAN)).collect();
        assert!(gaps.iter().all(|gap| (1000..=1_000_000).contains(gap) && gap % 1000 == 0));
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64 / 1e3;
        assert!((mean / own_us - 1.0).abs() < 0.02, "{name}: {mean}");
    }
}

#[test]
fn facebooks_values_have_their_published_shares() {
    let (samples, ..) = sizes("facebook:0,1000000");
    let share = |bytes: u32| {
        samples.iter().filter(|one| **one == bytes).count() as f64 / samples.len() as f64
    };
    for (bytes, expected) in [(0, 0.00536), (2, 0.17820), (3, 0.09239), (11, 0.08989), (4, 0.00018)]
    {
        assert!((share(bytes) - expected).abs() < 0.002, "{bytes}: {}", share(bytes));
    }
    // Sizes from 15 bytes up follow a Pareto law; its share beyond a million bytes is negligible.
    let reference = Pareto::new(214.476 / 0.348_238, 1.0 / 0.348_238).unwrap();
    let share_to = |bytes: u32| reference.cdf(f64::from(bytes) + 1.0 - 15.0 + 214.476 / 0.348_238);
    let long: Vec<u32> = samples.iter().copied().filter(|bytes| *bytes >= 15).collect();
    let share = long.len() as f64 / samples.len() as f64;
    assert!((share - 0.55837).abs() < 0.005, "{share}");
    assert!(distance_of_whole(&long, share_to) < DISTANCE_MAX);
}

#[test]
fn simple_laws_give_what_they_say() {
    assert_eq!(sizes("100").0[..3], [100, 100, 100]);
    let (samples, mean, _) = sizes("10-20");
    assert!((mean - 15.0).abs() < 0.05 && samples.iter().all(|one| (10..=20).contains(one)));
    assert!(distance_of_whole(&samples, |to| f64::from(to - 9) / 11.0) < DISTANCE_MAX);
    let (samples, ..) = sizes("list:64=3,128=1,7=0");
    let share = samples.iter().filter(|one| **one == 64).count() as f64 / samples.len() as f64;
    assert!((share - 0.75).abs() < 0.005 && samples.iter().all(|one| [64, 128].contains(one)));
    // Values that are too large for the sampler's table are computed.
    let (samples, ..) = sizes("pareto:214.476,0.348238,0,1000000");
    let reference = Pareto::new(214.476 / 0.348_238, 1.0 / 0.348_238).unwrap();
    let share_to = |to: u32| reference.cdf(f64::from(to) + 0.5 + 214.476 / 0.348_238);
    let tail: Vec<u32> = samples.iter().copied().filter(|one| *one > 4095).collect();
    let above = 1.0 - share_to(4095);
    let expected = above * DRAWS as f64;
    assert!((tail.len() as f64 - expected).abs() < 4.0 * expected.sqrt(), "{}", tail.len());
    assert!(distance_of_whole(&tail, |to| 1.0 - (1.0 - share_to(to)) / above) < DISTANCE_MAX);
}

#[test]
fn gaps_have_the_mean_that_is_asked_for() {
    for gap in ["fixed", "exponential", "etc", "etc-as-printed", "uniform:1,9", "list:1=9,50=1"] {
        let workload = made("uniform", &[("gap", gap)]);
        for mean_ns in [333.3, 12_345.6, 5e6] {
            let mut stream = Stream::new(&workload, 5, 1, 2);
            let draws = 400_000_u32;
            let sum: u64 = (0..draws).map(|_| stream.gap_ns(mean_ns)).sum();
            let mean = sum as f64 / f64::from(draws);
            assert!((mean / mean_ns - 1.0).abs() < 0.01, "{gap}: {mean} instead of {mean_ns}");
        }
    }
    let workload = made("uniform", &[("gap", "exponential")]);
    let mut stream = Stream::new(&workload, 6, 0, 1);
    let mut gaps: Vec<f64> = (0..DRAWS).map(|_| stream.gap_ns(1e6) as f64).collect();
    let reference = Exp::new(1e-6).unwrap();
    assert!(distance(&mut gaps, |value| reference.cdf(value)) < DISTANCE_MAX);
    let fixed = made("uniform", &[("gap", "fixed")]);
    // Two threads take turns: the second thread begins half a gap after the first thread.
    let mut second = Stream::new(&fixed, 6, 1, 2);
    let gaps: Vec<u64> = (0..4).map(|_| second.gap_ns(1000.5)).collect();
    assert_eq!(gaps, [1500, 1001, 1000, 1001]);
    assert_eq!(Stream::new(&fixed, 6, 0, 1).gap_ns(f64::NAN), 0);
}
