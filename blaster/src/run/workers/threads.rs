//! The threads of this process that send requests, and the channel that receives their tallies.
//!
//! Where: owned by `Workers`, or by `Work` in an agent.
//! Invariant: every started thread is joined, even after an error. Tallies that threads send after
//! the order to stop are received too. Threads begin to send together, when all have connected.

use crate::drive::live_counts::{LiveCounts, LiveSnapshot};
use crate::drive::{self, Drive, DriveError, EndCondition, Mode, Pace, ThreadSignals};
use crate::measure::Tally;
use crate::run::context::RunContext;
use crate::run::error::RunError;
use crate::run::task::{EpochTally, Task, WorkerGroup};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Threads {
    threads: Vec<JoinHandle<Result<(), DriveError>>>,
    reporters: u32,
    epoch: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
    signals: Arc<ThreadSignals>,
    /// The live counts of each thread; empty if they are not displayed.
    live_counts: Vec<[Arc<LiveCounts>; 2]>,
    tallies: mpsc::Receiver<(u32, u32, Tally)>,
}

impl Threads {
    /// Starts the task's threads, which connect and wait for `go`. `pace` is the sum over all
    /// threads of the run. If `is_watched` is true, threads publish live counts. If a thread cannot
    /// be started, ends the threads that were started before it, and fails.
    pub(crate) fn start(
        task: &Task,
        context: &RunContext,
        (mode, pace): (Mode, Pace),
        is_watched: bool,
    ) -> std::io::Result<Threads> {
        let (sender, tallies) = mpsc::channel();
        let mut threads = Threads {
            threads: Vec::new(),
            reporters: 0,
            epoch: Arc::default(),
            over: Arc::default(),
            failed: Arc::default(),
            signals: Arc::new(ThreadSignals::new_held()),
            live_counts: Vec::new(),
            tallies,
        };
        let start = Instant::now();
        for nth in 0..task.count {
            let mut drive = threads.drive(task, context, (nth, mode, pace));
            if is_watched {
                let live_counts = [Arc::default(), Arc::default()];
                threads.live_counts.push(live_counts.clone());
                drive.live_counts = Some(live_counts);
            }
            threads.reporters += u32::try_from(drive.reporters()).unwrap_or(1);
            let (epoch, sender) = (Arc::clone(&threads.epoch), sender.clone());
            let failed = Arc::clone(&threads.failed);
            let run = move || {
                let done = drive::run(drive, start, &epoch, &sender);
                failed.fetch_or(done.is_err(), Ordering::Relaxed); // the flag guards no other data
                done
            };
            match std::thread::Builder::new().name(format!("drive {nth}")).spawn(run) {
                Ok(handle) => threads.threads.push(handle),
                Err(error) => {
                    // Errors of the started threads are ignored, because `error` is the cause.
                    let _ = threads.end();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    fn drive(
        &self,
        task: &Task,
        context: &RunContext,
        (nth, mode, pace): (u32, Mode, Pace),
    ) -> Drive {
        let of = |cpus: &[usize]| cpus.get(nth as usize % cpus.len().max(1)).copied();
        let thread = task.first + nth;
        let all = pace.connections();
        let first_connection = ((0..thread).map(|one| task.part(one, all)).sum(), all);
        let pace = match pace {
            Pace::Open { rate_per_s, connections, outstanding_max } => Pace::Open {
                rate_per_s: rate_per_s / f64::from(task.threads),
                connections: task.part(thread, connections),
                outstanding_max,
            },
            Pace::Closed { connections, depth } => {
                Pace::Closed { connections: task.part(thread, connections), depth }
            }
        };
        let share = |all: u64| {
            let (threads, thread) = (u64::from(task.threads), u64::from(thread));
            all / threads + u64::from(thread < all % threads)
        };
        Drive {
            workload: Arc::clone(&context.workload),
            names: context.names.clone(),
            seed: task.seed,
            thread,
            threads: task.threads,
            here: (nth, task.count),
            agent: task.agent,
            first_connection,
            targets: Arc::clone(&context.servers.targets),
            ring: Arc::clone(&context.servers.ring),
            protocol: context.servers.protocol,
            cpu: of(&task.cpus),
            receive_cpu: of(&task.receive_cpus),
            pace,
            timeout: task.timeout,
            churn_requests: task.churn_requests,
            verify: task.verify,
            fill_on_miss: context.workload.cache_aside,
            gso: task.gso,
            steering: context.servers.steering.clone(),
            spin: task.spin,
            late_limit: task.late,
            mode,
            live_counts: None,
            signals: Arc::clone(&self.signals),
            end: EndCondition {
                stop: Arc::clone(&self.over),
                deadline: None,
                requests: task.requests.filter(|_| mode == Mode::Traffic).map(share),
            },
        }
    }

    /// True if all threads have connected or a thread has ended. Traffic begins only then.
    pub(crate) fn is_ready(&self) -> bool {
        // Relaxed: the count guards no other data.
        self.signals.ready.load(Ordering::Relaxed) as usize >= self.threads.len()
            || self.threads.iter().any(JoinHandle::is_finished)
    }

    /// True if a thread has failed, so that fewer requests are sent than planned.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) // the flag guards no other data
    }

    pub(crate) fn go(&self) {
        self.signals.release();
    }

    /// Makes the threads end when their outstanding requests are answered or given up.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed); // the flag guards no other data
        self.go();
    }
}

impl WorkerGroup for Threads {
    fn reporters(&self) -> u32 {
        self.reporters
    }

    fn move_on(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed); // the number guards no other data
    }

    fn next(&self, patience: Duration) -> Option<EpochTally> {
        self.tallies.recv_timeout(patience).ok().map(handed)
    }

    fn snapshot(&self) -> LiveSnapshot {
        LiveSnapshot::of(self.live_counts.iter().flatten().map(Arc::as_ref))
    }

    fn is_unheard(&self) -> bool {
        // Relaxed for both flags, because they guard no other data.
        self.signals.has_lost.load(Ordering::Relaxed)
            && !self.signals.has_answered.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.has_failed() || self.threads.iter().all(JoinHandle::is_finished)
    }

    fn end(&mut self) -> (Vec<EpochTally>, Option<RunError>) {
        self.stop();
        let mut why = None;
        for thread in self.threads.drain(..) {
            let panicked = |_| Err(DriveError::Plan("a thread that sends requests panicked"));
            why = why.or(thread.join().unwrap_or_else(panicked).err());
        }
        (self.tallies.try_iter().map(handed).collect(), why.map(RunError::failed))
    }
}

fn handed((_, epoch, tally): (u32, u32, Tally)) -> EpochTally {
    EpochTally { epoch, tally, part: None }
}
