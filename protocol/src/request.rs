//! What a client may ask, in whichever protocol, as plain data borrowed from its bytes.
//!
//! Where: `Session` yields these, the executor carries them out; a load generator encodes them.
//! Invariant: nothing in here has been interpreted beyond the wire: exptimes are as sent (0 never,
//! negative expired, up to 30 days relative, above absolute), and keys are 1 to 250 bytes.
//! Source: memcached's `protocol.txt`; `proto_text.c`, `proto_parser.c`, `proto_bin.c` (1.6.45).

use crate::binary::Tag;
use crate::command::{MetaVerb, Operator, StoreVerb};
use crate::form::{Answer, Form, GetForm};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// One key of `get`, `gets`, `gat`, `gats`; binary get, gat and touch.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `incr`, `decr`.
    Delta(Delta<'a>),
    /// `touch`.
    Touch {
        /// 1 to 250 bytes.
        key: &'a [u8],
        /// As sent.
        exptime: i64,
        /// How it is answered.
        form: Form,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(Meta<'a>),
    /// `mn`; binary noop.
    Noop(Form),
    /// `flush_all`.
    FlushAll {
        /// 0 when none was given; `None` when it is no number.
        exptime: Option<i64>,
        /// How it is answered.
        form: Form,
    },
    /// `verbosity`.
    Verbosity {
        /// As sent.
        level: u32,
        /// How it is answered.
        form: Form,
    },
    /// `version`.
    Version(Form),
    /// `stats`.
    Stats {
        /// Which; none for the general ones.
        args: Args<'a>,
        /// How it is answered.
        form: Form,
    },
    /// What only operators ask for; `text::operator::read` says what that is.
    Operator {
        /// Which.
        command: Operator,
        /// Its words.
        args: Args<'a>,
        /// How it is answered.
        form: Form,
    },
    /// `quit`.
    Quit(Form),
    /// Bytes whose answer is known without asking the store, mostly because they are no request.
    Answer(Answer),
    /// As `Answer`, and the connection ends with it.
    LastAnswer(Answer),
}

impl Request<'_> {
    /// What a binary request's answer repeats of it.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        let form = match *self {
            Request::Get(Get { form: GetForm::Binary(tag), .. }) => return Some(tag),
            Request::Store(Store { form, .. })
            | Request::Delete(Delete { form, .. })
            | Request::Delta(Delta { form, .. })
            | Request::FlushAll { form, .. }
            | Request::Stats { form, .. }
            | Request::Noop(form)
            | Request::Version(form)
            | Request::Quit(form) => form,
            _ => return None,
        };
        match form {
            Form::Binary(tag) => Some(tag),
            _ => None,
        }
    }
}

/// One key of a retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// `gat`, `gats`: the new exptime.
    pub exptime: Option<i64>,
    /// How it is answered.
    pub form: GetForm,
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// Which.
    pub verb: StoreVerb,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's own 32 bits.
    pub client_flags: u32,
    /// As sent.
    pub exptime: i64,
    /// The unique it must match. Binary: any storage command, 0 for none.
    pub cas: u64,
    /// How it is answered.
    pub form: Form,
    /// The value; empty in a `Step::Body`, whose value has not arrived.
    pub value: &'a [u8],
    /// False: what followed the value was not `\r\n` (`bad data chunk`).
    pub terminated: bool,
}

/// `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The unique it must match; 0 for none.
    pub cas: u64,
    /// How it is answered.
    pub form: Form,
}

/// `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// True for `incr`.
    pub incr: bool,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// By how much.
    pub delta: u64,
    /// The unique it must match; 0 for none.
    pub cas: u64,
    /// What is stored where there is no such key.
    pub initial: Option<Initial>,
    /// How it is answered.
    pub form: Form,
}

/// What binary increment and decrement start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    /// The number.
    pub value: u64,
    /// Its exptime, as sent.
    pub exptime: i64,
}

/// A meta command. Its flags are still text; `meta::Flags::parse` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// Which.
    pub verb: MetaVerb,
    /// As sent: with flag `b` in base64, and perhaps too long; `meta::Flags::parse` tells.
    pub key: &'a [u8],
    /// The flag tokens, as sent.
    pub flags: Args<'a>,
    /// `ms`: the value; empty in a `Step::Body`.
    pub value: &'a [u8],
    /// `ms`: false when what followed the value was not `\r\n`.
    pub terminated: bool,
}

/// Tokens of a line, set apart by spaces. Two lines with the same tokens are equal, however many
/// spaces stand between them.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Args<'a> {
    /// From the first token to the end of the last one that memcached would see.
    pub text: &'a [u8],
    /// How many tokens are in it.
    pub count: usize,
}

impl<'a> Args<'a> {
    /// The tokens in order; none is empty.
    #[inline]
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.text;
        std::iter::from_fn(move || {
            while let [b' ', more @ ..] = rest {
                rest = more;
            }
            let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
            let (token, more) = rest.split_at(end);
            rest = more;
            (!token.is_empty()).then_some(token)
        })
    }

    /// The token at `index`; `None` where there are fewer tokens.
    #[must_use]
    pub fn token(&self, index: usize) -> Option<&'a [u8]> {
        self.tokens().nth(index)
    }
}

impl PartialEq for Args<'_> {
    fn eq(&self, other: &Args<'_>) -> bool {
        self.count == other.count && self.tokens().eq(other.tokens())
    }
}
