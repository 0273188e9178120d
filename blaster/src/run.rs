//! One run: fills the servers with items, sends requests, measures, and reports.
//!
//! Where: `main` calls `run` or `capacity::run` with the plan from the command line.
//! Invariant: all measurements before a failure or Ctrl-C are reported. At the end, the stored
//! items are removed unless `--keep` is given, and items that stay on a server are reported.
//! Source: the KV-Cache paper, section 6.1: populate, let the server settle, make six reports.

pub mod agents;
pub mod capacity;
pub mod compare;
mod course;
mod crowd;
pub mod flags;
mod items;
pub(crate) mod live;
mod on_demand;
mod record;
mod servers;
mod stall;
pub mod text;
mod unstored;
mod workers;

use flags::VALID;
pub use flags::{Capacity, Plan, Run, Search};
pub use servers::ServersError;

use crate::drive::{DriveError, Pace};
use crate::exit::Exit;
use crate::flags::CliOption;
use crate::measure::Interval;
use crate::measure::check::{self, Loop, NO_ANSWERS, Remark, Severity};
use crate::measure::objective::{Judgement, Objective};
use crate::measure::owner::ServerAddress;
use crate::measure::steady;
use crate::measure::watch::Watch;
use crate::result::manifest::Manifest;
use crate::result::{RunResult, SCHEMA, remarks};
use crate::target::{Place, Target};
use crate::words::{quoted, whole};
use crate::workload::{Names, Workload, WorkloadError};
use agents::{Agents, parts};
use crowd::Crowd;
use live::Live;
use rustix::thread::{CpuSet, sched_getaffinity};
use servers::Servers;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use workers::RunContext;

impl Plan {
    /// True for an open loop: requests become due at a given rate even if none is answered.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rate_per_s.is_some() || self.capacity.is_some()
    }

    /// Returns a command line: the verb `command`, the words of `more`, this plan's options except
    /// those that `less` names, and this plan's servers.
    fn command_for(&self, command: &str, more: &str, less: &[&str]) -> String {
        let mut words = vec!["kvblaster".to_owned(), command.to_owned()];
        words.extend(more.split_whitespace().map(str::to_owned));
        for CliOption { long, value } in &self.given {
            // `--out` is left out, because another run cannot write to the same folder.
            if long == "out" || less.contains(&long.as_str()) {
                continue;
            }
            // A search has `--objective` in place of `--assert`, and always checks validity.
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

    /// False if the workload sets the pace, because such a pace may vary from report to report.
    #[must_use]
    pub fn has_steady_rate(&self) -> bool {
        !self.rate_per_s.is_some_and(f64::is_nan)
    }
}

/// The error of a run that has nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The servers cannot be reached, or cannot be used with these flags.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
    /// A thread that sends requests failed.
    #[error(transparent)]
    Drive(DriveError),
    /// An agent cannot do its share of the work.
    #[error("{0}: {1}")]
    Agent(String, String),
    /// A file of the workload cannot be sent to agents.
    #[error(transparent)]
    Files(WorkloadError),
    /// Ctrl-C or SIGTERM came before anything was measured.
    #[error("stopped by Ctrl-C or SIGTERM before anything was measured")]
    Stopped,
    /// A server holds items of another workload.
    #[error(
        "{0}. These items do not belong to this workload, and filling the server would overwrite \
         or evict them. --force fills the server nevertheless; --no-populate skips the filling, \
         but kvblaster still sends the set requests of the workload"
    )]
    ForeignItems(String),
    /// Too few keys could be stored.
    #[error("{0}.\n{1} (--no-populate skips filling)")]
    Unpopulated(String, &'static str),
    /// No request was answered.
    #[error("{0}: {1}")]
    Silent(String, String),
    /// The server answers in another protocol.
    #[error(
        "the server's answers do not follow the protocol {0}. Name the server's protocol with \
         --protocol, or write redis://HOST:PORT for Redis"
    )]
    WrongProtocol(&'static str),
    /// `--verify` cannot check the values of this workload.
    #[error(
        "--verify cannot check the values of append requests whose sizes vary: give a fixed \
         --value-size, or --value-size-per key"
    )]
    Unverifiable,
    /// The connections of `--idle` and `--slow` cannot be opened.
    #[error("--idle and --slow: {0}")]
    Crowd(String),
    /// The number of keys that follows from `--fill` is not possible.
    #[error("--fill: {0}")]
    Fill(String),
    /// A CPU named on the command line does not exist, or this process may not run on it.
    #[error("--{0}: kvblaster may not run on CPU {1}, only on CPUs {2}")]
    Cpu(&'static str, usize, String),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
    /// A trial of a search or a round of a comparison ended early.
    #[error("{0}")]
    CutShort(String),
}

/// Runs `plan` from the first connection to the last report.
///
/// # Errors
/// Nothing could be measured.
pub fn run(plan: &Plan) -> Result<RunResult, RunError> {
    let context = prepare_context(plan)?;
    let live = Live::new(plan);
    let watch = watch(plan, &context);
    items::announce(plan, &context);
    let done = fill_and_drive(plan, &context, (&watch, &live));
    live.done();
    let left_behind = items::clean_up(plan, &context, &live);
    if done.is_err() {
        left_behind.iter().for_each(|message| live::tell(plan, message));
    }
    let (not_stored, course) = done?;
    let mut done =
        RunResult { left_behind, ..judged(plan, record::manifest(plan, &context), course) };
    if context.agents.is_none() {
        done.verdict.remarks.extend(remarks::remarks(&done.manifest, done.merged.as_ref()));
    }
    if let Some(message) = not_stored {
        let sentence = format!("before the traffic, {message}. Gets of these keys can miss");
        done.verdict.add("not-populated", Severity::Warning, sentence);
    }
    Ok(done)
}

/// Sets the number of keys so that keys and values take the share `--fill` of the servers' memory.
///
/// # Errors
/// A server does not answer, or does not report how much memory it may use.
pub fn set_keys_by_share(plan: &mut Plan) -> Result<(), RunError> {
    let Some(share) = plan.fill_share else { return Ok(()) };
    let servers = Servers::find(&plan.targets, plan.family(), plan.protocol, None)?;
    let bytes = share * servers.limit_bytes()? as f64;
    set_keys(&mut plan.workload, bytes).map_err(RunError::Fill)
}

/// Sets the number of keys, at least 1, so that keys and values take `bytes`.
fn set_keys(workload: &mut Workload, bytes: f64) -> Result<(), String> {
    let key_bytes = workload.items_bytes() / workload.keys() as f64;
    let keys = whole((bytes / key_bytes).max(1.0));
    workload
        .set("keys", &keys.to_string())
        .and_then(|()| workload.check())
        .map_err(|error| error.to_string())?;
    match workload.keys() == keys {
        true => Ok(()),
        false => {
            Err("a key file or a trace determines the number of keys: leave out --fill".to_owned())
        }
    }
}

/// Returns a description of the keys that could not be stored, and the measurements.
fn fill_and_drive(
    plan: &Plan,
    context: &RunContext,
    (watch, live): (&Watch, &Live),
) -> Result<(Option<String>, course::TrafficResult), RunError> {
    let not_stored = match plan.populate {
        true => course::populate(plan, context, (watch, live))?,
        false => None,
    };
    live.driving(None);
    let mut crowd = Crowd::connect(plan.crowd, &context.servers.targets, &context.stop)?;
    let over = AtomicBool::new(false);
    let course = std::thread::scope(|scope| {
        scope.spawn(|| crowd.creep(&over));
        let course = course::drive(plan, context, pace(plan), (watch, live));
        over.store(true, Ordering::Relaxed); // the flag orders no other memory
        course
    });
    // After a failure too, `leave` must remove the crowd's item from the server.
    let (turned_out, course) = (crowd.leave(), course?);
    let gone = changed_servers(context).into_iter().chain(turned_out).collect();
    Ok((not_stored, course::TrafficResult { gone, ..course }))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SignalFlags {
    /// True after Ctrl-C or SIGTERM.
    pub(crate) stop: Arc<AtomicBool>,
    /// True after SIGUSR1, which requests a report.
    report_requested: Arc<AtomicBool>,
}

/// Catches signals. All runs share the flags, so Ctrl-C between two runs ends the second run.
pub(crate) fn signal_flags() -> Result<SignalFlags, RunError> {
    static FLAGS: OnceLock<Result<SignalFlags, io::ErrorKind>> = OnceLock::new();
    let listen = || {
        let flags = SignalFlags::default();
        // The second Ctrl-C or SIGTERM ends the program at once.
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&flags.stop))?;
            flag::register(signal, Arc::clone(&flags.stop))?;
        }
        flag::register(SIGUSR1, Arc::clone(&flags.report_requested))?;
        Ok(flags)
    };
    let flags = FLAGS.get_or_init(|| listen().map_err(|error: io::Error| error.kind()));
    flags.clone().map_err(|kind| RunError::Signals(kind.into()))
}

fn prepare_context(plan: &Plan) -> Result<RunContext, RunError> {
    let SignalFlags { stop, report_requested } = signal_flags()?;
    has_cpus(&[("cpus", &plan.cpus), ("receive-cpus", &plan.receive_cpus)])?;
    let workload = Arc::new(plan.workload.clone());
    let names = Names::new(&workload);
    if plan.verify && !names.verifies() {
        return Err(RunError::Unverifiable);
    }
    let (agents, servers) = match plan.agents.is_empty() {
        true => (None, Servers::find(&plan.targets, plan.family(), plan.protocol, plan.steered())?),
        false => {
            let (agents, servers) = Agents::gather(plan, &stop)?;
            (Some(agents), servers)
        }
    };
    let context = RunContext {
        servers,
        workload,
        names,
        agents,
        stop,
        report_requested,
        stored: Cell::new(0),
    };
    items::check(plan, &context)?;
    Ok(context)
}

/// Checks that no server of the plan holds items of another workload, and then sets `force`, so
/// that runs skip this check. A server that cannot be reached is ignored: its run will fail.
pub(crate) fn check_room(plan: &mut Plan) -> Result<(), RunError> {
    for target in plan.targets.clone() {
        let all = std::mem::replace(&mut plan.targets, vec![target]);
        let found = prepare_context(plan);
        plan.targets = all;
        if let Err(held @ RunError::ForeignItems(_)) = found {
            return Err(held);
        }
    }
    plan.force = true;
    Ok(())
}

/// Fails if this process may not run on a CPU in `named`, because threads would fail later.
pub(crate) fn has_cpus(named: &[(&'static str, &[usize])]) -> Result<(), RunError> {
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

fn watch(plan: &Plan, context: &RunContext) -> Watch {
    // With agents, no server is watched here, because to an agent `localhost` is its own machine.
    let targets = if context.agents.is_some() { &[] } else { &*context.servers.targets };
    Watch::new(targets.iter().map(server_address), &plan.server_pids)
}

pub(crate) fn server_address(target: &Target) -> ServerAddress<'_> {
    match &target.place {
        Place::Tcp(address) => ServerAddress::Tcp(*address),
        Place::Udp(address) | Place::Xdp(_, address) => ServerAddress::Udp(*address),
        Place::Unix(path) => ServerAddress::Unix(path),
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

/// Name of the rule that servers answer in every report.
pub const SILENT: &str = "silent";
/// The rule `SILENT` is broken if reports without any answer last at least this many seconds in
/// total.
const SILENT_S: f64 = 1.0;

/// Name of the rule that each server is the same process at the end as at the beginning.
pub const GONE: &str = "server-gone";

/// Returns `NotMet` if the run ended early or a server went away. Otherwise returns `Invalid` if
/// there are asserts and the result is invalid. Otherwise returns `Met` if every assert holds, and
/// `NotMet` if an assert does not hold.
#[must_use]
pub fn exit(done: &RunResult) -> Exit {
    let is_gone = [SILENT, GONE, NO_ANSWERS].iter().any(|rule| done.verdict.has(rule));
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

pub(crate) fn changed_servers(context: &RunContext) -> Option<Remark> {
    let changed = context.changed();
    let sentence = changed.join("; ");
    let remark = Remark { rule: GONE.to_owned(), severity: Severity::Invalid, sentence };
    (!changed.is_empty()).then_some(remark)
}

fn judged(plan: &Plan, manifest: Manifest, mut course: course::TrafficResult) -> RunResult {
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
    // An agent's remark names the agent, so merged remarks of the same rule are removed.
    verdict.remarks.retain(|one| faults.iter().all(|fault| fault.rule != one.rule));
    verdict.remarks.extend(faults);
    verdict.remarks.extend(steady::remark(&course.intervals, plan.has_steady_rate()));
    if let Some(why) = &course.cut_short {
        let sentence = format!("the run ended before the end of its schedule: {why}");
        verdict.add("cut-short", Severity::Warning, sentence);
    }
    if let Some((severity, message)) = course.lost {
        verdict.add("agent-lost", severity, message.to_owned());
    }
    let silent = || course.intervals.iter().filter(|one| one.achieved_per_s() <= 0.0);
    let (silent, silent_s) = (silent().count(), silent().map(|one| one.seconds).sum::<f64>());
    if silent_s >= SILENT_S && silent < course.intervals.len() {
        let sentence = format!(
            "no request was answered in {silent} of {} reports: the server went away or stalled",
            course.intervals.len()
        );
        verdict.add(SILENT, Severity::Invalid, sentence);
    }
    if let Some(message) = course.unsettled {
        verdict.add("not-warm", Severity::Warning, message);
    }
    let replaced = plan.workload.replaced_operations();
    if replaced > 0 {
        let sentence = format!(
            "kvblaster replaced {replaced} operations of the trace by similar operations, because \
             it cannot send the original ones"
        );
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
        for gone in [SILENT, GONE, NO_ANSWERS] {
            assert_eq!([exits(gone, &[]), exits(gone, &met)], [Exit::NotMet; 2], "{gone}");
        }
        assert_eq!([exits("", &[]), exits("", &met)], [Exit::Met; 2]);
        assert_eq!(exits("", &unmet), Exit::NotMet);
        assert_eq!(exits("late-sends", &[]), Exit::Met);
        assert_eq!([&met[..], &unmet].map(|all| exits("late-sends", all)), [Exit::Invalid; 2]);
        assert_eq!(exit(&RunResult { is_interrupted: true, ..RunResult::default() }), Exit::NotMet);
    }

    #[test]
    fn a_share_of_the_memory_sets_the_number_of_keys_unless_a_file_lists_them() {
        let mut workload = Workload::preset("uniform").unwrap();
        // A key has 32 bytes, and a value 128.
        for (bytes, keys) in [(1600.0, 10), (0.1, 1)] {
            set_keys(&mut workload, bytes).unwrap();
            assert_eq!(workload.keys(), keys);
        }
        assert!(set_keys(&mut workload, 1e30).is_err());
        let path = std::env::temp_dir().join(format!("kvblaster-fill-{}", std::process::id()));
        std::fs::write(&path, "one\nother\n").unwrap();
        workload.set("key-file", path.to_str().unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = set_keys(&mut workload, 1600.0).unwrap_err();
        assert!(told.starts_with("a key file or a trace determines the number of keys"), "{told}");
    }

    #[test]
    fn that_the_result_is_valid_is_asserted_by_itself() {
        let plan = Plan { asserts_valid: true, ..*flags::plan(false).unwrap() };
        let course = course::TrafficResult {
            intervals: vec![Interval { seconds: 1.0, ..Interval::default() }],
            ..course::TrafficResult::default()
        };
        let done = judged(&plan, Manifest::default(), course);
        let [valid] = &done.judgements[..] else { panic!("{:?}", done.judgements) };
        assert!(!valid.is_met && valid.sentence.starts_with("valid is not met: no request was"));
    }

    #[test]
    fn reports_that_disagree_do_not_pass() {
        // The fourth report of the sample result has a stall.
        let mut course = course::TrafficResult {
            intervals: crate::result::sample::result("ours", 50).reports,
            ..course::TrafficResult::default()
        };
        let plan = flags::plan(false).unwrap();
        let steady = [&course.intervals[..3], &course.intervals[4..]].concat();
        let verdict = judged(&plan, Manifest::default(), course).verdict;
        assert!(verdict.has(UNSTEADY) && verdict.is_valid(), "{verdict:?}");
        course = course::TrafficResult { intervals: steady, ..course::TrafficResult::default() };
        assert!(!judged(&plan, Manifest::default(), course).verdict.has(UNSTEADY));
    }
}
