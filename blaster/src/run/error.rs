//! The errors of a run that has nothing to report.
//!
//! Where: returned by each step of a run. Invariant: an error says what the user can do.

use super::servers::ServersError;
use crate::drive::DriveError;
use crate::workload::WorkloadError;
use std::io;

/// The error of a run that has nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The servers cannot be reached, or cannot be used with these flags.
    #[error(transparent)]
    Servers(#[from] ServersError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Threads(io::Error),
    /// A thread that sends requests failed.
    #[error(transparent)]
    Drive(DriveError),
    /// An agent cannot do its share of the work.
    #[error("{0}: {1}")]
    Agent(String, String),
    /// A file of the workload cannot be sent to agents.
    #[error(transparent)]
    Files(WorkloadError),
    /// Ctrl-C or SIGTERM came before anything was measured.
    #[error("stopped by Ctrl-C or SIGTERM before anything was measured")]
    Stopped,
    /// A server holds items of another workload.
    #[error(
        "{0}. These items do not belong to this workload, and filling the server would overwrite \
         or evict them. --force fills the server nevertheless; --no-populate skips the filling, \
         but kvblaster still sends the set requests of the workload"
    )]
    ForeignItems(String),
    /// Too few keys could be stored.
    #[error("{0}.\n{1} (--no-populate skips filling)")]
    Unpopulated(String, &'static str),
    /// No request was answered.
    #[error("{0}: {1}")]
    Silent(String, String),
    /// The server answers in another protocol.
    #[error(
        "the server's answers do not follow the protocol {0}. Name the server's protocol with \
         --protocol, or write redis://HOST:PORT for Redis"
    )]
    WrongProtocol(&'static str),
    /// `--verify` cannot check the values of this workload.
    #[error(
        "--verify cannot check the values of append requests whose sizes vary: give a fixed \
         --value-size, or --value-size-per key"
    )]
    Unverifiable,
    /// The connections of `--idle` and `--slow` cannot be opened.
    #[error("--idle and --slow: {0}")]
    Crowd(String),
    /// The number of keys that follows from `--fill` is not possible.
    #[error("--fill: {0}")]
    Fill(String),
    /// A CPU named on the command line does not exist, or this process may not run on it.
    #[error("--{0}: kvblaster may not run on CPU {1}, only on CPUs {2}")]
    Cpu(&'static str, usize, String),
    /// Signals cannot be caught.
    #[error("cannot catch signals: {0}")]
    Signals(io::Error),
    /// A trial of a search or a round of a comparison ended early.
    #[error("{0}")]
    CutShort(String),
}
