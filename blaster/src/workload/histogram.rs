//! Histograms from files, for distributions that are not built in.
//!
//! Where: a histogram is read if a setting has the value `file:PATH`.
//! Invariant: a histogram has 1 to `ROWS_MAX` rows, and at least one row has a weight above 0. An
//! error in a file names the line.
//! Source: the KV-Cache paper, section 5.2.2: inverse transform sampling of histograms.

use super::alias::WEIGHTS_MAX;
use super::files::Files;
use super::grammar::number;
use super::limits::WorkloadError;
use crate::words::hex;
use md5::{Digest, Md5};
use std::io::Read;
use std::path::Path;

pub(crate) const ROWS_MAX: usize = WEIGHTS_MAX;
const FILE_BYTES_MAX: u64 = 64 << 20;
const WEIGHT_MAX: f64 = 1e12;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Histogram {
    /// The first word of each row, unchanged.
    words: Vec<String>,
    /// For each row, the first word as a number (0 if the word is not a number), and the weight.
    pub(super) pairs: Vec<(f64, f64)>,
    lines: Vec<usize>,
    /// The index of the first row whose first word is not a number.
    word_at: Option<usize>,
    /// The MD5 sum of the file's text. A manifest identifies the file by this sum.
    pub(super) sum: String,
}

impl Histogram {
    /// Reads a file of rows `VALUE WEIGHT` or `VALUE,WEIGHT`. Empty lines, text after a `#`, and a
    /// first row without numbers are skipped. Errors name the setting.
    pub(crate) fn read(
        files: &Files<'_>,
        path: &Path,
        setting: &str,
    ) -> Result<Histogram, WorkloadError> {
        let wrong = |why: String| WorkloadError(format!("{setting}: {}: {why}", path.display()));
        let file = files.open(path).map_err(|error| wrong(error.to_string()))?;
        let mut text = String::new();
        let mut source = file.take(FILE_BYTES_MAX + 1);
        source.read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(wrong(format!("the file has more than {FILE_BYTES_MAX} bytes")));
        }
        Histogram::parse(&text).map_err(|(line, why)| wrong(format!("line {line}: {why}")))
    }

    /// Parses the text of a histogram file. An error has a line number.
    pub(crate) fn parse(text: &str) -> Result<Histogram, (usize, String)> {
        let sum = hex(&Md5::digest(text.as_bytes()));
        let none = Histogram { words: vec![], pairs: vec![], lines: vec![], word_at: None, sum };
        let mut histogram = none;
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.split_once('#').map_or(row, |(row, _)| row).trim();
            if row.is_empty() {
                continue;
            }
            let mut parts = row
                .split(|mark: char| mark == ',' || mark == ';' || mark.is_whitespace())
                .filter(|part| !part.is_empty());
            let (Some(word), Some(weight), None) = (parts.next(), parts.next(), parts.next())
            else {
                return Err((line, format!("a row must be VALUE WEIGHT: {row}")));
            };
            let value = number(word);
            let weight = match weight.parse::<f64>() {
                Err(_) if value.is_none() && histogram.pairs.is_empty() => continue,
                Ok(weight) if (0.0..=WEIGHT_MAX).contains(&weight) => weight,
                _ => return Err((line, format!("a weight must be 0 to {WEIGHT_MAX:e}: {row}"))),
            };
            if histogram.pairs.len() == ROWS_MAX {
                return Err((line, format!("the file has more than {ROWS_MAX} rows")));
            }
            if value.is_none() && histogram.word_at.is_none() {
                histogram.word_at = Some(histogram.pairs.len());
            }
            histogram.words.push(word.to_owned());
            histogram.pairs.push((value.unwrap_or(0.0), weight));
            histogram.lines.push(line);
        }
        if histogram.pairs.iter().all(|(_, weight)| *weight == 0.0) {
            return Err((text.lines().count().max(1), "no row has a weight above 0".to_owned()));
        }
        Ok(histogram)
    }

    /// Checks that all values are numbers from `min` to `max`, and whole numbers if `is_whole`.
    pub(crate) fn within(&self, min: f64, max: f64, is_whole: bool) -> Result<(), String> {
        let line = |row: usize| self.lines.get(row).copied().unwrap_or(0);
        if let Some(row) = self.word_at {
            return Err(format!("line {}: {} is not a number", line(row), self.words[row]));
        }
        for (row, (value, _)) in self.pairs.iter().enumerate() {
            if !(min..=max).contains(value) {
                return Err(format!("line {}: {value} is not between {min} and {max}", line(row)));
            }
            if is_whole && value.fract() != 0.0 {
                return Err(format!("line {}: {value} is not a whole number", line(row)));
            }
        }
        Ok(())
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, f64)> {
        self.words.iter().map(String::as_str).zip(self.pairs.iter().map(|pair| pair.1))
    }

    pub(crate) fn ordered_weights(&self) -> Vec<f64> {
        let mut pairs = self.pairs.clone();
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        pairs.into_iter().map(|(_, weight)| weight).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let spaces = Histogram::parse("# sizes\n64 10\n\n 128\t0.5 # half\n").unwrap();
        assert_eq!(spaces.pairs, [(64.0, 10.0), (128.0, 0.5)]);
        let commas = Histogram::parse("value,weight\n128, 1e3\r\n64,10\r\n").unwrap();
        assert_eq!(commas.pairs, [(128.0, 1000.0), (64.0, 10.0)]);
        assert_eq!(commas.ordered_weights(), [10.0, 1000.0]);
        let words: Vec<_> = Histogram::parse("get 9\nset 1").unwrap().words.clone();
        assert_eq!(words, ["get", "set"]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let wrong = [
            ("1 2\n3\n", 2, "a row must be VALUE WEIGHT: 3"),
            ("1 2 3", 1, "a row must be VALUE WEIGHT: 1 2 3"),
            ("1 2\nx y\n", 2, "a weight must be 0 to 1e12: x y"),
            ("1 -2", 1, "a weight must be 0 to 1e12: 1 -2"),
            ("1 nan", 1, "a weight must be 0 to 1e12: 1 nan"),
            ("1 1e13", 1, "a weight must be 0 to 1e12: 1 1e13"),
            ("", 1, "no row has a weight above 0"),
            ("1 0\n2 0\n", 2, "no row has a weight above 0"),
        ];
        for (text, line, why) in wrong {
            assert_eq!(Histogram::parse(text), Err((line, why.to_owned())), "{text:?}");
        }
        let histogram = Histogram::parse("1 1\n\n2.5 1\n").unwrap();
        assert_eq!(histogram.within(0.0, 9.0, false), Ok(()));
        assert!(histogram.within(0.0, 9.0, true).unwrap_err().starts_with("line 3: 2.5 "));
        assert!(histogram.within(0.0, 2.0, false).unwrap_err().starts_with("line 3: 2.5 "));
        let word = Histogram::parse("1 1\nmany 1\n").unwrap().within(0.0, 9.0, true).unwrap_err();
        assert_eq!(word, "line 2: many is not a number");
        let rows = "1 1\n".repeat(ROWS_MAX + 1);
        assert_eq!(Histogram::parse(&rows).unwrap_err().0, ROWS_MAX + 1);
    }
}
