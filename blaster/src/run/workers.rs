//! The workers that make one phase of traffic: the threads of this process, or agents.
//!
//! Where: between `course`, which decides when an epoch ends, and `drive`, which runs per thread.
//! Invariant: agents together make the requests that one process with as many threads would make.

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

/// Time between two checks whether all threads have connected.
const READY_TICK: Duration = Duration::from_millis(1);

/// The work of one process: all of it, or an agent's share of the threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) targets: Vec<String>,
    pub(crate) family: Family,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) seed: u64,
    /// Number of threads of the whole run; this process has `count` of them, the first is `first`.
    pub(crate) threads: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) cpus: Vec<usize>,
    pub(crate) receive_cpus: Vec<usize>,
    pub(crate) timeout: Duration,
    pub(crate) churn_requests: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) gso: bool,
    /// The steering of UDP requests, and the number of columns if the user gave it.
    pub(crate) steered: Option<(Steer, Option<NonZeroU16>)>,
    pub(crate) spin: bool,
    pub(crate) late: Duration,
    pub(crate) requests: Option<u64>,
}

impl Task {
    /// Returns the whole work of `plan`.
    pub(crate) fn whole(plan: &Plan) -> Task {
        Task {
            targets: plan.targets.clone(),
            family: plan.family(),
            protocol: plan.protocol,
            seed: plan.seed,
            threads: plan.threads,
            first: 0,
            count: plan.threads,
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

    /// Returns the share of agent `nth` of `agents`.
    pub(crate) fn share(&self, nth: u32, agents: u32) -> Task {
        let edge = |nth: u32| {
            let edge = u64::from(self.threads) * u64::from(nth) / u64::from(agents.max(1));
            u32::try_from(edge).unwrap_or(self.threads)
        };
        Task { first: edge(nth), count: edge(nth + 1) - edge(nth), ..self.clone() }
    }

    /// Returns one thread's part of `all` connections.
    pub(crate) fn part(&self, thread: u32, all: u32) -> u32 {
        all / self.threads + u32::from(thread < all % self.threads)
    }
}

/// A tally of one epoch, handed over by a thread or an agent.
#[derive(Debug)]
pub(crate) struct EpochTally {
    pub(crate) epoch: u32,
    pub(crate) tally: Tally,
    /// Further figures of the epoch, if an agent reported it.
    pub(crate) part: Option<Part>,
}

/// The state that all phases of one run share.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) servers: Servers,
    pub(crate) workload: Arc<Workload>,
    pub(crate) names: Names,
    /// The agents, if they drive in place of this process.
    pub(crate) agents: Option<Agents>,
    /// True after Ctrl-C or SIGTERM.
    pub(crate) stop: Arc<AtomicBool>,
    /// True after SIGUSR1, which requests a report.
    pub(crate) report_requested: Arc<AtomicBool>,
    /// Number of keys stored before the traffic.
    pub(crate) stored: Cell<u64>,
}

impl RunContext {
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.stop.load(Ordering::Relaxed)
    }

    /// The names of the servers that do not answer this process or its agents now; all names if
    /// every server answers.
    pub(crate) fn silent(&self) -> String {
        self.servers.named(&match &self.agents {
            Some(agents) => agents.silent(&self.servers, &self.stop),
            None => vec![(1, self.servers.silent())],
        })
    }

    /// Describes each server that went away or was restarted.
    pub(crate) fn changed(&self) -> Vec<String> {
        match &self.agents {
            Some(agents) => agents.changed(),
            None => self.servers.changed(),
        }
    }

    /// Returns true if a report was requested since the last call.
    pub(crate) fn takes_report_request(&self) -> bool {
        // Relaxed: the flag guards no other data.
        self.report_requested.swap(false, Ordering::Relaxed)
    }
}

/// The workers of one phase: threads or agents. Epochs are counted from the start of the phase.
pub(crate) trait WorkerGroup: Debug {
    /// Number of workers that hand over a tally for each epoch.
    fn reporters(&self) -> u32;
    /// Begins `epoch` for all workers.
    fn move_on(&self, epoch: u32);
    /// Returns the next tally; none if no worker hands one over within `patience`.
    fn next(&self, patience: Duration) -> Option<EpochTally>;
    /// The sum of the workers' live counts at this moment.
    fn snapshot(&self) -> LiveSnapshot;
    /// True if this process, or one of the agents, has given up requests and has had no answer
    /// since the start.
    fn is_unheard(&self) -> bool;
    /// True if all workers have ended by themselves, one has failed, or an agent is lost.
    fn is_over(&self) -> bool;
    /// Stops all workers. Returns the tallies that were still to come, and the first error.
    fn end(&mut self) -> (Vec<EpochTally>, Option<RunError>);
}

/// The workers of one phase, and the times at which they began.
#[derive(Debug)]
pub(crate) struct Workers<'g> {
    /// The time at which the workers began.
    pub(crate) born: Instant,
    /// The time at which the observed traffic began.
    pub(crate) start: Instant,
    /// The workers' number of the epoch that is epoch 0 of the observed traffic.
    first: u32,
    pub(crate) group: Box<dyn WorkerGroup + 'g>,
}

impl<'g> Workers<'g> {
    /// Starts the workers of `plan`, at `pace`. They begin once all have connected, one has failed
    /// or Ctrl-C is pressed. If `is_watched`, they publish live counts.
    ///
    /// # Errors
    /// A thread cannot be started; those that were started have ended.
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

    /// Restarts the time and the count of epochs: epoch `first` becomes epoch 0.
    pub(crate) fn begin_anew(&mut self, first: u32) {
        self.first += first;
        self.start = Instant::now();
        self.move_on(0);
    }

    pub(crate) fn next(&self, patience: Duration) -> Option<EpochTally> {
        self.renumbered(self.group.next(patience)?)
    }

    /// Stops all workers. Returns the tallies that were still to come, and the first error.
    pub(crate) fn end(mut self) -> (Vec<EpochTally>, Option<RunError>) {
        let (handed, failed) = self.group.end();
        (handed.into_iter().filter_map(|handed| self.renumbered(handed)).collect(), failed)
    }

    /// Renumbers the tally's epoch, with `first` as epoch 0; none for an earlier epoch.
    fn renumbered(&self, handed: EpochTally) -> Option<EpochTally> {
        Some(EpochTally { epoch: handed.epoch.checked_sub(self.first)?, ..handed })
    }
}
