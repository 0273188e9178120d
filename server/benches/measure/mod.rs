//! What the benchmark programs share: options, the machine, statistics, servers under test, stores
//! in process, and the report.
//!
//! Where: included by each program's `main`.
//! Invariant: nothing here decides what is measured; each program takes the parts it needs.

#![allow(dead_code, reason = "no program needs all of it")]

pub(crate) mod clocks;
pub(crate) mod contestant;
pub(crate) mod in_process;
pub(crate) mod options;
pub(crate) mod random;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod statistics;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// What may go wrong is told to the one at the terminal; nobody acts on its kind.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The failure `text`.
pub(crate) fn fail<T>(text: String) -> Outcome<T> {
    Err(text.into())
}

/// Runs a program; what it fails with is said on standard error.
pub(crate) fn run(program: &str, body: impl FnOnce() -> Outcome<()>) -> ExitCode {
    match body() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to report a failure of standard error.
            let _ = writeln!(std::io::stderr(), "{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
