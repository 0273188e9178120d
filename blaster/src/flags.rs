//! The command line: which command, and what is asked of it.
//!
//! Where: `main` calls `parse` first. Invariant: a word that means nothing is refused by name,
//! never passed over; `--help` is made from the rows that are parsed.

use crate::simulate::{Plan, flags as simulate};
use std::ffi::OsString;

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Print this to stdout.
    Print(String),
    /// Simulate.
    Simulate(Box<Plan>),
}

/// Why the command line is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}\nTry kvblaster --help.")]
pub struct Refusal(pub String);

const USAGE: &str = "\
kvblaster: what caches do under work, measured

Usage: kvblaster COMMAND [OPTIONS]

Commands:
  simulate   Replay traces of keys against eviction policies, offline

kvblaster COMMAND --help tells more of a command.
";

/// Parses the arguments after the program's name.
///
/// # Errors
/// Something is unknown or wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Asked, Refusal> {
    let mut parser = lexopt::Parser::from_args(arguments);
    match parser.next().map_err(refusal)? {
        None => Err(Refusal("which command?".to_owned())),
        Some(lexopt::Arg::Short('h') | lexopt::Arg::Long("help")) => {
            Ok(Asked::Print(USAGE.to_owned()))
        }
        Some(lexopt::Arg::Short('V') | lexopt::Arg::Long("version")) => {
            Ok(Asked::Print(format!("kvblaster {}\n", env!("CARGO_PKG_VERSION"))))
        }
        Some(lexopt::Arg::Value(command)) if command == "simulate" => simulate::parse(parser),
        Some(other) => Err(refusal(other.unexpected())),
    }
}

/// What lexopt found wrong.
pub(crate) fn refusal(error: lexopt::Error) -> Refusal {
    Refusal(error.to_string())
}
