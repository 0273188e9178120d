//! One run: servers are filled, driven, measured and reported.
//!
//! Where: `main` calls `course` or `capacity` with the plan of the command line.
//! Invariant: whatever was measured before a failure or Ctrl-C is reported. The stored items are
//! removed again, unless they are to stay, and what is left behind is reported.
//! Source: the paper, section 6.1: populate, wait until it has settled, six reports.

pub mod agents;
mod asked;
pub mod capacity;
pub mod compare;
mod course;
mod crew;
pub mod flags;
mod hold;
pub(crate) mod live;
mod patience;
mod record;
mod servers;
pub mod text;
mod unstored;

use flags::VALID;
pub use flags::{Capacity, Plan, Run, Search};
pub use servers::ServersError;

use crate::drive::{DriveError, Pace};
use crate::exit::Exit;
use crate::flags::Given;
use crate::measure::Interval;
use crate::measure::check::{self, Loop, Remark, Severity};
use crate::measure::objective::{Judgement, Objective};
use crate::measure::owner::Served;
use crate::measure::steady;
use crate::measure::watch::Watch;
use crate::result::manifest::Manifest;
use crate::result::{RunResult, SCHEMA};
use crate::target::{Place, Target};
use crate::words::quoted;
use crate::workload::Names;
use agents::{Agents, parts};
use crew::Ground;
use live::Live;
use rustix::thread::{CpuSet, sched_getaffinity};
use servers::Servers;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::cell::Cell;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

impl Plan {
    /// True if requests are sent by a schedule.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rate_per_s.is_some() || self.capacity.is_some()
    }

    /// Returns the command line for another verb on the same servers: with `more`, and with every
    /// option of this one except those that `less` names.
    fn again(&self, command: &str, more: &str, less: &[&str]) -> String {
        let mut words = vec!["kvblaster".to_owned(), command.to_owned()];
        words.extend(more.split_whitespace().map(str::to_owned));
        for Given { long, value } in &self.given {
            // The folder of `--out` is taken by this run.
            if long == "out" || less.contains(&long.as_str()) {
                continue;
            }
            // An assert becomes an objective of a search; a search checks validity itself.
            let is_goal = command == "capacity" && long == "assert";
            if is_goal && value.as_deref() == Some(VALID) {
                continue;
            }
            words.push(format!("--{}", if is_goal { "objective" } else { long }));
            words.extend(value.as_deref().map(quoted));
        }
        words.extend(self.targets.iter().map(|target| quoted(target)));
        words.join(" ")
    }

    /// True if each report is asked for the same rate: a workload's own pace may vary.
    #[must_use]
    pub fn asks_evenly(&self) -> bool {
        !self.rate_per_s.is_some_and(f64::is_nan)
    }
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The servers cannot be found or driven.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A thread could not be started.
    #[error("no thread: {0}")]
    Threads(io::Error),
    /// A driving thread failed.
    #[error(transparent)]
    Drive(DriveError),
    /// An agent cannot do its share.
    #[error("{0}: {1}")]
    Agent(String, String),
    /// Ctrl-C before anything was measured.
    #[error("stopped by Ctrl-C or SIGTERM before anything was measured")]
    Stopped,
    /// A server holds somebody else's items.
    #[error(
        "{0}, not of this workload: filling would overwrite them or push them out. --force fills \
         it all the same; --no-populate leaves filling out, but what the workload sets is set"
    )]
    Held(String),
    /// Hardly any key could be stored.
    #[error("{0}.\n{1} (--no-populate leaves populating out)")]
    Unpopulated(String, &'static str),
    /// Nothing was answered.
    #[error("{0}: {1}")]
    Silent(String, String),
    /// The answers are of another protocol.
    #[error(
        "what the server answers makes no sense in the protocol {0}: is it another kind of server? \
         --protocol names its protocol, and redis://HOST:PORT means Redis's"
    )]
    Speechless(&'static str),
    /// Values cannot be verified.
    #[error("--verify: where appended pieces have sizes of their own, nothing tells one's end")]
    Unverifiable,
    /// A CPU that was named is not there.
    #[error("--{0}: kvblaster may not run on CPU {1}; it may on {2}")]
    Cpu(&'static str, usize, String),
    /// Signals cannot be caught.
    #[error("signals: {0}")]
    Signals(io::Error),
    /// A trial or a round ended early.
    #[error("{0}")]
    CutShort(String),
}

/// Runs `plan` from the first connection to the last report.
///
/// # Errors
/// Nothing could be measured.
pub fn run(plan: &Plan) -> Result<RunResult, RunError> {
    let ground = ground(plan)?;
    let live = Live::new(plan);
    let watch = watch(plan, &ground);
    hold::announce(plan, &ground);
    let done = driven(plan, &ground, (&watch, &live));
    live.done();
    let left_behind = hold::leave(plan, &ground, &live);
    if done.is_err() {
        left_behind.iter().for_each(|told| live::tell(plan, told));
    }
    let (not_stored, course) = done?;
    let mut done =
        RunResult { left_behind, ..judged(plan, record::manifest(plan, &ground), course) };
    if let Some(told) = not_stored {
        let sentence = format!("before the traffic {told}. Misses come of that too");
        done.verdict.add("not-populated", Severity::Warning, sentence);
    }
    Ok(done)
}

/// Fills the servers and drives them. Returns what could not be stored, and the course.
fn driven(
    plan: &Plan,
    ground: &Ground,
    (watch, live): (&Watch, &Live),
) -> Result<(Option<String>, course::Course), RunError> {
    let not_stored = match plan.populate {
        true => course::populate(plan, ground, (watch, live))?,
        false => None,
    };
    live.driving(None);
    let course = course::drive(plan, ground, pace(plan), (watch, live))?;
    Ok((not_stored, course::Course { gone: gone(ground), ..course }))
}

/// Flags that signals set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ear {
    /// True after Ctrl-C or SIGTERM.
    pub(crate) stop: Arc<AtomicBool>,
    /// True if a report is asked for (SIGUSR1).
    asked: Arc<AtomicBool>,
}

/// Catches signals. All runs of a process share the flags: Ctrl-C between two ends the second.
pub(crate) fn ear() -> Result<Ear, RunError> {
    static EAR: OnceLock<Result<Ear, io::ErrorKind>> = OnceLock::new();
    let listen = || {
        let ear = Ear::default();
        // The second Ctrl-C or SIGTERM ends the program at once.
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&ear.stop))?;
            flag::register(signal, Arc::clone(&ear.stop))?;
        }
        flag::register(SIGUSR1, Arc::clone(&ear.asked))?;
        Ok(ear)
    };
    let ear = EAR.get_or_init(|| listen().map_err(|error: io::Error| error.kind()));
    ear.clone().map_err(|kind| RunError::Signals(kind.into()))
}

/// Prepares all that a run needs before the first request: servers, names, signal flags.
fn ground(plan: &Plan) -> Result<Ground, RunError> {
    let Ear { stop, asked } = ear()?;
    has_cpus(&[("cpus", &plan.cpus), ("receive-cpus", &plan.receive_cpus)])?;
    let workload = Arc::new(plan.workload.clone());
    let names = Names::new(&workload);
    if plan.verify && !names.verifies() {
        return Err(RunError::Unverifiable);
    }
    let (agents, servers) = match plan.agents.is_empty() {
        true => (None, Servers::find(&plan.targets, plan.family(), plan.speech, plan.steered())?),
        false => {
            let (agents, servers) = Agents::gather(plan, &stop)?;
            (Some(agents), servers)
        }
    };
    let ground = Ground { servers, workload, names, agents, stop, asked, stored: Cell::new(0) };
    hold::look(plan, &ground)?;
    Ok(ground)
}

/// Checks that none of the plan's servers holds somebody else's items before the first is filled,
/// so that no run asks again. A server that is not there is left for its run to report.
///
/// # Errors
/// A server holds somebody else's items.
pub(crate) fn has_room(plan: &mut Plan) -> Result<(), RunError> {
    for target in plan.targets.clone() {
        let all = std::mem::replace(&mut plan.targets, vec![target]);
        let found = ground(plan);
        plan.targets = all;
        if let Err(held @ RunError::Held(_)) = found {
            return Err(held);
        }
    }
    plan.force = true;
    Ok(())
}

/// Checks that all named CPUs are there: a thread would find out only when it is pinned.
fn has_cpus(named: &[(&'static str, &[usize])]) -> Result<(), RunError> {
    let Ok(own) = sched_getaffinity(None) else { return Ok(()) };
    let is_there = |cpu: usize| cpu < CpuSet::MAX_CPU && own.is_set(cpu);
    for (name, cpus) in named {
        if let Some(cpu) = cpus.iter().find(|cpu| !is_there(**cpu)) {
            let may = record::cpus(std::process::id()).unwrap_or_default();
            return Err(RunError::Cpu(name, *cpu, may));
        }
    }
    Ok(())
}

fn watch(plan: &Plan, ground: &Ground) -> Watch {
    // An agent's localhost is another machine.
    let targets = if ground.agents.is_some() { &[] } else { &*ground.servers.targets };
    Watch::new(targets.iter().map(served), &plan.server_pids)
}

pub(crate) fn served(target: &Target) -> Served<'_> {
    match &target.place {
        Place::Tcp(address) => Served::Tcp(*address),
        Place::Udp(address) | Place::Xdp(_, address) => Served::Udp(*address),
        Place::Unix(path) => Served::Unix(path),
    }
}

fn pace(plan: &Plan) -> Pace {
    let connections = plan.connections;
    match plan.rate_per_s {
        Some(rate_per_s) => {
            Pace::Open { rate_per_s, connections, outstanding_max: plan.outstanding_max }
        }
        None => Pace::Closed { connections, depth: plan.depth },
    }
}

/// The rule that a server answers in every report.
pub const SILENT: &str = "silent";
/// Least seconds of reports without an answer that break the rule: more than a hiccup.
const SILENT_S: f64 = 1.0;

/// The rule that the server of the beginning is still there at the end.
pub const GONE: &str = "server-gone";

/// Returns the exit status: was everything done, and does every assert hold? A result that shows
/// the generator has figures, but no assert on it holds; one without its server is never met.
#[must_use]
pub fn exit(done: &RunResult) -> Exit {
    let is_gone = [SILENT, GONE, "no-answers"].iter().any(|rule| done.verdict.has(rule));
    let is_met = done.judgements.iter().all(|one| one.is_met);
    if is_gone || done.is_interrupted {
        return Exit::NotMet;
    }
    match (done.judgements.is_empty(), done.verdict.is_valid()) {
        (false, false) => Exit::Invalid,
        _ if is_met => Exit::Met,
        _ => Exit::NotMet,
    }
}

/// Returns a remark on servers that went away or were restarted.
pub(crate) fn gone(ground: &Ground) -> Option<Remark> {
    let changed = ground.changed();
    let sentence = changed.join("; ");
    let remark = Remark { rule: GONE.to_owned(), severity: Severity::Invalid, sentence };
    (!changed.is_empty()).then_some(remark)
}

fn judged(plan: &Plan, manifest: Manifest, mut course: course::Course) -> RunResult {
    for one in &mut course.intervals {
        one.reflected_per_s = one.reflected_per_s.or(plan.reflected_per_s);
    }
    let driven = if plan.is_open() { Loop::Open } else { Loop::Closed };
    let merged = Interval::merged(&course.intervals);
    let judge = |objective: &Objective| {
        let nothing = Interval::default();
        objective.judge(merged.as_ref().unwrap_or(&nothing).judged())
    };
    let mut judgements: Vec<Judgement> = plan.asserts.iter().map(judge).collect();
    let mut verdict = check::check(&merged.clone().unwrap_or_default(), driven);
    let faults: Vec<Remark> = parts::faults(&course.agents).collect();
    // An agent's fault names the agent, so it replaces the same fault of the whole.
    verdict.remarks.retain(|one| faults.iter().all(|fault| fault.rule != one.rule));
    verdict.remarks.extend(faults);
    verdict.remarks.extend(steady::remark(&course.intervals, plan.asks_evenly()));
    if let Some(why) = &course.cut_short {
        let sentence = format!("the run ended before its schedule: {why}");
        verdict.add("cut-short", Severity::Warning, sentence);
    }
    if let Some((severity, told)) = course.lost {
        verdict.add("agent-lost", severity, told.to_owned());
    }
    let silent = || course.intervals.iter().filter(|one| one.achieved_per_s() <= 0.0);
    let (silent, silent_s) = (silent().count(), silent().map(|one| one.seconds).sum::<f64>());
    if silent_s >= SILENT_S && silent < course.intervals.len() {
        let sentence = format!(
            "in {silent} of {} reports nothing was answered: the server went away, or stood still",
            course.intervals.len()
        );
        verdict.add(SILENT, Severity::Invalid, sentence);
    }
    if let Some(told) = course.unsettled {
        verdict.add("not-warm", Severity::Warning, told);
    }
    let replaced = plan.workload.replaced_operations();
    if replaced > 0 {
        let sentence = format!("{replaced} operations of the trace were made as the nearest verb");
        verdict.add("replaced", Severity::Warning, sentence);
    }
    verdict.remarks.extend(course.gone);
    if plan.asserts_valid {
        judgements.push(Judgement::of_validity(&verdict));
    }
    RunResult {
        schema: SCHEMA,
        manifest,
        is_interrupted: course.cut_short.is_some(),
        verdict,
        judgements,
        merged,
        reports: course.intervals,
        agents: course.agents,
        search: None,
        left_behind: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::steady::UNSTEADY;

    #[test]
    fn an_invalid_run_fails_where_something_is_asserted_and_one_without_its_server_always() {
        let judged = |is_met| Judgement {
            objective: String::new(),
            value: None,
            is_met,
            sentence: String::new(),
        };
        let exits = |rule: &str, judgements: &[Judgement]| {
            let mut done = RunResult { judgements: judgements.to_vec(), ..RunResult::default() };
            let severity = if rule.is_empty() { Severity::Warning } else { Severity::Invalid };
            done.verdict.add(rule, severity, String::new());
            exit(&done)
        };
        let (met, unmet) = ([judged(true)], [judged(true), judged(false)]);
        for gone in [SILENT, GONE, "no-answers"] {
            assert_eq!([exits(gone, &[]), exits(gone, &met)], [Exit::NotMet; 2], "{gone}");
        }
        assert_eq!([exits("", &[]), exits("", &met)], [Exit::Met; 2]);
        assert_eq!(exits("", &unmet), Exit::NotMet);
        assert_eq!(exits("late-sends", &[]), Exit::Met);
        assert_eq!([&met[..], &unmet].map(|all| exits("late-sends", all)), [Exit::Invalid; 2]);
        assert_eq!(exit(&RunResult { is_interrupted: true, ..RunResult::default() }), Exit::NotMet);
    }

    #[test]
    fn that_the_result_is_valid_is_asserted_by_itself() {
        let plan = Plan { asserts_valid: true, ..*flags::plan(false).unwrap() };
        let course = course::Course {
            intervals: vec![Interval { seconds: 1.0, ..Interval::default() }],
            ..course::Course::default()
        };
        let done = judged(&plan, Manifest::default(), course);
        let [valid] = &done.judgements[..] else { panic!("{:?}", done.judgements) };
        assert!(!valid.is_met && valid.sentence.starts_with("valid is not met: nothing was"));
    }

    #[test]
    fn reports_that_disagree_do_not_pass() {
        // The fourth report has a stall.
        let mut course = course::Course {
            intervals: crate::result::sample::result("ours", 50).reports,
            ..course::Course::default()
        };
        let plan = flags::plan(false).unwrap();
        let steady = [&course.intervals[..3], &course.intervals[4..]].concat();
        let told = judged(&plan, Manifest::default(), course).verdict;
        assert!(told.has(UNSTEADY) && told.is_valid(), "{told:?}");
        course = course::Course { intervals: steady, ..course::Course::default() };
        assert!(!judged(&plan, Manifest::default(), course).verdict.has(UNSTEADY));
    }
}
