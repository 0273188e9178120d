//! Those that make one stretch of traffic: the threads of this process, or agents.
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

/// How often it is looked whether all have connected.
const READY_TICK: Duration = Duration::from_millis(1);

/// What one process drives with: all of it, or an agent's share of the threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) targets: Vec<String>,
    pub(crate) family: Family,
    pub(crate) speech: Option<Speech>,
    pub(crate) seed: u64,
    /// Threads of the whole run, and which of them are this process's.
    pub(crate) threads: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) cpus: Vec<usize>,
    pub(crate) receive_cpus: Vec<usize>,
    pub(crate) timeout: Duration,
    pub(crate) churn_requests: Option<u64>,
    pub(crate) verify: bool,
    pub(crate) gso: bool,
    /// How requests over UDP are steered, and to how many columns if that was said.
    pub(crate) steered: Option<(Steer, Option<NonZeroU16>)>,
    pub(crate) spin: bool,
    pub(crate) late: Duration,
    pub(crate) requests: Option<u64>,
}

impl Task {
    /// All that `plan` asks for.
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

    /// The share of agent `nth` of `agents`.
    pub(crate) fn share(&self, nth: u32, agents: u32) -> Task {
        let edge = |nth: u32| {
            let edge = u64::from(self.threads) * u64::from(nth) / u64::from(agents.max(1));
            u32::try_from(edge).unwrap_or(self.threads)
        };
        Task { first: edge(nth), count: edge(nth + 1) - edge(nth), ..self.clone() }
    }

    /// What one thread has of `all`.
    pub(crate) fn part(&self, thread: u32, all: u32) -> u32 {
        all / self.threads + u32::from(thread < all % self.threads)
    }
}

/// What a thread, or an agent, handed over of one epoch.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) epoch: u32,
    pub(crate) tally: Tally,
    /// What an agent says beside.
    pub(crate) part: Option<Part>,
}

/// What all stretches of one run share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) servers: Servers,
    pub(crate) workload: Arc<Workload>,
    pub(crate) names: Names,
    /// Who drives in place of this process.
    pub(crate) agents: Option<Agents>,
    /// Ctrl-C was pressed.
    pub(crate) stop: Arc<AtomicBool>,
    /// A report was asked for.
    pub(crate) asked: Arc<AtomicBool>,
    /// Keys that were stored before the traffic.
    pub(crate) stored: Cell<u64>,
}

impl Ground {
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: a flag by itself, in no order to anything.
        self.stop.load(Ordering::Relaxed)
    }

    /// The names of the servers that say nothing now to who drives; of all, where each says
    /// something.
    pub(crate) fn silent(&self) -> String {
        self.servers.named(&match &self.agents {
            Some(agents) => agents.silent(&self.servers, &self.stop),
            None => vec![(1, self.servers.silent())],
        })
    }

    /// Servers that are not what they were, each in words.
    pub(crate) fn changed(&self) -> Vec<String> {
        match &self.agents {
            Some(agents) => agents.changed(),
            None => self.servers.changed(),
        }
    }

    /// Was a report asked for since this was called?
    pub(crate) fn takes_question(&self) -> bool {
        // Relaxed: a flag by itself, in no order to anything.
        self.asked.swap(false, Ordering::Relaxed)
    }
}

/// Who does the work. Epochs are counted from its start.
pub(crate) trait Hands: Debug {
    /// How many hand over something of each epoch.
    fn reporters(&self) -> u32;
    /// From now on all are in `epoch`.
    fn move_on(&self, epoch: u32);
    /// What is handed over within `patience`.
    fn next(&self, patience: Duration) -> Option<Handed>;
    /// What all show at this moment.
    fn sight(&self) -> Sight;
    /// Were requests given up, and nothing heard of any server since the start, here or by one of
    /// the agents?
    fn is_unheard(&self) -> bool;
    /// Have all ended by themselves, has one failed, or is an agent lost?
    fn is_over(&self) -> bool;
    /// Stops all, takes what they still hand over, and tells why the first failed.
    fn end(&mut self) -> (Vec<Handed>, Option<RunError>);
}

/// Those at work, and since when.
#[derive(Debug)]
pub(crate) struct Crew<'g> {
    /// When it was let go.
    pub(crate) born: Instant,
    /// When the traffic that is looked at began.
    pub(crate) start: Instant,
    /// The hands' epoch that is epoch 0 of that traffic.
    first: u32,
    pub(crate) hands: Box<dyn Hands + 'g>,
}

impl<'g> Crew<'g> {
    /// Starts those that `plan` asks for, at `pace`, once all have connected; or one has failed, or
    /// Ctrl-C. Watched, they can be seen at work.
    ///
    /// # Errors
    /// There is no thread to be had; those there were are gone again.
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

    /// From now on all are in `epoch`.
    pub(crate) fn move_on(&self, epoch: u32) {
        self.hands.move_on(self.first + epoch);
    }

    /// Time and epochs are counted from now on: what was epoch `first` is epoch 0.
    pub(crate) fn begin_anew(&mut self, first: u32) {
        self.first += first;
        self.start = Instant::now();
        self.move_on(0);
    }

    /// What is handed over within `patience`.
    pub(crate) fn next(&self, patience: Duration) -> Option<Handed> {
        self.counted(self.hands.next(patience)?)
    }

    /// Stops all, takes what they still hand over, and tells why the first failed.
    pub(crate) fn end(mut self) -> (Vec<Handed>, Option<RunError>) {
        let (handed, failed) = self.hands.end();
        (handed.into_iter().filter_map(|handed| self.counted(handed)).collect(), failed)
    }

    /// With its epoch as it is counted here; nothing if it ended before.
    fn counted(&self, handed: Handed) -> Option<Handed> {
        Some(Handed { epoch: handed.epoch.checked_sub(self.first)?, ..handed })
    }
}
