//! A client's request in any of the protocols, as plain data that borrows from the received bytes.
//!
//! Where: `Session` yields requests, and the executor carries them out.
//! Invariant: all fields are as the client sent them. An exptime of 0 means never, a negative
//! exptime has passed already, an exptime up to 30 days is relative, and a larger exptime is a Unix
//! time. Keys have 1 to 250 bytes, except in `Meta`.
//! Source: memcached's `protocol.txt`; `proto_text.c`, `proto_parser.c`, `proto_bin.c` (1.6.45).

use crate::binary::Tag;
use crate::command::{MetaVerb, Operator};
use crate::form::{Answer, Form, GetForm};
use crate::outcome::Refusal;
use memory::verb::Verb;

/// Longest key (memcached's `KEY_MAX_LENGTH`).
pub const KEY_BYTES_MAX: usize = 250;

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
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// The exptime as sent.
        exptime: i64,
        /// The form of the answer.
        form: Form,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(Meta<'a>),
    /// `mn`; binary noop.
    Noop(Form),
    /// `flush_all`.
    FlushAll {
        /// The exptime as sent: 0 if the client gave none, `None` if the exptime is not a number.
        exptime: Option<i64>,
        /// The form of the answer.
        form: Form,
    },
    /// `verbosity`.
    Verbosity {
        /// The level as sent.
        level: u32,
        /// The form of the answer.
        form: Form,
    },
    /// `version`.
    Version(Form),
    /// `stats`.
    Stats(Stats<'a>),
    /// A command for operators; `text::operator::read` interprets its words.
    Operator {
        /// The command.
        command: Operator,
        /// The words after the command's name.
        args: Args<'a>,
        /// The form of the answer.
        form: Form,
    },
    /// `quit`.
    Quit(Form),
    /// A request that is answered without the store, in most cases because it is malformed.
    Answer(Answer),
    /// Like `Answer`, but the connection closes after the answer.
    LastAnswer(Answer),
}

impl Request<'_> {
    /// Returns the binary header's fields that the answer needs; `None` for a text request.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        match self.form() {
            Form::Binary(tag) => Some(tag),
            Form::Text { .. } => None,
        }
    }

    /// Returns the answer that refuses the request.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> Answer {
        self.form().refused(refusal)
    }

    /// The form of the answer. No flag of a meta command suppresses a refusal.
    fn form(&self) -> Form {
        match *self {
            Request::Get(Get { form, .. }) => form.of_refusal(),
            Request::Meta(_) => Form::LINE,
            Request::Store(Store { form, .. })
            | Request::Delete(Delete { form, .. })
            | Request::Delta(Delta { form, .. })
            | Request::Touch { form, .. }
            | Request::FlushAll { form, .. }
            | Request::Verbosity { form, .. }
            | Request::Operator { form, .. }
            | Request::Stats(Stats { form, .. })
            | Request::Noop(form)
            | Request::Version(form)
            | Request::Quit(form)
            | Request::Answer(Answer { form, .. })
            | Request::LastAnswer(Answer { form, .. }) => form,
        }
    }
}

/// `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats<'a> {
    /// Name and arguments of the requested statistics; empty for the general statistics.
    pub args: Args<'a>,
    /// True if the answer may list items and sockets, one in each line. A binary answer does not.
    pub lists: bool,
    /// The form of the answer.
    pub form: Form,
}

impl<'a> Stats<'a> {
    /// Returns the name of the requested statistics; `None` for the general statistics. In binary,
    /// the name ends at the first space.
    #[must_use]
    pub fn name(&self) -> Option<&'a [u8]> {
        self.args.token(0)?.split(|&byte| byte == b' ').find(|word| !word.is_empty())
    }

    /// True if the request asks for the statistics called `name` by the rule of the form.
    #[must_use]
    pub fn asks_for(&self, name: &[u8]) -> bool {
        self.args.token(0).is_some_and(|word| self.form.asks_for(name, word))
    }

    /// Returns the argument after the name of the statistics: the second word, or everything that
    /// follows the name and one space in the only word.
    #[must_use]
    pub fn argument(&self, name: &[u8]) -> Option<&'a [u8]> {
        let mut words = self.args.tokens();
        let first = words.next()?;
        words.next().or_else(|| first.strip_prefix(name)?.strip_prefix(b" "))
    }
}

/// One key of a retrieval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The new exptime in `gat`, `gats` and binary GAT and TOUCH; `None` in other retrievals.
    pub exptime: Option<i64>,
    /// The form of the answer for this key.
    pub form: GetForm,
}

/// A storage command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The verb.
    pub verb: Verb,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client flags: 32 bits that the server stores and does not interpret.
    pub client_flags: u32,
    /// The exptime as sent.
    pub exptime: i64,
    /// The CAS unique that the item must have; 0 for any. All binary storage commands have it.
    pub cas: u64,
    /// The form of the answer.
    pub form: Form,
    /// The value; empty in a `Step::Body`, because the value has not arrived.
    pub value: &'a [u8],
    /// False if the bytes after the value were not `\r\n` (`bad data chunk`).
    pub terminated: bool,
}

/// `delete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The CAS unique that the item must have; 0 for any.
    pub cas: u64,
    /// The form of the answer.
    pub form: Form,
}

/// `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// True for `incr`.
    pub incr: bool,
    /// The key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// The number to add or subtract.
    pub delta: u64,
    /// The CAS unique that the item must have; 0 for any.
    pub cas: u64,
    /// The item that a miss creates; `None` if a miss creates no item.
    pub initial: Option<Initial>,
    /// The form of the answer.
    pub form: Form,
}

/// The item that a binary increment or decrement creates on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Initial {
    /// The item's number.
    pub value: u64,
    /// The item's exptime, as sent.
    pub exptime: i64,
}

/// A meta command. Its flags are plain text, which `meta::Flags::parse` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The verb.
    pub verb: MetaVerb,
    /// The key as sent (base64 if flag `b` is set). `meta::Flags::parse` checks the key's length.
    pub key: &'a [u8],
    /// The flag tokens, as sent.
    pub flags: LineTokens<'a>,
    /// The value of `ms`; empty in a `Step::Body`, because the value has not arrived.
    pub value: &'a [u8],
    /// For `ms`, false if the bytes after the value were not `\r\n` (`bad data chunk`).
    pub terminated: bool,
}

/// The words after a command's name. Only this type knows how a protocol delimits words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Args<'a> {
    /// The tokens of a line.
    Line(LineTokens<'a>),
    /// One word of any bytes, whose length is known.
    Word(&'a [u8]),
}

impl<'a> Args<'a> {
    /// Returns the words in order.
    pub fn tokens(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (line, word) = match *self {
            Args::Line(line) => (line, None),
            Args::Word(word) => (LineTokens::default(), Some(word)),
        };
        line.tokens().chain(word)
    }

    /// Returns the word at `index`; `None` if there are fewer words.
    #[must_use]
    pub fn token(&self, index: usize) -> Option<&'a [u8]> {
        self.tokens().nth(index)
    }

    /// Number of words.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tokens().count()
    }
}

/// The tokens of a line, separated by spaces. Two `LineTokens` are equal if their tokens are equal.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct LineTokens<'a> {
    /// The text from the first token to the end of the last token that memcached would read.
    pub(crate) text: &'a [u8],
    /// Number of tokens in `text`.
    pub(crate) count: usize,
}

impl<'a> LineTokens<'a> {
    /// Finds the tokens of `text`.
    #[must_use]
    pub fn of(text: &'a [u8]) -> LineTokens<'a> {
        let mut tokens = LineTokens { text, count: 0 };
        tokens.count = tokens.tokens().count();
        tokens
    }

    /// Returns the tokens in order; none is empty.
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
}

impl PartialEq for LineTokens<'_> {
    fn eq(&self, other: &LineTokens<'_>) -> bool {
        self.count == other.count && self.tokens().eq(other.tokens())
    }
}
