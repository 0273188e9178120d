//! The schedule of an open loop: due times that do not depend on answers.
//!
//! Where: the sending half reads the schedule before each request of an open loop.
//! Invariant: due times depend on the gaps alone, and not on the times at which earlier requests
//! were sent. So, if the server stalls, requests are sent late, but none is left out.
//! Source: the KV-Cache paper, section 5.2.2. Such a schedule avoids the mistake known as
//! coordinated omission.

#[derive(Debug)]
pub(super) struct Departures {
    mean_ns: f64,
    pub(super) due_ns: u64,
    /// Fraction of a nanosecond that `mean_ns` has cut off its last result.
    rest_ns: f64,
}

impl Departures {
    pub(super) fn new(mean_ns: f64, start_ns: u64) -> Departures {
        Departures { mean_ns, due_ns: start_ns, rest_ns: 0.0 }
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        self.due_ns = now_ns;
    }

    /// Returns the mean of the next gap, in whole nanoseconds. The fraction that is cut off is
    /// added to the next mean, because otherwise a fixed gap of 333.3 ns would always be 333 ns.
    pub(super) fn mean_ns(&mut self) -> f64 {
        if self.mean_ns.is_nan() {
            return self.mean_ns;
        }
        let wanted = self.mean_ns + self.rest_ns;
        let whole = wanted.floor().max(0.0);
        self.rest_ns = wanted - whole;
        whole
    }

    pub(super) fn advance(&mut self, gap_ns: u64) {
        self.due_ns = self.due_ns.saturating_add(gap_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Stream, Workload, WorkloadRequest};
    use std::sync::Arc;

    #[test]
    fn the_rate_is_met_within_a_hundredth_of_a_percent_whatever_it_is() {
        let mut workload = Workload::preset("uniform").unwrap();
        workload.set("gap", "fixed").unwrap();
        let workload = Arc::new(workload);
        let mut ask = WorkloadRequest::default();
        for rate_per_s in [10.0, 999.0, 123_456.7, 3_000_000.0] {
            let mut stream = Stream::new(&workload, 1, 0, 1);
            let mut departures = Departures::new(1e9 / rate_per_s, 0);
            for _ in 0..100_000 {
                assert!(stream.next(&mut ask));
                let mean_ns = departures.mean_ns();
                departures.advance(stream.gap_ns(mean_ns));
            }
            let seconds = std::time::Duration::from_nanos(departures.due_ns).as_secs_f64();
            let rate = 100_000.0 / seconds;
            assert!((rate / rate_per_s - 1.0).abs() < 1e-4, "{rate} instead of {rate_per_s}");
        }
    }
}
