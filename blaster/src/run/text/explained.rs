//! Explains a run to users who measure a cache for the first time, and gives advice.
//!
//! Where: printed below the figures of `run`.
//! Invariant: the explanation contains only figures that the report shows above the explanation. If
//! the result is invalid, the report states this before any advice.

use super::Plan;
use crate::measure::interval::ACHIEVED_SHARE_MIN;
use crate::measure::steady::UNSTEADY;
use crate::measure::{Interval, VerbTally};
use crate::result::RunResult;
use crate::run::{GONE, SILENT};
use crate::words::{grouped, percent, quoted, some_percent, time, whole};
use crate::workload::Verb;

/// Ratio of p99.9 to the median above which the text mentions the slow requests.
const LONG_TAIL: f64 = 20.0;
/// If the hit ratio after filling is lower than this, the text says that the server evicted items.
const HITS_MIN: f64 = 0.995;
/// If the reports last fewer seconds in total than this, the text calls the measurement short.
const FIRST_LOOK_S: f64 = 30.0;
/// The rate that the advice suggests, relative to the rate of the closed loop.
const CALM: f64 = 0.5;

pub(super) fn paragraph(plan: &Plan, done: &RunResult, all: &Interval) -> String {
    let total = all.tally.total();
    let mut text = asked(plan, all);
    text += &took(&total);
    if done.verdict.has(UNSTEADY) {
        text += " The reports disagree, as noted below.";
    }
    if let Some(ratio) = total.hit_ratio() {
        text += &format!(" {} of the requested keys were found (hits).", percent(ratio));
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
            " The server used {:.2} CPUs of this machine: {} of CPU time for each request",
            server.cpus(),
            time(whole(ns)),
        );
        if server.is_split_measurable() {
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
            "so it kept up"
        } else {
            "so it did not keep up"
        };
        return format!(
            "{} requests a second were due, even if earlier requests were not answered yet. The \
             server answered {achieved} a second, {kept_up}.",
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
        "{each} had {requests} under way, and sent the next request as soon as an answer came. In \
         this way, the server answered {achieved} requests a second."
    )
}

fn took(total: &VerbTally) -> String {
    let times = &total.response_ns;
    let (Some(median), Some(max)) = (times.quantile_ns(0.5), times.max_ns()) else {
        return String::new();
    };
    let mut text = format!(" Half of the answers took less than {}", time(median));
    let rarer = [(0.99, "one in a hundred"), (0.999, "one in a thousand")];
    let rarer = rarer.map(|(share, one)| Some((times.reliable_quantile_ns(share)?, one)));
    for (ns, one) in rarer.into_iter().flatten() {
        text += &format!(", {one} more than {}", time(whole(ns)));
    }
    text += &format!("; the slowest took {}.", time(max));
    let [_, p99_9] = rarer;
    let tail = p99_9.map_or(0.0, |(ns, _)| ns / median.max(1) as f64);
    if tail > LONG_TAIL {
        text += &format!(
            " One answer in a thousand takes more than {tail:.0} times the median. An application \
             that makes many requests for one page waits for the slowest of these requests."
        );
    }
    text
}

/// Options of `run` that a suggested `capacity` command omits, because `capacity` does not have
/// them or because they set the length of the run.
const OF_A_RUN: [&str; 6] = ["rate", "depth", "idle", "slow", "schedule", "requests"];

pub(super) struct Advice {
    pub(super) text: String,
    pub(super) command: Option<String>,
}

/// Returns the advice, most useful first. Suggested commands keep all options that still apply.
pub(super) fn advice(plan: &Plan, done: &RunResult, all: &Interval) -> Vec<Advice> {
    let mut advice = Vec::new();
    let mut say = |text: &str, command| advice.push(Advice { text: text.to_owned(), command });
    let capacity = || Some(plan.command_for("capacity", "", &OF_A_RUN));
    let total = all.tally.total();
    if [SILENT, GONE].iter().any(|rule| done.verdict.has(rule)) {
        say("check first whether the server still runs, and what its log says.", None);
        return advice;
    }
    let generator_fault = done.verdict.generator_fault().is_some();
    if generator_fault {
        let threads = plan.threads.saturating_mul(2);
        // Each thread needs a connection.
        let (more, less): (_, &[&str]) = match plan.connections < threads {
            true => (format!("--threads {threads} -c {threads}"), &["threads", "connections"]),
            false => (format!("--threads {threads}"), &["threads"]),
        };
        say(
            "these figures show the limits of kvblaster, not those of the server. Use more \
             threads, or another machine:",
            Some(plan.command_for("run", &more, less)),
        );
    }
    let is_short = all.achieved_per_s() < ACHIEVED_SHARE_MIN * all.offered_per_s();
    if plan.is_open() && is_short && !generator_fault {
        say("the server answers fewer requests than are due. To find its capacity:", capacity());
    }
    let deletes = plan.workload.shares().is_none_or(|shares| shares[Verb::Delete as usize] > 0.0);
    if plan.populate && !deletes && total.hit_ratio().is_some_and(|ratio| ratio < HITS_MIN) {
        let bytes = plan.workload.keys() as f64 * plan.workload.value_bytes_mean() / 1e6;
        let text = format!(
            "the server did not keep all items: the values of {} keys alone take {bytes:.0} MB. \
             With more memory, or with fewer --keys, there are more hits.",
            grouped(plan.workload.keys() as f64)
        );
        say(&text, None);
    }
    if !plan.is_open() && !generator_fault {
        let rate = format!("--rate {:.0}", round(all.achieved_per_s() * CALM));
        say(
            "a closed loop sends the next request only after an answer, which hides stalls of the \
             server. To measure times at a steady rate:",
            Some(plan.command_for("run", &rate, &["depth"])),
        );
        say("to find the highest rate with good response times:", capacity());
    }
    if all.seconds < FIRST_LOOK_S && !done.is_interrupted && plan.out.is_none() {
        say(
            "this measurement was short. To compare servers, measure each of them as below, and \
             put the results side by side with kvblaster report DIR...",
            Some(plan.command_for(
                "run",
                "--schedule 10s+6x10s --out DIR",
                &["schedule", "requests"],
            )),
        );
    } else if let Some(folder) = &plan.out {
        let folder = quoted(&folder.to_string_lossy());
        say(
            "to see charts of this result, alone or with others:",
            Some(format!("kvblaster report {folder}")),
        );
    }
    advice
}

/// Rounds a rate down to one significant digit.
fn round(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.max(1.0).log10().floor());
    (rate / unit).floor().max(1.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::tests::parse_words;
    use std::collections::BTreeSet;

    /// Returns the names of the options that the help of `verb` lists.
    fn options(verb: &str) -> BTreeSet<String> {
        let help = parse_words(&format!("{verb} --help")).unwrap_err();
        let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
        let names = lines.filter_map(|line| line.split_once("--")?.1.split(' ').next());
        names.map(str::to_owned).collect()
    }

    #[test]
    fn a_suggested_search_has_no_option_that_only_run_has() {
        let (run, search) = (options("run"), options("capacity"));
        assert!(run.contains("rate") && search.contains("first"), "{run:?} {search:?}");
        // `command_for` turns an assert into an objective.
        for option in run.difference(&search).filter(|option| *option != "assert") {
            assert!(OF_A_RUN.contains(&option.as_str()), "{option}");
        }
    }

    #[test]
    fn rates_to_try_are_round() {
        assert_eq!([0.0, 7.9, 48_575.0, 100_000.0].map(round), [1.0, 7.0, 40_000.0, 100_000.0]);
    }
}
