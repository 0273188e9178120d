//! Latency against throughput: one point a trial.
//!
//! Where: kept with the capacities, printed and drawn. Invariant: a point says what was asked for
//! as well as what came of it, so that a server that gives up shows as one that does.
//! Source: rows A62 and A65.

use crate::measure::Interval;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The rate asked for, in requests a second.
    pub asked_per_s: f64,
    /// Requests that fell due, a second.
    pub offered_per_s: f64,
    /// Requests answered, a second.
    pub achieved_per_s: f64,
    /// Response times, from the intended time.
    pub mean_ns: Option<f64>,
    /// The median.
    pub p50_ns: Option<u64>,
    /// One in a hundred took longer.
    pub p99_ns: Option<u64>,
    /// One in a thousand took longer.
    pub p99_9_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// Answers later than the target, of all.
    pub late_ratio: f64,
    /// Errors, timeouts and wrong values, of all requests that ended.
    pub failure_ratio: f64,
    /// Hits, of all keys looked up.
    pub hit_ratio: Option<f64>,
    /// CPUs the server kept busy, if it is on this machine.
    pub server_cpus: Option<f64>,
    /// The share of its time that the generator's busiest thread was on a CPU.
    pub busiest: f64,
    /// Why this measured the generator, if it did.
    pub client_bound: Option<String>,
    /// The goals that were met.
    pub met: Vec<String>,
}

impl Point {
    /// What a trial at a rate saw.
    #[must_use]
    pub fn new(asked_per_s: f64, interval: &Interval, client_bound: Option<String>) -> Point {
        let total = interval.tally.total();
        let times = &total.response_ns;
        Point {
            asked_per_s,
            offered_per_s: interval.offered_per_s(),
            achieved_per_s: interval.achieved_per_s(),
            mean_ns: times.mean_ns(),
            p50_ns: times.quantile_ns(0.5),
            p99_ns: times.quantile_ns(0.99),
            p99_9_ns: times.quantile_ns(0.999),
            max_ns: times.max_ns(),
            late_ratio: total.late as f64 / total.answered.max(1) as f64,
            failure_ratio: total.failure_ratio().unwrap_or(0.0),
            hit_ratio: total.hit_ratio(),
            server_cpus: interval.usage.server.map(|server| server.cpus()),
            busiest: interval.busiest,
            client_bound,
            met: Vec::new(),
        }
    }
}

/// The curve as a table for a terminal, by rate; times in µs.
#[must_use]
pub fn table(curve: &[Point]) -> String {
    let mut points: Vec<&Point> = curve.iter().collect();
    points.sort_by(|one, other| one.asked_per_s.total_cmp(&other.asked_per_s));
    let mut out = format!(
        "{:>12}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}  met\n",
        "asked/s", "achieved/s", "mean", "p50", "p99", "p99.9", "max", "late %", "fail %"
    );
    let us = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{:.1}", ns / 1000.0));
    let whole = |ns: Option<u64>| us(ns.map(|ns| ns as f64));
    for point in points {
        let _ = writeln!(
            out,
            "{:>12.0}{:>12.0}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9.3}{:>9.3}  {}",
            point.asked_per_s,
            point.achieved_per_s,
            us(point.mean_ns),
            whole(point.p50_ns),
            whole(point.p99_ns),
            whole(point.p99_9_ns),
            whole(point.max_ns),
            100.0 * point.late_ratio,
            100.0 * point.failure_ratio,
            if point.client_bound.is_some() {
                "(generator)".to_owned()
            } else {
                point.met.join(" ")
            }
        );
    }
    out
}
