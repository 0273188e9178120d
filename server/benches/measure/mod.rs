//! What the benchmark programs share: options, statistics, servers under test, stores in process,
//! and the report.
//!
//! Where: included by each program's `main`.
//! Invariant: nothing here decides what is measured; each program takes the parts it needs.

#![allow(dead_code, reason = "no program needs all of it")]

pub(crate) mod driven;
pub(crate) mod in_process;
pub(crate) mod launched;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod statistics;
pub(crate) mod wire;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// What may go wrong is told to the one at the terminal; nobody acts on its kind.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The failure `text`.
pub(crate) fn fail<T>(text: String) -> Outcome<T> {
    Err(text.into())
}

/// The program's words, without what cargo says to every benchmark.
pub(crate) fn words() -> impl Iterator<Item = String> {
    std::env::args().filter(|word| word != "--bench")
}

/// Runs a program with its options; what it fails with is said on standard error.
pub(crate) fn run<O: Parser>(body: impl FnOnce(O) -> Outcome<()>) -> ExitCode {
    match body(O::parse_from(words())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to report a failure of standard error.
            let _ = writeln!(std::io::stderr(), "{}: {error}", env!("CARGO_CRATE_NAME"));
            ExitCode::FAILURE
        }
    }
}

/// A number from `min` to `max`, of an option.
pub(crate) fn real(min: f64, max: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("no number from {min} to {max}")),
    }
}
