//! Words of a command line into numbers within bounds.
//!
//! Where: read once by each program, before anything is measured.
//! Invariant: a number that came through here is within the bounds named, so no later arithmetic on
//! it overflows.

use super::{Outcome, fail};

/// Gives `take` each option with its value; those among `flags` have none. False: help was asked
/// for.
pub(crate) fn each(
    words: impl IntoIterator<Item = String>,
    flags: &[&str],
    mut take: impl FnMut(&str, &str) -> Outcome<()>,
) -> Outcome<bool> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-h" | "--help" => return Ok(false),
            // What cargo says to every benchmark.
            "--bench" => {}
            flag if flags.contains(&flag) => take(flag, "")?,
            name => match words.next() {
                Some(value) => take(name, &value)?,
                None => return fail(format!("{name}: unknown, or its value is missing")),
            },
        }
    }
    Ok(true)
}

/// There is no such option.
pub(crate) fn unknown<T>(name: &str) -> Outcome<T> {
    fail(format!("{name}: unknown option; see --help"))
}

/// A whole number from 1 to `max`.
pub(crate) fn whole(name: &str, text: &str, max: u32) -> Outcome<u32> {
    match text.parse::<u32>() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => fail(format!("{name}: {text:?} is no number from 1 to {max}")),
    }
}

/// Whole numbers from 1 to `max`, separated by commas.
pub(crate) fn wholes(name: &str, text: &str, max: u32) -> Outcome<Vec<u32>> {
    text.split(',').map(|one| whole(name, one, max)).collect()
}

/// A number from `min` to `max`.
pub(crate) fn real(name: &str, text: &str, min: f64, max: f64) -> Outcome<f64> {
    match text.parse::<f64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => fail(format!("{name}: {text:?} is no number from {min} to {max}")),
    }
}

/// One of `all`, by name.
pub(crate) fn one_of<T: Copy>(name: &str, text: &str, all: &[(&str, T)]) -> Outcome<T> {
    match all.iter().find(|(known, _)| *known == text) {
        Some((_, one)) => Ok(*one),
        None => {
            let known: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
            fail(format!("{name}: {text:?} is none of {}", known.join(", ")))
        }
    }
}
