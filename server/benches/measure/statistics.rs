//! Medians and their confidence intervals.
//!
//! Where: after the last run, before the report.
//! Invariant: the same figures always give the same interval: the resampling has a fixed seed.
//! Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), the percentile
//! interval.

/// Resamples drawn for one interval.
const RESAMPLES: usize = 10_000;
/// Of 1000 resampled medians, how many lie below the interval, and how many above.
const TAIL_PER_MILLE: usize = 25;

/// Knuth's MMIX generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
/// As above.
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// A median and the interval that holds it with 95 % confidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Median {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The middle of `figures`, or the mean of the middle two; not-a-number for none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The median with its bootstrap interval.
pub(crate) fn median_with_interval(figures: &[f64]) -> Median {
    let value = median(figures);
    let Ok(length) = u64::try_from(figures.len()) else {
        return Median { value, low: f64::NAN, high: f64::NAN };
    };
    let mut state = 1_u64;
    let mut draw = || {
        // The generator's upper half is random enough to choose among a few figures.
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        usize::try_from(((state >> 33) * length) >> 31).unwrap_or(0)
    };
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sample: Vec<f64> = figures.iter().map(|_| figures[draw()]).collect();
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    let tail = RESAMPLES * TAIL_PER_MILLE / 1000;
    Median { value, low: medians[tail], high: medians[RESAMPLES - 1 - tail] }
}

/// A line through points by least squares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) slope: f64,
    pub(crate) at_zero: f64,
    /// Standard error of the slope; not-a-number for two points.
    pub(crate) slope_error: f64,
}

/// The line through `points`, of which there must be two at least.
pub(crate) fn regression(points: &[(f64, f64)]) -> Line {
    let count = count_of(points.len());
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let at_zero = mean_y - slope * mean_x;
    let off: f64 = points.iter().map(|(x, y)| (y - at_zero - slope * x).powi(2)).sum();
    let slope_error = (off / (count - 2.0) / spread).sqrt();
    Line { slope, at_zero, slope_error }
}

/// A number of things.
#[expect(clippy::cast_precision_loss, reason = "never near 2^53 things")]
pub(crate) fn count_of(things: usize) -> f64 {
    things as f64
}

/// A number of things.
#[expect(clippy::cast_precision_loss, reason = "never near 2^53 things")]
pub(crate) fn count_of_u64(things: u64) -> f64 {
    things as f64
}
