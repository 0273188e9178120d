//! Rows of statistics.
//!
//! Where: each subcommand of `stats` writes its answer as rows; `/stats.json` has the same rows.
//! Invariant: a row has one name and one value, in the form of the request's protocol or as JSON.

use std::fmt::Arguments;

use protocol::Form;
use serde_json::{Map, Number, Value};

use crate::shared::Shared;

macro_rules! stat {
    ($rows:expr, $name:expr, $value:expr) => {
        $rows.row($name, format_args!("{}", $value))
    };
}
pub(super) use stat;

/// Writes rows that have the names of fields of `$of`.
macro_rules! stats {
    ($rows:expr, $of:expr => $($name:ident),+) => {
        $(stat!($rows, stringify!($name), $of.$name);)+
    };
}
pub(super) use stats;

/// Writes the rows of an answer.
pub(super) type WriteRows = fn(&Shared, &mut Rows<'_>);

/// The place to which statistics are written.
pub(super) enum Target<'o> {
    /// The reply to a request: text lines, or binary frames.
    Reply(Form, &'o mut Vec<u8>),
    /// A member of a JSON object.
    Json(&'o mut Map<String, Value>),
}

/// The statistics that are being written.
pub(super) struct Rows<'o> {
    /// The time of the store's clock.
    pub(super) now: u32,
    pub(super) target: Target<'o>,
}

impl Rows<'_> {
    pub(super) fn row(&mut self, name: &str, value: Arguments<'_>) {
        match &mut self.target {
            Target::Reply(form, out) => form.stat(name, value, out),
            Target::Json(object) => {
                let text = value.to_string();
                // A text that is a JSON number becomes a number.
                let number = text.parse::<Number>().map(Value::Number);
                object.insert(name.to_owned(), number.unwrap_or(Value::String(text)));
            }
        }
    }
}
