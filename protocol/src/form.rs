//! How a request wants to be answered, and each protocol's words for what has no value to show.
//!
//! Where: a session puts a `Form` on every request; the executor hands it back with the outcome.
//! Invariant: executing needs no look at the protocol: what a request came to is a `Refusal`, or
//! done; the words for it, text or binary, stand here and in `binary` only.
//! Source: memcached 1.6.45 `complete_nread_ascii`, `complete_update_bin`, `write_bin_error`.

use crate::answer;
use crate::binary;
use crate::binary::opcode::{self, Shape};
use crate::request::StoreVerb;

/// The name tag of a binary request: its answer carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// As sent, quiet forms included.
    pub opcode: u8,
    /// No answer is wanted to what was to be expected.
    pub quiet: bool,
    /// The client's own 32 bits.
    pub opaque: u32,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line.
    Text {
        /// The client wants none.
        noreply: bool,
    },
    /// A frame.
    Binary(Tag),
}

/// How one key of a retrieval is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetForm {
    /// `VALUE`, and `END` after the last.
    Text {
        /// `gets`, `gats`: the CAS unique is shown.
        cas: bool,
        /// The line's last key: `END` follows.
        last: bool,
    },
    /// A frame.
    Binary(Tag),
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The verb's condition does not hold.
    NotStored,
    /// The CAS unique differs.
    Exists,
    /// No such key.
    NotFound,
    /// The value is no number.
    NonNumeric,
    /// Over `-I`.
    TooLarge,
    /// No room for a value.
    NoMemory,
    /// No room for a number that grew.
    NoMemoryDelta,
    /// No room for the number that arithmetic starts with.
    NoMemoryVivify,
    /// What followed a value was not its end.
    BadChunk,
    /// `flush_all` is switched off.
    FlushRefused,
    /// An exptime that is no number.
    BadExptime,
    /// A request that does not have its command's form.
    BadFormat,
    /// No such command.
    UnknownCommand,
}

impl Refusal {
    /// The line for it.
    #[must_use]
    pub fn line(self) -> &'static str {
        match self {
            Refusal::NotStored => answer::NOT_STORED,
            Refusal::Exists => answer::EXISTS,
            Refusal::NotFound => answer::NOT_FOUND,
            Refusal::NonNumeric => answer::NON_NUMERIC,
            Refusal::TooLarge => answer::TOO_LARGE,
            Refusal::NoMemory => answer::NO_MEMORY,
            Refusal::NoMemoryDelta => answer::NO_MEMORY_DELTA,
            Refusal::NoMemoryVivify => answer::NO_MEMORY_VIVIFY,
            Refusal::BadChunk => answer::BAD_CHUNK,
            Refusal::FlushRefused => answer::FLUSH_REFUSED,
            Refusal::BadExptime => answer::BAD_EXPTIME,
            Refusal::BadFormat => answer::BAD_FORMAT,
            Refusal::UnknownCommand => answer::ERROR,
        }
    }
}

/// An answer that is known without asking the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This text, line end included; empty = nothing.
    Text(&'static str),
    /// A frame that says why not.
    Frame(Tag, Refusal),
}

impl Answer {
    /// Appends it.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Answer::Text(text) => out.extend_from_slice(text.as_bytes()),
            Answer::Frame(tag, refusal) => binary::write::refusal(out, tag, refusal),
        }
    }
}

impl Form {
    /// A text request's, whose client wants an answer.
    pub const LINE: Form = Form::Text { noreply: false };

    /// Says that it was done: a text request's `line`, or a frame with the item's unique.
    #[inline]
    pub fn done(self, line: &'static str, cas: u64, out: &mut Vec<u8>) {
        match self {
            Form::Text { noreply: true } => {}
            Form::Text { noreply: false } => out.extend_from_slice(line.as_bytes()),
            Form::Binary(tag) if tag.quiet => {}
            Form::Binary(tag) => binary::write::done(out, tag, cas),
        }
    }

    /// The answer that says why not.
    #[must_use]
    pub fn refuse(self, refusal: Refusal) -> Answer {
        let tag = match self {
            Form::Text { noreply: true } => return Answer::Text(answer::NOTHING),
            Form::Text { noreply: false } => return Answer::Text(refusal.line()),
            Form::Binary(tag) => tag,
        };
        let shape = opcode::find(tag.opcode).map(|opcode| opcode.shape);
        let refusal = match (refusal, shape) {
            (Refusal::NotStored, Some(Shape::Store(StoreVerb::Add))) => Refusal::Exists,
            (Refusal::NotStored, Some(Shape::Store(StoreVerb::Replace))) => Refusal::NotFound,
            (refusal, _) => refusal,
        };
        Answer::Frame(tag, refusal)
    }

    /// Says why not.
    #[inline]
    pub fn say(self, refusal: Refusal, out: &mut Vec<u8>) {
        self.refuse(refusal).write(out);
    }
}
