//! The part of one of several generators in a result.
//!
//! Where: in a result, beside the whole.
//! Invariant: the counts and histograms of all agents add up to those of the whole.

use super::machine::Machine;
use crate::measure::Interval;
use crate::measure::check::Verdict;
use serde::{Deserialize, Serialize};

/// The part of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentPart {
    /// Its command.
    pub name: String,
    /// The machine on which it ran.
    pub machine: Machine,
    /// Number of its threads.
    pub threads: u32,
    /// Number of its connections to each server.
    pub connections: u32,
    /// Time from the order to begin until its answer was back: it began within that time.
    pub round_trip_ns: Option<u64>,
    /// The reason why it was lost, if it was.
    pub lost: Option<String>,
    /// The self-check of its part; empty for a search's trials together.
    pub verdict: Verdict,
    /// All reports together; in a search, all trials.
    pub merged: Option<Interval>,
}
