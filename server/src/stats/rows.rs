//! Rows of statistics.
//!
//! Where: each subcommand of `stats` writes its answer as rows.
//! Invariant: a row has one name and one value, in the form of the request's protocol.

use std::fmt::Arguments;

use protocol::Form;

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

/// The reply to which statistics are appended: text lines, or binary frames.
pub(super) struct Rows<'o> {
    pub(super) form: Form,
    /// The time of the store's clock.
    pub(super) now: u32,
    pub(super) out: &'o mut Vec<u8>,
}

impl Rows<'_> {
    pub(super) fn row(&mut self, name: &str, value: Arguments<'_>) {
        self.form.stat(name, value, self.out);
    }
}
