//! The form of an answer: its protocol, and whether the client wants one at all.
//!
//! Where: a session puts a `Form` into every request; the form writes the `Outcome` of the request.
//! Invariant: the executor never inspects a form. This file decides everything that differs between
//! the protocols; the texts are only in `text::write`, `meta::write` and `binary::write`.
//! Source: memcached 1.6.45 `complete_nread_ascii`, `complete_update_bin`, `write_bin_error`.

use std::fmt::Arguments;

use crate::binary::{self, Tag};
use crate::outcome::{Outcome, Refusal};
use crate::text;

/// The form of a request's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line of text.
    Text {
        /// True if the client wants no reply (`noreply`).
        noreply: bool,
    },
    /// A binary frame.
    Binary(Tag),
}

/// The form of the answer for one key of a retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetForm {
    /// A line `VALUE`, and `END` after the last key.
    Text {
        /// True for `gets` and `gats`: the CAS unique is shown.
        cas: bool,
        /// True for the last key of the line: `END` follows the answer for this key.
        last: bool,
    },
    /// A binary frame.
    Binary(Tag),
}

impl GetForm {
    /// Returns the form of an answer that refuses the request.
    pub(crate) fn of_refusal(self) -> Form {
        match self {
            GetForm::Text { .. } => Form::LINE,
            GetForm::Binary(tag) => Form::Binary(tag),
        }
    }

    /// True if more keys of the same request follow.
    #[inline]
    #[must_use]
    pub fn is_continued(self) -> bool {
        match self {
            GetForm::Text { last, .. } => !last,
            GetForm::Binary(_) => false,
        }
    }
}

/// An answer that is known without a lookup in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The form to write the outcome in.
    pub form: Form,
    /// The outcome to write.
    pub outcome: Outcome,
}

impl Answer {
    /// Appends the answer.
    pub fn write(self, out: &mut Vec<u8>) {
        self.form.write_outcome(self.outcome, out);
    }
}

impl Form {
    /// The form of a text request whose client wants an answer.
    pub const LINE: Form = Form::Text { noreply: false };

    /// Appends the outcome of a request.
    #[inline]
    pub fn write_outcome(self, outcome: Outcome, out: &mut Vec<u8>) {
        match self {
            Form::Text { noreply } => text::write::say(out, outcome, noreply),
            Form::Binary(tag) => binary::write::say(out, tag, outcome),
        }
    }

    /// Appends the reason why a request was not carried out.
    #[inline]
    pub fn refuse(self, refusal: Refusal, out: &mut Vec<u8>) {
        self.write_outcome(Outcome::Refused(refusal), out);
    }

    /// Returns the answer that refuses a request.
    #[must_use]
    pub fn refused(self, refusal: Refusal) -> Answer {
        Answer { form: self, outcome: Outcome::Refused(refusal) }
    }

    /// Appends a number, such as the result of an increment; `cas` is the item's CAS unique. The
    /// number fits an `i64` or a `u64`.
    #[inline]
    pub fn number(self, number: i128, cas: u64, out: &mut Vec<u8>) {
        match self {
            Form::Text { noreply } => text::write::number(out, number, noreply),
            Form::Binary(tag) => binary::write::number(out, tag, number, cas),
        }
    }

    /// Appends the server's version.
    pub fn version(self, version: &str, out: &mut Vec<u8>) {
        match self {
            Form::Text { .. } => text::write::version(out, version),
            Form::Binary(tag) => binary::write::text(out, tag, version),
        }
    }

    /// Appends a whole list of statistics, whose rows `rows` appends by `stat`. An answer that
    /// takes several turns calls `stat` alone, and then appends `Outcome::StatsEnd`.
    pub fn stats(self, out: &mut Vec<u8>, rows: impl FnOnce(&mut Vec<u8>)) {
        rows(out);
        self.write_outcome(Outcome::StatsEnd, out);
    }

    /// Appends one statistic.
    pub fn stat(self, name: &str, value: Arguments<'_>, out: &mut Vec<u8>) {
        match self {
            Form::Text { .. } => text::write::stat(out, name, value),
            Form::Binary(tag) => binary::write::stat(out, tag, name, value),
        }
    }

    /// True if `stats` whose first word is `word` asks for the statistics called `name`, or `word`
    /// asks for the argument called `name`. Like in memcached, a text word may be a prefix of the
    /// name, and a binary word may be longer than the name.
    #[must_use]
    pub fn asks_for(self, name: &[u8], word: &[u8]) -> bool {
        match self {
            Form::Text { .. } => name.starts_with(word),
            Form::Binary(_) => word.starts_with(name),
        }
    }
}

/// Evaluates `$then` with `$show` as the writer for `$get`'s form; compiled once per form.
#[macro_export]
macro_rules! shown_by {
    ($get:expr, $show:ident => $then:expr) => {{
        use $crate::{GetForm, binary, text};
        let key = $get.key;
        match $get.form {
            GetForm::Text { cas: false, last: true } => {
                let $show = text::write::Value::<false, true> { key };
                $then
            }
            GetForm::Text { cas: false, last: false } => {
                let $show = text::write::Value::<false, false> { key };
                $then
            }
            GetForm::Text { cas: true, last: true } => {
                let $show = text::write::Value::<true, true> { key };
                $then
            }
            GetForm::Text { cas: true, last: false } => {
                let $show = text::write::Value::<true, false> { key };
                $then
            }
            GetForm::Binary(tag) => {
                let $show = binary::write::Value { key, tag };
                $then
            }
        }
    }};
}
