//! The workers that generate one phase of traffic: the threads of this process, or agents.
//!
//! Where: between `course`, which ends each epoch, and `drive`, which runs in each thread.
//! Invariant: together, agents send the requests that one process with as many threads would send.

mod threads;

use super::context::RunContext;
use super::error::RunError;
use super::plan::Plan;
use super::task::{EpochTally, Task, WorkerGroup};
use crate::drive::{Mode, Pace};
use std::time::{Duration, Instant};
pub(crate) use threads::Threads;

/// Interval at which `Workers::start` checks whether all threads have connected.
const READY_TICK: Duration = Duration::from_millis(1);

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
                let threads = threads
                    .map_err(|error| RunError::Failed(format!("cannot start a thread: {error}")))?;
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
