//! Measurements: the driving threads' counts, and the CPU time and memory that processes use.
//!
//! Where: the driving threads count; the search and the result use the measurements.
//! Invariant: the sum of all tallies equals one tally of all requests, no matter how the requests
//! are divided into tallies (by thread, epoch or report).
//! Source: the KV-Cache paper (5.2.2, 6.1); for CPU time, Pavlik's thesis, section 3.1.2.

pub mod check;
pub(crate) mod connections;
pub(crate) mod cpu;
mod drops;
pub(crate) mod interrupts;
pub(crate) mod interval;
pub(crate) mod objective;
pub(crate) mod owner;
pub(crate) mod process;
mod record;
pub mod schedule;
pub mod steady;
pub(crate) mod tally;
pub(crate) mod times;
pub(crate) mod verdict;
pub(crate) mod warm;
pub mod watch;

pub use connections::Connections;
pub use interval::Interval;
pub use tally::{KeyAnswer, Refusals, Tally, UdpTally, VerbTally};
pub use times::Times;
