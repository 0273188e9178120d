//! The command line: which command, and the rows from which each command's flags are parsed.
//!
//! Where: `main` calls `parse` first. Invariant: a word that means nothing is refused by name,
//! never passed over; `--help` is made from the rows that are parsed.

use crate::measure::schedule::span;
use crate::reflect::{Plan as ReflectPlan, flags as reflect};
use crate::report::flags::{self as report, Plan as ReportPlan};
use crate::run::{Plan as RunPlan, flags as run};
use crate::simulate::{Plan as SimulatePlan, flags as simulate};
use crate::words::{meant, wrapped, written_out};
use std::ffi::OsString;
use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// Print this to stdout.
    Print(String),
    /// Simulate.
    Simulate(Box<SimulatePlan>),
    /// Drive servers.
    Run(Box<RunPlan>),
    /// Be a null server.
    Reflect(Box<ReflectPlan>),
    /// Put results side by side.
    Report(Box<ReportPlan>),
}

/// Why the command line is refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A flag of a command whose plan is a `P`.
pub(crate) struct Flag<P> {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    /// What its value is called; empty for none.
    pub(crate) value: &'static str,
    pub(crate) help: &'static [&'static str],
    pub(crate) apply: fn(&mut P, &str) -> Result<(), String>,
}

/// An option as it stood on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its long name.
    pub long: String,
    /// Its value, if it takes one.
    pub value: Option<String>,
}

const USAGE: &str = "\
kvblaster: what caches do under work, measured

Usage: kvblaster COMMAND [OPTIONS] ...

Commands:
  run        Drive servers with a workload, and report what they did
  capacity   Find the highest rate at which an objective is met
  report     Put results side by side on an HTML page
  reflect    Be a null server: what the generator and the network can do
  simulate   Replay traces of keys against eviction policies, offline

kvblaster COMMAND --help tells more of a command.
";

/// Parses the arguments after the program's name.
///
/// # Errors
/// Something is unknown or wrong; where to look for what is right is told behind it.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Asked, Refusal> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = arguments.first().and_then(|first| first.to_str());
    let command = command.filter(|first| COMMANDS.contains(first)).map(str::to_owned);
    dispatch(lexopt::Parser::from_args(arguments)).map_err(|Refusal(why)| match command {
        Some(command) => Refusal(format!("{why}\nTry kvblaster {command} --help.")),
        None => Refusal(format!("{why}\nTry kvblaster --help.")),
    })
}

const COMMANDS: [&str; 5] = ["run", "capacity", "report", "reflect", "simulate"];

fn dispatch(mut parser: lexopt::Parser) -> Result<Asked, Refusal> {
    match parser.next().map_err(refusal)? {
        None => Err(Refusal("which command?".to_owned())),
        Some(lexopt::Arg::Short('h') | lexopt::Arg::Long("help")) => {
            Ok(Asked::Print(USAGE.to_owned()))
        }
        Some(lexopt::Arg::Short('V') | lexopt::Arg::Long("version")) => {
            Ok(Asked::Print(format!("kvblaster {}\n", env!("CARGO_PKG_VERSION"))))
        }
        Some(lexopt::Arg::Value(command)) => match command.to_str() {
            Some("run") => run::parse(parser, false),
            Some("capacity") => run::parse(parser, true),
            Some("reflect") => reflect::parse(parser),
            Some("report") => report::parse(parser),
            Some("simulate") => simulate::parse(parser),
            _ => {
                let command = command.to_string_lossy();
                Err(Refusal(format!("no such command: {command}{}", meant(&command, COMMANDS))))
            }
        },
        Some(other) => Err(refusal(other.unexpected())),
    }
}

/// The rows of a command, and what it does with words that are no flag.
pub(crate) struct Rows<'r, P> {
    pub(crate) flags: &'r [&'r [Flag<P>]],
    /// The names of settings: `--NAME VALUE` without a row.
    pub(crate) names: fn() -> Vec<&'static str>,
    /// Changes it.
    pub(crate) set: fn(&mut P, &str, &str) -> Result<(), String>,
    /// Takes a word that is no flag.
    pub(crate) free: fn(&mut P, OsString) -> Result<(), String>,
}

impl<P> Rows<'_, P> {
    /// Applies what follows a command to its plan, and gives the options as they stood there; none
    /// if help is wanted.
    pub(crate) fn apply(
        &self,
        parser: &mut lexopt::Parser,
        plan: &mut P,
    ) -> Result<Option<Vec<Given>>, Refusal> {
        let mut given = Vec::new();
        while let Some(argument) = parser.next().map_err(refusal)? {
            let mut rows = self.flags.iter().copied().flatten();
            let flag = match argument {
                lexopt::Arg::Value(word) => {
                    (self.free)(plan, word).map_err(Refusal)?;
                    continue;
                }
                lexopt::Arg::Short('h') | lexopt::Arg::Long("help") => return Ok(None),
                lexopt::Arg::Long(long) if (self.names)().contains(&long) => {
                    let long = long.to_owned();
                    let text = value(parser, &long)?;
                    (self.set)(plan, &long, &text).map_err(|why| Refusal(about(&long, &why)))?;
                    given.push(Given { long, value: Some(text) });
                    continue;
                }
                lexopt::Arg::Long(long) => rows.find(|flag| flag.long == long),
                lexopt::Arg::Short(short) => rows.find(|flag| flag.short == Some(short)),
            };
            let Some(flag) = flag else {
                let near = match argument {
                    lexopt::Arg::Long(long) => self.meant(long),
                    _ => String::new(),
                };
                return Err(Refusal(argument.unexpected().to_string() + &near));
            };
            let value = match flag.value {
                "" => None,
                _ => Some(value(parser, flag.long)?),
            };
            (flag.apply)(plan, value.as_deref().unwrap_or_default())
                .map_err(|why| Refusal(about(flag.long, &why)))?;
            given.push(Given { long: flag.long.to_owned(), value });
        }
        Ok(Some(given))
    }

    /// The option that was probably meant.
    fn meant(&self, long: &str) -> String {
        let mut names = (self.names)();
        names.extend(self.flags.iter().copied().flatten().map(|flag| flag.long));
        names.push("help");
        let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
        meant(&format!("--{long}"), names.iter().map(String::as_str))
    }
}

/// What is wrong with a flag's value, named once.
fn about(long: &str, why: &str) -> String {
    let why = why.strip_prefix(long).and_then(|why| why.strip_prefix(": ")).unwrap_or(why);
    format!("--{long}: {why}")
}

fn value(parser: &mut lexopt::Parser, long: &str) -> Result<String, Refusal> {
    let value = parser.value().map_err(refusal)?;
    value.into_string().map_err(|_| Refusal(format!("--{long}: not UTF-8")))
}

/// The lines of `--help` for some rows, no wider than a terminal.
pub(crate) fn lines<P>(rows: &[Flag<P>]) -> String {
    let mut out = String::new();
    for flag in rows {
        let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let synopsis = format!("  {short}--{} {}", flag.long, flag.value);
        let synopsis = synopsis.trim_end();
        let text = wrapped(&" ".repeat(HELP_AT), &flag.help.join(" "));
        let _ = match synopsis.len() < HELP_AT {
            true => write!(out, "{synopsis:HELP_AT$}{}", &text[HELP_AT..]),
            false => write!(out, "{synopsis}\n{text}"),
        };
    }
    out
}

const TIME_MIN: Duration = Duration::from_micros(1);
const TIME_MAX: Duration = Duration::from_secs(3600);
const CPU_MAX: usize = 4095;

/// The column in which a flag's help stands.
const HELP_AT: usize = 25;

/// What lexopt found wrong.
pub(crate) fn refusal(error: lexopt::Error) -> Refusal {
    Refusal(error.to_string())
}

/// What is said of numbers in `--help`.
pub(crate) const NUMBERS: &str = "\
Numbers may end in k, m or g: thousands, millions or billions, as in 1.5m.
";

/// A number within bounds.
pub(crate) fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    min: T,
    max: T,
) -> Result<T, String> {
    let number = written_out(text).parse().ok();
    let number = number.filter(|number| min <= *number && *number <= max);
    number.ok_or_else(|| format!("a number from {min} to {max}: {text}"))
}

/// A list of what is written between commas.
pub(crate) fn list<T: FromStr<Err = String>>(text: &str) -> Result<Vec<T>, String> {
    text.split(',').map(|one| one.trim().parse()).collect()
}

/// A time as in 500us.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = span(text).filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
    time.ok_or_else(|| format!("a time as in 500us, 1ms or 2s, at most an hour: {text}"))
}

/// CPUs as in 0,2-5.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let ranges = list::<Cpus>(text)?;
    Ok(ranges.into_iter().flat_map(|Cpus(first, last)| first..=last).collect())
}

/// One CPU, or one after the other.
struct Cpus(usize, usize);

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let first = number(first, 0, CPU_MAX)?;
        Ok(Cpus(first, number(last, first, CPU_MAX)?))
    }
}
