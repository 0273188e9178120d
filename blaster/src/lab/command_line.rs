//! The command lines of kvblaster that measure a point, and the errors of a measurement.
//!
//! Where: `measure` and `simulated` make the words from an experiment's flags.
//! Invariant: the words are parsed as those of a user, so each command line can be repeated.

use super::installed::ServerError;
use super::profile::ProfileError;
use crate::flags::{self, Refusal, Verb};
use crate::run::RunError;
use crate::simulate::ReportError;
use crate::words::command_line;

/// The reason why a row was not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    /// The server cannot run here.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// kvblaster cannot send load to the server.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The policy cannot be simulated.
    #[error(transparent)]
    Simulate(#[from] ReportError),
    /// The experiment's flags are no command line of kvblaster.
    #[error("{0}")]
    Flags(String),
    /// The servers' CPUs cannot be profiled.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A server ended during the measurement, or answered nothing.
    #[error("{0}")]
    Gone(String),
    /// The user stopped the lab.
    #[error("the lab was stopped by Ctrl-C or SIGTERM")]
    Stopped,
}

/// True if a word begins with the short or the long form of a flag.
pub(super) fn has_flag(words: &[String], spellings: [&str; 2]) -> bool {
    words.iter().any(|word| spellings.iter().any(|flag| word.starts_with(flag)))
}

/// Parses the words of a command line. Also returns the command line as text.
pub(super) fn parsed(words: Vec<String>) -> Result<(Verb, String), MeasureError> {
    let text = format!("kvblaster {}", command_line(&words));
    let parsed = flags::parse(std::iter::once("kvblaster".to_owned()).chain(words).map(Into::into));
    let wrong = |why: String| MeasureError::Flags(format!("{text}: {why}"));
    let verb = parsed.map_err(|refusal| match refusal {
        Refusal::Wrong(why) => wrong(why),
        Refusal::Help(help) => wrong(help.to_string()),
    })?;
    Ok((verb, text))
}
