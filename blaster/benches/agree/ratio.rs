//! Means and ratios with what they could as well have been.
//!
//! Where: under both comparisons. Invariant: intervals are Student's, of as few rounds as there
//! are: a wide one says that the machine was not quiet, never that tools agree well.

use super::{Figure, Seen};
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::fmt;

const CONFIDENCE: f64 = 0.95;
/// Ratios that are known to be within this much of one are equal for any use of them.
const EQUAL_WITHIN: f64 = 0.03;

/// One over the other, over pairs.
pub(crate) struct Ratio {
    mean: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    /// The geometric mean of the pairs' ratios; none of fewer than two.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let logs: Vec<f64> = pairs.iter().map(|(one, two)| (one / two).ln()).collect();
        let (mean, half) = interval(&logs)?;
        Some(Ratio { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { mean, low, high } = self;
        let is_close = *low > 1.0 - EQUAL_WITHIN && *high < 1.0 + EQUAL_WITHIN;
        let words = match (*low <= 1.0 && 1.0 <= *high, is_close) {
            (true, true) => "equal within 3 %",
            (true, false) => "equal within the noise of this machine",
            (false, true) => "different, by less than 3 %",
            (false, false) => "DIFFERENT",
        };
        write!(out, "{mean:.3} [{low:.3}, {high:.3}]  {words}")
    }
}

/// The mean, and half the width of its interval.
fn interval(samples: &[f64]) -> Option<(f64, f64)> {
    let count = samples.len() as f64;
    if samples.len() < 2 || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mean = samples.iter().sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
    Some((mean, error * student.inverse_cdf(0.5 + CONFIDENCE / 2.0)))
}

/// A mean and its interval, printed.
pub(crate) fn mean(samples: &[f64], digits: usize) -> String {
    match interval(samples) {
        Some((mean, half)) => format!("{mean:.digits$} ± {half:.digits$}"),
        None => "-".to_owned(),
    }
}

/// A mean alone.
pub(crate) fn plain(seen: &[Seen], of: Figure) -> String {
    let samples: Vec<f64> = seen.iter().filter_map(of).collect();
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    if samples.is_empty() { "-".to_owned() } else { format!("{mean:.2}") }
}
