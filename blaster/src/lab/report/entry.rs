//! An entry of the report: an experiment and its data.
//!
//! Where: read by `report`; each section shows an entry.
//! Invariant: an entry has an experiment, data, or both.

use crate::lab::experiment::Experiment;
use crate::lab::record::Record;

/// An experiment and its record, of which one may be absent.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The name of the experiment, and of the record's file.
    pub name: String,
    /// The experiment. `None` if this kvblaster has no experiment of this name.
    pub experiment: Option<Experiment>,
    /// The data. `None` if there are no data; an error if the file cannot be read.
    pub record: Result<Option<Record>, String>,
}

/// Replaces each character of a name by `-`, except ASCII letters and digits, `-`, `_` and `.`.
pub(crate) fn slug(name: &str) -> String {
    let plain =
        |one: char| if one.is_ascii_alphanumeric() || "-_.".contains(one) { one } else { '-' };
    name.chars().map(plain).collect()
}
