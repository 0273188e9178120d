//! The command line: one enum of verbs, each with its struct of flags.
//!
//! A flag is a field of its verb's struct: the doc comment is its help, and `value_parser` reads
//! and bounds its value (`number`, `time` and so on below); `long` and `short` without a name take
//! the field's. A verb is a variant of `Verb`, whose doc comment is the line in `--help`, with an
//! arm in `main`, which does it; an arm of `Verb::finish` checks what only shows when all flags are
//! known. Help, manual page, completions and the commands of `next:` are made from those.
//!
//! Where: `main` calls `parse` first.
//! Invariant: a word without a meaning is refused by name, never passed over; of a flag given twice
//! the last holds, and a flag that may be given often adds up.

pub mod pages;

use crate::measure::schedule::span;
use crate::words::written_out;
use crate::{exit, reflect, report, run, simulate, size};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Measures caches under load
#[derive(Debug, clap::Parser)]
#[command(name = "kvblaster", version, args_override_self = true, max_term_width = COLUMNS)]
#[command(arg_required_else_help = false, after_help = exit::table())]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Drive servers with a workload, and report what they did
    Run(Box<run::Run>),
    /// Find the highest rate at which an objective is met
    Capacity(Box<run::Search>),
    /// Find out how much memory, and how many CPUs, a workload needs
    Size(Box<size::flags::Sizing>),
    /// Drive for a run or a search elsewhere, over standard input and output
    Agent(run::agents::Place),
    /// Have servers do the same work in turns, and tell which is better at what
    Compare(Box<run::compare::Plan>),
    /// Put results side by side on an HTML page
    Report(report::flags::Plan),
    /// Be a null server: what the generator and the network can do
    Reflect(reflect::Plan),
    /// Replay traces of keys against eviction policies, offline
    Simulate(simulate::Plan),
    /// Print the manual page, of a command if one is named
    Man {
        /// A verb, as in kvblaster man run
        #[arg(value_name = "COMMAND", value_parser = pages::verb)]
        verb: Option<Box<Command>>,
    },
    /// Print what a shell reads to complete commands and flags
    Completions {
        /// Whose
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// Checks what only shows when all flags are known.
    fn finish(&mut self, given: Vec<Given>) -> Result<(), String> {
        match self {
            Verb::Run(run) => run.finish(given),
            Verb::Capacity(search) => search.finish(given),
            Verb::Size(sizing) => sizing.finish(given),
            Verb::Compare(plan) => plan.finish(given),
            Verb::Simulate(plan) => plan.finish(),
            _ => Ok(()),
        }
    }
}

/// Why the command line names nothing to do.
#[derive(Debug)]
pub enum Refusal {
    /// Help or the version was asked for; `print` shows it.
    Help(clap::Error),
    /// The words are wrong; the text says why, and where the help is.
    Wrong(String),
}

/// An option from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its long name.
    pub long: String,
    /// Its value, if it takes one.
    pub value: Option<String>,
}

/// Parses the command line, the program's name first.
///
/// # Errors
/// Help is asked for, or something is unknown or wrong.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Verb, Refusal> {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut command = command();
    let named = words.get(1).and_then(|word| command.find_subcommand(word));
    let path = named.map_or(String::new(), |verb| format!(" {}", verb.get_name()));
    let wrong = |why: &str| Refusal::Wrong(format!("{why}\nTry kvblaster{path} --help."));
    let refused = |error: clap::Error| match error.use_stderr() {
        true => wrong(&told(&error)),
        false => Refusal::Help(error),
    };
    let matches = command.try_get_matches_from_mut(words).map_err(refused)?;
    let mut verb = Cli::from_arg_matches(&matches).map_err(refused)?.verb;
    verb.finish(given(&command, &matches)).map_err(|why| wrong(&why))?;
    Ok(verb)
}

/// Most columns of `--help`.
const COLUMNS: usize = 80;

/// Commands whose exit status depends on the measurement.
const MEASURING: [&str; 4] = ["run", "capacity", "compare", "size"];

/// All verbs and flags.
fn command() -> Command {
    Cli::command().mut_subcommands(|verb| {
        let last = verb.get_after_help().map_or(String::new(), |help| format!("{help}\n\n"));
        let verb = match MEASURING.contains(&verb.get_name()) {
            true => verb.after_help(last + &exit::table()),
            false => verb,
        };
        verb.help_template("{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}")
    })
}

/// Describes an error in a sentence that names the flag once.
fn told(error: &clap::Error) -> String {
    let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    if let (ErrorKind::ValueValidation, Some(flag), Some(why)) =
        (error.kind(), &flag, error.source())
    {
        return format!("{}: {why}", flag.split(' ').next().unwrap_or(flag));
    }
    let text = error.render().to_string();
    let parts = text.trim_start_matches("error: ").split("\n\n");
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = parts.map(words).filter(|part| {
        !part.is_empty()
            && !["Usage:", "For more", "tip: to pass"].iter().any(|start| part.starts_with(start))
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// The options of the verb, in their order on the command line.
fn given(command: &Command, matches: &ArgMatches) -> Vec<Given> {
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let mut found = Vec::new();
    for arg in command.find_subcommand(name).into_iter().flat_map(Command::get_arguments) {
        let id = arg.get_id().as_str();
        let (Some(long), Some(ValueSource::CommandLine)) =
            (arg.get_long(), matches.value_source(id))
        else {
            continue;
        };
        let mut places = matches.indices_of(id).into_iter().flatten();
        for values in matches.get_raw_occurrences(id).into_iter().flatten() {
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            let value = arg.get_action().takes_values().then(|| values.join(","));
            let place = places.nth(values.len() - 1);
            found.push((place, Given { long: long.to_owned(), value }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, given)| given).collect()
}

const TIME: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3600);
const CPU_MAX: usize = 4095;

/// The note on numbers in `--help`.
pub(crate) const NUMBERS: &str =
    "Numbers may end in k, m or g: thousands, millions or billions, as in 1.5m.";

pub(crate) fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = written_out(text).parse().ok().filter(|number| range.contains(number));
        let (min, max) = (range.start(), range.end());
        number.ok_or_else(|| format!("a number from {min} to {max}: {text}"))
    }
}

/// Reads a value for which one word stands, or else with another parser.
pub(crate) fn or<T: Clone + Send + Sync + 'static>(
    word: &'static str,
    value: T,
    other: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| if text == word { Ok(value.clone()) } else { other(text) }
}

/// Reads one item of a list between commas.
pub(crate) fn one<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.trim().parse()
}

/// Reads a time, such as 500us.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = span(text).filter(|time| TIME.contains(time));
    time.ok_or_else(|| format!("a time as in 500us, 1ms or 2s, at most an hour: {text}"))
}

/// Reads a list of CPUs, such as 0,2-5.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
        let first = number(0..=CPU_MAX)(first)?;
        cpus.extend(first..=number(first..=CPU_MAX)(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the verb that these words ask for, or the text of their refusal.
    pub(crate) fn asked(words: &str) -> Result<Verb, String> {
        parse(["kvblaster"].into_iter().chain(words.split_whitespace()).map(OsString::from))
            .map_err(|refusal| match refusal {
                Refusal::Help(help) => help.to_string(),
                Refusal::Wrong(why) => why,
            })
    }

    /// Asserts that each row's words are refused with the text beside them, and a pointer to the
    /// help.
    pub(crate) fn refused(verb: &str, rows: &[(&str, &str)]) {
        for (words, why) in rows {
            let told = asked(&format!("{verb} {words}")).unwrap_err();
            assert!(told.contains(why), "{words}: {told}");
            assert!(told.ends_with(&format!("\nTry kvblaster {verb} --help.")), "{words}: {told}");
            assert!(!told.contains("Usage:") && !told.contains("error:"), "{words}: {told}");
        }
    }

    #[test]
    fn every_verb_tells_every_flag_on_eighty_columns() {
        for verb in command().get_subcommands() {
            let help = asked(&format!("{} --help", verb.get_name())).unwrap_err();
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let word = arg.get_long().unwrap_or(arg.get_id().as_str());
                assert!(help.contains(&format!("--{word} ")) || arg.is_positional(), "{help}");
                assert!(arg.get_help().is_some(), "{word} has no help");
            }
            let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{help}");
            assert_eq!(help, asked(&format!("{} -h", verb.get_name())).unwrap_err());
        }
        command().debug_assert();
    }

    #[test]
    fn a_wrong_verb_is_refused_and_the_nearest_told() {
        for (words, why) in [
            ("", "requires a subcommand"),
            ("rum", "similar subcommand exists: 'run'"),
            ("--nosuch", "--nosuch"),
        ] {
            let told = asked(words).unwrap_err();
            assert!(told.contains(why), "{words}: {told}");
            assert!(told.ends_with("\nTry kvblaster --help."), "{words}: {told}");
        }
    }
}
