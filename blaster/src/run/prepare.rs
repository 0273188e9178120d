//! Prepares a run: catches signals, checks CPUs, finds the servers, and starts the agents.
//!
//! Where: called by `run`, `capacity` and `compare` before the first request.
//! Invariant: nothing is written to a server.

use super::agents::Agents;
use super::context::RunContext;
use super::error::RunError;
use super::plan::Plan;
use super::servers::Servers;
use super::{items, record};
use crate::measure::watch::Watch;
use crate::workload::Names;
use rustix::thread::{CpuSet, sched_getaffinity};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::cell::Cell;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

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
    flags.clone().map_err(|kind| RunError::Failed(format!("cannot catch signals: {kind}")))
}

pub(super) fn prepare_context(plan: &Plan) -> Result<RunContext, RunError> {
    let SignalFlags { stop, report_requested } = signal_flags()?;
    has_cpus(&[("cpus", &plan.cpus), ("receive-cpus", &plan.receive_cpus)])?;
    let workload = Arc::new(plan.workload.clone());
    let names = Names::new(&workload);
    if plan.verify && !names.verifies() {
        let why = "--verify cannot check the values of append requests whose sizes vary: give a \
                   fixed --value-size, or --value-size-per key";
        return Err(RunError::failed(why));
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
pub(crate) fn has_cpus(named: &[(&str, &[usize])]) -> Result<(), RunError> {
    let Ok(own) = sched_getaffinity(None) else { return Ok(()) };
    let is_there = |cpu: usize| cpu < CpuSet::MAX_CPU && own.is_set(cpu);
    for (name, cpus) in named {
        if let Some(cpu) = cpus.iter().find(|cpu| !is_there(**cpu)) {
            let may = record::cpus(std::process::id()).unwrap_or_default();
            return Err(RunError::Failed(format!(
                "--{name}: kvblaster may not run on CPU {cpu}, only on CPUs {may}"
            )));
        }
    }
    Ok(())
}

pub(super) fn watch(plan: &Plan, context: &RunContext) -> Watch {
    // With agents, no server is watched here, because to an agent `localhost` is its own machine.
    let targets = if context.agents.is_some() { &[] } else { &*context.servers.targets };
    Watch::new(targets.iter().map(|target| &target.place), &plan.server_pids)
}
