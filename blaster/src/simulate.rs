//! `kvblaster simulate`: traces replayed against policies at several sizes, all cores at once.
//!
//! Where: one of the program's commands; what is simulated, and how, is the crate `simulate`.
//! Invariant: what was simulated is told whole, or why it could not be.

pub mod chart;
pub mod flags;
pub mod plot;
pub mod report;

pub use flags::Plan;

use simulate::jobs::{self, SimulateError};
use simulate::trace::{Trace, TraceError};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The plot cannot be written.
    #[error("{0}: {1}")]
    Plot(PathBuf, #[source] io::Error),
}

/// Does what was asked for; the report.
///
/// # Errors
/// A trace cannot be used, a simulation not made, or the plot not written.
pub fn run(plan: &Plan) -> Result<String, ReportError> {
    let traces = plan.traces.iter().map(|path| Trace::read(path));
    let traces = traces.collect::<Result<Vec<Trace>, TraceError>>()?;
    let asked = plan.asked();
    let outcomes = jobs::run(&asked, traces, tell)?;
    if let Some(path) = &plan.svg {
        std::fs::write(path, plot::svg(&asked, &outcomes))
            .map_err(|error| ReportError::Plot(path.clone(), error))?;
    }
    Ok(if plan.json { report::json(&asked, &outcomes) } else { report::text(&asked, &outcomes) })
}

/// How far it is: one line that stays where it is on a terminal, every tenth of it elsewhere.
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
