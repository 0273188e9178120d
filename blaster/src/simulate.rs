//! `kvblaster simulate`: traces replayed against policies at several sizes, all cores at once.
//!
//! Where: one of the program's commands. Invariant: a cell of the result depends on its trace, size
//! and policy only, never on how the work was spread.

pub mod chart;
pub mod contestant;
pub mod flags;
pub mod jobs;
pub mod plot;
pub mod report;
pub mod size;

use crate::engine::Settings;
use crate::sizes::Items;
use contestant::Contestant;
use size::CacheSize;
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

/// Why a simulation did not come to a result.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
    /// The store cannot be made.
    #[error(transparent)]
    Store(#[from] store::MakeError),
    /// A cache would have no room for the store.
    #[error(
        "{trace} at {size}: {bytes} bytes are too little for the real store; \
         take --copies, larger items or larger sizes"
    )]
    Small {
        /// The trace.
        trace: String,
        /// The size.
        size: String,
        /// In bytes.
        bytes: u64,
    },
    /// The plot cannot be written.
    #[error("{0}: {1}")]
    Plot(PathBuf, std::io::Error),
}

/// A trace, and what came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Its name.
    pub trace: String,
    /// Its length.
    pub requests: u64,
    /// Its keys.
    pub keys: u32,
    /// For each size, its bytes and for each contestant the misses.
    pub sizes: Vec<(u64, Vec<u64>)>,
}

impl Outcome {
    /// How many fewer misses than the baseline, in percent.
    #[must_use]
    pub fn reduction_percent(&self, size: usize, contestant: usize) -> f64 {
        let misses = &self.sizes[size].1;
        100.0 * (1.0 - misses[contestant] as f64 / (misses[0] as f64).max(1.0))
    }
}
