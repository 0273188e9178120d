//! Modules that the benches share: options, statistics, servers under test, stores, the report.
//!
//! Where: included by each program's `main`.
//! Invariant: each program decides what it measures, and uses the modules that it needs.

#![allow(dead_code, reason = "no program needs all of it")]

pub(crate) mod driven;
pub(crate) mod in_process;
pub(crate) mod launched;
pub(crate) mod report;
pub(crate) mod requests;
#[path = "../../tests/running/mod.rs"]
pub(crate) mod running;
pub(crate) mod statistics;
pub(crate) mod wire;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// The result of a step. Errors are only shown to the user; no code acts on their kind.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) fn fail<T>(text: String) -> Outcome<T> {
    Err(text.into())
}

/// The program's arguments, without `--bench`, which cargo passes to every benchmark.
pub(crate) fn words() -> impl Iterator<Item = String> {
    std::env::args().filter(|word| word != "--bench")
}

pub(crate) fn run<O: Parser>(body: impl FnOnce(O) -> Outcome<()>) -> ExitCode {
    match body(O::parse_from(words())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error in writing to standard error cannot be reported.
            let _ = writeln!(std::io::stderr(), "{}: {error}", env!("CARGO_CRATE_NAME"));
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn real(min: f64, max: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("must be a number from {min} to {max}")),
    }
}
