//! The options that the user gave, as opposed to defaults.
//!
//! Where: `parse` collects the options for the plans of runs. Invariant: the options have the order
//! of the command line, because later settings of a workload replace earlier ones.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// An option from the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliOption {
    /// The option's long name.
    pub long: String,
    /// The option's value, if the option takes one.
    pub value: Option<String>,
}

/// Returns the options that the command line gives to the verb, in the order of the command line.
pub(super) fn given(command: &Command, matches: &ArgMatches) -> Vec<CliOption> {
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
            found.push((place, CliOption { long: long.to_owned(), value }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, given)| given).collect()
}
