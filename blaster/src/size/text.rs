//! The report of `kvblaster size` for people.
//!
//! Where: printed by `kvblaster size`.
//! Invariant: memory is in megabytes, as `-m` takes it; the limits of the figures are printed below
//! the figures.

use super::servers::{DrivenServer, MEMORY, ServerStats};
use super::{ENOUGH, Memory, Point};
use crate::words::{clock, grouped, percent, size, time_or_dash};
use crate::workload::Workload;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// For each of these shares of the largest memory's hits, the report gives the memory needed.
const PARTS: [f64; 3] = [ENOUGH, 0.95, 0.9];

#[derive(Debug, Serialize)]
pub(crate) struct SizeReport {
    /// The requests per second. NaN (in JSON, null) if the workload determines no rate.
    pub(crate) rate_per_s: f64,
    pub(crate) objective: String,
    pub(crate) memory: Memory,
    pub(crate) driven: Vec<DrivenServer>,
    /// Number of servers that were not driven because of Ctrl-C.
    pub(crate) left_out: usize,
    /// The statistics of the servers that `--stats` names, with their targets.
    pub(crate) said: Vec<(String, ServerStats)>,
}

pub(crate) fn text(workload: &Workload, answer: &SizeReport) -> String {
    let mut out = memory(&answer.memory);
    for driven in &answer.driven {
        out.push_str(&server(answer, driven));
    }
    for (place, stats) in &answer.said {
        let _ = write!(out, "\n{place}, by its own statistics\n{}", statistics(stats));
    }
    out.push_str("\nnot known\n");
    for doubt in unknown(workload, answer) {
        let _ = writeln!(out, "  - {doubt}");
    }
    out
}

/// Converts seconds. A time that is too long becomes the longest `Duration`.
pub(crate) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn memory(memory: &Memory) -> String {
    let span = clock(span(memory.span_s));
    let of = match memory.one_in {
        1 => "all keys".to_owned(),
        one_in => format!("one key in {}", grouped(one_in as f64)),
    };
    let mut out = format!(
        "hits by memory size, simulated with Hypostyle's store: {span} of traffic, {of}; only the \
         second half of the traffic is counted\n"
    );
    let head = ["-m", "hits", "misses/s", "items", "item bytes", "evicted/s"].map(str::to_owned);
    for row in std::iter::once(head).chain(memory.points.iter().map(row)) {
        for cell in row {
            let _ = write!(out, "{cell:>12}");
        }
        out.push('\n');
    }
    let Some(all) = memory.points.last() else { return out };
    for part in PARTS {
        if let Some(point) = memory.enough_for(part) {
            let part = format!("{:.0} %", part * 100.0);
            let _ = writeln!(
                out,
                "-m {} gives {part} of the hits that -m {} gives",
                mb(point),
                mb(all)
            );
        }
    }
    out
}

fn row(point: &Point) -> [String; 6] {
    [
        mb(point),
        percent(point.hit_ratio),
        grouped(point.misses_per_s.round()),
        grouped(point.items as f64),
        size(point.items_bytes as f64),
        grouped(point.evictions_per_s.round()),
    ]
}

fn mb(point: &Point) -> String {
    (point.memory_bytes >> 20).to_string()
}

fn server(answer: &SizeReport, driven: &DrivenServer) -> String {
    let mut out = format!("\n{}\n", driven.name);
    if let Some(answered_per_s) = driven.answered_per_s {
        at_rate(&mut out, driven, answered_per_s);
    }
    for remark in &driven.remarks {
        let _ = writeln!(out, "  note: {remark}");
    }
    capacity(&mut out, answer, driven);
    if let Some(trouble) = &driven.trouble {
        let what = if driven.answered_per_s.is_none() { "not measured: " } else { "" };
        let _ = writeln!(out, "  {what}{trouble}");
    }
    out + &driven.said.as_ref().map_or(String::new(), statistics)
}

fn at_rate(out: &mut String, driven: &DrivenServer, answered_per_s: f64) {
    let shown = |ns: Option<u64>| time_or_dash(ns.map(|ns| ns as f64));
    let _ = write!(
        out,
        "  {} requests/s answered: p50 {}, p99 {}, p99.9 {}",
        grouped(answered_per_s),
        shown(driven.p50_ns),
        shown(driven.p99_ns),
        shown(driven.p999_ns)
    );
    if let Some(hits) = driven.hit_ratio {
        let so_far = if driven.hits_bound_s.is_some() { "at most " } else { "so far " };
        let _ = write!(out, ", hits {so_far}{}", percent(hits));
    }
    if let Some(cpus) = driven.cpus {
        let _ = write!(out, ", {cpus:.2} CPUs");
    }
    out.push('\n');
    if let Some(bound_s) = driven.hits_bound_s {
        let _ = writeln!(
            out,
            "  these hits are an upper bound, because the measurement ended {} after the server \
             was filled, before some TTLs had passed; use a longer --schedule",
            clock(span(bound_s))
        );
    }
}

fn capacity(out: &mut String, answer: &SizeReport, driven: &DrivenServer) {
    let objective = &answer.objective;
    let Some(capacity) = driven.capacity_per_s else {
        if driven.trouble.is_none() {
            let _ = writeln!(out, "  meets {objective} at none of the rates tried");
        }
        return;
    };
    let bound = if driven.is_at_least { "at least " } else { "about " };
    let capacity = grouped(capacity.round());
    let _ = write!(out, "  meets {objective} up to {bound}{capacity} requests/s");
    if let Some(cpus) = driven.capacity_cpus {
        let _ = write!(out, " with {cpus:.2} CPUs");
    }
    if let Some(cpus) = driven.cpus_for(answer.rate_per_s) {
        let rate = grouped(answer.rate_per_s);
        let _ = write!(out, "; for {rate} requests/s it needs {cpus:.0} CPUs");
    }
    out.push('\n');
}

fn statistics(stats: &ServerStats) -> String {
    let mut out = String::new();
    if let (Some(hits), Some(bytes)) = (stats.hit_ratio, stats.memory_bytes) {
        let _ = writeln!(out, "  hits {} with -m {} so far", percent(hits), bytes >> 20);
    }
    if !stats.estimates.is_empty() {
        let estimate =
            |(bytes, ratio): &(u64, f64)| format!("-m {} {}", bytes >> 20, percent(*ratio));
        let estimates: Vec<_> = stats.estimates.iter().map(estimate).collect();
        let _ = writeln!(out, "  estimated hits (stats mrc): {}", estimates.join(", "));
    }
    out
}

fn unknown(workload: &Workload, answer: &SizeReport) -> Vec<String> {
    let mut unknown = answer.memory.doubts.clone();
    if workload.trace_requests().is_none() {
        unknown.push(
            "how often each key is requested: --popularity assumes it; a --trace of your traffic \
             shows it"
                .to_owned(),
        );
    }
    unknown.push(
        "hits of other servers with the same memory: the simulated store is Hypostyle's; kvblaster \
         compare gives several servers the same work"
            .to_owned(),
    );
    if answer.left_out > 0 {
        let left_out = answer.left_out;
        unknown.push(format!(
            "figures of {left_out} of the servers: Ctrl-C ended the run before they were measured"
        ));
    }
    if answer.driven.is_empty() {
        unknown.push(format!(
            "p99 and CPUs: --start 'CMD -m {MEMORY} -p {{port}}' starts and measures a server, and \
             may be repeated"
        ));
    } else {
        unknown.push(
            "effects of a higher number of CPUs (twice as many CPUs may not reach twice the rate), \
             of the network and of other clients"
                .to_owned(),
        );
    }
    unknown
}
