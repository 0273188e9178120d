//! Means and ratios with confidence intervals.
//!
//! Where: between the runs and the printed table. Invariant: a ratio's interval is computed as
//! `kvblaster compare` computes it; a mean's interval is bootstrapped. A wide interval shows that
//! the machine was not quiet. A wide interval does not show that the tools agree.

use super::{Figure, RunFigures};
use blaster::run::compare::figures::{Finding, Kind, found};
use blaster::search::bootstrap;

const CONFIDENCE: f64 = 0.95;
const RESAMPLES: u32 = 2000;

/// Formats the median ratio (second over first) and the verdict; `None` if there are no pairs.
pub(crate) fn ratio(pairs: &[(f64, f64)]) -> Option<String> {
    let compared = found(pairs, Kind::Rate)?;
    let words = match compared.finding {
        Finding::Same => "equal within 3 %",
        Finding::Noise => "equal within the noise of this machine",
        Finding::Differs => "DIFFERENT",
        Finding::TooFew => "too few rounds for a finding",
    };
    let interval = compared.interval.map(|(low, high)| format!(" [{low:.3}, {high:.3}]"));
    Some(format!("{:.3}{}  {words}", compared.value, interval.unwrap_or_default()))
}

pub(crate) fn mean(samples: &[f64], digits: usize) -> String {
    let Some((low, high)) = bootstrap::interval(samples, CONFIDENCE, RESAMPLES, 1) else {
        return "-".to_owned();
    };
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    format!("{mean:.digits$} ± {:.digits$}", (high - low) / 2.0)
}

/// Formats the mean of one figure over all runs, without an interval.
pub(crate) fn plain(seen: &[RunFigures], of: Figure) -> String {
    let samples: Vec<f64> = seen.iter().filter_map(of).collect();
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    if samples.is_empty() { "-".to_owned() } else { format!("{mean:.2}") }
}
