//! `kvblaster simulate`: traces replayed against policies at several sizes, all cores at once.
//!
//! Where: one of the program's commands; what is simulated, and how, is the crate `simulate`.
//! Invariant: what was simulated is told whole, or why it could not be.

pub mod chart;
pub mod flags;
pub mod plot;
pub mod report;

use simulate::contestant::Contestant;
use simulate::engine::Settings;
use simulate::jobs::{self, SimulateError};
use simulate::size::CacheSize;
use simulate::sizes::Items;
use simulate::trace::{Trace, TraceError};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// All that a simulation is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Files to replay.
    pub traces: Vec<PathBuf>,
    /// Sizes of the caches.
    pub sizes: Vec<CacheSize>,
    /// Whom to simulate; the first is the baseline, LRU.
    pub contestants: Vec<Contestant>,
    /// Sizes of the items.
    pub items: Items,
    /// How our engine is built.
    pub settings: Settings,
    /// How many of a hundred hits rewrite the value.
    pub set_percent: u64,
    /// Keys that stand for each key of a trace.
    pub copies: u32,
    /// Simulations at a time.
    pub threads: usize,
    /// JSON instead of tables.
    pub json: bool,
    /// Where to draw the curves.
    pub svg: Option<PathBuf>,
}

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
    let asked = jobs::Plan {
        sizes: plan.sizes.clone(),
        contestants: plan.contestants.clone(),
        items: plan.items.clone(),
        settings: plan.settings,
        set_percent: plan.set_percent,
        copies: plan.copies,
        threads: plan.threads,
    };
    let outcomes = jobs::run(&asked, traces, tell)?;
    if let Some(path) = &plan.svg {
        std::fs::write(path, plot::svg(plan, &outcomes))
            .map_err(|error| ReportError::Plot(path.clone(), error))?;
    }
    Ok(if plan.json { report::json(plan, &outcomes) } else { report::text(plan, &outcomes) })
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
