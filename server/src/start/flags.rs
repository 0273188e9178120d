//! The command line: tables with a row for each flag and each option of `-o`. Parsing, `-h`,
//! refusals, the manual page and the shell completions use these rows.
//!
//! Where: `main` calls `parse`. `examples/pages.rs` writes the manual page and the completions.
//! Invariant: every flag of memcached 1.6.45 has a row. The flag has memcached's effect, is
//! reported to have no effect, or is refused. A flag that promises security, a listener or
//! durability that this server does not have is refused.
//! Source: memcached 1.6.45 `main` (getopt_long), `usage`; getsubopt(3).

mod extended;
mod flag;
mod help;
mod lifecycle;
mod limits;
mod listen;
mod other;
pub mod pages;
#[cfg(test)]
mod tests;
mod xdp;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::machine::cpus::Cpus;
use crate::machine::ram::Ram;
use crate::start::settings::Settings;
pub use flag::{BadFlag, COLUMNS_MAX, Effect, Flag, ValueKind};
use flag::{Choices, meant, named, unknown};

/// Maximum number of threads (`-t`) for which memcached gives no warning.
const COLUMNS_SANE: usize = 64;
/// The result of parsing the command line.
#[derive(Debug)]
pub enum Action {
    /// Print this text to stdout, and exit with 0.
    Print(String),
    /// Serve with these settings. The notes go to stderr.
    Serve(Box<Settings>, Vec<String>),
}

/// All flags, in the order of `-h`.
pub fn flags() -> impl Iterator<Item = &'static Flag> {
    [listen::FLAGS, xdp::FLAGS, lifecycle::FLAGS, limits::FLAGS, other::FLAGS].into_iter().flatten()
}

/// All options of `-o`, in the order of `-h`.
#[must_use]
pub fn extended() -> &'static [Flag] {
    extended::OPTIONS
}

/// Parses the arguments that follow the program's name. The default of `-t` comes from `cpus`; `-m`
/// may be a percentage of `ram`.
///
/// # Errors
/// A flag is unknown, refused, or has a wrong value.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    cpus: &Cpus,
    ram: &Ram,
) -> Result<Action, BadFlag> {
    let mut choices = Choices {
        settings: Settings::with_columns(cpus.columns().min(COLUMNS_MAX)),
        notes: Vec::new(),
        inter: Vec::new(),
        xdp: flag::XdpFlags::default(),
        has_port: false,
        pin: true,
        print: None,
        ram: *ram,
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut is_first = true;
    while let Some(argument) = parser.next().map_err(|error| unknown(&error.to_string()))? {
        let (flag, long) = match argument {
            lexopt::Arg::Short(short) => (find_short(short)?, false),
            lexopt::Arg::Long(long) => (find_long(long)?, true),
            lexopt::Arg::Value(value) => {
                return pages::text_of_command(&value.to_string_lossy(), is_first, &mut parser);
            }
        };
        let value = match flag.takes {
            ValueKind::Nothing => String::new(),
            ValueKind::Optional => {
                if long {
                    parser.optional_value();
                }
                String::new()
            }
            ValueKind::Value(_) => text(flag, parser.value())?,
        };
        choices.act(&named(flag), flag.handler, value.trim_start())?;
        is_first = false;
        if let Some(text) = choices.print {
            return Ok(Action::Print(text));
        }
    }
    choices.finish(cpus)
}

fn find_short(short: char) -> Result<&'static Flag, BadFlag> {
    let of = |short| move |flag: &&Flag| flag.short == Some(short);
    flags().find(of(short)).ok_or_else(|| {
        let other =
            if short.is_lowercase() { char::to_ascii_uppercase } else { char::to_ascii_lowercase };
        let meant =
            flags().find(of(other(&short))).map(|flag| format!("; do you mean {}?", named(flag)));
        unknown(&format!("invalid option -- '{short}'{}", meant.unwrap_or_default()))
    })
}

/// Finds a flag by its long name or by an unambiguous prefix of the name, as getopt_long does.
fn find_long(long: &str) -> Result<&'static Flag, BadFlag> {
    if let Some(flag) = flags().find(|flag| flag.long == long) {
        return Ok(flag);
    }
    let mut fitting = flags().filter(|flag| flag.long.starts_with(long));
    match (fitting.next(), fitting.next()) {
        (Some(flag), None) => Ok(flag),
        (None, _) => Err(unknown(&format!("unrecognized option '--{long}'{}", meant_long(long)))),
        (Some(_), Some(_)) => {
            let all: Vec<String> = flags()
                .filter(|flag| flag.long.starts_with(long))
                .map(|flag| format!("--{}", flag.long))
                .collect();
            Err(unknown(&format!("option '--{long}' is ambiguous: {}", all.join(", "))))
        }
    }
}

/// Suggests the flag, or the option of `-o`, that an unknown long name probably means.
fn meant_long(long: &str) -> String {
    let option = long.replace('-', "_");
    if extended().iter().any(|row| row.long == option) {
        return format!("; do you mean -o {option}?");
    }
    let names: Vec<String> = flags()
        .filter(|flag| !flag.long.is_empty())
        .map(|flag| format!("--{}", flag.long))
        .collect();
    meant(&format!("--{long}"), names.iter().map(String::as_str))
}

fn text(flag: &Flag, value: Result<OsString, lexopt::Error>) -> Result<String, BadFlag> {
    let name = named(flag);
    value
        .map_err(|_| unknown(&format!("option requires an argument -- {name}")))?
        .into_string()
        .map_err(|_| BadFlag::value(format!("{name}: the value is not valid UTF-8")))
}

impl Choices {
    /// Completes the settings that depend on several flags.
    fn finish(mut self, cpus: &Cpus) -> Result<Action, BadFlag> {
        limits::check_item_bytes(&self.settings)?;
        limits::compare_memory(&mut self);
        listen::set_listeners(&mut self)?;
        xdp::finish(&mut self)?;
        if self.pin {
            self.settings.cpus = cpus.to_pin().to_vec();
        }
        if self.settings.columns.count > COLUMNS_SANE {
            self.notes.push(
                "WARNING: Setting a high number of worker threads is not recommended.\n \
                 Set this value to the number of cores in your machine or less."
                    .to_owned(),
            );
        }
        if self.settings.daemonize {
            // A daemon changes its working directory, so paths must be absolute.
            for path in [&mut self.settings.pid_path, &mut self.settings.unix_path] {
                *path = path.take().map(absolute);
            }
        }
        Ok(Action::Serve(Box::new(self.settings), self.notes))
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
