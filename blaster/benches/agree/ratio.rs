//! Means and ratios, with their confidence intervals.
//!
//! Where: under both comparisons. Invariant: intervals of ratios are `kvblaster compare`'s; those
//! of means are the bootstrap's, over the few rounds there are. A wide interval says that the
//! machine was not quiet, never that the tools agree.

use super::{Figure, Seen};
use blaster::run::compare::figures::{Finding, Kind, found};
use blaster::search::bootstrap;

const CONFIDENCE: f64 = 0.95;
const RESAMPLES: u32 = 2000;

/// Formats the second of each pair over the first, and the finding; none without pairs.
pub(crate) fn ratio(pairs: &[(f64, f64)]) -> Option<String> {
    let told = found(pairs, Kind::Rate)?;
    let words = match told.finding {
        Finding::Same => "equal within 3 %",
        Finding::Noise => "equal within the noise of this machine",
        Finding::Differs => "DIFFERENT",
        Finding::TooFew => "of too few rounds to tell",
    };
    let interval = told.interval.map(|(low, high)| format!(" [{low:.3}, {high:.3}]"));
    Some(format!("{:.3}{}  {words}", told.value, interval.unwrap_or_default()))
}

/// Formats a mean and half the width of its interval.
pub(crate) fn mean(samples: &[f64], digits: usize) -> String {
    let Some((low, high)) = bootstrap::interval(samples, CONFIDENCE, RESAMPLES, 1) else {
        return "-".to_owned();
    };
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    format!("{mean:.digits$} ± {:.digits$}", (high - low) / 2.0)
}

/// Formats a mean alone.
pub(crate) fn plain(seen: &[Seen], of: Figure) -> String {
    let samples: Vec<f64> = seen.iter().filter_map(of).collect();
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    if samples.is_empty() { "-".to_owned() } else { format!("{mean:.2}") }
}
