//! One flag: the row of a table, its effect, and the choices that it changes.
//!
//! Where: the tables of flags and of options of `-o` have rows of this type.
//! Invariant: a flag has memcached's effect, is reported to have no effect, or is refused.

use ipnet::IpNet;
use net::xdp::Mode;

use crate::machine::ram::Ram;
use crate::start::settings::Settings;

/// Exit status for a value out of range: memcached's `return 1`.
const FAILURE: u8 = 1;
/// Exit status for a wrong combination or an unsupported feature (`EX_USAGE`).
const USAGE: u8 = 64;
/// The largest number of columns.
pub const COLUMNS_MAX: usize = 1024;

/// The reason why the command line is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct BadFlag {
    /// One or more lines for stderr that tell the user what to do.
    pub text: String,
    /// The exit status.
    pub status: u8,
}

impl BadFlag {
    pub(super) fn value(text: impl Into<String>) -> BadFlag {
        BadFlag { text: text.into(), status: FAILURE }
    }

    pub(super) fn usage(text: impl Into<String>) -> BadFlag {
        BadFlag { text: text.into(), status: USAGE }
    }
}

/// The kind of value that a flag takes, with the value's name in `-h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The flag takes no value.
    Nothing,
    /// The flag takes a value, which has this name in `-h`.
    Value(&'static str),
    /// The flag is `--long` or `--long=value`, and the value is ignored (memcached's `--verbose`).
    Optional,
}

#[derive(Clone, Copy)]
pub(super) enum Handler {
    /// Changes the settings in a way that does not depend on a value.
    Switches(fn(&mut Choices)),
    /// Changes the settings. The function gets the flag's value, or an empty text.
    Sets(fn(&mut Choices, &str) -> Result<(), BadFlag>),
    /// Has no effect here. The value is checked as in memcached, and a note tells the user `why`.
    Nothing { check: fn(&str) -> Result<(), BadFlag>, why: &'static str },
    /// Is refused, because the server does not have what the flag promises. The text is the reason.
    Refused(&'static str),
}

/// The effect of a flag, as shown in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The flag has the effect that its help describes.
    Works,
    /// The flag has no effect, for this reason.
    Nothing(&'static str),
    /// The flag is refused, for this reason.
    Refused(&'static str),
}

/// One flag, or one option of `-o`.
pub struct Flag {
    /// The flag's letter. `None` for flags that memcached does not have, and for options of `-o`.
    pub short: Option<char>,
    /// The long name of the flag, or the name of the option. Empty if the flag has no long name.
    pub long: &'static str,
    /// The kind of the flag's value.
    pub takes: ValueKind,
    /// The lines of `-h` that explain the flag. Empty for an option of `-o` without effect.
    pub help: &'static [&'static str],
    pub(super) handler: Handler,
}

impl Flag {
    /// The flag's effect in this server.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self.handler {
            Handler::Switches(_) | Handler::Sets(_) => Effect::Works,
            Handler::Nothing { why, .. } => Effect::Nothing(why),
            Handler::Refused(why) => Effect::Refused(why),
        }
    }
}

pub(super) struct Choices {
    pub(super) settings: Settings,
    pub(super) notes: Vec<String>,
    /// The addresses of `-l`.
    pub(super) inter: Vec<String>,
    /// The values of the AF_XDP flags other than `--xdp`.
    pub(super) xdp: XdpFlags,
    /// True if `-p` was given.
    pub(super) has_port: bool,
    /// False after `-o no_pin`.
    pub(super) pin: bool,
    /// The text to print for `-h`, `-V` or `-i`. The first of these flags ends the parsing.
    pub(super) print: Option<String>,
    pub(super) ram: Ram,
}

/// The values of the AF_XDP flags other than `--xdp`.
#[derive(Default)]
pub(super) struct XdpFlags {
    pub(super) allow: Vec<IpNet>,
    pub(super) mode: Mode,
    pub(super) fallback: bool,
    /// The name of the last of these flags on the command line.
    pub(super) given: Option<&'static str>,
}

impl Choices {
    /// Carries out the `handler` of a flag, or of an option of `-o`, with the flag's value.
    pub(super) fn act(&mut self, name: &str, handler: Handler, value: &str) -> Result<(), BadFlag> {
        match handler {
            Handler::Switches(switch) => {
                switch(self);
                Ok(())
            }
            Handler::Sets(set) => set(self, value),
            Handler::Nothing { check, why } => {
                check(value)?;
                let note = format!("{name} has no effect: {why}");
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                Ok(())
            }
            Handler::Refused(why) => Err(BadFlag::usage(format!("{name} is refused: {why}"))),
        }
    }
}

/// The flag's name in messages, such as `-p`.
pub(super) fn named(flag: &Flag) -> String {
    flag.short.map_or_else(|| format!("--{}", flag.long), |short| format!("-{short}"))
}

/// Suggests the name that `word` probably means. The text is empty if no name is similar.
pub(super) fn meant<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> String {
    let near = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    let near = near.filter(|(edits, name)| 3 * edits <= name.len());
    let nearest = near.min_by_key(|(edits, _)| *edits);
    nearest.map_or(String::new(), |(_, name)| format!("; do you mean {name}?"))
}

pub(super) fn unknown(what: &str) -> BadFlag {
    BadFlag::value(format!("Illegal argument: {what}\nTry 'hypostyle -h' for all options."))
}

/// Parses a number within `bounds`. If that fails, the refusal begins with the text `wrong`.
pub(super) fn number<N: TryFrom<i64>>(
    text: &str,
    bounds: std::ops::RangeInclusive<i64>,
    wrong: &str,
) -> Result<N, BadFlag> {
    let value = text.parse::<i64>().ok().filter(|value| bounds.contains(value));
    value
        .and_then(|value| N::try_from(value).ok())
        .ok_or_else(|| BadFlag::value(format!("{wrong} (given: '{text}')")))
}
