//! `kvblaster`: from the command line to a report.
//!
//! Where: the outermost layer. Invariant: the report goes to stdout, all else to stderr; the exit
//! status is 0 only if all that was asked for was done and what was asserted holds, 64 for a wrong
//! command line, 1 otherwise.

use blaster::flags::{self, Refusal, Verb, pages};
use blaster::reflect;
use blaster::result::RunResult;
use blaster::run::compare::{self, CompareError};
use blaster::run::{self, capacity};
use blaster::simulate;
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status for a wrong command line (sysexits.h).
const USAGE: u8 = 64;

/// What is printed, and whether all is well.
struct Printed {
    text: String,
    is_well: bool,
    /// What went wrong in the end: told behind the text, which is not to be lost with it.
    trouble: Option<String>,
}

impl Printed {
    fn well(text: String) -> Printed {
        Printed { text, is_well: true, trouble: None }
    }
}

fn main() -> ExitCode {
    let verb = match flags::parse(std::env::args_os()) {
        Ok(verb) => verb,
        Err(Refusal::Help(help)) => {
            return if help.print().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(Refusal::Wrong(why)) => return failed(&why, USAGE),
    };
    let done = match verb {
        Verb::Run(run) => drive(&run.plan),
        Verb::Capacity(search) => drive(&search.plan),
        Verb::Agent(place) => run::agents::host(&place).map(|()| Printed::well(String::new())),
        Verb::Compare(mut plan) => compare(&mut plan).map_err(|error| error.to_string()),
        Verb::Report(plan) => plan.run().map(Printed::well).map_err(|error| error.to_string()),
        Verb::Reflect(plan) => {
            let done = reflect::flags::run(&plan).map_err(|error| error.to_string());
            done.map(|()| Printed::well(String::new()))
        }
        Verb::Size(sizing) => {
            sizing.run().map(|(text, is_well)| Printed { is_well, ..Printed::well(text) })
        }
        Verb::Simulate(plan) => {
            simulate::run(&plan).map(Printed::well).map_err(|error| error.to_string())
        }
        Verb::Man { verb } => {
            pages::man(verb).map(Printed::well).map_err(|error| error.to_string())
        }
        Verb::Completions { shell } => Ok(Printed::well(pages::completions(shell))),
    };
    let printed = match done {
        Ok(printed) => printed,
        Err(why) => return failed(&why, 1),
    };
    let written = io::stdout().write_all(printed.text.as_bytes());
    if let Some(trouble) = printed.trouble {
        return failed(&trouble, 1);
    }
    match written {
        Ok(()) if printed.is_well => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Tells why on stderr. If that is closed, there is nobody to tell.
fn failed(why: &str, status: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "kvblaster: {why}");
    ExitCode::from(status)
}

fn drive(plan: &run::Plan) -> Result<Printed, String> {
    if let Some(folder) = &plan.out {
        RunResult::prepare(folder).map_err(|error| format!("--out: {error}"))?;
    }
    let done = match &plan.capacity {
        Some(search) => capacity::run(plan, &search.aim),
        None => run::run(plan),
    };
    let done = done.map_err(|error| error.to_string())?;
    let written = plan.out.as_ref().map_or(Ok(()), |folder| done.write(folder));
    let trouble = written.err().map(|error| format!("the result is not kept: {error}"));
    let is_well = run::is_well(&done);
    let text = match (plan.json, &done.search) {
        (true, _) => serde_json::to_string_pretty(&done).map_err(|error| error.to_string())? + "\n",
        (false, Some(found)) => run::text::found::text(plan, &done, found),
        (false, None) => run::text::text(plan, &done),
    };
    Ok(Printed { text, is_well, trouble })
}

fn compare(plan: &mut compare::Plan) -> Result<Printed, CompareError> {
    compare::prepare(plan)?;
    let done = compare::run(plan)?;
    let written = plan.run.out.as_ref().map_or(Ok(()), |folder| done.write(folder));
    let trouble = written.err().map(|error| format!("the result is not kept: {error}"));
    let is_well = !done.is_interrupted && done.servers.iter().all(run::is_well);
    let text = match plan.run.json {
        true => done.json()?,
        false => run::text::compared::text(plan, &done),
    };
    Ok(Printed { text, is_well, trouble })
}
