//! The result in words, and as JSON.
//!
//! Where: the end of the program.
//! Invariant: both forms are made of the same figures, and every ratio stands with its interval.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::measure::report::{Facts, facts_json};
use crate::measure::statistics::{Median, median, median_with_interval};

/// Share of the server's cores, outside the server's own time, above which the cores were not its
/// own.
const OTHERS_MAX: f64 = 0.05;

/// One window of load on one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Requests answered, all of them right.
    pub(crate) requests: f64,
    /// Length.
    pub(crate) seconds: f64,
    /// The server cores' busy time.
    pub(crate) cores_seconds: f64,
    /// The server process' CPU time.
    pub(crate) process_seconds: f64,
    /// The hypervisor's share of the server's cores.
    pub(crate) steal_seconds: f64,
}

impl Window {
    fn per_core_second(&self) -> f64 {
        self.requests / self.cores_seconds
    }

    fn per_process_second(&self) -> f64 {
        self.requests / self.process_seconds
    }

    fn per_second(&self) -> f64 {
        self.requests / self.seconds
    }

    /// Share of the cores that went to neither the server nor idleness.
    fn others(&self) -> f64 {
        (self.cores_seconds - self.process_seconds).max(0.0) / self.seconds
    }
}

/// All windows of one load; `subject[i]` and `rival[i]` are neighbours in time.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) in_flight: u32,
    pub(crate) subject: Vec<Window>,
    pub(crate) rival: Vec<Window>,
}

impl Series {
    /// Pairwise `figure` of the subject over the rival's.
    fn ratio(&self, figure: impl Fn(&Window) -> f64) -> Median {
        let pairs = self.subject.iter().zip(&self.rival);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect();
        median_with_interval(&ratios)
    }

    /// The main figure.
    pub(crate) fn main_ratio(&self) -> Median {
        self.ratio(Window::per_core_second)
    }

    fn others_max(&self) -> f64 {
        self.subject.iter().chain(&self.rival).map(Window::others).fold(0.0, f64::max)
    }
}

fn middle(windows: &[Window], figure: impl Fn(&Window) -> f64) -> f64 {
    median(&windows.iter().map(figure).collect::<Vec<f64>>())
}

/// The table. Writing to a `String` cannot fail, so results of `writeln!` are dropped here.
pub(crate) fn table(series: &[Series]) -> String {
    let mut text = String::from(
        "\nin flight  server   kreq/s  core busy  ns/req (core)  ns/req (process)   steal\n",
    );
    for one in series {
        for (name, windows) in [("subject", &one.subject), ("rival", &one.rival)] {
            let _ = writeln!(
                text,
                "{:>9}  {name:<8}{:>7.1}  {:>7.1} %  {:>13.0}  {:>16.0}  {:>4.1} %",
                one.in_flight,
                middle(windows, Window::per_second) / 1e3,
                middle(windows, |window| window.cores_seconds / window.seconds) * 100.0,
                middle(windows, |window| 1e9 / window.per_core_second()),
                middle(windows, |window| 1e9 / window.per_process_second()),
                middle(windows, |window| window.steal_seconds / window.seconds) * 100.0,
            );
        }
    }
    text.push_str("\nsubject / rival: median of pairs [95 % interval]\n");
    let heads = ["requests per core-busy-second", "per process CPU-second", "per second"];
    let _ = writeln!(text, "in flight  {:<29}  {:<26}  {}", heads[0], heads[1], heads[2]);
    for one in series {
        let _ = writeln!(
            text,
            "{:>9}  {:<29}  {:<26}  {}",
            one.in_flight,
            shown(one.main_ratio()),
            shown(one.ratio(Window::per_process_second)),
            shown(one.ratio(Window::per_second)),
        );
    }
    text.push_str(&caveats(series));
    text
}

fn caveats(series: &[Series]) -> String {
    let mut text = String::from(
        "The first ratio is the main figure: time the server's core was not idle, from\n\
         /proc/stat, softirq included. Over loopback a packet's receiving softirq runs on the\n\
         sender's core: each side pays for what it sends.\n",
    );
    let others = series.iter().map(Series::others_max).fold(0.0, f64::max);
    if others > OTHERS_MAX {
        let _ = writeln!(
            text,
            "In some window {:.0} % of the server's cores went to others: take the ratio per\n\
             process CPU-second instead.",
            others * 100.0
        );
    }
    text
}

fn shown(ratio: Median) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.value, ratio.low, ratio.high)
}

/// The whole result as JSON.
pub(crate) fn json(facts: &Facts, series: &[Series]) -> Value {
    let interval = |of: Median| json!([of.value, of.low, of.high]);
    let loads: Vec<Value> = series
        .iter()
        .map(|one| {
            json!({
                "in_flight": one.in_flight,
                "ratio_per_core_second": interval(one.main_ratio()),
                "ratio_per_process_second": interval(one.ratio(Window::per_process_second)),
                "ratio_per_second": interval(one.ratio(Window::per_second)),
                "subject": windows_json(&one.subject),
                "rival": windows_json(&one.rival),
            })
        })
        .collect();
    json!({"facts": facts_json(facts), "loads": loads})
}

fn windows_json(windows: &[Window]) -> Value {
    let each = windows.iter().map(|window| {
        json!({
            "requests": window.requests,
            "seconds": window.seconds,
            "cores_seconds": window.cores_seconds,
            "process_seconds": window.process_seconds,
            "steal_seconds": window.steal_seconds,
        })
    });
    each.collect()
}
