//! `/metrics`: the families of metrics, from the counters of requests, columns and store.
//!
//! Where: `answer` calls `write`.
//! Invariant: a counter never falls while the server runs, whatever `stats reset` does; only the
//! histogram of `stats latency` begins again. The number of samples depends on the settings and on
//! nothing that a client sends.

use std::sync::atomic::Ordering;

use memory::counters::Row;

use super::exposition::{Exposition, Format, Kind};
use crate::shared::sampled::KINDS;
use crate::shared::{Shared, Sums};
use crate::start::process;
use crate::start::settings::{MEMCACHED_VERSION, VERSION};
use crate::stats;

/// Rows that are no metrics: two terms of a mean, and the system's number of a thread.
const LEFT_OUT: [&str; 3] = ["late_evictions", "late_eviction_seconds", "thread_id"];

/// Rows whose names are no good names of metrics.
const RENAMED: [(&str, &str); 6] = [
    ("bytes", "item_bytes"),
    ("connection_structures", "peak_connections"),
    ("read_buf_count", "read_bufs"),
    ("response_obj_count", "response_objs"),
    ("total_connections", "accepted_connections"),
    ("total_items", "stored_items"),
];

/// The smallest bound of the histogram, in nanoseconds. Each bound is twice the one before it.
const BOUND_NS_MIN: u64 = 1 << 7;
/// Number of bounds; the largest is 2^(7 + 23) ns, about a second.
const BOUNDS: u32 = 24;

pub(super) fn write(shared: &Shared, format: Format) -> String {
    let mut page = Exposition::new(format);
    let columns: Vec<Sums> = shared.of_columns().collect();
    let store = shared.store.stats();
    server(&mut page, shared);
    rows(&mut page, shared.sums().requests.rows());
    of_columns(&mut page, &columns);
    rows(&mut page, store.rows());
    let age_help = "Mean age of recently evicted items at their eviction.";
    gauge(&mut page, "eviction_age_seconds", age_help, store.eviction_age());
    memory(&mut page, shared);
    curve(&mut page, shared);
    latency(&mut page, shared);
    page.finish()
}

fn gauge(page: &mut Exposition, name: &str, help: &str, value: impl std::fmt::Display) {
    page.family(Kind::Gauge, name, help);
    page.sample(&[], value);
}

fn server(page: &mut Exposition, shared: &Shared) {
    page.family(Kind::Gauge, "info", "Versions of the server; the value is always 1.");
    page.sample(&[("version", &VERSION), ("memcached_version", &MEMCACHED_VERSION)], 1);
    let uptime = shared.started.elapsed().as_secs_f64();
    gauge(page, "uptime_seconds", "Seconds since the server started.", uptime);
    let (user, system) = process::cpu_times();
    page.family(Kind::Counter, "cpu_seconds", "CPU time of the process.");
    page.sample(&[("mode", &"user")], user.as_secs_f64());
    page.sample(&[("mode", &"system")], system.as_secs_f64());
    let settings = &shared.settings;
    gauge(page, "threads", "Worker threads (-t).", settings.columns.count);
    let max_help = "Most connections that may be open at a time (-c).";
    gauge(page, "max_connections", max_help, settings.columns.connections_max);
    // Relaxed: the flag is only displayed.
    let accepting = shared.columns.accepting.load(Ordering::Relaxed);
    let accepting_help = "1 while the server accepts connections, 0 while its listeners pause.";
    gauge(page, "accepting_connections", accepting_help, u8::from(accepting));
}

fn rows(page: &mut Exposition, rows: impl Iterator<Item = Row>) {
    for row in rows.filter(|row| !LEFT_OUT.contains(&row.name)) {
        head(page, &row);
        value(page, &[], &row);
    }
}

/// Writes each counter of the columns, with a sample for each column.
fn of_columns(page: &mut Exposition, columns: &[Sums]) {
    page.family(Kind::Counter, "column_requests", "Requests that a thread has executed.");
    for (number, column) in columns.iter().enumerate() {
        page.sample(&[("column", &number)], stats::executed(column));
    }
    let all: Vec<Vec<Row>> = columns.iter().map(|column| column.columns.rows().collect()).collect();
    for (at, row) in all.first().into_iter().flatten().enumerate() {
        if LEFT_OUT.contains(&row.name) {
            continue;
        }
        head(page, row);
        for (number, rows) in all.iter().enumerate() {
            value(page, &[("column", &number)], &rows[at]);
        }
    }
}

fn head(page: &mut Exposition, row: &Row) {
    let kind = if row.is_gauge { Kind::Gauge } else { Kind::Counter };
    if let Some(name) = row.name.strip_suffix("_us") {
        let help = row.help.replace("Microseconds", "Seconds");
        return page.family(kind, &format!("{name}_seconds"), &help);
    }
    let renamed = RENAMED.iter().find(|(name, _)| *name == row.name);
    page.family(kind, renamed.map_or(row.name, |(_, metric)| *metric), row.help);
}

fn value(page: &mut Exposition, labels: &[(&str, &dyn std::fmt::Display)], row: &Row) {
    match row.name.ends_with("_us") {
        true => page.sample(labels, std::time::Duration::from_micros(row.value).as_secs_f64()),
        false => page.sample(labels, row.value),
    }
}

fn memory(page: &mut Exposition, shared: &Shared) {
    let limit_help = "Bytes that items, index and all per-item state may take together (-m).";
    gauge(page, "limit_bytes", limit_help, shared.memory_bytes());
    let usage = shared.store.usage_estimate();
    page.family(Kind::Gauge, "memory_bytes", "Bytes of the store's memory by use.");
    for (of, bytes) in [
        ("live", usage.live_bytes),
        ("dead", usage.dead_bytes),
        ("tail", usage.tail_bytes),
        ("frames", usage.frame_bytes),
        ("free_frames", usage.frame_free_bytes),
        ("free", usage.free_bytes),
        ("limbo", usage.limbo_bytes),
        ("index", usage.index_bytes),
        ("ghost", usage.ghost_bytes),
        ("table", usage.table_bytes),
        ("rings", shared.ring_bytes() as u64),
        ("arena", usage.arena_bytes),
    ] {
        page.sample(&[("use", &of)], bytes);
    }
    if let Some(resident) = shared.statm.now() {
        let help = "Bytes of the process that are in memory.";
        gauge(page, "resident_bytes", help, resident.all_bytes);
    }
}

fn curve(page: &mut Exposition, shared: &Shared) {
    let (sizes, ratios) = stats::miss_ratios(shared);
    let Some(ratios) = ratios else { return };
    page.family(
        Kind::Gauge,
        "estimated_miss_ratio",
        "Estimated misses per lookup if the store had this much memory.",
    );
    for (bytes, ratio) in sizes.iter().zip(ratios) {
        page.sample(&[("memory_bytes", bytes)], ratio);
    }
}

/// Writes the times of `stats latency` as a histogram for each kind of request.
fn latency(page: &mut Exposition, shared: &Shared) {
    let all = shared.sampled_times();
    let help = "Execution times of requests, estimated from samples since stats reset.";
    page.family(Kind::Histogram, "request_duration_seconds", help);
    for ((_, kind), times) in KINDS.iter().zip(&all.times) {
        for bound in 0..BOUNDS {
            let ns = BOUND_NS_MIN << bound;
            let seconds = std::time::Duration::from_nanos(ns).as_secs_f64();
            let labels: [(&str, &dyn std::fmt::Display); 2] = [("kind", kind), ("le", &seconds)];
            page.part("_bucket", &labels, times.count_between(0, ns));
        }
        let count = times.len();
        page.part("_bucket", &[("kind", kind), ("le", &"+Inf")], count);
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let sum_ns = if count == 0 { 0.0 } else { times.mean() * count as f64 };
        page.part("_sum", &[("kind", kind)], sum_ns / 1e9);
        page.part("_count", &[("kind", kind)], count);
    }
}
