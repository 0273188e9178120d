//! Parsers of the values that several flags have: numbers, rates, lists of CPUs.
//!
//! Where: named by the fields of the structs of flags, as `value_parser`.
//! Invariant: an error says which values are possible, and repeats the wrong value.

use super::without_suffix;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

const CPU_MAX: usize = 4095;
const RATE_MAX: f64 = 1e10;

/// A note on the form of numbers, for `--help`.
pub(crate) const NUMBERS: &str =
    "A number may end in k, m or g for thousands, millions or billions, as in 1.5m.";

pub(crate) fn number<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = without_suffix(text).parse().ok().filter(|number| range.contains(number));
        let (min, max) = (range.start(), range.end());
        number.ok_or_else(|| format!("must be a number from {min} to {max}, not {text}"))
    }
}

/// Returns a parser that returns `value` for the text `word`, and calls `other` for other texts.
pub(crate) fn or<T: Clone + Send + Sync + 'static>(
    word: &'static str,
    value: T,
    other: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| if text == word { Ok(value.clone()) } else { other(text) }
}

/// Parses one item of a comma-separated list.
pub(crate) fn one<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.trim().parse()
}

/// Parses a list of CPUs, such as 0,2-5.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let wrong = |_: String| {
        format!("must be a list of CPUs such as 0,2-5 (from 0 to {CPU_MAX}), not {text}")
    };
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.trim().split_once('-').unwrap_or((range.trim(), range.trim()));
        let first = number(0..=CPU_MAX)(first).map_err(wrong)?;
        cpus.extend(first..=number(first..=CPU_MAX)(last).map_err(wrong)?);
    }
    Ok(cpus)
}

/// Formats a list of CPUs, in ascending order, in the form that `cpus` parses: `0,2-5`.
pub(crate) fn cpu_list(cpus: &[usize]) -> String {
    let range = |run: &[usize]| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(usize::to_string).collect(),
    };
    let runs = cpus.chunk_by(|one, next| one + 1 == *next).map(range);
    runs.collect::<Vec<_>>().join(",")
}

/// Parses a rate per second, such as 20k.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let number = without_suffix(text).parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && *number <= RATE_MAX);
    number.ok_or_else(|| format!("must be a rate such as 500, 20k or 1.5m, not {text}"))
}
