//! The driving threads of one stretch of traffic, and the mailbox their tallies arrive in.
//!
//! Where: between `course`, which decides when an epoch ends, and `drive`, one thread of it.
//! Invariant: every thread that was started is joined, whatever comes of it; what threads hand over
//! after they were told to stop is still taken.

use super::Plan;
use super::servers::Servers;
use crate::drive::pulse::{Pulse, Sight};
use crate::drive::{self, Drive, DriveError, Mode, Pace, Signs, Until};
use crate::measure::Tally;
use crate::workload::{Names, Workload};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether all have connected.
const READY_TICK: Duration = Duration::from_millis(1);

/// What one thread handed over of one epoch.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) epoch: u32,
    pub(crate) tally: Tally,
}

/// What all stretches of one run share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) servers: Servers,
    pub(crate) workload: Arc<Workload>,
    pub(crate) names: Names,
    /// Ctrl-C was pressed.
    pub(crate) stop: Arc<AtomicBool>,
    /// A report was asked for.
    pub(crate) asked: Arc<AtomicBool>,
}

impl Ground {
    pub(crate) fn is_stopped(&self) -> bool {
        // Relaxed: a flag by itself, in no order to anything.
        self.stop.load(Ordering::Relaxed)
    }

    /// Was a report asked for since this was called?
    pub(crate) fn takes_question(&self) -> bool {
        // Relaxed: a flag by itself, in no order to anything.
        self.asked.swap(false, Ordering::Relaxed)
    }
}

/// The threads at work.
#[derive(Debug)]
pub(crate) struct Crew {
    /// When it had connected.
    pub(crate) born: Instant,
    /// When the traffic that is looked at began.
    pub(crate) start: Instant,
    /// The threads' epoch that is epoch 0 of that traffic.
    first: u32,
    threads: Vec<JoinHandle<Result<(), DriveError>>>,
    /// Tallies that come of each epoch.
    pub(crate) reporters: u32,
    epoch: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    signs: Arc<Signs>,
    /// What can be seen of each; nothing where nobody looks.
    pulses: Vec<[Arc<Pulse>; 2]>,
    tallies: mpsc::Receiver<(u32, u32, Tally)>,
}

impl Crew {
    /// Starts the threads that `plan` asks for, at `pace`; watched, they can be seen at work.
    ///
    /// # Errors
    /// There is no thread to be had; those there were are gone again.
    pub(crate) fn start(
        plan: &Plan,
        ground: &Ground,
        mode: Mode,
        pace: Pace,
        is_watched: bool,
    ) -> std::io::Result<Crew> {
        let (sender, tallies) = mpsc::channel();
        let mut crew = Crew {
            born: Instant::now(),
            start: Instant::now(),
            first: 0,
            threads: Vec::new(),
            reporters: 0,
            epoch: Arc::default(),
            over: Arc::default(),
            signs: Arc::default(),
            pulses: Vec::new(),
            tallies,
        };
        for thread in 0..plan.threads {
            let mut drive = crew.drive(plan, ground, (thread, mode, pace));
            if is_watched {
                let pulses = [Arc::default(), Arc::default()];
                crew.pulses.push(pulses.clone());
                drive.pulses = Some(pulses);
            }
            crew.reporters += u32::try_from(drive.reporters()).unwrap_or(1);
            let (epoch, sender, start) = (Arc::clone(&crew.epoch), sender.clone(), crew.start);
            let run = move || drive::run(drive, start, &epoch, &sender);
            let name = format!("drive {thread}");
            match std::thread::Builder::new().name(name).spawn(run) {
                Ok(handle) => crew.threads.push(handle),
                Err(error) => {
                    // Why those that run ended does not matter any more.
                    let _ = crew.end();
                    return Err(error);
                }
            }
        }
        crew.wait(ground);
        Ok(crew)
    }

    /// Waits until all have connected, so that no time of connecting is time of traffic; or one has
    /// failed, or Ctrl-C. From then on the crew's time counts.
    fn wait(&mut self, ground: &Ground) {
        let is_one_over = |crew: &Crew| crew.threads.iter().any(JoinHandle::is_finished);
        // Relaxed: a count by itself.
        while (self.signs.ready.load(Ordering::Relaxed) as usize) < self.threads.len()
            && !is_one_over(self)
            && !ground.is_stopped()
        {
            std::thread::sleep(READY_TICK);
        }
        self.born = Instant::now();
        self.start = self.born;
    }

    fn drive(&self, plan: &Plan, ground: &Ground, what: (u32, Mode, Pace)) -> Drive {
        let (thread, mode, pace) = what;
        let of = |cpus: &[usize]| cpus.get(thread as usize % cpus.len().max(1)).copied();
        let part = |all: u32| all / plan.threads + u32::from(thread < all % plan.threads);
        let share = |all: u64| {
            let (threads, thread) = (u64::from(plan.threads), u64::from(thread));
            all / threads + u64::from(thread < all % threads)
        };
        let pace = match pace {
            Pace::Open { rate_per_s, connections, outstanding_max } => Pace::Open {
                rate_per_s: rate_per_s / f64::from(plan.threads),
                connections: part(connections),
                outstanding_max,
            },
            Pace::Closed { connections, depth } => {
                Pace::Closed { connections: part(connections), depth }
            }
        };
        Drive {
            workload: Arc::clone(&ground.workload),
            names: ground.names.clone(),
            seed: plan.seed,
            thread,
            threads: plan.threads,
            targets: Arc::clone(&ground.servers.targets),
            ring: Arc::clone(&ground.servers.ring),
            speech: ground.servers.speech,
            cpu: of(&plan.cpus),
            receive_apart: of(&plan.receive_cpus),
            pace,
            timeout: plan.timeout,
            churn_requests: plan.churn_requests,
            verify: plan.verify,
            fill_on_miss: ground.workload.cache_aside(),
            gso: plan.gso,
            late_limit: plan.late,
            mode,
            pulses: None,
            signs: Arc::clone(&self.signs),
            until: Until {
                stop: Arc::clone(&self.over),
                deadline: None,
                requests: plan.requests.filter(|_| mode == Mode::Traffic).map(share),
            },
        }
    }

    /// From now on the threads are in `epoch`.
    pub(crate) fn move_on(&self, epoch: u32) {
        self.epoch.store(self.first + epoch, Ordering::Relaxed); // a number to look at
    }

    /// Time and epochs are counted from now on: what was epoch `first` is epoch 0.
    pub(crate) fn begin_anew(&mut self, first: u32) {
        self.first += first;
        self.start = Instant::now();
        self.move_on(0);
    }

    /// What a thread hands over within `patience`.
    pub(crate) fn next(&self, patience: Duration) -> Option<Handed> {
        let (_, epoch, tally) = self.tallies.recv_timeout(patience).ok()?;
        Some(Handed { epoch: epoch.checked_sub(self.first)?, tally })
    }

    /// What all threads show at this moment.
    pub(crate) fn sight(&self) -> Sight {
        Sight::of(self.pulses.iter().flatten().map(Arc::as_ref))
    }

    /// Were requests given up, and nothing heard of any server since the start?
    pub(crate) fn is_unheard(&self) -> bool {
        // Relaxed, both: as `Signs` says.
        self.signs.lost.load(Ordering::Relaxed) && !self.signs.heard.load(Ordering::Relaxed)
    }

    /// Have all threads ended by themselves?
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops the threads, takes what they still hand over, and tells why the first failed.
    pub(crate) fn end(mut self) -> (Vec<Handed>, Option<DriveError>) {
        self.over.store(true, Ordering::Relaxed); // a flag by itself
        let mut why = None;
        for thread in self.threads.drain(..) {
            let failed = match thread.join() {
                Ok(ended) => ended.err(),
                Err(_) => Some(DriveError::Plan("a driving thread panicked")),
            };
            why = why.or(failed);
        }
        let handed = self.tallies.try_iter().filter_map(|(_, epoch, tally)| {
            Some(Handed { epoch: epoch.checked_sub(self.first)?, tally })
        });
        (handed.collect(), why)
    }
}
