//! `kvblaster simulate`: replays traces against eviction policies at several sizes, on all cores.
//!
//! Where: one of the program's commands. The crate `simulate` runs the simulations.
//! Invariant: the report contains all simulations. If a simulation fails, there is no report.

pub(crate) mod chart;
mod drawn;
pub(crate) mod flags;
pub(crate) mod plot;
pub(crate) mod report;

pub use flags::Plan;

use crate::words::Failure;
use crate::workload::replay::Replay;
use crate::workload::{Files, WorkloadError};
use simulate::jobs::{self, Outcome};
use simulate::trace::Trace;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Runs the simulations of `plan`. Returns the report. Fails if a trace cannot be used, a
/// simulation cannot be made, or the plot cannot be written.
pub fn run(plan: &Plan) -> Result<String, Failure> {
    let (jobs_plan, outcomes) = outcomes(plan, show_progress)?;
    if let Some(path) = &plan.svg {
        std::fs::write(path, plot::svg(&jobs_plan, &outcomes))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(if plan.json {
        report::json(&jobs_plan, &outcomes)
    } else {
        report::text(&jobs_plan, &outcomes)
    })
}

/// Runs the simulations of `plan`. Calls `report` with the number of finished ones and of all.
pub(crate) fn outcomes(
    plan: &Plan,
    report: impl Fn(usize, usize) + Sync,
) -> Result<(jobs::Plan, Vec<Outcome>), Failure> {
    let traces = plan.traces.iter().map(|path| read(path));
    let mut traces = traces.collect::<Result<Vec<Trace>, Failure>>()?;
    if let (Some(name), Some(workload)) = (&plan.workload_name, &plan.workload) {
        let name = Trace::name_of(Path::new(name));
        traces.push(drawn::trace(&name, workload, (plan.requests, plan.seed))?);
    }
    let jobs_plan = plan.jobs_plan();
    let outcomes = jobs::run(&jobs_plan, traces, report)?;
    Ok((jobs_plan, outcomes))
}

/// Reads a trace of key numbers. Of a CSV trace, only the gets are replayed, because the simulated
/// cache stores every missing key itself.
fn read(path: &Path) -> Result<Trace, Failure> {
    if !Replay::is_csv(path) {
        return Ok(Trace::read(path)?);
    }
    let gets = Replay::read(&Files::here(""), path, 0)?.looked_up();
    if gets.is_empty() {
        return Err(WorkloadError(format!("{}: the trace has no gets", path.display())).into());
    }
    Ok(Trace::new(&Trace::name_of(path), gets))
}

/// Redraws one line on a terminal; elsewhere, writes a line after each tenth of the simulations.
fn show_progress(done: usize, all: usize) {
    let mut out = io::stderr().lock();
    let _closed = if out.is_terminal() {
        let end = if done == all { "\n" } else { "" };
        write!(out, "\r{done} of {all} simulations{end}")
    } else if (done * 10 / all) != ((done - 1) * 10 / all) {
        writeln!(out, "{done} of {all} simulations")
    } else {
        Ok(())
    };
}
