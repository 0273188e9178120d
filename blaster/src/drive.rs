//! A driving thread: sends requests on time, tracks the requests in flight, and counts outcomes.
//!
//! ```text
//! workload -> outward (draw, route, write) -> sockets -> inward (read, match, time) -> tally
//!                ^ feedback: tokens, fills, broken lines   messages: requests sent |
//!                +------------------------------------------------------------------+
//! ```
//!
//! Where: between the workload and the measurements. The thread owns its connections, which are
//! called lines. A token is the permission to send one request of a closed loop. A fill is a set
//! command that stores a key which a get did not find.
//! Invariant: `outward` and `inward` share nothing but messages and feedback, so both can run on
//! one thread, or on two threads (Tx and Rx in the KV-Cache paper). Each request is counted once.
//! Source: the KV-Cache paper, sections 5.2.2 and 5.3; Schroeder, Wierman, Harchol-Balter, "Open
//! Versus Closed: A Cautionary Tale" (2006).

mod clock;
mod departures;
mod inward;
pub(crate) mod live_counts;
mod messages;
mod outward;
mod pending;
mod plan;
mod score;
mod threads;

#[cfg(test)]
mod tests;

pub use plan::{
    CONNECTIONS_MAX, DEPTH_MAX, Drive, DriveError, EndCondition, Mode, OUTSTANDING_MAX, Pace,
    ThreadSignals,
};

use crate::measure::Tally;
use clock::Clock;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::time::Instant;

/// Runs the thread to its end. Each time `epoch` changes, and at the end, sends to `sink` the
/// thread's number, the number of the ended epoch, and the tally of that epoch. Fails if a target
/// cannot be reached at the start, a request is too large for a datagram, or the plan is invalid.
pub fn run(
    drive: Drive,
    start: Instant,
    epoch: &AtomicU32,
    sink: &mpsc::Sender<(u32, u32, Tally)>,
) -> Result<(), DriveError> {
    drive.check()?;
    threads::run(&drive, Clock::new(start), epoch, sink)
}
