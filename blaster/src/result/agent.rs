//! The part of a result that one of several agents measured.
//!
//! Where: in a `RunResult`, next to the figures of the whole run.
//! Invariant: the sum of all agents' counts and histograms equals the whole run's.

use super::machine::Machine;
use crate::measure::Interval;
use crate::measure::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// The part that one agent measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentPart {
    /// The command that starts the agent.
    pub name: String,
    /// The machine on which the agent ran.
    pub machine: Machine,
    /// Number of the agent's threads.
    pub threads: u32,
    /// Number of the agent's connections to each server.
    pub connections: u32,
    /// The time from the controller's `Go` to the agent's reply; the agent began in this time.
    pub round_trip_ns: Option<u64>,
    /// The reason why the agent was lost, if it was.
    pub lost: Option<String>,
    /// The self-check of the agent's part; empty in a search.
    pub verdict: Verdict,
    /// All reports of the agent, merged; in a search, all trials of the agent.
    pub merged: Option<Interval>,
}
