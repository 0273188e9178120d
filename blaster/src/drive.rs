//! One driving thread: it sends on time, tracks what is outstanding, and counts the outcomes.
//!
//! ```text
//! workload -> outward (draw, route, write) -> sockets -> inward (read, match, time) -> tally
//!                ^ feedback: tokens, fills, broken lines      notes: what was sent |
//!                +------------------------------------------------------------------+
//! ```
//!
//! Where: between the workload and the measurements; it owns its connections.
//! Invariant: the two halves talk through notes and feedback only, so they run on one thread or on
//! two, like the paper's Tx and Rx threads. A request is counted once however it ends.
//! Source: the paper, sections 5.2.2 and 5.3; Schroeder, Wierman, Harchol-Balter, "Open Versus
//! Closed: A Cautionary Tale" (2006).

mod departures;
mod inward;
mod outward;
mod pending;
pub mod pulse;
mod score;
mod threads;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::measure::Tally;
use crate::packets::Wanted;
use crate::steer::Steering;
use crate::target::{Place, Ring, Target};
use crate::wire::Speech;
use crate::workload::{Names, Workload};
use pulse::Pulse;
use serde::{Deserialize, Serialize};

const EVENTS_MAX: usize = 256;
/// Most connections of one thread to one target.
pub const CONNECTIONS_MAX: u32 = 60_000;
/// Most requests in flight on one connection of a closed loop.
pub const DEPTH_MAX: u32 = 10_000;
/// Most requests of an open loop that wait for their answers.
pub const OUTSTANDING_MAX: u32 = 1 << 20;

/// The plan of one thread.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The requests to draw.
    pub workload: Arc<Workload>,
    /// The bytes of keys and values.
    pub names: Names,
    /// The seed with which requests are drawn.
    pub seed: u64,
    /// This thread's number, from 0.
    pub thread: u32,
    /// Number of threads of the run.
    pub threads: u32,
    /// This thread's number among the threads of this process, and their number.
    pub here: (u32, u32),
    /// The number of this thread's first connection among those of all threads, from 0, and their
    /// number.
    pub first_connection: (u32, u32),
    /// The servers, at least one.
    pub targets: Arc<[Target]>,
    /// The ring that maps a key to its server.
    pub ring: Arc<Ring>,
    /// The protocol.
    pub speech: Speech,
    /// The processor to run on.
    pub cpu: Option<usize>,
    /// The processor on which a second thread receives; none: one thread does both.
    pub receive_apart: Option<usize>,
    /// The loop, open or closed, and its rate or depth.
    pub pace: Pace,
    /// A request that has no answer after this long is given up, and with it its stream.
    pub timeout: Duration,
    /// An answer that takes longer is counted as late.
    pub late_limit: Duration,
    /// Number of requests after which a connection is closed and opened again.
    pub churn_requests: Option<u64>,
    /// True if values read are verified against their keys.
    pub verify: bool,
    /// True if a set follows each miss.
    pub fill_on_miss: bool,
    /// UDP: hand equally long requests to the kernel as one burst.
    pub gso: bool,
    /// UDP: the rule that gives each request its column of the server.
    pub steering: Steering,
    /// True if a thread that receives itself polls without sleeping, so the server need not wake
    /// it.
    pub spin: bool,
    /// Traffic, or filling or clearing the cache.
    pub mode: Mode,
    /// The end.
    pub until: Until,
    /// The live counts: of this thread, and of the receiving thread if there is one.
    pub pulses: Option<[Arc<Pulse>; 2]>,
    /// Signs to the starter of the threads, before the first tally.
    pub signs: Arc<Signs>,
}

/// Signs that threads give while they are at work. Each field is read by itself and makes nothing
/// else visible, so every access is relaxed.
#[derive(Debug, Default)]
pub struct Signs {
    /// Number of threads whose connections stand; each counts itself just before it begins.
    pub ready: AtomicU32,
    /// True if a server has sent something.
    pub heard: AtomicBool,
    /// True if a request was given up.
    pub lost: AtomicBool,
    /// While this is true, threads that are ready do not begin.
    is_held: Mutex<bool>,
    is_free: Condvar,
}

impl Signs {
    /// Returns signs that hold ready threads until `let_go`, so that all begin together.
    #[must_use]
    pub fn held() -> Signs {
        Signs { is_held: Mutex::new(true), ..Signs::default() }
    }

    /// Lets all threads begin.
    pub fn let_go(&self) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.is_free.notify_all();
    }

    fn await_word(&self) {
        let held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.is_free.wait_while(held, |is_held| *is_held));
    }
}

/// The rule by which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// By a schedule, independent of the answers.
    Open {
        /// The rate of this thread. NaN: the workload's own gaps.
        #[serde(with = "bits")]
        rate_per_s: f64,
        /// Number of connections to each target.
        connections: u32,
        /// Most requests outstanding on all connections together; a request due beyond that waits,
        /// and its waiting is measured.
        outstanding_max: u32,
    },
    /// One request for each answer.
    Closed {
        /// Number of connections to each target.
        connections: u32,
        /// Requests in flight on each.
        depth: u32,
    },
}

impl Pace {
    /// Connections to each target, of one thread or of all.
    pub(crate) fn connections(self) -> u32 {
        let (Pace::Open { connections, .. } | Pace::Closed { connections, .. }) = self;
        connections
    }
}

/// Writes a rate as its bits, because JSON has no NaN.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rate: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        rate.to_bits().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

/// The kind of requests sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// The workload's requests.
    Traffic,
    /// A set for each key of this thread's share, once.
    Populate,
    /// A delete for each key of this thread's share, once.
    Clear,
}

/// The end of a thread: whichever condition comes first.
#[derive(Clone, Debug, Default)]
pub struct Until {
    /// Set by another thread.
    pub stop: Arc<AtomicBool>,
    /// The time at which the thread ends.
    pub deadline: Option<Instant>,
    /// Number of requests of this thread.
    pub requests: Option<u64>,
}

/// Why a thread could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A target refuses connections.
    #[error("cannot connect to {name}: {error}; is the server running and listening there?")]
    Connect {
        /// The target.
        name: String,
        /// The cause.
        error: io::Error,
    },
    /// A request over UDP must fit one datagram.
    #[error(
        "a request does not fit one UDP datagram of 65,507 bytes (a value of {value_bytes} bytes, \
         {keys} keys): choose smaller values or fewer keys a request, or use TCP"
    )]
    TooLarge {
        /// Bytes of its value.
        value_bytes: u32,
        /// Number of keys.
        keys: usize,
    },
    /// The plan contradicts itself.
    #[error("{0}")]
    Plan(&'static str),
    /// The thread cannot be pinned to its processor.
    #[error("cannot run on processor {0}: {1}")]
    Pin(usize, io::Error),
    /// A system call failed.
    #[error("{0}")]
    System(io::Error),
}

/// Time since the start of the run.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The start of the run by the system's monotonic clock.
    start_ns: u64,
}

impl Clock {
    fn new(start: Instant) -> Clock {
        let since_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(0);
        Clock { start_ns: net::monotonic_ns().saturating_sub(since_ns) }
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        net::monotonic_ns().saturating_sub(self.start_ns)
    }
}

impl Drive {
    /// Returns the plan of a single thread that has all the connections and no end; everything else
    /// is off or at its default.
    #[must_use]
    pub fn new(
        workload: Arc<Workload>,
        targets: Arc<[Target]>,
        speech: Speech,
        pace: Pace,
    ) -> Drive {
        Drive {
            names: Names::new(&workload),
            workload,
            seed: 1,
            thread: 0,
            threads: 1,
            here: (0, 1),
            first_connection: (0, pace.connections()),
            ring: Arc::new(Ring::new(&targets)),
            targets,
            speech,
            cpu: None,
            receive_apart: None,
            pace,
            timeout: Duration::from_secs(1),
            late_limit: Duration::from_millis(1),
            churn_requests: None,
            verify: false,
            fill_on_miss: false,
            gso: false,
            steering: Steering::default(),
            spin: false,
            mode: Mode::Traffic,
            pulses: None,
            signs: Arc::default(),
            until: Until::default(),
        }
    }

    /// Number of tallies handed over per epoch: two if a second thread receives.
    #[must_use]
    pub fn reporters(&self) -> usize {
        1 + usize::from(self.receive_apart.is_some())
    }

    /// The keys that this thread stores when it populates; if each connection has its own keys,
    /// those of this thread's connections.
    #[must_use]
    pub fn share(&self) -> Range<u64> {
        if !self.workload.per_connection() {
            return self.workload.share(self.thread, self.threads);
        }
        let (Range { start, end }, all) = self.seats();
        self.workload.share(start, all).start..self.workload.share(end, all).start
    }

    /// The numbers of this thread's connections among those of all threads, and their number.
    fn seats(&self) -> (Range<u32>, u32) {
        let (first, all) = self.first_connection;
        (first..first.saturating_add(self.pace.connections()), all)
    }

    /// The needs of all threads of this process at each AF_XDP interface.
    fn past_the_kernel(&self) -> Vec<Wanted> {
        let mut all: Vec<Wanted> = Vec::new();
        for target in self.targets.iter() {
            let Place::Xdp(bypass, address) = &target.place else { continue };
            if let Some(one) = all.iter_mut().find(|one| one.bypass == *bypass) {
                one.targets.push(*address);
                continue;
            }
            all.push(Wanted {
                bypass: bypass.clone(),
                targets: vec![*address],
                threads: self.here.1 as usize,
                // Another thread may have one connection more.
                connections: self.pace.connections() as usize + 1,
                speech: self.speech,
            });
        }
        all
    }

    fn check(&self) -> Result<(), DriveError> {
        let is_udp = |target: &Target| target.place.datagrams().is_some();
        if self.targets.is_empty() {
            return Err(DriveError::Plan("there is no target"));
        }
        if self.speech == Speech::Resp && self.targets.iter().any(is_udp) {
            return Err(DriveError::Plan("Redis's protocol is not spoken over UDP: use TCP"));
        }
        let is_right = match self.pace {
            Pace::Open { rate_per_s, outstanding_max, .. } => {
                let is_rate = rate_per_s.is_nan() || (rate_per_s > 0.0 && rate_per_s.is_finite());
                let is_bound = (1..=OUTSTANDING_MAX).contains(&outstanding_max);
                is_rate && is_bound
            }
            Pace::Closed { depth, .. } => (1..=DEPTH_MAX).contains(&depth),
        };
        if !is_right || !(1..=CONNECTIONS_MAX).contains(&self.pace.connections()) {
            return Err(DriveError::Plan(
                "rate, connections, depth or outstanding requests out of range",
            ));
        }
        let (seats, all) = self.seats();
        let has_keys = seats.end <= all && u64::from(all) <= self.workload.keys();
        if self.workload.per_connection() && !has_keys {
            return Err(DriveError::Plan(
                "fewer keys than connections, and each is to have its own",
            ));
        }
        if usize::try_from(all).is_ok_and(|all| all < self.steering.ports()) {
            return Err(DriveError::Plan("fewer connections than columns, each with its port"));
        }
        if self.timeout.is_zero() {
            return Err(DriveError::Plan("a timeout of nothing"));
        }
        Ok(())
    }
}

/// Runs the thread to its end. Whenever `epoch` has moved on, and at the end, `sink` gets the
/// thread's number, the epoch that ended and its tally.
///
/// # Errors
/// A target cannot be reached at the start, a request can never be sent, or the plan is invalid.
pub fn run(
    drive: Drive,
    start: Instant,
    epoch: &AtomicU32,
    sink: &mpsc::Sender<(u32, u32, Tally)>,
) -> Result<(), DriveError> {
    drive.check()?;
    threads::run(&drive, Clock::new(start), epoch, sink)
}
