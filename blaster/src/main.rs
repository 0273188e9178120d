//! The program `kvblaster`: parses the command line, executes the verb and prints the report.
//!
//! Where: on top of the library, which does the work.
//! Invariant: the report goes to stdout, all other output to stderr. The exit status is an `Exit`.

use blaster::flags::exit::Exit;
use blaster::flags::{self, Refusal, Verb, pages};
use blaster::reflect;
use blaster::result::RunResult;
use blaster::run::compare;
use blaster::run::{self, capacity};
use blaster::simulate;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, Write};
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Printed {
    text: String,
    exit: Exit,
    /// An error after the measurement. `text` is printed first, so that results are not lost.
    trouble: Option<String>,
}

fn main() -> ExitCode {
    let verb = match flags::parse(std::env::args_os()) {
        Ok(verb) => verb,
        Err(Refusal::Help(help)) => {
            return if help.print().is_ok() { Exit::Met } else { Exit::Failed }.code();
        }
        Err(Refusal::Wrong(why)) => return failed(&why, Exit::Usage),
    };
    allow_connections();
    let printed = match done(verb) {
        Ok(printed) => printed,
        Err(error) => return failed(&error.to_string(), Exit::Failed),
    };
    let written = io::stdout().write_all(printed.text.as_bytes());
    if let Some(trouble) = printed.trouble {
        return failed(&trouble, Exit::Failed);
    }
    written.map_or(Exit::Failed, |()| printed.exit).code()
}

fn done(verb: Verb) -> Result<Printed, Failure> {
    let (text, exit) = match verb {
        Verb::Run(mut run) => return drive(&mut run.plan),
        Verb::Capacity(mut search) => return drive(&mut search.plan),
        Verb::Compare(mut plan) => return compare(&mut plan),
        Verb::Lab(plan) => plan.run()?,
        Verb::Size(sizing) => sizing.run()?,
        Verb::Agent(place) => (run::agents::host::run(&place).map(|()| String::new())?, Exit::Met),
        Verb::Reflect(plan) => (reflect::run(&plan).map(|()| String::new())?, Exit::Met),
        Verb::Report(plan) => (plan.run()?, Exit::Met),
        Verb::Simulate(plan) => (simulate::run(&plan)?, Exit::Met),
        Verb::Man { verb } => (pages::man(verb)?, Exit::Met),
        Verb::Completions { shell } => (pages::completions(shell), Exit::Met),
    };
    Ok(Printed { text, exit, trouble: None })
}

/// Raises the limit of open files to the maximum, because each connection is an open file. An error
/// is ignored: the run reports an error if it cannot open a connection.
fn allow_connections() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Reports an error on stderr. If stderr cannot be written, the error is lost.
fn failed(why: &str, exit: Exit) -> ExitCode {
    let _ = writeln!(io::stderr(), "kvblaster: {why}");
    exit.code()
}

fn not_saved(error: impl std::fmt::Display) -> String {
    format!("the result could not be saved: {error}")
}

fn drive(plan: &mut run::Plan) -> Result<Printed, Failure> {
    run::set_keys_by_share(plan)?;
    if let Some(folder) = &plan.out {
        RunResult::prepare(folder).map_err(|error| format!("--out: {error}"))?;
    }
    let done = match &plan.capacity {
        Some(search) => capacity::run(plan, &search.aim),
        None => run::run(plan),
    };
    let done = done?;
    let written = plan.out.as_ref().map_or(Ok(()), |folder| done.write(folder));
    let trouble = written.err().map(not_saved);
    let exit = run::exit(&done);
    let text = match (plan.json, &done.search) {
        (true, _) => serde_json::to_string_pretty(&done)? + "\n",
        (false, Some(found)) => run::text::found::text(plan, &done, found),
        (false, None) => run::text::text(plan, &done),
    };
    Ok(Printed { text, exit, trouble })
}

fn compare(plan: &mut compare::Plan) -> Result<Printed, Failure> {
    compare::prepare(plan)?;
    let done = compare::run(plan)?;
    let written = plan.run.out.as_ref().map_or(Ok(()), |folder| done.write(folder));
    let trouble = written.err().map(not_saved);
    let ended = if done.is_interrupted { Exit::NotMet } else { Exit::Met };
    let exit = done.servers.iter().map(run::exit).fold(ended, Exit::max);
    let text = if plan.run.json { done.json()? } else { run::text::compared::text(plan, &done) };
    Ok(Printed { text, exit, trouble })
}
