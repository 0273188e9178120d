//! A histogram of times: 1 ns to 100 s with three significant digits, in bounded memory.
//!
//! Where: in each tally.
//! Invariant: each time is counted. A time above `TIME_NS_MAX` counts as `TIME_NS_MAX`.
//! Source: Gil Tene's HdrHistogram, whose V2 format and interval logs other tools read.

use hdrhistogram::Histogram;

/// The longest time; longer times are recorded as this time.
pub(crate) const TIME_NS_MAX: u64 = 100_000_000_000;
/// Number of significant decimal digits of each time.
pub(crate) const DIGITS: u8 = 3;
/// A percentile is reported only if at least this many answers took longer.
pub(crate) const BEYOND_MIN: f64 = 10.0;

/// A histogram of times, mostly in nanoseconds. The first counted time allocates its memory.
#[derive(Clone, Debug, Default)]
pub struct Times(Option<Histogram<u64>>);

impl Times {
    pub(crate) fn from_histogram(histogram: Histogram<u64>) -> Times {
        Times(Some(histogram))
    }

    /// Counts one time.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Counts a time `count` times.
    #[inline]
    pub(crate) fn record_n(&mut self, ns: u64, count: u64) {
        if self.0.is_none() {
            // `new_with_bounds` fails only if the bounds are invalid, which a test excludes.
            self.0 = Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record_n(ns, count);
        }
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Times) {
        let Some(theirs) = &other.0 else { return };
        match &mut self.0 {
            // `add` fails if `theirs` has a greater range. Adding bucket by bucket loses no time.
            Some(ours) => {
                if ours.add(theirs).is_err() {
                    for step in theirs.iter_recorded() {
                        ours.saturating_record_n(
                            step.value_iterated_to(),
                            step.count_since_last_iteration(),
                        );
                    }
                }
            }
            None => self.0 = Some(theirs.clone()),
        }
    }

    /// Number of times counted.
    pub fn len(&self) -> u64 {
        self.0.as_ref().map_or(0, Histogram::len)
    }

    /// True if no time was counted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mean. `None` without times.
    pub fn mean_ns(&self) -> Option<f64> {
        self.some().map(Histogram::mean)
    }

    /// The standard deviation. `None` without times.
    pub fn sd_ns(&self) -> Option<f64> {
        self.some().map(Histogram::stdev)
    }

    /// The shortest time. `None` without times.
    pub(crate) fn min_ns(&self) -> Option<u64> {
        self.some().map(Histogram::min)
    }

    /// The longest time. `None` without times.
    pub fn max_ns(&self) -> Option<u64> {
        self.some().map(Histogram::max)
    }

    /// The time that a share `quantile` (0 to 1) of the times does not exceed. `None` if empty.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        self.some().map(|histogram| histogram.value_at_quantile(quantile))
    }

    /// Returns a percentile, or `None` if fewer than `BEYOND_MIN` times exceed it.
    pub(crate) fn reliable_quantile_ns(&self, quantile: f64) -> Option<f64> {
        let is_told = self.len() as f64 * (1.0 - quantile) >= BEYOND_MIN;
        self.quantile_ns(quantile).filter(|_| is_told).map(|ns| ns as f64)
    }

    /// The histogram, to be written to a file. `None` without times.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.some()
    }

    fn some(&self) -> Option<&Histogram<u64>> {
        self.0.as_ref().filter(|histogram| !histogram.is_empty())
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Figure {
    /// The time that this share of the times does not exceed.
    Quantile(f64),
    Time(fn(&Times) -> Option<u64>),
    Computed(fn(&Times) -> Option<f64>),
}

/// All figures, in the order in which reports show them.
pub(crate) const FIGURES: [(&str, Figure); 10] = [
    ("min", Figure::Time(Times::min_ns)),
    ("mean", Figure::Computed(Times::mean_ns)),
    ("sd", Figure::Computed(Times::sd_ns)),
    ("p50", Figure::Quantile(0.5)),
    ("p90", Figure::Quantile(0.9)),
    ("p95", Figure::Quantile(0.95)),
    ("p99", Figure::Quantile(0.99)),
    ("p99.9", Figure::Quantile(0.999)),
    ("p99.99", Figure::Quantile(0.9999)),
    ("max", Figure::Time(Times::max_ns)),
];

impl Figure {
    pub(crate) fn of(self, times: &Times) -> Option<f64> {
        match self {
            Figure::Quantile(share) => times.quantile_ns(share).map(|ns| ns as f64),
            Figure::Time(of) => of(times).map(|ns| ns as f64),
            Figure::Computed(of) => of(times),
        }
    }

    /// Returns the figure of `times`, or `None` if there are too few times for it to be reliable.
    pub(crate) fn reliable_of(self, times: &Times) -> Option<f64> {
        match self {
            Figure::Quantile(share) => times.reliable_quantile_ns(share),
            other => other.of(times),
        }
    }
}

impl PartialEq for Times {
    fn eq(&self, other: &Times) -> bool {
        match (self.some(), other.some()) {
            (None, None) => true,
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_accepted_and_what_exceeds_them_is_counted() {
        let mut times = Times::default();
        times.record(0);
        times.record(TIME_NS_MAX);
        times.record(u64::MAX);
        assert_eq!(times.len(), 3);
        let longest = times.max_ns().unwrap();
        assert!((TIME_NS_MAX..2 * TIME_NS_MAX).contains(&longest), "{longest}");
    }

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut times = Times::default();
        (1..=100_000).for_each(|us| times.record(us * 1000));
        for (quantile, us) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.9999, 99_990.0)] {
            let found = times.quantile_ns(quantile).unwrap() as f64 / 1000.0;
            assert!((found / us - 1.0).abs() < 0.001, "{quantile}: {found} for {us}");
        }
        assert!((times.mean_ns().unwrap() / 50_000_500.0 - 1.0).abs() < 0.001);
        let sd = 1e8 / 12f64.sqrt();
        assert!((times.sd_ns().unwrap() / sd - 1.0).abs() < 0.001);
    }

    #[test]
    fn parts_merged_are_the_whole() {
        let (mut whole, mut parts) = (Times::default(), [Times::default(), Times::default()]);
        for one in 0..10_000_u64 {
            let ns = one * one;
            whole.record(ns);
            parts[usize::from(one % 3 == 0)].record(ns);
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        merged.merge(&Times::default());
        assert_eq!(merged, whole);
        assert_ne!(other, whole);
    }

    #[test]
    fn a_narrower_histogram_merges_too() {
        let mut ours = Times::default();
        ours.record(10);
        let mut theirs: Histogram<u64> = Histogram::new(2).unwrap();
        theirs.saturating_record_n(1 << 50, 5);
        ours.merge(&Times::from_histogram(theirs));
        assert_eq!(ours.len(), 6);
    }
}
