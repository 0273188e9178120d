//! Latency against throughput: one point per trial.
//!
//! Where: the curve is stored in the result with the capacities. Tables and charts show the curve.
//! Invariant: a point has both the requested rate and the achieved rate, so that a reader sees
//! where the server falls behind.
//! Source: the KV-Cache paper, section 6.2.

use crate::measure::{Interval, steady};
use serde::{Deserialize, Serialize};

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The requested rate, in requests per second.
    pub asked_per_s: f64,
    /// Requests per second that fell due.
    pub offered_per_s: f64,
    /// Requests per second that were answered.
    pub achieved_per_s: f64,
    /// The shortest response time. A response time is counted from the time when its request was
    /// due.
    pub min_ns: Option<u64>,
    /// The mean response time.
    pub mean_ns: Option<f64>,
    /// The standard deviation of the response times.
    pub sd_ns: Option<f64>,
    /// The median response time.
    pub p50_ns: Option<u64>,
    /// The response time that one response in a hundred exceeds.
    pub p99_ns: Option<u64>,
    /// The response time that one response in a thousand exceeds.
    pub p99_9_ns: Option<u64>,
    /// The longest response time.
    pub max_ns: Option<u64>,
    /// Requests answered late or given up, as a share of all requests that ended.
    pub late_ratio: f64,
    /// Errors, timeouts and wrong values, as a share of all requests that ended.
    pub failure_ratio: f64,
    /// Hits, as a share of all keys looked up.
    pub hit_ratio: Option<f64>,
    /// Number of CPUs that the server kept busy. `None` if the server is not on this machine.
    pub server_cpus: Option<f64>,
    /// The share of the trial's time that the generator's busiest thread spent on a CPU.
    pub busiest: f64,
    /// The reason why the trial measured the generator. `None` if the trial measured the server.
    pub client_bound: Option<String>,
    /// The names of the goals that were met.
    pub met: Vec<String>,
}

impl Point {
    pub(crate) fn new(
        asked_per_s: f64,
        interval: &Interval,
        client_bound: Option<String>,
    ) -> Point {
        let total = interval.tally.total();
        let times = &total.response_ns;
        Point {
            asked_per_s,
            offered_per_s: interval.offered_per_s(),
            achieved_per_s: interval.achieved_per_s(),
            min_ns: times.min_ns(),
            mean_ns: times.mean_ns(),
            sd_ns: times.sd_ns(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            p99_9_ns: times.quantile_ns(0.999),
            max_ns: times.max_ns(),
            late_ratio: total.late_ratio().unwrap_or(0.0),
            failure_ratio: total.failure_ratio().unwrap_or(0.0),
            hit_ratio: total.hit_ratio(),
            server_cpus: interval.usage.server.map(|server| server.cpus()),
            busiest: interval.busiest,
            client_bound,
            met: Vec::new(),
        }
    }
}

/// A row of the printed curve: trials at nearly the same rate.
pub(crate) type Row<'f> = Vec<&'f Point>;

/// Factors between rates that share a row. `rows` uses the first factor that gives few rows.
const WIDTHS: [f64; 8] = [1.0, 1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0];

/// Groups all trials by rate into at most `rows_max` rows, if a factor of `WIDTHS` allows this.
pub(crate) fn rows(curve: &[Point], rows_max: usize) -> Vec<Row<'_>> {
    let mut points: Vec<&Point> = curve.iter().collect();
    points.sort_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s));
    let grouped = |width: f64| {
        let mut rows: Vec<Row> = Vec::new();
        for point in &points {
            match rows.last_mut() {
                Some(row) if point.asked_per_s <= row[0].asked_per_s * width => row.push(point),
                _ => rows.push(vec![point]),
            }
        }
        rows
    };
    let mut all = WIDTHS.into_iter().map(grouped);
    let last = all.next_back().unwrap_or_default();
    all.find(|rows| rows.len() <= rows_max).unwrap_or(last)
}

/// Returns the median of a figure over the trials of a row; trials without the figure are left out.
pub(crate) fn median(row: &Row<'_>, of: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    steady::median(row.iter().filter_map(|point| of(point)).collect())
}
