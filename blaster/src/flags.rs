//! The command line: an enum of verbs, and a struct of flags for each verb.
//!
//! A flag is a field of its verb's struct. The field's doc comment is the flag's help,
//! `value_parser` parses and limits the value, and the flag has the field's name unless `long`
//! gives another name. A verb is a variant of `Verb`. The variant's doc comment is the verb's line
//! in `--help`, an arm in `main` executes the verb, and an arm of `Verb::finish` checks that its
//! flags agree. These structs generate help, manual pages, completions and suggested commands.
//!
//! Where: `main` calls `parse` first.
//! Invariant: an unknown word causes an error that names the word. If a flag is given twice, the
//! last value counts, except for flags whose values form a list.

pub mod exit;
pub(crate) mod given;
pub mod pages;

use crate::{lab, reflect, report, run, simulate, size};
use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use given::{CliOption, given};
use std::error::Error;
use std::ffi::OsString;

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
    /// Send a workload to servers, and report rates, times and CPU use
    Run(Box<run::flags::Run>),
    /// Find the highest request rate at which servers meet an objective, such as p99<1ms
    Capacity(Box<run::flags::Search>),
    /// Find out how much memory, and how many CPUs, a workload needs
    Size(Box<size::flags::Sizing>),
    /// Send requests for another kvblaster, which controls this process over standard input
    Agent(run::agents::host::HostFlags),
    /// Measure servers in turn with the same workload, and report how they differ
    Compare(Box<run::compare::Plan>),
    /// Repeat published measurements of caches with Hypostyle, memcached and Redis
    Lab(lab::flags::Plan),
    /// Put results side by side on an HTML page
    Report(report::flags::Plan),
    /// Run a server that stores nothing, to measure the limits of kvblaster and of the network
    Reflect(reflect::Plan),
    /// Simulate eviction policies with traces of keys, without a server
    Simulate(simulate::Plan),
    /// Print the manual page of kvblaster, or of one command
    Man {
        /// Name of a command, as in `kvblaster man run`
        #[arg(value_name = "COMMAND", value_parser = pages::verb)]
        verb: Option<Box<Command>>,
    },
    /// Print a script that lets a shell complete commands and flags
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
}

impl Verb {
    /// Completes the verb's plan, and checks that the verb's flags agree with each other.
    fn finish(&mut self, given: Vec<CliOption>) -> Result<(), String> {
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

/// The reason why the command line is not executed.
#[derive(Debug)]
pub enum Refusal {
    /// The user asked for help or the version; `print` prints the requested text.
    Help(clap::Error),
    /// The command line is wrong. The text describes the error, and says how to get help.
    Wrong(String),
}

/// Parses the words of a command line; the first word is the program's name. Fails if help is
/// requested, or a word is unknown or wrong.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Verb, Refusal> {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut command = command();
    let named = words.get(1).and_then(|word| command.find_subcommand(word));
    let path = named.map_or(String::new(), |verb| format!(" {}", verb.get_name()));
    let wrong = |why: &str| Refusal::Wrong(format!("{why}\nTry kvblaster{path} --help."));
    let refused = |error: clap::Error| match error.use_stderr() {
        true => wrong(&describe(&error)),
        false => Refusal::Help(error),
    };
    let matches = command.try_get_matches_from_mut(words).map_err(refused)?;
    let mut verb = Cli::from_arg_matches(&matches).map_err(refused)?.verb;
    verb.finish(given(&command, &matches)).map_err(|why| wrong(&why))?;
    Ok(verb)
}

/// Maximum width of the text of `--help`.
const COLUMNS: usize = 80;

/// Commands whose exit status depends on the measurement.
const MEASURING: [&str; 4] = ["run", "capacity", "compare", "size"];

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

/// Describes an error in one line. If a flag's value is wrong, the line begins with the flag.
fn describe(error: &clap::Error) -> String {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses `words` as kvblaster's arguments. Returns the verb, or the text of the error.
    pub(crate) fn parse_words(words: &str) -> Result<Verb, String> {
        parse(["kvblaster"].into_iter().chain(words.split_whitespace()).map(OsString::from))
            .map_err(|refusal| match refusal {
                Refusal::Help(help) => help.to_string(),
                Refusal::Wrong(why) => why,
            })
    }

    /// Asserts that each row's words cause an error with the row's text and a hint at the help.
    pub(crate) fn refused(verb: &str, rows: &[(&str, &str)]) {
        for (words, why) in rows {
            let message = parse_words(&format!("{verb} {words}")).unwrap_err();
            assert!(message.contains(why), "{words}: {message}");
            assert!(
                message.ends_with(&format!("\nTry kvblaster {verb} --help.")),
                "{words}: {message}"
            );
            assert!(
                !message.contains("Usage:") && !message.contains("error:"),
                "{words}: {message}"
            );
        }
    }

    #[test]
    fn every_verb_tells_every_flag_on_eighty_columns() {
        for verb in command().get_subcommands() {
            let help = parse_words(&format!("{} --help", verb.get_name())).unwrap_err();
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let word = arg.get_long().unwrap_or(arg.get_id().as_str());
                assert!(help.contains(&format!("--{word} ")) || arg.is_positional(), "{help}");
                assert!(arg.get_help().is_some(), "{word} has no help");
            }
            let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{help}");
            assert_eq!(help, parse_words(&format!("{} -h", verb.get_name())).unwrap_err());
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
            let message = parse_words(words).unwrap_err();
            assert!(message.contains(why), "{words}: {message}");
            assert!(message.ends_with("\nTry kvblaster --help."), "{words}: {message}");
        }
    }
}
