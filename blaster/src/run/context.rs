//! The context of a run: the servers and agents that were found, and the signals that arrive.
//!
//! Where: made by `prepare`, and passed to each step of a run.
//! Invariant: the context does not change after it is made, except for the signals and the count
//! of stored items.

use super::agents::Agents;
use super::servers::Servers;
use crate::workload::{Names, Workload};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) servers: Servers,
    pub(crate) workload: Arc<Workload>,
    pub(crate) names: Names,
    /// The agents, if they send the requests in place of this process.
    pub(crate) agents: Option<Agents>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) report_requested: Arc<AtomicBool>,
    pub(crate) stored: Cell<u64>,
}

impl RunContext {
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the names of the servers that do not answer this process or its agents now. Returns
    /// all names if every server answers.
    pub(crate) fn silent(&self) -> String {
        self.servers.named(&match &self.agents {
            Some(agents) => agents.silent(&self.servers, &self.stop),
            None => vec![(1, self.servers.silent())],
        })
    }

    pub(crate) fn changed(&self) -> Vec<String> {
        match &self.agents {
            Some(agents) => agents.changed(),
            None => self.servers.changed(),
        }
    }

    /// True if a report was requested since the last call.
    pub(crate) fn takes_report_request(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.report_requested.swap(false, Ordering::Relaxed)
    }
}
