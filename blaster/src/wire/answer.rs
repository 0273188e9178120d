//! An answer that was decoded: the pieces in which it arrives, and what they mean for a request.
//!
//! Where: `Reader` and the protocols return pieces; `drive` matches them with requests.
//! Invariant: a piece borrows from the received bytes.

use super::request::Tag;
use crate::workload::Verb;

/// The answer to a request, or to one key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server returned a value.
    Hit {
        /// Length of the value in bytes.
        value_bytes: u32,
    },
    /// The server does not have the key.
    Miss,
    /// The item was stored, deleted or appended to.
    Done,
    /// The server changed nothing because the item exists or does not exist; this is no error.
    NotDone,
    /// The server sent an error.
    Refused,
}

/// One piece of a server's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The tag of the request. `None`: the piece answers the oldest waiting request.
    pub tag: Option<Tag>,
    /// The piece's contents.
    pub content: Content<'a>,
    /// True if the piece is the request's last one. Keys that have no answer by then are misses.
    pub ends: bool,
}

/// The contents of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A value, preceded by its key if the protocol returns keys.
    Value(Option<&'a [u8]>, &'a [u8]),
    /// The next key has no value.
    Absent,
    /// The end of the answer, without a result for any key.
    End,
    /// The server carried out the request.
    Done,
    /// The server did not carry out the request, because the item exists or does not exist.
    NotDone,
    /// A number of items or bytes, which RESP returns for `DEL` and `APPEND`.
    Count(i64),
    /// An error, with the server's text.
    Refused(&'a [u8]),
}

impl Content<'_> {
    /// Returns the answer that these contents mean for a request of `verb`, which is not a get.
    pub(crate) fn outcome(&self, verb: Verb) -> Answer {
        match self {
            Content::Done => Answer::Done,
            Content::Count(0) if verb == Verb::Delete => Answer::NotDone,
            Content::Count(_) if matches!(verb, Verb::Delete | Verb::Append) => Answer::Done,
            Content::NotDone => Answer::NotDone,
            // Redis answers a null to a SET with NX or XX if the condition is not met.
            Content::Absent if matches!(verb, Verb::Add | Verb::Replace) => Answer::NotDone,
            // `Value` and `End` occur only in answers to gets.
            _ => Answer::Refused,
        }
    }

    /// Returns the server's error text, or a text which says that the answer is unexpected.
    pub(crate) fn error_text(&self) -> &[u8] {
        if let Content::Refused(words) = self {
            words
        } else {
            b"an answer that does not fit the request"
        }
    }
}

/// The result of reading one piece from the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome<'a> {
    /// The piece is not complete yet.
    More,
    /// A piece, and its length in bytes.
    Piece(Piece<'a>, usize),
    /// The bytes are invalid in this protocol.
    Broken,
}
