//! The workers that generate one phase of traffic: the threads of this process, or agents.
//!
//! Where: between `course`, which ends each epoch, and `drive`, which runs in each thread.
//! Invariant: together, agents send the requests that one process with as many threads would send.

mod threads;

pub(crate) use threads::Threads;

use super::agents::{Agents, Part};
use super::servers::Servers;
use super::{Plan, RunError};
use crate::drive::live_counts::LiveSnapshot;
use crate::drive::{Mode, Pace};
use crate::measure::Tally;
use crate::steer::Steer;
use crate::target::Family;
use crate::wire::Protocol;
use crate::workload::{Names, Workload};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt::Debug;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Interval at which `Workers::start` checks whether all threads have connected.
const READY_TICK: Duration = Duration::from_millis(1);

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

#[derive(Debug)]
pub(crate) struct Workers<'g> {
    /// The time at which the workers began to send. The reported traffic begins at `start`.
    pub(crate) born: Instant,
    pub(crate) start: Instant,
    /// The workers' epoch that is epoch 0 of the reported traffic.
    first: u32,
    pub(crate) group: Box<dyn WorkerGroup + 'g>,
}

impl<'g> Workers<'g> {
    /// Starts the workers of `plan`, at `pace`. The workers begin to send when all have connected,
    /// when one has failed, or when Ctrl-C is pressed. If `is_watched` is true, the workers publish
    /// live counts. If a thread cannot be started, ends the threads that were started before it,
    /// and fails.
    pub(crate) fn start(
        plan: &Plan,
        context: &'g RunContext,
        (mode, pace): (Mode, Pace),
        is_watched: bool,
    ) -> Result<Workers<'g>, RunError> {
        let group: Box<dyn WorkerGroup + 'g> = match &context.agents {
            Some(agents) => {
                agents.start((mode, pace), is_watched, &context.stop);
                Box::new(agents)
            }
            None => {
                let threads = Threads::start(&Task::whole(plan), context, (mode, pace), is_watched);
                let threads = threads.map_err(RunError::Threads)?;
                while !threads.is_ready() && !context.is_stopped() {
                    std::thread::sleep(READY_TICK);
                }
                threads.go();
                Box::new(threads)
            }
        };
        let now = Instant::now();
        Ok(Workers { born: now, start: now, first: 0, group })
    }

    pub(crate) fn move_on(&self, epoch: u32) {
        self.group.move_on(self.first + epoch);
    }

    /// Restarts the time and the epoch count: epoch `first` becomes epoch 0.
    pub(crate) fn begin_anew(&mut self, first: u32) {
        self.first += first;
        self.start = Instant::now();
        self.move_on(0);
    }

    pub(crate) fn next(&self, patience: Duration) -> Option<EpochTally> {
        self.renumbered(self.group.next(patience)?)
    }

    pub(crate) fn end(mut self) -> (Vec<EpochTally>, Option<RunError>) {
        let (handed, failed) = self.group.end();
        (handed.into_iter().filter_map(|handed| self.renumbered(handed)).collect(), failed)
    }

    /// Renumbers epochs so that epoch `first` becomes 0. `None` for an epoch before `first`.
    fn renumbered(&self, handed: EpochTally) -> Option<EpochTally> {
        Some(EpochTally { epoch: handed.epoch.checked_sub(self.first)?, ..handed })
    }
}
