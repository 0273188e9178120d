//! The explanation of a run for somebody who measures a cache for the first time.
//!
//! Where: behind the figures of `run`.
//! Invariant: it says nothing that the figures above do not say; a result that is not to be trusted
//! is called so before any advice.

use super::Plan;
use crate::measure::check::ACHIEVED_SHARE_MIN;
use crate::measure::steady::{UNSTEADY, told_ns};
use crate::measure::{Interval, VerbTally};
use crate::result::RunResult;
use crate::run::{GONE, SILENT};
use crate::words::{grouped, percent, quoted, some_percent, time, whole};
use crate::workload::Verb;

/// Ratio of the tail to the median from which the text mentions it.
const LONG_TAIL: f64 = 20.0;
/// A smaller share of hits means that a populated server did not hold everything.
const HITS_MIN: f64 = 0.995;
/// A shorter measurement is called a first look.
const FIRST_LOOK_S: f64 = 30.0;
/// The suggested rate, as a share of what the closed loop reached.
const CALM: f64 = 0.5;

/// Describes the requests and the results.
pub(super) fn paragraph(plan: &Plan, done: &RunResult, all: &Interval) -> String {
    let total = all.tally.total();
    let mut text = asked(plan, all);
    text += &took(&total);
    if done.verdict.has(UNSTEADY) {
        text += " The reports disagree, as noted below.";
    }
    if let Some(ratio) = total.hit_ratio() {
        text += &format!(" {} of the keys asked for were found (hits).", percent(ratio));
    }
    if total.failed() > 0 {
        let part = total.failure_ratio().unwrap_or(0.0);
        text += &format!(
            " {} requests failed ({}).",
            grouped(total.failed() as f64),
            some_percent(part)
        );
    }
    if let Some(server) = &all.usage.server
        && let Some(ns) = server.ns_per_request(total.answered)
    {
        text += &format!(
            " The server kept {:.2} of this machine's CPUs busy: {} for each request",
            server.cpus(),
            time(whole(ns)),
        );
        if server.is_split_told() {
            let share = server.sys_cpus / server.cpus().max(f64::MIN_POSITIVE);
            text += &format!(", {:.0} % of it in the kernel", 100.0 * share);
        }
        text += ".";
    }
    text
}

fn asked(plan: &Plan, all: &Interval) -> String {
    let achieved = grouped(all.achieved_per_s());
    if plan.is_open() {
        let due = all.offered_per_s();
        let kept_up = if all.achieved_per_s() >= ACHIEVED_SHARE_MIN * due {
            "and it kept up"
        } else {
            "and it did not keep up"
        };
        return format!(
            "{} requests a second were due, whether or not the server was done with those before; \
             it answered {achieved}, {kept_up}.",
            grouped(due)
        );
    }
    let requests = match plan.depth {
        1 => "one request".to_owned(),
        depth => format!("{depth} requests"),
    };
    let each = match plan.connections {
        1 => "One connection".to_owned(),
        connections => format!("Each of {connections} connections"),
    };
    format!(
        "{each} had {requests} under way and sent its next one as soon as an answer came; that \
         made {achieved} requests a second."
    )
}

fn took(total: &VerbTally) -> String {
    let times = &total.response_ns;
    let (Some(median), Some(max)) = (times.quantile_ns(0.5), times.max_ns()) else {
        return String::new();
    };
    let mut text = format!(" Half of the answers took less than {}", time(median));
    let rarer = [(0.99, "one in a hundred"), (0.999, "one in a thousand")];
    let rarer = rarer.map(|(share, one)| Some((told_ns(times, share)?, one)));
    for (ns, one) in rarer.into_iter().flatten() {
        text += &format!(", {one} more than {}", time(whole(ns)));
    }
    text += &format!("; the slowest took {}.", time(max));
    let [_, p99_9] = rarer;
    let tail = p99_9.map_or(0.0, |(ns, _)| ns / median.max(1) as f64);
    if tail > LONG_TAIL {
        text += &format!(
            " That tail is long: {tail:.0} times the usual answer, and an application that makes \
             many requests for one page waits for the slowest of them."
        );
    }
    text
}

/// Options of a run that a search chooses by itself, or that one trial does not need.
const OF_A_RUN: [&str; 4] = ["rate", "depth", "schedule", "requests"];

pub(super) struct Advice {
    pub(super) text: String,
    /// The command that does it, to be copied.
    pub(super) command: Option<String>,
}

/// The advice, most useful first. A command keeps every option of the run.
pub(super) fn advice(plan: &Plan, done: &RunResult, all: &Interval) -> Vec<Advice> {
    let mut advice = Vec::new();
    let mut say = |text: &str, command| advice.push(Advice { text: text.to_owned(), command });
    let capacity = || Some(plan.again("capacity", "", &OF_A_RUN));
    let total = all.tally.total();
    if [SILENT, GONE].iter().any(|rule| done.verdict.has(rule)) {
        say("look after the server first: its log, and whether it still runs.", None);
        return advice;
    }
    let own_fault = done.verdict.own_fault().is_some();
    if own_fault {
        let threads = plan.threads.saturating_mul(2);
        // Each thread needs a connection.
        let (more, less): (_, &[&str]) = match plan.connections < threads {
            true => (format!("--threads {threads} -c {threads}"), &["threads", "connections"]),
            false => (format!("--threads {threads}"), &["threads"]),
        };
        say(
            "these figures show kvblaster's limits, not the server's. With more threads, or from \
             another machine:",
            Some(plan.again("run", &more, less)),
        );
    }
    let is_short = all.achieved_per_s() < ACHIEVED_SHARE_MIN * all.offered_per_s();
    if plan.is_open() && is_short && !own_fault {
        say("the server answers less than is asked of it. The rate that it bears:", capacity());
    }
    let deletes = plan.workload.shares().is_none_or(|shares| shares[Verb::Delete as usize] > 0.0);
    if plan.populate && !deletes && total.hit_ratio().is_some_and(|ratio| ratio < HITS_MIN) {
        let bytes = plan.workload.keys() as f64 * plan.workload.value_bytes_mean() / 1e6;
        let text = format!(
            "the server did not keep all it was given: the values of {} keys are {bytes:.0} MB, \
             keys and its own bookkeeping not counted. More memory, or fewer --keys, makes hits.",
            grouped(plan.workload.keys() as f64)
        );
        say(&text, None);
    }
    if !plan.is_open() && !own_fault {
        let rate = format!("--rate {:.0}", round(all.achieved_per_s() * CALM));
        say(
            "a closed loop waits with its server, which hides stalls, and it drives as fast as it \
             can. Times at a steady rate:",
            Some(plan.again("run", &rate, &["depth"])),
        );
        say("the highest rate at which times are good:", capacity());
    }
    if all.seconds < FIRST_LOOK_S && !done.is_interrupted && plan.out.is_none() {
        say(
            "this was a first look. To compare servers, run each as below, and put them side by \
             side with kvblaster report DIR...",
            Some(plan.again("run", "--schedule 10s+6x10s --out DIR", &["schedule", "requests"])),
        );
    } else if let Some(folder) = &plan.out {
        let folder = quoted(&folder.to_string_lossy());
        say("drawn, beside others if you like:", Some(format!("kvblaster report {folder}")));
    }
    advice
}

/// Rounds down to one digit: a rate that people would choose.
fn round(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.max(1.0).log10().floor());
    (rate / unit).floor().max(1.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_to_try_are_round() {
        assert_eq!([0.0, 7.9, 48_575.0, 100_000.0].map(round), [1.0, 7.0, 40_000.0, 100_000.0]);
    }
}
