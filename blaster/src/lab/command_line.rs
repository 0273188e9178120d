//! The command lines of kvblaster that measure a point, and the errors of a measurement.
//!
//! Where: `measure` and `simulated` make the words from an experiment's flags.
//! Invariant: the words are parsed as those of a user, so each command line can be repeated.

use super::installed::MeasureError;
use crate::flags::{self, Refusal, Verb};
use crate::words::command_line;

/// True if a word begins with the short or the long form of a flag.
pub(super) fn has_flag(words: &[String], spellings: [&str; 2]) -> bool {
    words.iter().any(|word| spellings.iter().any(|flag| word.starts_with(flag)))
}

/// Parses the words of a command line. Also returns the command line as text.
pub(super) fn parsed(words: Vec<String>) -> Result<(Verb, String), MeasureError> {
    let text = format!("kvblaster {}", command_line(&words));
    let parsed = flags::parse(std::iter::once("kvblaster".to_owned()).chain(words).map(Into::into));
    let wrong = |why: String| MeasureError::Failed(format!("{text}: {why}"));
    let verb = parsed.map_err(|refusal| match refusal {
        Refusal::Wrong(why) => wrong(why),
        Refusal::Help(help) => wrong(help.to_string()),
    })?;
    Ok((verb, text))
}
