//! `kvblaster simulate`: traces replayed against policies at several sizes, all cores at once.
//!
//! Where: one of the program's commands; the crate `simulate` does the simulating.
//! Invariant: a simulation is reported whole, or with the reason why it could not be made.

pub mod chart;
pub mod flags;
pub mod plot;
pub mod report;

pub use flags::Plan;

use crate::workload::WorkloadError;
use crate::workload::replay::Replay;
use simulate::jobs::{self, SimulateError};
use simulate::trace::{Trace, TraceError};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A trace cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// A CSV trace cannot be used.
    #[error(transparent)]
    Csv(#[from] WorkloadError),
    /// The plot cannot be written.
    #[error("{0}: {1}")]
    Plot(PathBuf, #[source] io::Error),
}

/// Simulates what `plan` asks for; returns the report.
///
/// # Errors
/// A trace cannot be used, a simulation cannot be made, or the plot cannot be written.
pub fn run(plan: &Plan) -> Result<String, ReportError> {
    let traces = plan.traces.iter().map(|path| read(path));
    let traces = traces.collect::<Result<Vec<Trace>, ReportError>>()?;
    let asked = plan.asked();
    let outcomes = jobs::run(&asked, traces, tell)?;
    if let Some(path) = &plan.svg {
        std::fs::write(path, plot::svg(&asked, &outcomes))
            .map_err(|error| ReportError::Plot(path.clone(), error))?;
    }
    Ok(if plan.json { report::json(&asked, &outcomes) } else { report::text(&asked, &outcomes) })
}

/// Reads a trace of key numbers. From a CSV it takes only the gets: a cache that is refilled on
/// every miss makes the sets itself.
fn read(path: &Path) -> Result<Trace, ReportError> {
    if !Replay::is_csv(path) {
        return Ok(Trace::read(path)?);
    }
    let gets = Replay::read(path, 0)?.looked_up();
    if gets.is_empty() {
        return Err(WorkloadError(format!("{}: it has no gets", path.display())).into());
    }
    Ok(Trace::new(&Trace::name_of(path), gets))
}

/// Shows the progress: one line that is redrawn on a terminal, a line every tenth elsewhere.
fn tell(done: usize, all: usize) {
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
