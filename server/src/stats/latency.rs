//! `stats latency`: how long requests took, by kind.
//!
//! Where: `stats::answer` calls `write`; memcached has no such statistics.
//! Invariant: a time is measured from the end of parsing until the answer is in the output buffer.
//! Numbers of requests are estimated from the samples since `stats reset`.

use super::rows::Rows;
use crate::shared::Shared;
use crate::shared::sampled::KINDS;

/// The first step of the histogram in nanoseconds, and the factor between steps.
const STEP_NS: u64 = 64;
const STEPS_BY: f64 = 2.0;

pub(super) fn write(shared: &Shared, rows: &mut Rows<'_>) {
    let all = shared.sampled_times();
    for ((_, kind), times) in KINDS.iter().zip(&all.times).filter(|(_, times)| !times.is_empty()) {
        let mut row = |name: &str, number: u64| {
            rows.row(&format!("latency:{kind}:{name}"), format_args!("{number}"));
        };
        row("requests", times.len());
        row("p50_ns", times.value_at_quantile(0.5));
        row("p90_ns", times.value_at_quantile(0.9));
        row("p99_ns", times.value_at_quantile(0.99));
        row("p999_ns", times.value_at_quantile(0.999));
        row("max_ns", times.max());
        for step in times.iter_log(STEP_NS, STEPS_BY) {
            let requests = step.count_since_last_iteration();
            if requests > 0 {
                row(&format!("up_to_{}_ns", step.value_iterated_to()), requests);
            }
        }
    }
}
