//! What a run came to, for people.
//!
//! Where: printed by `main` when a run is over. Invariant: every figure is of the reports alone,
//! not of settling; what nobody measured is left out, and never printed as zero.
//! Source: rows A40, A62 and A64: counts, RTT and CPU.

use super::Plan;
use crate::measure::check::Severity;
use crate::measure::{Interval, Times, VerbTally};
use crate::result::RunResult;
use crate::result::manifest::Manifest;
use crate::workload::VERBS;
use std::fmt::Write;

/// The whole text.
#[must_use]
pub fn text(plan: &Plan, done: &RunResult) -> String {
    let mut out = String::new();
    head(&mut out, plan, &done.manifest);
    match &done.merged {
        Some(all) => {
            reports(&mut out, &done.reports);
            times(&mut out, all);
            keys(&mut out, all);
            cpu(&mut out, all);
        }
        None => out.push_str("Nothing was measured.\n"),
    }
    for remark in &done.verdict.remarks {
        let weight = match remark.severity {
            Severity::Invalid => "INVALID",
            Severity::Warning => "note",
        };
        let _ = writeln!(out, "{weight}: {}", remark.sentence);
    }
    done.judgements.iter().for_each(|judgement| {
        let _ = writeln!(out, "{}", judgement.sentence);
    });
    out
}

/// What was asked of whom.
pub(crate) fn head(out: &mut String, plan: &Plan, manifest: &Manifest) {
    for target in &manifest.targets {
        let _ = match &target.version {
            Some(version) => writeln!(out, "{} ({version})", target.name),
            None => writeln!(out, "{}", target.name),
        };
    }
    let how = match plan.rate_per_s {
        Some(rate) if rate.is_nan() => "open loop, at the workload's own pace".to_owned(),
        Some(rate) => format!("open loop, {} requests/s due", count(rate)),
        None if plan.is_open() => "open loop".to_owned(),
        None => format!("closed loop, {} under way on each connection", plan.depth),
    };
    let _ = writeln!(
        out,
        "workload {}, {}, seed {}; {how}; {} thread{}, {} connections\n",
        plan.workload_name,
        manifest.protocol,
        plan.seed,
        plan.threads,
        if plan.threads == 1 { "" } else { "s" },
        plan.connections,
    );
}

/// A line for each report.
fn reports(out: &mut String, intervals: &[Interval]) {
    let _ = writeln!(
        out,
        "{:>8} {:>11} {:>11} {:>9} {:>9} {:>9} {:>8} {:>7}",
        "seconds", "requests/s", "offered/s", "mean us", "p99 us", "max us", "errors", "late"
    );
    for interval in intervals {
        let total = interval.tally.total();
        let _ = writeln!(
            out,
            "{:>8.1} {:>11.0} {:>11.0} {:>9} {:>9} {:>9} {:>8} {:>7}",
            interval.seconds,
            interval.achieved_per_s(),
            interval.offered_per_s(),
            us(total.response_ns.mean_ns()),
            us(total.response_ns.quantile_ns(0.99).map(|ns| ns as f64)),
            us(total.response_ns.max_ns().map(|ns| ns as f64)),
            total.failed(),
            total.late,
        );
    }
    out.push('\n');
}

/// The columns of times.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Response and service times of each type of request.
fn times(out: &mut String, all: &Interval) {
    let _ = write!(out, "{:18} {:>11} {:>8} {:>8} {:>8}", "us", "requests/s", "min", "mean", "sd");
    for (name, _) in QUANTILES {
        let _ = write!(out, " {name:>8}");
    }
    let _ = writeln!(out, " {:>8}", "max");
    let used = |tally: &&VerbTally| tally.answered > 0;
    for (verb, tally) in VERBS.iter().zip(&all.tally.verbs).filter(|(_, tally)| used(tally)) {
        row(
            out,
            &format!("{} response", verb.name()),
            all.per_s(tally.answered),
            &tally.response_ns,
        );
        row(out, &format!("{} service", verb.name()), all.per_s(tally.answered), &tally.service_ns);
    }
    if all.tally.verbs.iter().filter(used).count() > 1 {
        let total = all.tally.total();
        row(out, "all response", all.achieved_per_s(), &total.response_ns);
        row(out, "all service", all.achieved_per_s(), &total.service_ns);
    }
    out.push_str("response: from when a request was due; service: from when it was sent.\n\n");
}

fn row(out: &mut String, name: &str, per_s: f64, times: &Times) {
    let _ = write!(
        out,
        "{name:18} {per_s:>11.0} {:>8} {:>8} {:>8}",
        us(times.min_ns().map(|ns| ns as f64)),
        us(times.mean_ns()),
        us(times.sd_ns()),
    );
    for (_, quantile) in QUANTILES {
        let _ = write!(out, " {:>8}", us(times.quantile_ns(quantile).map(|ns| ns as f64)));
    }
    let _ = writeln!(out, " {:>8}", us(times.max_ns().map(|ns| ns as f64)));
}

/// Hits, errors, late answers and what the transport did.
fn keys(out: &mut String, all: &Interval) {
    let (total, tally) = (all.tally.total(), &all.tally);
    if let Some(ratio) = total.hit_ratio() {
        let _ = writeln!(
            out,
            "hits       {:.3} % of {} keys",
            ratio * 100.0,
            total.hits + total.misses
        );
    }
    let _ = writeln!(
        out,
        "failures   {} errors, {} timeouts, {} wrong values, {} broken streams",
        total.errors, total.timeouts, total.corrupt, tally.broken
    );
    let late = total.late as f64 * 100.0 / total.answered.max(1) as f64;
    let _ = writeln!(
        out,
        "late       {} answers ({late:.3} %) after more than {} us",
        total.late,
        us(Some(tally.late_limit_ns as f64)),
    );
    if total.not_done > 0 {
        let _ = writeln!(
            out,
            "not done   {} deletes and appends of what was not there",
            total.not_done
        );
    }
    let udp = &tally.udp;
    if udp.lost + udp.reordered + udp.duplicate > 0 {
        let _ = writeln!(
            out,
            "udp        {} requests lost, {} datagrams out of order, {} twice",
            udp.lost, udp.reordered, udp.duplicate
        );
    }
    let megabytes = |bytes: u64| all.per_s(bytes) / 1e6;
    let _ = writeln!(
        out,
        "bytes      {:.1} MB/s sent, {:.1} MB/s received",
        megabytes(tally.sent_bytes),
        megabytes(tally.received_bytes)
    );
}

/// CPU of machine, server and generator.
fn cpu(out: &mut String, all: &Interval) {
    if let Some(machine) = &all.usage.machine {
        out.push_str("machine   ");
        for (name, share) in machine.total.named() {
            let _ = write!(out, " {name} {:.1} %", share * 100.0);
        }
        out.push('\n');
    }
    let answered = all.tally.total().answered;
    for (name, used) in [("server", &all.usage.server), ("generator", &all.usage.client)] {
        let Some(used) = used else { continue };
        let _ =
            write!(out, "{name:10} {:.2} CPUs ({:.2} in the kernel)", used.cpus(), used.sys_cpus);
        if let Some(ns) = used.ns_per_request(answered) {
            let _ = write!(out, ", {:.2} us a request", ns / 1e3);
        }
        if let Some(bytes) = used.rss_bytes {
            let _ = write!(out, ", {:.1} MB resident", bytes as f64 / 1e6);
        }
        out.push('\n');
    }
}

/// Nanoseconds as microseconds, three digits or more.
fn us(ns: Option<f64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns < 99_950.0 => format!("{:.1}", ns / 1e3),
        Some(ns) => format!("{:.0}", ns / 1e3),
    }
}

fn count(rate: f64) -> String {
    if rate < 10_000.0 { format!("{rate:.0}") } else { format!("{:.1}k", rate / 1e3) }
}
