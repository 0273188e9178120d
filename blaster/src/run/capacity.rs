//! The search for capacity, against real servers.
//!
//! Where: called by `main`; each trial is a `course` at one rate.
//! Invariant: the servers are populated before each trial, unless once was asked for; Ctrl-C ends
//! the search and keeps what it found.
//! Source: rows A56 to A62: the highest rate that keeps the objective, populated before each run.

use super::course;
use super::crew::Ground;
use super::live::Live;
use super::{Plan, RunError, ground, record, watch};
use crate::drive::Pace;
use crate::measure::Interval;
use crate::measure::watch::Watch;
use crate::result::{RunResult, SCHEMA};
use crate::search::bracket::Limit;
use crate::search::curve::{self, Point};
use crate::search::{Aim, Found, Outcome, Trial, search};
use std::fmt::Write;

/// Trials against the servers of a plan.
struct Trials<'p> {
    plan: &'p Plan,
    ground: &'p Ground,
    watch: Watch,
    live: &'p Live,
    intervals: Vec<Interval>,
}

/// Searches as `plan` asks.
///
/// # Errors
/// A server is not there, or a trial could not be made.
pub fn run(plan: &Plan, aim: &Aim) -> Result<RunResult, RunError> {
    let ground = ground(plan)?;
    let live = Live::new(plan.quiet, plan.schedule);
    let watch = watch(plan, &ground);
    let mut trials = Trials { plan, ground: &ground, watch, live: &live, intervals: Vec::new() };
    let found = search(aim, &mut trials, |point| live.note(&noted(point)))?;
    Ok(RunResult {
        schema: SCHEMA,
        manifest: record::manifest(plan, &ground),
        is_interrupted: !found.is_complete,
        reports: trials.intervals,
        search: Some(found),
        ..RunResult::default()
    })
}

impl Trial for Trials<'_> {
    type Error = RunError;

    fn run(&mut self, rate_per_s: f64) -> Result<Option<Outcome>, RunError> {
        if self.ground.is_stopped() {
            return Ok(None);
        }
        let once = self.plan.capacity.as_ref().is_some_and(|search| search.populate_once);
        if self.plan.populate && (self.intervals.is_empty() || !once) {
            self.live.populating(self.ground.workload.keys());
            let not_stored = match course::populate(self.plan, self.ground, self.live) {
                Err(RunError::Stopped) => return Ok(None),
                populated => populated?,
            };
            if not_stored > 0 {
                self.live.note(&format!("{not_stored} keys could not be stored beforehand"));
            }
        }
        self.live.driving(&format!("{rate_per_s:.0}/s"));
        let pace = Pace::Open {
            rate_per_s,
            connections: self.plan.connections,
            outstanding_max: self.plan.outstanding_max,
        };
        let live = (&self.watch, self.live);
        let course = course::drive(self.plan, self.ground, pace, live)?;
        self.live.done();
        if self.ground.is_stopped() {
            return Ok(None);
        }
        let Some(interval) = Interval::merged(&course.intervals) else {
            return Err(RunError::CutShort(course.cut_short.unwrap_or_default()));
        };
        self.intervals.push(interval.clone());
        Ok(Some(Outcome::new(interval)))
    }
}

/// A trial in a line.
fn noted(point: &Point) -> String {
    let us = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{:.0}", ns / 1e3));
    format!(
        "{:>9.0}/s asked {:>9.0}/s answered   mean {:>6} p99 {:>6} p99.9 {:>6} us   {}",
        point.asked_per_s,
        point.achieved_per_s,
        us(point.mean_ns),
        us(point.p99_ns.map(|ns| ns as f64)),
        us(point.p99_9_ns.map(|ns| ns as f64)),
        match (&point.client_bound, point.met.as_slice()) {
            (Some(_), _) => "the generator was the limit".to_owned(),
            (None, []) => "no objective met".to_owned(),
            (None, met) => format!("met: {}", met.join(" ")),
        },
    )
}

/// What was found, for people.
#[must_use]
pub fn text(plan: &Plan, done: &RunResult, found: &Found) -> String {
    let mut out = String::new();
    super::text::head(&mut out, plan, &done.manifest);
    out.push_str(&curve::table(&found.curve));
    out.push('\n');
    let percent = found.confidence * 100.0;
    for capacity in &found.capacities {
        let _ = write!(out, "Cap_{:5} {:20} ", capacity.name, capacity.objective);
        match (capacity.rate_per_s, capacity.interval_per_s) {
            (Some(rate), Some((least, most))) => {
                let _ = write!(out, "{rate:.0} requests/s [{least:.0}, {most:.0}]");
                let _ = write!(out, " ({percent:.0} % confidence)");
            }
            (Some(rate), None) => {
                let _ = write!(out, "{rate:.0} requests/s");
            }
            (None, _) => out.push_str("none found"),
        }
        let _ = writeln!(out, "{}", limited(capacity.limit));
    }
    if !found.is_complete {
        out.push_str("The search was ended before it was done.\n");
    }
    if let Some(why) = found.curve.iter().find_map(|point| point.client_bound.as_ref()) {
        let _ = writeln!(out, "INVALID in some trials: {why}");
    }
    out
}

fn limited(limit: Limit) -> &'static str {
    match limit {
        Limit::Server => "",
        Limit::LowestRate => ": it does not hold at the lowest rate either",
        Limit::HighestRate => ", or more: the highest rate allowed held",
        Limit::Generator => ", or more: the generator could not do more",
        Limit::Unknown => ": the search was ended before it was known",
    }
}
