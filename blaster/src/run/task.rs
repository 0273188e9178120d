//! The work of one process, and the messages of a group of workers about this work.
//!
//! Where: `workers` makes tasks from a plan; threads and agents are groups of workers.
//! Invariant: the shares of a task are the whole task.

use super::agents::Part;
use super::error::RunError;
use super::plan::Plan;
use crate::drive::live_counts::LiveSnapshot;
use crate::measure::Tally;
use crate::target::Family;
use crate::target::steer::Steer;
use crate::wire::Protocol;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::num::NonZeroU16;
use std::time::Duration;

/// The work of one process: the whole run, or the share of one agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) targets: Vec<String>,
    pub(crate) family: Family,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) seed: u64,
    /// Number of threads of the whole run. This process has `count` of them, beginning with number
    /// `first`.
    pub(crate) threads: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// This process's number among the agents, and the number of agents.
    pub(crate) agent: (u32, u32),
    pub(crate) cpus: Vec<usize>,
    pub(crate) receive_cpus: Vec<usize>,
    pub(crate) timeout: Duration,
    pub(crate) churn_requests: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) gso: bool,
    /// The steering of requests, and the number of columns if the user gave it.
    pub(crate) steered: Option<(Steer, Option<NonZeroU16>)>,
    pub(crate) spin: bool,
    pub(crate) late: Duration,
    pub(crate) requests: Option<u64>,
}

impl Task {
    /// Returns a task with all the work of `plan`.
    pub(crate) fn whole(plan: &Plan) -> Task {
        Task {
            targets: plan.targets.clone(),
            family: plan.family(),
            protocol: plan.protocol,
            seed: plan.seed,
            threads: plan.threads,
            first: 0,
            count: plan.threads,
            agent: (0, 1),
            cpus: plan.cpus.clone(),
            receive_cpus: plan.receive_cpus.clone(),
            timeout: plan.timeout,
            churn_requests: plan.churn_requests,
            verify: plan.verify,
            gso: plan.gso,
            steered: plan.steered(),
            spin: plan.spin,
            late: plan.late,
            requests: plan.requests,
        }
    }

    pub(crate) fn share(&self, nth: u32, agents: u32) -> Task {
        let edge = |nth: u32| {
            let edge = u64::from(self.threads) * u64::from(nth) / u64::from(agents.max(1));
            u32::try_from(edge).unwrap_or(self.threads)
        };
        let count = edge(nth + 1) - edge(nth);
        Task { first: edge(nth), count, agent: (nth, agents), ..self.clone() }
    }

    pub(crate) fn part(&self, thread: u32, all: u32) -> u32 {
        all / self.threads + u32::from(thread < all % self.threads)
    }
}

#[derive(Debug)]
pub(crate) struct EpochTally {
    pub(crate) epoch: u32,
    pub(crate) tally: Tally,
    /// The agent's other figures of the epoch. `None` if a thread of this process sent the tally.
    pub(crate) part: Option<Part>,
}

/// The workers of one phase: threads or agents. Epochs are counted from the start of the phase.
pub(crate) trait WorkerGroup: Debug {
    /// Number of workers that send a tally for each epoch.
    fn reporters(&self) -> u32;
    fn move_on(&self, epoch: u32);
    /// Returns the next tally, or `None` if no worker sends one within `patience`.
    fn next(&self, patience: Duration) -> Option<EpochTally>;
    fn snapshot(&self) -> LiveSnapshot;
    /// True if this process or one of the agents has given up requests and has never had an answer.
    fn is_unheard(&self) -> bool;
    /// True if all workers have finished, or if a worker has failed or is lost.
    fn is_over(&self) -> bool;
    /// Stops all workers. Returns the tallies that were not received before, and the first error.
    fn end(&mut self) -> (Vec<EpochTally>, Option<RunError>);
}
