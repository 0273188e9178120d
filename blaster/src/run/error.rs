//! The errors of a run that has nothing to report.
//!
//! Where: returned by each step of a run. Invariant: an error says what the user can do.

use std::fmt::Display;

/// The error of a run that has nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
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
    /// Any other reason, in words.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    pub(crate) fn failed(why: impl Display) -> RunError {
        RunError::Failed(why.to_string())
    }
}
