//! The figures of a result as CSV tables for spreadsheets and scripts.
//!
//! Where: files in the result's folder.
//! Invariant: for each report, `reports.csv` has one row for each type of request that was used,
//! and then a row `all`. Within one schema, the order of the columns never changes. The cell of an
//! unknown figure is empty.
//! Source: RFC 4180.

use crate::measure::interrupts::CoreNetwork;
use crate::measure::process::ProcessUse;
use crate::measure::times::{FIGURES, Figure};
use crate::measure::{Interval, VerbTally};
use crate::search::curve::Point;
use crate::workload::VERBS;
use std::fmt::Write;

/// Columns of `reports.csv`. Times are in microseconds, CPU use is in CPUs.
pub(crate) const REPORTS: &str = "\
run,report,start_s,seconds,verb,asked_per_s,offered_per_s,sent,answered,answered_per_s,keys,\
hits,misses,not_done,errors,corrupt,late,timeouts,min_us,mean_us,sd_us,p50_us,p90_us,p95_us,\
p99_us,p99_9_us,p99_99_us,max_us,service_mean_us,service_p50_us,service_p99_us,service_max_us,\
server_usr_cpus,server_sys_cpus,server_rss_bytes,client_cpus,machine_idle,machine_softirq,\
unsent,keys_per_s,fairness,worst_connection_p99_us,server_datagrams_dropped,\
client_datagrams_dropped\r\n";

const SERVICE: [&str; 4] = ["mean", "p50", "p99", "max"];

/// The columns of `cpus.csv`: shares of one CPU's time, and then its interrupts and packets.
const CPUS: &str = "run,report,start_s,seconds,cpu,usr,nice,sys,iowait,irq,softirq,steal,idle,busy,\
device_interrupts_per_s,net_rx_per_s,packets,packets_dropped,squeezed";

const CURVE: &str = "trial,asked_per_s,offered_per_s,achieved_per_s,mean_us,p50_us,p99_us,\
p99_9_us,max_us,late_ratio,failure_ratio,hit_ratio,server_cpus,generator_busiest,client_bound,met,\
min_us,sd_us";

pub(crate) fn reports(reports: &[Interval]) -> String {
    let rows = reports.iter().enumerate().map(|(nth, report)| rows(nth, report));
    std::iter::once(REPORTS.to_owned()).chain(rows).collect()
}

/// The rows of one report: one for each type of request that was used, and then the row `all`.
pub(crate) fn rows(nth: usize, report: &Interval) -> String {
    let mut out = String::new();
    for verb in VERBS {
        let tally = report.tally.verb(verb);
        if tally.sent + tally.answered + tally.never() > 0 {
            row(&mut out, nth, report, verb.name(), tally);
            let _ = write!(out, ",{:.1},,,,\r\n", report.per_s(tally.keys_answered(verb)));
        }
    }
    row(&mut out, nth, report, "all", &report.tally.total());
    let connections = &report.tally.connections;
    let dropped = |used: Option<ProcessUse>| {
        used.and_then(|used| used.datagrams_dropped)
            .map_or(String::new(), |count| count.to_string())
    };
    let _ = write!(
        out,
        ",{:.1},{},{},{},{}\r\n",
        report.keys_per_s(),
        cell(connections.fairness(), 6),
        cell(connections.worst_p99_ns().map(|ns| ns as f64 / 1000.0), 3),
        dropped(report.usage.server),
        dropped(report.usage.client)
    );
    out
}

/// Writes the cells that the rows of one type and the row `all` share.
fn row(out: &mut String, nth: usize, report: &Interval, verb: &str, tally: &VerbTally) {
    let Interval { run, start_s, seconds, .. } = report;
    let _ = write!(
        out,
        "{run},{},{start_s:.3},{seconds:.3},{verb},{},{:.1},{},{},{:.1},{},{},{},{},{},{},{},{}",
        nth + 1,
        cell(report.asked_per_s, 1),
        report.offered_per_s(),
        tally.sent,
        tally.answered,
        report.per_s(tally.answered),
        tally.keys,
        tally.hits,
        tally.misses,
        tally.not_done,
        tally.errors,
        tally.corrupt,
        tally.late,
        tally.timeouts
    );
    let of = |times, figure: Figure| cell(figure.of(times).map(|ns| ns / 1000.0), 3);
    let response = FIGURES.iter().map(|(_, figure)| of(&tally.response_ns, *figure));
    let service = FIGURES.iter().filter(|(name, _)| SERVICE.contains(name));
    let service = service.map(|(_, figure)| of(&tally.service_ns, *figure));
    for time in response.chain(service) {
        let _ = write!(out, ",{time}");
    }
    let usage = &report.usage;
    let rss = usage.server.and_then(|server| server.rss_bytes);
    let machine = usage.machine.as_ref().map(|machine| machine.total);
    let _ = write!(
        out,
        ",{},{},{},{},{},{},{}",
        cell(usage.server.map(|server| server.usr_cpus), 4),
        cell(usage.server.map(|server| server.sys_cpus), 4),
        rss.map_or(String::new(), |bytes| bytes.to_string()),
        cell(usage.client.map(|client| client.cpus()), 4),
        cell(machine.map(|machine| machine.idle), 4),
        cell(machine.map(|machine| machine.softirq), 4),
        tally.unsent
    );
}

/// The table of CPUs: for each report, a row for all CPUs together, and then a row for each CPU.
pub(crate) fn cpus(reports: &[Interval]) -> String {
    let mut out = format!("{CPUS}\r\n");
    for (nth, report) in reports.iter().enumerate() {
        let Some(machine) = &report.usage.machine else { continue };
        let Interval { run, start_s, seconds, .. } = report;
        let each =
            machine.cores.iter().map(|core| (core.cpu.to_string(), core.shares, core.network));
        let sum = machine.cores.iter().map(|core| core.network);
        let sum = sum.reduce(|sum, one| Some(sum?.plus(&one?))).flatten();
        let all = ("all".to_owned(), machine.total, sum);
        for (cpu, shares, network) in std::iter::once(all).chain(each) {
            let _ = write!(out, "{run},{},{start_s:.3},{seconds:.3},{cpu}", nth + 1);
            for (_, share) in shares.named() {
                let _ = write!(out, ",{share:.4}");
            }
            let _ = write!(out, ",{:.4},", shares.busy());
            out.push_str(&network.map_or(",,,,".to_owned(), |network| interrupts(&network)));
            out.push_str("\r\n");
        }
    }
    out
}

fn interrupts(network: &CoreNetwork) -> String {
    format!(
        "{:.1},{:.1},{},{},{}",
        network.device_interrupts_per_s,
        network.net_rx_per_s,
        network.packets,
        network.packets_dropped,
        network.squeezed
    )
}

/// The table of a search: each trial has a row with its rates and times.
pub(crate) fn curve(curve: &[Point]) -> String {
    let mut out = format!("{CURVE}\r\n");
    for (nth, point) in curve.iter().enumerate() {
        let us = |ns: Option<u64>| cell(ns.map(|ns| ns as f64 / 1000.0), 3);
        let _ = write!(
            out,
            "{},{:.1},{:.1},{:.1},{},{},{},{},{},{:.6},{:.6},{},{},{:.4},{},{},{},{}\r\n",
            nth + 1,
            point.asked_per_s,
            point.offered_per_s,
            point.achieved_per_s,
            cell(point.mean_ns.map(|ns| ns / 1000.0), 3),
            us(point.p50_ns),
            us(point.p99_ns),
            us(point.p99_9_ns),
            us(point.max_ns),
            point.late_ratio,
            point.failure_ratio,
            cell(point.hit_ratio, 6),
            cell(point.server_cpus, 4),
            point.busiest,
            quoted(point.client_bound.as_deref().unwrap_or_default()),
            quoted(&point.met.join(" ")),
            us(point.min_ns),
            cell(point.sd_ns.map(|ns| ns / 1000.0), 3)
        );
    }
    out
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or(String::new(), |value| format!("{value:.decimals$}"))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
