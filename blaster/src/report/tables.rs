//! The tables of the page, in the order in which they are shown.
//!
//! Where: before and after the charts.
//! Invariant: a table has one or several rows for each result, or one column for each result. Times
//! and bytes have units.
//! Source: the KV-Cache paper, section 6.2; Pavlik's thesis, chapter 3.

use super::entry::Entry;
use super::table::Table;
use super::words::{UNKNOWN, bytes, elided, number, percent, span};
use crate::measure::process::ProcessUse;
use crate::measure::steady::{RATES_NEAR, TIMES_NEAR, apart};
use crate::measure::{Interval, Times, VerbTally};
use crate::result::machine::Nic;
use crate::result::manifest::Manifest;
use crate::search::bootstrap;
use crate::search::{Capacity, bracket::Limit};
use crate::workload::{VERBS, Verb};
use std::collections::BTreeSet;

/// Number of bootstrap resamples for a confidence interval.
const RESAMPLES: u32 = 2000;
const CONFIDENCE: f64 = 0.95;

/// Returns a section with a table and a note on how to read it, or nothing if the table is empty.
fn section(title: &str, id: &str, table: &Table, note: &str) -> String {
    if table.is_empty() {
        return String::new();
    }
    let note = match note {
        "" => String::new(),
        note => format!("<p class=\"note\">{note}</p>\n"),
    };
    format!("<section id=\"{id}\"><h2>{title}</h2>\n{note}{}</section>\n", table.html(title))
}

const BRACKETS: &str = "Brackets give the 95 % confidence interval of a figure, computed by \
                        resampling the reports or rounds.";

/// Formats a figure with its confidence interval over the reports.
fn spread(
    entry: &Entry,
    format: fn(Option<f64>) -> String,
    near: f64,
    of: impl Fn(&Interval) -> Option<f64>,
) -> String {
    let Some(merged) = &entry.result.merged else { return UNKNOWN.to_owned() };
    let samples: Vec<f64> = entry.result.reports.iter().filter_map(&of).collect();
    let interval = bootstrap::interval(&samples, CONFIDENCE, RESAMPLES, 1);
    let is_unsteady = !apart(&entry.result.reports, near, &of).is_empty();
    marked(with_interval(of(merged), interval, format), is_unsteady)
}

/// Marks an unsteady figure, which is unfit for comparison.
fn marked(figure: String, is_unsteady: bool) -> String {
    if is_unsteady { figure + " (unsteady)" } else { figure }
}

/// True if reports disagree on a percentile. For a percentile above the 99th, the 99th is checked
/// too, because a report may have too few answers for the higher percentile.
fn is_unsteady(entry: &Entry, share: f64, times: impl Fn(&Interval) -> Times) -> bool {
    let reports = &entry.result.reports;
    [share, share.min(0.99)].into_iter().any(|share| {
        !apart(reports, TIMES_NEAR, |report| times(report).reliable_quantile_ns(share)).is_empty()
    })
}

fn with_interval(
    value: Option<f64>,
    interval: Option<(f64, f64)>,
    format: fn(Option<f64>) -> String,
) -> String {
    match interval {
        Some((low, high)) => {
            format!("{} [{}, {}]", format(value), format(Some(low)), format(Some(high)))
        }
        None => format(value),
    }
}

fn count(value: Option<f64>) -> String {
    number(value, 0)
}

/// Maximum number of characters of a name above a column; `elided` shortens a longer name.
const NAME_CHARS: usize = 30;

/// A row of "At a glance": its name, and the function that formats a result's cell.
type GlanceRow = (&'static str, fn(&Entry, &Interval) -> String);
const GLANCE: [GlanceRow; 19] = [
    ("answered/s", |entry, _| spread(entry, count, RATES_NEAR, |one| Some(one.achieved_per_s()))),
    ("due/s", |_, all| count(Some(all.offered_per_s()))),
    ("response mean", |entry, _| {
        spread(entry, span, TIMES_NEAR, |report| report.tally.total().response_ns.mean_ns())
    }),
    ("response p50", |entry, all| quantile(entry, all, 0.5)),
    ("response p90", |entry, all| quantile(entry, all, 0.9)),
    ("response p95", |entry, all| quantile(entry, all, 0.95)),
    ("response p99", |entry, all| quantile(entry, all, 0.99)),
    ("response p99.9", |entry, all| quantile(entry, all, 0.999)),
    ("response p99.99", |entry, all| quantile(entry, all, 0.9999)),
    ("response max", |entry, all| quantile(entry, all, 1.0)),
    ("response sd", |entry, all| {
        marked(span(all.tally.total().response_ns.sd_ns()), is_unsteady(entry, 0.99, responses))
    }),
    ("late or never", |entry, all| {
        let late = percent(all.tally.total().late_ratio());
        marked(late, is_unsteady(entry, 0.99, responses))
    }),
    ("failed", |_, all| percent(all.tally.failure_ratio())),
    ("hits", |_, all| percent(all.tally.total().hit_ratio())),
    ("not found", |_, all| percent(all.tally.not_found_ratio())),
    ("server CPUs", |_, all| {
        let server = all.usage.server.filter(ProcessUse::is_measurable);
        number(server.map(|server| server.cpus()), 2)
    }),
    ("server CPU per request", |_, all| {
        let answered = all.tally.total().answered;
        match all.usage.server {
            Some(server) if !server.is_measurable() => "too little to measure".to_owned(),
            server => span(server.and_then(|server| server.ns_per_request(answered))),
        }
    }),
    ("server memory", |_, all| bytes(all.usage.server.and_then(|server| server.rss_bytes))),
    ("generator CPUs", |_, all| number(all.usage.client.map(|client| client.cpus()), 2)),
];

fn responses(report: &Interval) -> Times {
    report.tally.total().response_ns
}

/// Returns a percentile if enough answers exceed it, or the longest time if `share` is 1.
fn shown_ns(times: &Times, share: f64) -> Option<f64> {
    if share < 1.0 { times.reliable_quantile_ns(share) } else { times.max_ns().map(|ns| ns as f64) }
}

fn quantile(entry: &Entry, all: &Interval, share: f64) -> String {
    percentile((entry, all), share, responses)
}

fn percentile(
    (entry, all): (&Entry, &Interval),
    share: f64,
    times: impl Fn(&Interval) -> Times,
) -> String {
    match span(shown_ns(&times(all), share)) {
        unknown if unknown == UNKNOWN => unknown,
        figure => marked(figure, is_unsteady(entry, share, times)),
    }
}

/// Returns the table of the main figures, with a column for each result.
pub(crate) fn glance(entries: &[Entry]) -> String {
    let measured: Vec<(&Entry, &Interval)> =
        entries.iter().filter_map(|entry| Some((entry, entry.result.merged.as_ref()?))).collect();
    if measured.is_empty() {
        return String::new();
    }
    let names: Vec<String> =
        measured.iter().map(|(entry, _)| elided(&entry.name, NAME_CHARS)).collect();
    let names = names.iter().map(String::as_str);
    let head: Vec<&str> = std::iter::once("figure").chain(names).collect();
    let mut table = Table::new(&head);
    for (name, cell) in GLANCE {
        let cells = measured.iter().map(|(entry, all)| cell(entry, all));
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        if cells.iter().skip(1).any(|cell| cell != UNKNOWN) {
            table.row(&cells);
        }
    }
    let unsteady = "Unsteady: in some report, the figure is far from the figures of the other \
                    reports, so another run may give a different figure.";
    section("At a glance", "glance", &table, &format!("{BRACKETS} {unsteady}"))
}

/// Returns the table of capacities, with a row for each objective of each result.
pub(crate) fn capacities(entries: &[Entry]) -> String {
    let mut table = Table::new(&["run", "capacity", "objective", "requests/s", "limit", "rounds"]);
    for entry in entries {
        for capacity in entry.result.search.iter().flat_map(|search| &search.capacities) {
            table.row(&[
                entry.name.clone(),
                format!("Cap_{}", capacity.name),
                capacity.objective.clone(),
                with_interval(capacity.rate_per_s, capacity.interval_per_s, count),
                limit(capacity).to_owned(),
                rounds(capacity),
            ]);
        }
    }
    section(
        "Capacity: the highest rate at which the objective is met",
        "capacity",
        &table,
        BRACKETS,
    )
}

fn rounds(capacity: &Capacity) -> String {
    let all = capacity.rounds_per_s.len();
    match capacity.rounds_of_none() {
        none if none > 0 && none < all => {
            format!("{all}; in {none} of them no rate met the objective")
        }
        _ => all.to_string(),
    }
}

fn limit(capacity: &Capacity) -> &'static str {
    match capacity.limit {
        Limit::Server => "the server",
        Limit::LowestRate => "no rate meets the objective",
        Limit::HighestRate => "none found: the capacity may be higher",
        Limit::Generator => "the generator: the capacity may be higher",
        Limit::Unknown => "the search ended early",
    }
}

/// The columns of "By type of request" that count, each with its number.
type Counted = (&'static str, fn(&VerbTally, &Interval) -> f64);
const COUNTED: [Counted; 12] = [
    ("sent", |tally, _| tally.sent as f64),
    ("answered", |tally, _| tally.answered as f64),
    ("answered/s", |tally, all| all.per_s(tally.answered)),
    ("keys", |tally, _| tally.keys as f64),
    ("hits", |tally, _| tally.hits as f64),
    ("misses", |tally, _| tally.misses as f64),
    ("not done", |tally, _| tally.not_done as f64),
    ("errors", |tally, _| tally.errors as f64),
    ("corrupt", |tally, _| tally.corrupt as f64),
    ("late", |tally, _| tally.late as f64),
    ("timeouts", |tally, _| tally.timeouts as f64),
    ("never sent", |tally, _| tally.unsent as f64),
];
/// The percentiles of the response times, and then of the service times, each with its name.
const SHARES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Returns the table of counts and times, with a row for each type of request of each result.
pub(crate) fn types(entries: &[Entry]) -> String {
    let service = SHARES.map(|(name, _)| format!("service {name}"));
    let mut head = vec!["run", "type"];
    head.extend(COUNTED.map(|(name, _)| name));
    head.extend(["response mean"].into_iter().chain(SHARES.map(|(name, _)| name)));
    head.extend(["service mean"].into_iter().chain(service.iter().map(String::as_str)));
    let mut table = Table::new(&head);
    for entry in entries {
        let Some(merged) = &entry.result.merged else { continue };
        for verb in VERBS {
            if *merged.tally.verb(verb) != VerbTally::default() {
                table.row(&verb_cells(entry, verb, merged));
            }
        }
    }
    section("By type of request", "types", &table, "")
}

fn verb_cells(entry: &Entry, verb: Verb, merged: &Interval) -> Vec<String> {
    let tally = merged.tally.verb(verb);
    let mut cells = vec![entry.name.clone(), verb.name().to_owned()];
    cells.extend(COUNTED.map(|(_, number)| count(Some(number(tally, merged)))));
    let both: [fn(&VerbTally) -> &Times; 2] =
        [|tally| &tally.response_ns, |tally| &tally.service_ns];
    for times in both {
        let of = |report: &Interval| times(report.tally.verb(verb)).clone();
        cells.push(marked(span(of(merged).mean_ns()), is_unsteady(entry, 0.99, of)));
        cells.extend(SHARES.map(|(_, share)| percentile((entry, merged), share, of)));
    }
    cells
}

/// Returns the table of CPU use, with a row for each CPU of each result.
pub(crate) fn processors(entries: &[Entry]) -> String {
    let mut table = Table::new(&[
        "run", "CPU", "usr %", "nice", "sys", "iowait", "irq", "softirq", "steal", "idle",
    ]);
    for entry in entries {
        let usage = entry.result.merged.as_ref().map(|merged| &merged.usage);
        if let Some(machine) = usage.and_then(|usage| usage.machine.as_ref()) {
            for core in &machine.cores {
                let shares = core.shares.named().map(|(_, share)| number(Some(100.0 * share), 1));
                let mut cells = vec![entry.name.clone(), core.cpu.to_string()];
                cells.extend(shares);
                table.row(&cells);
            }
        }
    }
    section("CPUs of the machine that kvblaster ran on", "cpus", &table, "")
}

/// Returns the table of the results' manifests, with a row for each field. Differences are marked.
pub(crate) fn manifests(entries: &[Entry]) -> String {
    let head: Vec<&str> =
        std::iter::once("field").chain(entries.iter().map(|entry| entry.name.as_str())).collect();
    let mut table = Table::new(&head);
    let all: Vec<Vec<(String, String)>> =
        entries.iter().map(|entry| fields(&entry.result.manifest)).collect();
    let mut seen = BTreeSet::new();
    for (name, _) in all.iter().flatten() {
        if seen.insert(name) {
            let value = |fields: &Vec<(String, String)>| {
                let field = fields.iter().find(|(other, _)| other == name);
                field.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
            };
            let cells: Vec<String> =
                std::iter::once(name.clone()).chain(all.iter().map(value)).collect();
            table.compared(&cells);
        }
    }
    section("Conditions of the measurements (differences are marked)", "manifest", &table, "")
}

fn fields(manifest: &Manifest) -> Vec<(String, String)> {
    let machine = &manifest.machine;
    let unknown = || "–".to_owned();
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
    for (nth, target) in manifest.targets.iter().enumerate() {
        add(&format!("server {}", nth + 1), format!("{} ({})", target.name, target.place));
        add(&format!("server {} version", nth + 1), target.version.clone().unwrap_or_else(unknown));
        let started = target.command_line.clone().unwrap_or_else(unknown);
        add(&format!("server {} command line", nth + 1), started);
        let cpus = target.cpus.clone().unwrap_or_else(unknown);
        add(&format!("server {} may run on CPUs", nth + 1), cpus);
    }
    add("started", manifest.started.clone());
    add("protocol", manifest.protocol.clone());
    add("loop", manifest.driven.clone());
    add("schedule", manifest.schedule.clone());
    add("threads", manifest.threads.to_string());
    add("late after", span(Some(manifest.late_limit_ns as f64)));
    add("seed", manifest.seed.to_string());
    for setting in &manifest.settings {
        add(&setting.name, setting.value.clone());
    }
    add("kvblaster", manifest.kvblaster.clone());
    add("kernel", machine.kernel.clone());
    add("architecture", machine.architecture.clone());
    add("CPU", machine.cpu_model.clone().unwrap_or_else(unknown));
    add("CPUs", machine.cpus.to_string());
    add("governor", machine.governor.clone().unwrap_or_else(unknown));
    let memory = machine.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 30));
    add("memory, GiB", number(memory, 1));
    let is_used = |nic: &&Nic| nic.state.as_deref() != Some("down");
    for nic in machine.nics.iter().filter(is_used) {
        let known = |value: Option<String>| value.unwrap_or_else(unknown);
        add(
            &format!("interface {}", nic.name),
            format!(
                "{}, MTU {}, {} Mbit/s, {}, {} receive and {} transmit queues",
                known(nic.state.clone()),
                known(nic.mtu.map(|mtu| mtu.to_string())),
                known(nic.speed_mbps.map(|speed| speed.to_string())),
                known(nic.driver.clone()),
                nic.rx_queues,
                nic.tx_queues
            ),
        );
        // Only offloads are listed: all settings would fill a phone's screen.
        let is_on = |name: &&str| nic.settings.iter().any(|s| s.name == **name && s.value == "1");
        let on: Vec<&str> = ["tso", "gso", "gro", "lro"].into_iter().filter(is_on).collect();
        if !on.is_empty() {
            add(&format!("interface {} offloads", nic.name), on.join(" "));
        }
    }
    fields
}
