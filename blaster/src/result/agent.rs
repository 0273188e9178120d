//! What one of several generators did.
//!
//! Where: in a result, beside what all did together. Invariant: the counts and histograms of all
//! agents add up to those of the whole.

use super::machine::Machine;
use crate::measure::Interval;
use crate::measure::check::Verdict;
use serde::{Deserialize, Serialize};

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentPart {
    /// Its command.
    pub name: String,
    /// Where it ran.
    pub machine: Machine,
    /// Its threads.
    pub threads: u32,
    /// Its connections to each server.
    pub connections: u32,
    /// From the word to begin until its answer was back: it began within that time.
    pub round_trip_ns: Option<u64>,
    /// Why it was lost, if it was.
    pub lost: Option<String>,
    /// What the self-check says of its part; nothing of a search's trials together.
    pub verdict: Verdict,
    /// All reports together; of a search, all trials.
    pub merged: Option<Interval>,
}
