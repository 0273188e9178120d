//! The mean of a quantity over several rounds, with its confidence interval.
//!
//! Where: `claims` judges estimates; the report shows them.
//! Invariant: only `ROUNDS_MIN` rounds or more give an interval.
//! Source: Georges, Buytaert, Eeckhout, "Statistically Rigorous Java Performance Evaluation",
//! section 3.2: Student's t for few measurements.

use super::figures::Unit;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The least number of rounds from which a confidence interval is computed.
pub(crate) const ROUNDS_MIN: usize = 3;
/// The probability with which a confidence interval contains the true mean.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// The mean of a quantity over several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The geometric mean if the values of all rounds are positive; otherwise the arithmetic mean.
    pub value: f64,
    /// The confidence interval of the mean. `None` if there are fewer rounds than `ROUNDS_MIN`.
    pub interval: Option<(f64, f64)>,
    /// The number of rounds in which the quantity was measured.
    pub rounds: usize,
}

impl Estimate {
    /// Limits the interval to values that are possible: at least 0 and, for a share, at most 1.
    pub(crate) fn within(mut self, unit: Unit) -> Estimate {
        let (least, most) = (0.0, if unit == Unit::Share { 1.0 } else { f64::INFINITY });
        let (least, most) = (self.value.min(least), self.value.max(most));
        self.interval = self.interval.map(|(low, high)| (low.max(least), high.min(most)));
        self
    }
    /// Formats the estimate of a ratio with its interval: `2.00 [1.90, 2.10]`.
    pub(crate) fn as_ratio(&self) -> String {
        let interval =
            self.interval.map(|(low, high)| format!(" [{}, {}]", ratio(low), ratio(high)));
        ratio(self.value) + &interval.unwrap_or_default()
    }
}

/// The geometric mean if all values are positive, otherwise the arithmetic mean.
pub(super) fn centre(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let is_finite = values.iter().all(|value| value.is_finite());
    match values.iter().all(|value| *value > 0.0) {
        _ if values.is_empty() || !is_finite => None,
        true => Some((values.iter().map(|value| value.ln()).sum::<f64>() / count).exp()),
        false => Some(values.iter().sum::<f64>() / count),
    }
}

/// Estimates the mean of values from different rounds. `None` if there are no values.
pub(crate) fn estimate(values: &[f64]) -> Option<Estimate> {
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

/// Formats a ratio.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_t() {
        // Three values with mean 2 and deviation 1: t is 4.303 with two degrees of freedom.
        let found = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((found - 4.303 / 3f64.sqrt()).abs() < 0.001, "{found}");
        assert_eq!(estimate(&[1.0, 2.0]).unwrap().interval, None);
        assert!(estimate(&[]).is_none());
    }
}
