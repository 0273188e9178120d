//! The search for capacity on real servers.
//!
//! Where: called by `main`; each trial calls `course` with one rate.
//! Invariant: the servers are populated before each trial, unless `--populate-once` was given.
//! Ctrl-C ends the search; the results so far are reported.
//! Source: the KV-Cache paper, section 6: the highest rate that meets the objective; the servers
//! are populated again for each trial.

use super::agents::parts;
use super::context::RunContext;
use super::course;
use super::error::RunError;
use super::judge::changed_servers;
use super::live::Live;
use super::plan::Plan;
use super::prepare::{prepare_context, watch};
use super::{items, record};
use crate::drive::Pace;
use crate::measure::Interval;
use crate::measure::check::{Loop, check};
use crate::measure::verdict::{Remark, Severity, Verdict};
use crate::measure::watch::Watch;
use crate::result::AgentPart;
use crate::result::{RunResult, SCHEMA};
use crate::search::curve::Point;
use crate::search::{Outcome, SearchPlan, Trial, search};
use crate::words::{clock, grouped, time_or_dash};
use std::time::Instant;

/// The self-check's rules on disturbances. A search ignores the rules that report limits.
const DISTURBANCES: [&str; 5] =
    ["machine-full", "generator-waited", "server-waited", "steal", "broken"];

struct Trials<'p> {
    plan: &'p Plan,
    context: &'p RunContext,
    watch: Watch,
    live: &'p Live,
    intervals: Vec<Interval>,
    agents: Vec<AgentPart>,
    failed: Option<RunError>,
}

/// Searches, for each objective of `aim`, for the highest rate at which the servers meet it. Fails
/// if a server does not answer, or the first trial failed.
pub fn run(plan: &Plan, aim: &SearchPlan) -> Result<RunResult, RunError> {
    let context = prepare_context(plan)?;
    let live = Live::new(plan);
    let watch = watch(plan, &context);
    let mut trials = Trials {
        plan,
        context: &context,
        watch,
        live: &live,
        intervals: Vec::new(),
        agents: Vec::new(),
        failed: None,
    };
    items::announce(plan, &context);
    let (begin, mut done) = (Instant::now(), 0_u32);
    let found = search(aim, &mut trials, |point, left| {
        done += 1;
        let left = match left {
            0 => String::new(),
            left => {
                let time = clock(begin.elapsed() / done * left);
                format!("; trials left: about {left} ({time})")
            }
        };
        live.note(&(noted(point, aim.goals.len()) + &left));
    });
    let gone = changed_servers(&context);
    let left_behind = items::clean_up(plan, &context, &live);
    if found.is_err() {
        left_behind.iter().for_each(|message| live.note(message));
    }
    let found = found?;
    let mut verdict = Verdict::default();
    if let Some(why) = trials.failed {
        verdict.add("cut-short", Severity::Warning, format!("the search ended early: {why}"));
    }
    verdict.remarks.extend(found.remark());
    verdict.remarks.extend(disturbed(&trials.intervals));
    verdict.remarks.extend(gone);
    Ok(RunResult {
        schema: SCHEMA,
        verdict,
        manifest: record::manifest(plan, &context),
        is_interrupted: !found.is_complete,
        reports: trials.intervals,
        agents: trials.agents,
        search: Some(found),
        left_behind,
        ..RunResult::default()
    })
}

/// Returns remarks on disturbed trials: for each rule, the first trial's remark and the number of
/// trials with such a remark.
fn disturbed(trials: &[Interval]) -> Vec<Remark> {
    let mut remarks: Vec<(Remark, usize)> = Vec::new();
    for one in trials.iter().flat_map(|trial| check(trial, Loop::Open).remarks) {
        match remarks.iter_mut().find(|(other, _)| other.rule == one.rule) {
            Some((_, count)) => *count += 1,
            None if DISTURBANCES.contains(&one.rule.as_str()) => remarks.push((one, 1)),
            None => {}
        }
    }
    let all = trials.len();
    let sentence = |(one, count): (Remark, usize)| {
        let sentence = format!("in {count} of {all} trials {}", one.sentence);
        Remark { severity: Severity::Warning, sentence, ..one }
    };
    remarks.into_iter().map(sentence).collect()
}

impl Trial for Trials<'_> {
    type Error = RunError;

    fn run(&mut self, rate_per_s: f64) -> Result<Option<Outcome>, RunError> {
        match self.trial(rate_per_s) {
            Err(RunError::Stopped) => Ok(None),
            Err(error) if !self.intervals.is_empty() => {
                self.failed = Some(error);
                Ok(None)
            }
            done => done.map(Some),
        }
    }
}

impl Trials<'_> {
    fn trial(&mut self, rate_per_s: f64) -> Result<Outcome, RunError> {
        if self.context.is_stopped() {
            return Err(RunError::Stopped);
        }
        let once = self.plan.capacity.as_ref().is_some_and(|search| search.populate_once);
        if self.plan.populate && (self.intervals.is_empty() || !once) {
            let live = (&self.watch, self.live);
            let not_stored = course::populate(self.plan, self.context, live)?;
            if let Some(message) = not_stored {
                self.live.note(&message);
            }
        }
        let nth = self.intervals.len() + 1;
        self.live.driving(Some(format!("trial {nth} at {}/s", grouped(rate_per_s))));
        let pace = Pace::Open {
            rate_per_s,
            connections: self.plan.connections,
            outstanding_max: self.plan.outstanding_max,
        };
        let live = (&self.watch, self.live);
        let course = course::drive(self.plan, self.context, pace, live);
        self.live.done();
        let course = course?;
        if self.context.is_stopped() {
            return Err(RunError::Stopped);
        }
        let interval = match (Interval::merged(&course.intervals), course.cut_short) {
            (Some(interval), None) => interval,
            (_, why) => {
                let why = why.unwrap_or_default();
                return Err(RunError::Failed(format!(
                    "a trial ended before the end of its schedule: {why}"
                )));
            }
        };
        let interval = Interval { reflected_per_s: self.plan.reflected_per_s, ..interval };
        self.intervals.push(interval.clone());
        let outcome = Outcome::new(interval);
        let fault = parts::faults(&course.agents).next();
        self.add(course.agents);
        Ok(Outcome { client_bound: fault.or(outcome.client_bound), ..outcome })
    }

    fn add(&mut self, trial: Vec<AgentPart>) {
        let before = std::mem::take(&mut self.agents);
        let mut before = before.into_iter().map(|part| part.merged);
        let part = |part: AgentPart| {
            let both: Vec<Interval> =
                before.next().flatten().into_iter().chain(part.merged).collect();
            AgentPart { merged: Interval::merged(&both), verdict: Verdict::default(), ..part }
        };
        self.agents = trial.into_iter().map(part).collect();
    }
}

fn noted(point: &Point, goals: usize) -> String {
    format!(
        "{:>9.0}/s due {:>9.0} answered: mean {:>7} p99 {:>7}; {}",
        point.asked_per_s,
        point.achieved_per_s,
        time_or_dash(point.mean_ns),
        time_or_dash(point.p99_ns.map(|ns| ns as f64)),
        match point.met.as_slice() {
            [] => "no objective is met".to_owned(),
            met => format!("met: {}", met.join(" ")),
        } + match &point.client_bound {
            Some(_) if point.met.len() < goals => "; kvblaster was behind schedule",
            _ => "",
        },
    )
}
