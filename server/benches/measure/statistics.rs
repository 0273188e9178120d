//! Medians and their confidence intervals.
//!
//! Where: after the last run, before the report.
//! Invariant: the same figures always give the same interval, because resampling has a fixed seed.
//! Source: `blaster::search::bootstrap`.

use blaster::measure::steady;
use blaster::search::bootstrap;

const RESAMPLES: u32 = 10_000;
const CONFIDENCE: f64 = 0.95;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Median {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Returns not-a-number if there are no figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    steady::median(figures.to_vec()).unwrap_or(f64::NAN)
}

/// Returns the median with a bootstrapped interval. The interval of a single figure has width 0.
pub(crate) fn median_with_interval(figures: &[f64]) -> Median {
    let value = median(figures);
    let of = |some: &mut [f64]| median(some);
    let interval = bootstrap::interval_of(of, figures, CONFIDENCE, RESAMPLES, 1);
    let (low, high) = interval.unwrap_or((value, value));
    Median { value, low, high }
}

/// The slope of a straight line that is fitted by least squares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    /// Standard error of the slope; not-a-number for two points.
    pub(crate) slope_error: f64,
}

/// Fits a line to `points`, of which there must be at least two.
pub(crate) fn regression(points: &[(f64, f64)]) -> Line {
    let count = count_of(points.len());
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let at_zero = mean_y - slope * mean_x;
    let off: f64 = points.iter().map(|(x, y)| (y - at_zero - slope * x).powi(2)).sum();
    let slope_error = (off / (count - 2.0) / spread).sqrt();
    Line { slope, slope_error }
}

#[expect(clippy::cast_precision_loss, reason = "never near 2^53 things")]
pub(crate) fn count_of(things: usize) -> f64 {
    things as f64
}

#[expect(clippy::cast_precision_loss, reason = "never near 2^53 things")]
pub(crate) fn count_of_u64(things: u64) -> f64 {
    things as f64
}
