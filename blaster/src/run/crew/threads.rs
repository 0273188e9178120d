//! The driving threads of this process, and the mailbox their tallies arrive in.
//!
//! Where: behind `Crew`; in an agent, behind its pipe.
//! Invariant: every started thread is joined, whatever happens; tallies handed over after the order
//! to stop are still taken. Threads begin together, once all have connected.

use super::super::RunError;
use super::{Ground, Handed, Hands, Task};
use crate::drive::pulse::{Pulse, Sight};
use crate::drive::{self, Drive, DriveError, Mode, Pace, Signs, Until};
use crate::measure::Tally;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The driving threads at work.
#[derive(Debug)]
pub(crate) struct Threads {
    threads: Vec<JoinHandle<Result<(), DriveError>>>,
    reporters: u32,
    epoch: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    /// True if one of them has failed.
    failed: Arc<AtomicBool>,
    signs: Arc<Signs>,
    /// The live counts of each thread; empty if nobody watches.
    pulses: Vec<[Arc<Pulse>; 2]>,
    tallies: mpsc::Receiver<(u32, u32, Tally)>,
}

impl Threads {
    /// Starts the task's threads at `pace`, which is that of all threads of the run; they connect
    /// and wait for `go`. If `is_watched`, they show live counts.
    ///
    /// # Errors
    /// A thread cannot be started; those already started are gone again.
    pub(crate) fn start(
        task: &Task,
        ground: &Ground,
        (mode, pace): (Mode, Pace),
        is_watched: bool,
    ) -> std::io::Result<Threads> {
        let (sender, tallies) = mpsc::channel();
        let mut crew = Threads {
            threads: Vec::new(),
            reporters: 0,
            epoch: Arc::default(),
            over: Arc::default(),
            failed: Arc::default(),
            signs: Arc::new(Signs::held()),
            pulses: Vec::new(),
            tallies,
        };
        let start = Instant::now();
        for nth in 0..task.count {
            let mut drive = crew.drive(task, ground, (nth, mode, pace));
            if is_watched {
                let pulses = [Arc::default(), Arc::default()];
                crew.pulses.push(pulses.clone());
                drive.pulses = Some(pulses);
            }
            crew.reporters += u32::try_from(drive.reporters()).unwrap_or(1);
            let (epoch, sender) = (Arc::clone(&crew.epoch), sender.clone());
            let failed = Arc::clone(&crew.failed);
            let run = move || {
                let done = drive::run(drive, start, &epoch, &sender);
                failed.fetch_or(done.is_err(), Ordering::Relaxed); // a flag by itself
                done
            };
            match std::thread::Builder::new().name(format!("drive {nth}")).spawn(run) {
                Ok(handle) => crew.threads.push(handle),
                Err(error) => {
                    // The errors of the threads that did start do not matter any more.
                    let _ = crew.end();
                    return Err(error);
                }
            }
        }
        Ok(crew)
    }

    fn drive(&self, task: &Task, ground: &Ground, (nth, mode, pace): (u32, Mode, Pace)) -> Drive {
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
            workload: Arc::clone(&ground.workload),
            names: ground.names.clone(),
            seed: task.seed,
            thread,
            threads: task.threads,
            here: (nth, task.count),
            first_connection,
            targets: Arc::clone(&ground.servers.targets),
            ring: Arc::clone(&ground.servers.ring),
            speech: ground.servers.speech,
            cpu: of(&task.cpus),
            receive_apart: of(&task.receive_cpus),
            pace,
            timeout: task.timeout,
            churn_requests: task.churn_requests,
            verify: task.verify,
            fill_on_miss: ground.workload.cache_aside(),
            gso: task.gso,
            steering: ground.servers.steering.clone(),
            spin: task.spin,
            late_limit: task.late,
            mode,
            pulses: None,
            signs: Arc::clone(&self.signs),
            until: Until {
                stop: Arc::clone(&self.over),
                deadline: None,
                requests: task.requests.filter(|_| mode == Mode::Traffic).map(share),
            },
        }
    }

    /// True if all have connected, so that connecting does not count as traffic, or one has ended.
    pub(crate) fn is_ready(&self) -> bool {
        // Relaxed: a count by itself.
        self.signs.ready.load(Ordering::Relaxed) as usize >= self.threads.len()
            || self.threads.iter().any(JoinHandle::is_finished)
    }

    /// True if one has failed: then the others do not do what was asked for.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) // a flag by itself
    }

    /// Lets the threads begin.
    pub(crate) fn go(&self) {
        self.signs.let_go();
    }

    /// Tells the threads to end once the requests under way are answered or given up.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed); // a flag by itself
        self.go();
    }
}

impl Hands for Threads {
    fn reporters(&self) -> u32 {
        self.reporters
    }

    fn move_on(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed); // a number to look at
    }

    fn next(&self, patience: Duration) -> Option<Handed> {
        self.tallies.recv_timeout(patience).ok().map(handed)
    }

    fn sight(&self) -> Sight {
        Sight::of(self.pulses.iter().flatten().map(Arc::as_ref))
    }

    fn is_unheard(&self) -> bool {
        // Relaxed, both: see `Signs`.
        self.signs.lost.load(Ordering::Relaxed) && !self.signs.heard.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.has_failed() || self.threads.iter().all(JoinHandle::is_finished)
    }

    fn end(&mut self) -> (Vec<Handed>, Option<RunError>) {
        self.stop();
        let mut why = None;
        for thread in self.threads.drain(..) {
            let failed = match thread.join() {
                Ok(ended) => ended.err(),
                Err(_) => Some(DriveError::Plan("a driving thread panicked")),
            };
            why = why.or(failed);
        }
        (self.tallies.try_iter().map(handed).collect(), why.map(RunError::Drive))
    }
}

fn handed((_, epoch, tally): (u32, u32, Tally)) -> Handed {
    Handed { epoch, tally, part: None }
}
