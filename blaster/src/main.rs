//! `kvblaster`: from the command line to a report.
//!
//! Where: the outermost layer. Invariant: the report goes to stdout, all else to stderr; the exit
//! status is 0 only if all that was asked for was done, 64 for a wrong command line, 1 otherwise.

use blaster::flags::{self, Asked};
use blaster::simulate::{Plan, SimulateError, jobs, plot, report};
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status for a wrong command line (sysexits.h).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let text = match flags::parse(std::env::args_os().skip(1)) {
        Ok(Asked::Print(text)) => text,
        Ok(Asked::Simulate(plan)) => match simulate(&plan) {
            Ok(text) => text,
            Err(error) => return failed(&error.to_string(), 1),
        },
        Err(refusal) => return failed(&refusal.to_string(), USAGE),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Tells why on stderr. If that is closed, there is nobody to tell.
fn failed(why: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "kvblaster: {why}");
    ExitCode::from(status)
}

fn simulate(plan: &Plan) -> Result<String, SimulateError> {
    let outcomes = jobs::run(plan)?;
    if let Some(path) = &plan.svg {
        std::fs::write(path, plot::svg(plan, &outcomes))
            .map_err(|error| SimulateError::Plot(path.clone(), error))?;
    }
    Ok(if plan.json { report::json(plan, &outcomes) } else { report::text(plan, &outcomes) })
}
