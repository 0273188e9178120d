//! The plan of a driving thread, and the errors that end the thread.
//!
//! Where: made by the run; both halves of the drive are built from the plan.
//! Invariant: a plan that `check` accepts does not contradict itself.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::live_counts::LiveCounts;
use crate::line::packets::InterfaceNeeds;
use crate::measure::Connections;
use crate::measure::connections::CONNECTIONS_APART_MAX;
use crate::target::steer::Steering;
use crate::target::{Place, Ring, Target};
use crate::wire::Protocol;
use crate::workload::{Names, Stream, Workload};
use serde::{Deserialize, Serialize};

/// The most events that one wait of a thread returns.
pub(super) const EVENTS_MAX: usize = 256;

/// The most connections that one thread may have to one target.
pub const CONNECTIONS_MAX: u32 = 60_000;

/// The most requests that may be in flight on one connection of a closed loop.
pub const DEPTH_MAX: u32 = 10_000;

/// The most requests of an open loop that may wait for their answers.
pub const OUTSTANDING_MAX: u32 = 1 << 20;

/// The plan of one driving thread.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The workload from which requests are drawn.
    pub workload: Arc<Workload>,
    /// Generates the bytes of keys and values.
    pub names: Names,
    /// The seed of the random draws.
    pub seed: u64,
    /// This thread's number, from 0.
    pub thread: u32,
    /// Number of threads of the run.
    pub threads: u32,
    /// This thread's number in this process, from 0, and the number of threads in this process.
    pub here: (u32, u32),
    /// This process's number among the agents, from 0, and the number of agents; (0, 1) without
    /// agents.
    pub agent: (u32, u32),
    /// For each target: the number of this thread's first connection (all threads' connections are
    /// numbered from 0), and the number of connections of all threads.
    pub first_connection: (u32, u32),
    /// The servers, at least one.
    pub targets: Arc<[Target]>,
    /// The ring that maps a key to its server.
    pub ring: Arc<Ring>,
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// The processor that this thread runs on. `None`: the kernel chooses.
    pub cpu: Option<usize>,
    /// The processor of a second thread, which receives answers. `None`: one thread does both.
    pub receive_cpu: Option<usize>,
    /// The rule by which requests are sent: an open loop with a rate, or a closed loop with a
    /// depth.
    pub pace: Pace,
    /// A request that is unanswered after this time is given up. A stream socket with such a
    /// request is closed and opened again.
    pub timeout: Duration,
    /// An answer that takes longer than this time is counted as late.
    pub late_limit: Duration,
    /// Number of requests after which a connection is closed and opened again; `None`: never.
    pub churn_requests: Option<u64>,
    /// True if each received value is compared with the value that its key determines.
    pub verify: bool,
    /// True if, after a miss, a set command stores the missed key.
    pub fill_on_miss: bool,
    /// UDP: true if requests of equal length are passed to the kernel in one call (GSO).
    pub gso: bool,
    /// UDP: the rule that chooses the server's column (a thread) for each request.
    pub steering: Steering,
    /// True if a thread that both sends and receives polls without sleeping. The server then spends
    /// no time on waking the thread.
    pub spin: bool,
    /// The kind of requests: the workload's traffic, or requests that fill or clear the cache.
    pub mode: Mode,
    /// The conditions that end the thread.
    pub end: EndCondition,
    /// The live counts of this thread, and of the receiving thread if there are two threads.
    pub live_counts: Option<[Arc<LiveCounts>; 2]>,
    /// Signals between this thread and the thread that started it.
    pub signals: Arc<ThreadSignals>,
}

/// Signals between driving threads and the thread that starts them. No atomic field publishes other
/// data, so all accesses are relaxed.
#[derive(Debug, Default)]
pub struct ThreadSignals {
    /// Number of threads whose connections are open.
    pub ready: AtomicU32,
    /// True if a server has sent at least one byte.
    pub has_answered: AtomicBool,
    /// True if at least one request was given up.
    pub has_lost: AtomicBool,
    /// True while threads with open connections must wait before their first request.
    is_held: Mutex<bool>,
    is_free: Condvar,
}

impl ThreadSignals {
    /// Returns signals that make ready threads wait for `release`.
    pub(crate) fn new_held() -> ThreadSignals {
        ThreadSignals { is_held: Mutex::new(true), ..ThreadSignals::default() }
    }

    /// Lets all waiting threads begin.
    pub(crate) fn release(&self) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.is_free.notify_all();
    }

    pub(super) fn await_release(&self) {
        let held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.is_free.wait_while(held, |is_held| *is_held));
    }
}

/// The rule by which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// Open loop: requests follow a schedule that does not depend on answers.
    Open {
        /// The rate of this thread. NaN: the workload itself determines the gaps between requests.
        #[serde(with = "bits")]
        rate_per_s: f64,
        /// Number of connections to each target.
        connections: u32,
        /// The most unanswered requests on all connections together. At this limit, due requests
        /// wait.
        outstanding_max: u32,
    },
    /// Closed loop: each answer allows one more request.
    Closed {
        /// Number of connections to each target.
        connections: u32,
        /// Number of requests in flight on each connection.
        depth: u32,
    },
}

impl Pace {
    /// Number of connections to each target. A thread's plan counts this thread's connections; a
    /// run's plan counts the connections of all threads.
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
    /// Sends the workload's requests.
    Traffic,
    /// Sends one set command for each key in this thread's share.
    Populate,
    /// Sends one delete command for each key in this thread's share.
    Clear,
}

/// The conditions that end a thread. The thread ends when any condition is met.
#[derive(Clone, Debug, Default)]
pub struct EndCondition {
    /// Another thread sets this flag to end the thread.
    pub stop: Arc<AtomicBool>,
    /// The time at which the thread ends; `None`: no limit.
    pub deadline: Option<Instant>,
    /// Number of requests after which the thread ends; `None`: no limit.
    pub requests: Option<u64>,
}

/// An error that ends a driving thread.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A target cannot be connected to.
    #[error("cannot connect to {name}: {error}; is the server running and listening there?")]
    Connect {
        /// The target.
        name: String,
        /// The cause.
        error: io::Error,
    },
    /// A request over UDP does not fit one datagram.
    #[error(
        "a request with {keys} keys and a value of {value_bytes} bytes does not fit into one UDP \
         datagram of 65,507 bytes: choose smaller values or fewer keys per request, or use TCP"
    )]
    TooLarge {
        /// Bytes of the request's value.
        value_bytes: u32,
        /// Number of the request's keys.
        keys: usize,
    },
    /// The plan contradicts itself.
    #[error("{0}")]
    Plan(&'static str),
    /// The thread cannot be pinned to its processor.
    #[error("cannot pin a thread to CPU {0}: {1}")]
    Pin(usize, io::Error),
    /// A system call failed.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Drive {
    /// A plan for a single thread that never ends. Every other setting is off or has its default.
    pub fn new(
        workload: Arc<Workload>,
        targets: Arc<[Target]>,
        protocol: Protocol,
        pace: Pace,
    ) -> Drive {
        Drive {
            names: Names::new(&workload),
            workload,
            seed: 1,
            thread: 0,
            threads: 1,
            here: (0, 1),
            agent: (0, 1),
            first_connection: (0, pace.connections()),
            ring: Arc::new(Ring::new(&targets)),
            targets,
            protocol,
            cpu: None,
            receive_cpu: None,
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
            live_counts: None,
            signals: Arc::default(),
            end: EndCondition::default(),
        }
    }

    /// The number of tallies that are reported per epoch: one for each thread that sends or
    /// receives.
    pub(crate) fn reporters(&self) -> usize {
        1 + usize::from(self.receive_cpu.is_some())
    }

    /// The keys that this thread populates or clears. If each connection has its own keys: the keys
    /// of this thread's connections. If each agent has its own keys: a share of the agent's keys.
    pub(crate) fn share(&self) -> Range<u64> {
        if self.workload.per_agent() {
            return self.workload.share_of_agent(self.agent, self.here);
        }
        if !self.workload.per_connection() {
            return self.workload.share(self.thread, self.threads);
        }
        let (Range { start, end }, all) = self.connection_numbers();
        self.workload.share(start, all).start..self.workload.share(end, all).start
    }

    pub(super) fn stream(&self) -> Stream {
        let (connection_numbers, all) = self.connection_numbers();
        Stream::new(&self.workload, self.seed, self.thread, self.threads)
            .over(connection_numbers, all)
            .of_agent(self.agent, self.here)
    }

    /// For each target: the numbers of this thread's connections, and the number of all
    /// connections.
    pub(super) fn connection_numbers(&self) -> (Range<u32>, u32) {
        let (first, all) = self.first_connection;
        (first..first.saturating_add(self.pace.connections()), all)
    }

    /// This thread's connections, numbered over all targets: answers are counted for each
    /// connection separately. Empty if the run has more than `CONNECTIONS_APART_MAX` connections.
    pub(super) fn kept_connections(&self) -> Connections {
        let (Range { start, end }, all) = self.connection_numbers();
        let targets = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        let are_few = all.checked_mul(targets).is_some_and(|all| all <= CONNECTIONS_APART_MAX);
        if !are_few || self.mode != Mode::Traffic {
            return Connections::default();
        }
        Connections::new((0..targets).map(|target| target * all + start..target * all + end))
    }

    pub(super) fn interface_needs(&self) -> Vec<InterfaceNeeds> {
        let mut all: Vec<InterfaceNeeds> = Vec::new();
        for target in self.targets.iter() {
            let Place::Xdp(bypass, address) = &target.place else { continue };
            if let Some(one) = all.iter_mut().find(|one| one.bypass == *bypass) {
                one.targets.push(*address);
                continue;
            }
            all.push(InterfaceNeeds {
                bypass: bypass.clone(),
                targets: vec![*address],
                threads: self.here.1 as usize,
                // Another thread may have one connection more than this thread.
                connections: self.pace.connections() as usize + 1,
                protocol: self.protocol,
            });
        }
        all
    }

    pub(super) fn check(&self) -> Result<(), DriveError> {
        let is_udp = |target: &Target| target.place.datagrams().is_some();
        if self.targets.is_empty() {
            return Err(DriveError::Plan("there is no target"));
        }
        if self.protocol == Protocol::Resp && self.targets.iter().any(is_udp) {
            return Err(DriveError::Plan("Redis's protocol does not work over UDP: use TCP"));
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
                "the rate must be above 0, the outstanding requests must be 1 to 1048576, the \
                 depth must be 1 to 10000, and each thread must have 1 to 60000 connections to \
                 each target",
            ));
        }
        let (connection_numbers, all) = self.connection_numbers();
        let has_keys = connection_numbers.end <= all && u64::from(all) <= self.workload.keys();
        if self.workload.per_connection() && !has_keys {
            return Err(DriveError::Plan(
                "there are fewer keys than connections, but with --keys-per connection each \
                 connection needs keys of its own: use more --keys or fewer --connections",
            ));
        }
        let (agent, agents) = self.agent;
        let has_keys = agent < agents && u64::from(agents) <= self.workload.keys();
        if self.workload.per_agent() && !has_keys {
            return Err(DriveError::Plan(
                "there are fewer keys than agents, but with --keys-per agent each agent needs keys \
                 of its own: use more --keys or fewer agents",
            ));
        }
        if usize::try_from(all).is_ok_and(|all| all < self.steering.ports()) {
            return Err(DriveError::Plan(
                "there are fewer connections than columns, but with --steer ports each column \
                 (server thread) needs a connection to its port: use more --connections",
            ));
        }
        if self.timeout.is_zero() {
            return Err(DriveError::Plan("the timeout is zero"));
        }
        Ok(())
    }
}
