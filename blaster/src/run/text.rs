//! The report of a run as text.
//!
//! Where: printed by `main` when a run is over.
//! Invariant: no figure includes the time before the first report, in which the server settles. A
//! figure that was not measured is left out, never printed as zero. No line is wider than 80
//! columns, except for names and commands, which users copy.
//! Source: the KV-Cache paper, sections 5.2.2 and 6.2: counts, RTT and CPU.

pub mod compared;
mod explained;
pub mod found;

use super::Plan;
use crate::measure::steady::{self, UNSTEADY};
use crate::measure::times::BEYOND_MIN;
use crate::measure::times::FIGURES;
use crate::measure::verdict::{Remark, Severity};
use crate::measure::{Connections, Interval, Times, VerbTally};
use crate::result::AgentPart;
use crate::result::RunResult;
use crate::result::manifest::{Manifest, TargetRecord};
use crate::words::{grouped, sentence, wrapped};
use crate::workload::VERBS;
use explained::Advice;
use std::fmt::Write;

/// Returns the whole report.
pub fn text(plan: &Plan, done: &RunResult) -> String {
    let mut out = String::new();
    head(&mut out, plan, &done.manifest);
    match &done.merged {
        Some(all) => {
            reports(&mut out, plan, &done.reports);
            times(&mut out, plan, all);
            keys(&mut out, all);
            fairness(&mut out, &all.tally.connections);
            agents(&mut out, &done.agents);
            cpu(&mut out, all);
            out.push('\n');
            out.push_str(&wrapped("", &explained::paragraph(plan, done, all)));
        }
        None => out.push_str("Nothing was measured.\n"),
    }
    out.push('\n');
    remarks(&mut out, done);
    left(&mut out, done);
    if let Some(all) = &done.merged {
        next(&mut out, plan, done, all);
    }
    out
}

fn remarks(out: &mut String, done: &RunResult) {
    if !done.verdict.is_valid() {
        out.push_str("The result is invalid: it does not show what the server can do.\n");
    } else if done.verdict.has(UNSTEADY) {
        out.push_str("The reports disagree (* marks a report far from the others). Remarks:\n");
    } else if !done.verdict.remarks.is_empty() {
        out.push_str("kvblaster's self-check passed, with these remarks:\n");
    }
    let mut remarks: Vec<&Remark> = done.verdict.remarks.iter().collect();
    // Remarks that make the result invalid come first.
    remarks.sort_by_key(|remark| remark.severity != Severity::Invalid);
    out.extend(remarks.into_iter().map(remarked));
    let is_clean = done.verdict.remarks.is_empty() && done.merged.is_some();
    if is_clean {
        let valid = "kvblaster's self-check passed: there is no sign that kvblaster, or anything \
                     else on this machine, was the limit.";
        out.push_str(&wrapped("", valid));
    }
    for judgement in &done.judgements {
        let weight = if judgement.is_met { "assert: " } else { "FAILED: " };
        out.push_str(&wrapped(weight, &sentence(&judgement.sentence)));
    }
}

pub(crate) fn left(out: &mut String, done: &RunResult) {
    out.extend(done.left_behind.iter().map(|told| wrapped("items: ", &sentence(told))));
}

fn remarked(remark: &Remark) -> String {
    let weight = match remark.severity {
        Severity::Invalid => "INVALID: ",
        Severity::Warning => "note: ",
    };
    wrapped(weight, &sentence(&remark.sentence))
}

fn next(out: &mut String, plan: &Plan, done: &RunResult, all: &Interval) {
    let advice = explained::advice(plan, done, all);
    if !advice.is_empty() {
        out.push('\n');
        for Advice { text, command } in advice {
            out.push_str(&wrapped("next: ", &text));
            if let Some(command) = command {
                let _ = writeln!(out, "      {command}");
            }
        }
    }
}

pub(crate) fn head(out: &mut String, plan: &Plan, manifest: &Manifest) {
    for target in &manifest.targets {
        let _ = writeln!(out, "{}", server(target));
    }
    let plural = |count: u32| if count == 1 { "" } else { "s" };
    let lines = format!(
        "{} connection{} on {} thread{}",
        plan.connections,
        plural(plan.connections),
        plan.threads,
        plural(plan.threads)
    );
    let how = match plan.rate_per_s {
        Some(rate) if rate.is_nan() => {
            format!("open loop, requests due at the workload's own times, {lines}")
        }
        Some(rate) => format!("open loop, {} requests/s due, {lines}", grouped(rate)),
        None if plan.is_open() => format!("open loop, {lines}"),
        None => {
            let (depth, requests) = (plan.depth, plural(plan.depth));
            format!("closed loop, {lines}, {depth} request{requests} at a time on each connection")
        }
    };
    let _ = writeln!(
        out,
        "workload {}, protocol {}, seed {}\n{how}\n",
        plan.workload_name, manifest.protocol, plan.seed,
    );
}

fn server(target: &TargetRecord) -> String {
    let version = target.version.as_ref().map(|version| format!("reports version {version}"));
    let program = target.command_line.as_ref().and_then(|line| line.split_whitespace().next());
    let program = program.map(|path| path.rsplit('/').next().unwrap_or(path));
    let process = program.zip(target.pids.first()).map(|(name, pid)| format!("{name}, pid {pid}"));
    let known: Vec<String> = version.into_iter().chain(process).collect();
    match known.is_empty() {
        true => target.name.clone(),
        false => format!("{} ({})", target.name, known.join("; ")),
    }
}

fn reports(out: &mut String, plan: &Plan, intervals: &[Interval]) {
    let due = if plan.is_open() { "due/s" } else { "sent/s" };
    let _ = writeln!(
        out,
        "{:>8} {:>11} {:>11} {:>9} {:>9} {:>9} {:>8} {:>7}",
        "seconds", "answered/s", due, "mean us", "p99 us", "max us", "failed", "late"
    );
    let apart = steady::all_apart(intervals, plan.has_steady_rate());
    for (nth, interval) in intervals.iter().enumerate() {
        let total = interval.tally.total();
        let _ = writeln!(
            out,
            "{:>8.1} {:>11.0} {:>11.0} {:>9} {:>9} {:>9} {:>8} {:>7}{}",
            interval.seconds,
            interval.achieved_per_s(),
            interval.offered_per_s(),
            us(total.response_ns.mean_ns()),
            us(total.response_ns.reliable_quantile_ns(0.99)),
            us(total.response_ns.max_ns().map(|ns| ns as f64)),
            total.failed(),
            total.late_or_lost(),
            if apart.contains(&nth) { " *" } else { "" },
        );
    }
    out.push('\n');
}

/// Width of a column of times, in characters.
const COLUMN: usize = 11;
const NAMES: usize = 11;

fn times(out: &mut String, plan: &Plan, all: &Interval) {
    let used = |tally: &&VerbTally| tally.answered > 0;
    let total = all.tally.total();
    let verbs = VERBS.iter().zip(&all.tally.verbs).filter(|(_, tally)| used(tally));
    let mut columns: Vec<(&str, &VerbTally)> = verbs.map(|(v, tally)| (v.name(), tally)).collect();
    if columns.len() > 1 {
        columns.push(("all", &total));
    }
    let _ = write!(out, "{:NAMES$}", "");
    for (name, _) in &columns {
        let _ = write!(out, "{name:>COLUMN$}");
    }
    let _ = write!(out, "\n{:NAMES$}", "answered/s");
    for (_, tally) in &columns {
        let _ = write!(out, "{:>COLUMN$.0}", all.per_s(tally.answered));
    }
    out.push('\n');
    if total.keys > total.sent {
        let _ = write!(out, "{:NAMES$}", "keys/s");
        for keys in keys_per_s(all) {
            let _ = write!(out, "{keys:>COLUMN$.0}");
        }
        out.push('\n');
    }
    if plan.is_open() {
        out.push_str("response time, us: from the moment when a request was due\n");
        rows(out, columns.iter().map(|(_, tally)| &tally.response_ns));
        out.push_str("service time, us: from the moment when a request was sent\n");
        rows(out, columns.iter().map(|(_, tally)| &tally.service_ns));
    } else {
        out.push_str("response time, us\n");
        rows(out, columns.iter().map(|(_, tally)| &tally.response_ns));
    }
    out.push('\n');
}

/// Returns the keys answered per second for each type of request that was used, and, if several
/// types were used, for all types together.
fn keys_per_s(all: &Interval) -> Vec<f64> {
    let used = VERBS.into_iter().zip(&all.tally.verbs).filter(|(_, tally)| tally.answered > 0);
    let mut each: Vec<f64> =
        used.map(|(verb, tally)| all.per_s(tally.keys_answered(verb))).collect();
    if each.len() > 1 {
        each.push(all.keys_per_s());
    }
    each
}

/// Writes a row for each figure, with a column for each item of `columns`.
fn rows<'t>(out: &mut String, columns: impl Iterator<Item = &'t Times> + Clone) {
    // A screen has too few rows for all figures, so only the tables of `kvblaster report` have p95.
    for (name, figure) in FIGURES.into_iter().filter(|(name, _)| *name != "p95") {
        let _ = write!(out, "{name:>NAMES$}");
        for times in columns.clone() {
            let _ = write!(out, "{:>COLUMN$}", us(figure.reliable_of(times)));
        }
        out.push('\n');
    }
}

fn keys(out: &mut String, all: &Interval) {
    let (total, tally) = (all.tally.total(), &all.tally);
    if let Some(ratio) = total.hit_ratio() {
        let keys = grouped((total.hits + total.misses) as f64);
        let _ = writeln!(out, "hits       {:.3} % of {keys} keys", ratio * 100.0);
    }
    let _ = writeln!(
        out,
        "failures   {} errors, {} timeouts, {} wrong values, {} protocol violations",
        total.errors, total.timeouts, total.corrupt, tally.broken
    );
    if total.unsent > 0 {
        let unsent = grouped(total.unsent as f64);
        let _ = writeln!(out, "never sent {unsent} requests that were due: no connection was free");
    }
    if tally.failed_connections() > 0 {
        let _ = writeln!(
            out,
            "closed     {} connections closed by the server; {} attempts to connect failed",
            tally.reset, tally.refused
        );
    }
    let refusals = tally.refusals.named();
    if !refusals.is_empty() {
        let kinds = refusals.iter().map(|(kind, count)| format!("{count} {kind}"));
        let kinds: Vec<String> = kinds.collect();
        let first = tally.refusals.first.as_deref().unwrap_or_default();
        let _ = writeln!(out, "refusals   {}; the first answer: {first}", kinds.join(", "));
    }
    let _ = writeln!(
        out,
        "late       {} requests ({:.3} %): {} took more than {}, {} unanswered",
        total.late_or_lost(),
        100.0 * total.late_ratio().unwrap_or(0.0),
        total.late,
        crate::words::time(tally.late_limit_ns),
        total.never(),
    );
    // If only gets look up keys, the line `not found` would repeat the numbers of the line `hits`.
    let (missing, looked_for) = tally.not_found();
    if looked_for > total.hits + total.misses {
        let percent = 100.0 * missing as f64 / looked_for as f64;
        let keys = grouped(looked_for as f64);
        let _ = writeln!(out, "not found  {percent:.3} % of {keys} keys that were looked up");
    }
    if total.not_done > 0 {
        let _ = writeln!(
            out,
            "not done   {} requests: not stored, or nothing to delete",
            total.not_done
        );
    }
    let udp = &tally.udp;
    if udp.lost + udp.reordered + udp.duplicate > 0 {
        let _ = writeln!(
            out,
            "udp        {} requests lost, {} datagrams out of order, {} received twice",
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

/// If Jain's index of the answers per connection is lower than this, the report shows the index.
const FAIRNESS_MAX: f64 = 0.99;

/// Writes a line only if some connections have far fewer answers than others.
fn fairness(out: &mut String, connections: &Connections) {
    let (count, index) = (connections.len(), connections.fairness());
    let Some(index) = index.filter(|index| count > 1 && *index < FAIRNESS_MAX) else { return };
    let _ = write!(out, "fairness   {index:.3} (Jain's index) over {count} connections");
    // The worst p99 is shown only if every connection has enough answers for a p99.
    let fewest = connections.answered_range().map_or(0, |(fewest, _)| fewest);
    let is_reliable = fewest as f64 * 0.01 >= BEYOND_MIN;
    if let Some(ns) = connections.worst_p99_ns().filter(|_| is_reliable) {
        let _ = write!(out, "; p99 of the slowest: {}", crate::words::time(ns));
    }
    out.push('\n');
}

fn cpu(out: &mut String, all: &Interval) {
    if let Some(machine) = &all.usage.machine {
        let shares = machine.total.named().into_iter().filter(|(_, share)| *share >= 0.0005);
        let shares: Vec<String> =
            shares.map(|(name, share)| format!("{name} {:.1} %", share * 100.0)).collect();
        let _ = writeln!(out, "machine    {}", shares.join(", "));
    }
    let answered = all.tally.total().answered;
    for (name, used) in [("server", &all.usage.server), ("generator", &all.usage.client)] {
        let Some(used) = used else { continue };
        if !used.is_measurable() {
            let _ = write!(out, "{name:10} too little CPU time to measure");
        } else {
            let _ = write!(out, "{name:10} {:.2} CPUs", used.cpus());
        }
        if used.is_split_measurable() {
            let _ = write!(out, " ({:.2} in the kernel)", used.sys_cpus);
        }
        if let Some(ns) = used.ns_per_request(answered) {
            let _ = write!(out, ", {:.2} us a request", ns / 1e3);
        }
        if let Some(bytes) = used.rss_bytes {
            let _ = write!(out, ", memory {:.1} MB", bytes as f64 / 1e6);
        }
        out.push('\n');
    }
}

pub(crate) fn agents(out: &mut String, parts: &[AgentPart]) {
    if parts.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:5} {:>7} {:>10} {:>8} {:>8} {:>5} {:>7}  command",
        "agent", "threads", "answered/s", "p50 us", "p99 us", "CPUs", "began"
    );
    for (number, part) in (1..).zip(parts) {
        let total = part.merged.as_ref().map(|merged| merged.tally.total()).unwrap_or_default();
        let at = |share| us(total.response_ns.reliable_quantile_ns(share));
        let merged = part.merged.as_ref();
        let cpus = merged.and_then(|merged| merged.usage.client).map(|used| used.cpus());
        let began = part.round_trip_ns.map(crate::words::time);
        let state = match (&part.lost, part.verdict.generator_fault()) {
            (Some(_), _) => " (lost)".to_owned(),
            (None, Some(fault)) => format!(" ({})", fault.rule),
            (None, None) => String::new(),
        };
        let _ = writeln!(
            out,
            "{number:>5} {:>7} {:>10.0} {:>8} {:>8} {:>5} {:>7}  {}{state}",
            part.threads,
            merged.map_or(0.0, Interval::achieved_per_s),
            at(0.5),
            at(0.99),
            cpus.map_or("-".to_owned(), |cpus| format!("{cpus:.2}")),
            began.unwrap_or_else(|| "-".to_owned()),
            part.name,
        );
    }
    out.push_str("began: the agent began at most this long after the order to begin was sent\n\n");
}

/// Formats nanoseconds as microseconds, with one decimal below 99.95 and without above.
fn us(ns: Option<f64>) -> String {
    match ns {
        None => "-".to_owned(),
        Some(ns) if ns < 99_950.0 => format!("{:.1}", ns / 1e3),
        Some(ns) => format!("{:.0}", ns / 1e3),
    }
}

#[cfg(test)]
mod tests;
