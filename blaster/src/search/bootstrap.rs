//! Confidence intervals without assumptions about distributions.
//!
//! Where: used for the rounds of a search or a comparison, and for the reports of a run.
//! Invariant: the same samples and seed give the same interval.
//! Source: Efron's bootstrap. The interval's ends are percentiles of the figures computed from
//! resampled data.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The maximum number of samples that are resampled; further samples are ignored.
const SAMPLES_MAX: usize = 10_000;

/// Returns the confidence interval of the mean. `confidence` is a fraction. Returns `None` if there
/// are fewer than two samples.
pub fn interval(samples: &[f64], confidence: f64, times: u32, seed: u64) -> Option<(f64, f64)> {
    let mean = |some: &mut [f64]| some.iter().sum::<f64>() / some.len() as f64;
    interval_of(mean, samples, confidence, times, seed)
}

/// Returns the confidence interval of any `figure` that is computed from samples.
pub fn interval_of(
    figure: impl Fn(&mut [f64]) -> f64,
    samples: &[f64],
    confidence: f64,
    times: u32,
    seed: u64,
) -> Option<(f64, f64)> {
    let samples = &samples[..samples.len().min(SAMPLES_MAX)];
    if samples.len() < 2 || times == 0 || samples.iter().any(|sample| !sample.is_finite()) {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = samples.len() as u64;
    let mut draw = || {
        // For 10,000 samples, the remainder favours low numbers by less than 1 in 10^15.
        let at = usize::try_from(random.next_u64() % count).unwrap_or(0);
        samples[at]
    };
    let mut drawn = samples.to_vec();
    let mut resampled = || {
        drawn.fill_with(&mut draw);
        figure(&mut drawn)
    };
    let mut figures: Vec<f64> = (0..times).map(|_| resampled()).collect();
    figures.sort_by(f64::total_cmp);
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    Some((quantile(&figures, tail), quantile(&figures, 1.0 - tail)))
}

/// Returns a quantile of sorted values, by the nearest rank.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of 0 to 1 of a length"
    )]
    let at = rank.round() as usize;
    sorted[at.min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_mean() {
        // The standard deviation is 28.9 for the 400 samples, and 1.443 for their mean.
        let samples: Vec<f64> = (0..400_u32).map(|one| f64::from(one % 100)).collect();
        let (low, high) = interval(&samples, 0.95, 10_000, 1).unwrap();
        assert!((low - (49.5 - 1.96 * 1.443)).abs() < 0.15, "{low}");
        assert!((high - (49.5 + 1.96 * 1.443)).abs() < 0.15, "{high}");
        let (lower, higher) = interval(&samples, 0.99, 10_000, 1).unwrap();
        assert!(lower < low && high < higher);
        assert_eq!(interval(&samples, 0.95, 10_000, 1), Some((low, high)));
    }

    #[test]
    fn one_sample_has_no_interval_and_equal_ones_have_no_width() {
        assert_eq!(interval(&[5.0], 0.95, 100, 1), None);
        assert_eq!(interval(&[], 0.95, 100, 1), None);
        assert_eq!(interval(&[5.0, f64::NAN], 0.95, 100, 1), None);
        assert_eq!(interval(&[5.0; 7], 0.95, 100, 1), Some((5.0, 5.0)));
    }
}
