//! The workers that make one stretch of traffic: the threads of this process, or agents.
//!
//! Where: between `course`, which decides when an epoch ends, and `drive`, one thread of it.
//! Invariant: agents together make the requests that one process with as many threads would.

mod threads;

pub(crate) use threads::Threads;

use super::agents::{Agents, Part};
use super::servers::Servers;
use super::{Plan, RunError};
use crate::drive::pulse::Sight;
use crate::drive::{Mode, Pace};
use crate::measure::Tally;
use crate::steer::Steer;
use crate::target::Family;
use crate::wire::Speech;
use crate::workload::{Names, Workload};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt::Debug;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks whether all have connected.
const READY_TICK: Duration = Duration::from_millis(1);

/// The work of one process: all of it, or an agent's share of the threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) targets: Vec<String>,
    pub(crate) family: Family,
    pub(crate) speech: Option<Speech>,
    pub(crate) seed: u64,
    /// Number of threads of the whole run; `first` and `count` say which are this process's.
    pub(crate) threads: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) cpus: Vec<usize>,
    pub(crate) receive_cpus: Vec<usize>,
    pub(crate) timeout: Duration,
    pub(crate) churn_requests: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) gso: bool,
    /// The steering of UDP requests, and the number of columns if it was given.
    pub(crate) steered: Option<(Steer, Option<NonZeroU16>)>,
    pub(crate) spin: bool,
    pub(crate) late: Duration,
    pub(crate) requests: Option<u64>,
}

impl Task {
    /// Returns the whole work that `plan` asks for.
    pub(crate) fn of(plan: &Plan) -> Task {
        Task {
            targets: plan.targets.clone(),
            family: plan.family(),
            speech: plan.speech,
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

    /// Returns the part of `all` that falls to one thread.
    pub(crate) fn part(&self, thread: u32, all: u32) -> u32 {
        all / self.threads + u32::from(thread < all % self.threads)
    }
}

/// A tally of one epoch, handed over by a thread or an agent.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) epoch: u32,
    pub(crate) tally: Tally,
    /// An agent's own figures, besides the tally.
    pub(crate) part: Option<Part>,
}

/// The state that all stretches of one run share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) servers: Servers,
    pub(crate) workload: Arc<Workload>,
    pub(crate) names: Names,
    /// The agents that drive in place of this process, if any.
    pub(crate) agents: Option<Agents>,
    /// True once Ctrl-C was pressed.
    pub(crate) stop: Arc<AtomicBool>,
    /// True if a report was asked for (SIGUSR1).
    pub(crate) asked: Arc<AtomicBool>,
    /// Number of keys stored before the traffic.
    pub(crate) stored: Cell<u64>,
}

impl Ground {
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: a flag by itself; nothing else becomes visible with it.
        self.stop.load(Ordering::Relaxed)
    }

    /// The names of the servers that do not answer this process or its agents now; all names if
    /// each answers.
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

    /// Returns true if a report was asked for since the last call.
    pub(crate) fn takes_question(&self) -> bool {
        // Relaxed: a flag by itself; nothing else becomes visible with it.
        self.asked.swap(false, Ordering::Relaxed)
    }
}

/// The workers of a stretch. Epochs are counted from its start.
pub(crate) trait Hands: Debug {
    /// Number of workers that hand over something in each epoch.
    fn reporters(&self) -> u32;
    /// Begins `epoch` for all.
    fn move_on(&self, epoch: u32);
    /// Returns what is handed over within `patience`.
    fn next(&self, patience: Duration) -> Option<Handed>;
    /// The sum of all live counts at this moment.
    fn sight(&self) -> Sight;
    /// True if requests were given up and no server was heard since the start, here or by one of
    /// the agents.
    fn is_unheard(&self) -> bool;
    /// True if all have ended by themselves, one has failed, or an agent is lost.
    fn is_over(&self) -> bool;
    /// Stops all; returns what they still hand over, and why the first failed.
    fn end(&mut self) -> (Vec<Handed>, Option<RunError>);
}

/// The workers at work, and their clocks.
#[derive(Debug)]
pub(crate) struct Crew<'g> {
    /// The time at which the workers began.
    pub(crate) born: Instant,
    /// The time at which the observed traffic began.
    pub(crate) start: Instant,
    /// The workers' epoch that is epoch 0 of the observed traffic.
    first: u32,
    pub(crate) hands: Box<dyn Hands + 'g>,
}

impl<'g> Crew<'g> {
    /// Starts the workers that `plan` asks for, at `pace`. They begin once all have connected, one
    /// has failed or Ctrl-C is pressed. If `is_watched`, they show live counts.
    ///
    /// # Errors
    /// A thread cannot be started; those already started are gone again.
    pub(crate) fn start(
        plan: &Plan,
        ground: &'g Ground,
        (mode, pace): (Mode, Pace),
        is_watched: bool,
    ) -> Result<Crew<'g>, RunError> {
        let hands: Box<dyn Hands + 'g> = match &ground.agents {
            Some(agents) => {
                agents.start((mode, pace), is_watched, &ground.stop);
                Box::new(agents)
            }
            None => {
                let threads = Threads::start(&Task::of(plan), ground, (mode, pace), is_watched);
                let threads = threads.map_err(RunError::Threads)?;
                while !threads.is_ready() && !ground.is_stopped() {
                    std::thread::sleep(READY_TICK);
                }
                threads.go();
                Box::new(threads)
            }
        };
        let now = Instant::now();
        Ok(Crew { born: now, start: now, first: 0, hands })
    }

    pub(crate) fn move_on(&self, epoch: u32) {
        self.hands.move_on(self.first + epoch);
    }

    /// Counts time and epochs anew: epoch `first` becomes epoch 0.
    pub(crate) fn begin_anew(&mut self, first: u32) {
        self.first += first;
        self.start = Instant::now();
        self.move_on(0);
    }

    pub(crate) fn next(&self, patience: Duration) -> Option<Handed> {
        self.counted(self.hands.next(patience)?)
    }

    /// Stops all; returns what they still hand over, and why the first failed.
    pub(crate) fn end(mut self) -> (Vec<Handed>, Option<RunError>) {
        let (handed, failed) = self.hands.end();
        (handed.into_iter().filter_map(|handed| self.counted(handed)).collect(), failed)
    }

    /// Counts the epoch from `first`; none for an earlier epoch.
    fn counted(&self, handed: Handed) -> Option<Handed> {
        Some(Handed { epoch: handed.epoch.checked_sub(self.first)?, ..handed })
    }
}
