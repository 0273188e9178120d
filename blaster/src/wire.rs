//! The client's codecs: requests into bytes and bytes into answers, for each protocol of a cache.
//!
//! ```text
//! tag    31..16: the request's number on its connection   15: of a multiget   14..0: which key
//! ```
//!
//! Where: between the workload, which chooses requests, and the transports, which move bytes.
//! Invariant: a server's session reads back what is encoded; decoding any bytes ends in pieces, a
//! demand for more or `Broken`, never in a panic. Nothing is allocated per request.
//! Source: memcached's `protocol.txt`; the Redis serialization protocol, version 2. The tag is the
//! paper's latency by opaque (section 6.2) with the clock kept on our side.

mod binary;
mod meta;
mod resp;
mod template;
mod text;
mod usual;

#[cfg(test)]
mod tests;

use crate::workload::{Names, VERBS, Verb};
use serde::{Deserialize, Serialize};
use template::{TagPlace, Template};
use usual::Memo;
pub use usual::{Quick, Usual};

/// Most keys of one request: as many as a tag can number.
pub const KEYS_MAX: usize = 1 << 15;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Speech {
    /// memcached's classic text protocol.
    Text,
    /// Its meta commands: `mg`, `ms`, `md`.
    Meta,
    /// Its binary protocol.
    Binary,
    /// Redis's, version 2.
    Resp,
}

/// All protocols.
pub const SPEECHES: [Speech; 4] = [Speech::Text, Speech::Meta, Speech::Binary, Speech::Resp];

impl Speech {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Speech::Text => "text",
            Speech::Meta => "meta",
            Speech::Binary => "binary",
            Speech::Resp => "resp",
        }
    }

    /// Returns a protocol by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Speech> {
        SPEECHES.into_iter().find(|speech| speech.name() == name)
    }

    /// A request that every server answers and that changes nothing.
    #[must_use]
    pub fn question(self) -> &'static [u8] {
        match self {
            Speech::Text | Speech::Meta => b"version\r\n",
            Speech::Binary => &binary::QUESTION,
            Speech::Resp => b"PING\r\n",
        }
    }
}

/// The answer to a request, or to one key of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A value.
    Hit {
        /// Its length.
        value_bytes: u32,
    },
    /// No such key.
    Miss,
    /// Stored, deleted, appended.
    Done,
    /// Not stored, or not found: nothing was wrong, and nothing was done.
    NotDone,
    /// The server sent an error.
    Refused,
}

/// A request's number on its connection, and the key's index, as the answer returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    const OF_SEVERAL: u32 = 1 << 15;

    /// Returns the tag of key `index` of request `number`, which asks for `several` keys or one.
    #[inline]
    #[must_use]
    pub fn new(number: u16, index: usize, several: bool) -> Tag {
        let index = u32::try_from(index).unwrap_or(0) & (Tag::OF_SEVERAL - 1);
        let several = if several { Tag::OF_SEVERAL } else { 0 };
        Tag(u32::from(number) << 16 | several | index)
    }

    /// The request's number.
    #[inline]
    #[must_use]
    pub fn number(self) -> u16 {
        let [high, low, _, _] = self.0.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// The index of the key in its request.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 & (Tag::OF_SEVERAL - 1)) as usize
    }

    /// True if the request has further keys, and another piece ends it.
    #[inline]
    #[must_use]
    pub fn is_of_several(self) -> bool {
        self.0 & Tag::OF_SEVERAL != 0
    }
}

/// One piece of a server's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The tag of the request; without one, the oldest waiting request is meant.
    pub tag: Option<Tag>,
    /// The contents.
    pub said: Said<'a>,
    /// True if the request is over: keys without an answer are missing.
    pub ends: bool,
}

/// The contents of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A key's value; the key if the protocol returns it.
    Value(Option<&'a [u8]>, &'a [u8]),
    /// The next key has no value.
    Absent,
    /// Nothing but the end of the request.
    End,
    /// The request was done.
    Done,
    /// The request was not done, because there was or was not such an item.
    NotDone,
    /// A number of items or bytes: `DEL` and `APPEND` of RESP.
    Count(i64),
    /// An error, in the server's words.
    Refused(&'a [u8]),
}

impl Said<'_> {
    /// Returns its meaning for a request of `verb` that is no retrieval.
    #[must_use]
    pub fn outcome(&self, verb: Verb) -> Answer {
        match self {
            Said::Done => Answer::Done,
            Said::Count(0) if verb == Verb::Delete => Answer::NotDone,
            Said::Count(_) if matches!(verb, Verb::Delete | Verb::Append) => Answer::Done,
            Said::NotDone => Answer::NotDone,
            // SET with NX or XX.
            Said::Absent if matches!(verb, Verb::Add | Verb::Replace) => Answer::NotDone,
            // A value or an end that was not asked for.
            _ => Answer::Refused,
        }
    }

    /// The words of a refusal; for anything else, that it does not belong here.
    #[must_use]
    pub fn words(&self) -> &[u8] {
        if let Said::Refused(words) = self { words } else { b"an answer to something else" }
    }
}

/// The result of looking for a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The piece is not complete yet.
    More,
    /// A piece, and the number of bytes it took.
    Piece(Piece<'a>, usize),
    /// No server of this protocol sends these bytes.
    Broken,
}

/// A request to one server, or that server's part of a multiget.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The verb of the request.
    pub verb: Verb,
    /// The keys; at most `KEYS_MAX`, and one unless it is a get.
    pub keys: &'a [u64],
    /// Bytes of the value written.
    pub value_bytes: u32,
    /// Seconds that the item lives; 0 for ever.
    pub exptime_s: u32,
    /// The request's number on the connection.
    pub number: u16,
}

/// Positions of the parts of a request of one key, or of one key in a multiget.
#[derive(Clone, Copy, Debug)]
struct Places {
    key_end: usize,
    tag: TagPlace,
    /// The start of the value; the request's end if it has none.
    value_at: usize,
}

/// Most templates made per verb: if sizes differ from request to request, they are not worth it.
const TEMPLATES_MAX: u32 = 64;

/// Writes requests of one protocol.
#[derive(Clone, Debug)]
pub struct Writer {
    speech: Speech,
    names: Names,
    /// Scratch space for a key whose length has to stand before it.
    key: Vec<u8>,
    /// A template by verb, the last for a key of a multiget; and the number that may still be made.
    templates: [(Option<Template>, u32); VERBS.len() + 1],
}

impl Writer {
    /// Returns a writer of `speech` with these names.
    #[must_use]
    pub fn new(speech: Speech, names: Names) -> Writer {
        let templates = [const { (None, TEMPLATES_MAX) }; VERBS.len() + 1];
        Writer { speech, names, key: Vec::new(), templates }
    }

    /// Appends the request's bytes.
    #[inline(always)]
    pub fn write(&mut self, part: &Part<'_>, out: &mut Vec<u8>) {
        match *part.keys {
            [key] => self.write_key(part, key, Tag::new(part.number, 0, false), out),
            _ => self.write_several(part, out),
        }
    }

    #[inline(never)]
    fn write_several(&mut self, part: &Part<'_>, out: &mut Vec<u8>) {
        match self.speech {
            Speech::Text => out.extend_from_slice(b"get"),
            Speech::Resp => resp::begin_several(part.keys.len(), out),
            Speech::Meta | Speech::Binary => {}
        }
        for (index, &key) in part.keys.iter().enumerate() {
            self.write_key(part, key, Tag::new(part.number, index, true), out);
        }
        match self.speech {
            Speech::Text => out.extend_from_slice(b"\r\n"),
            Speech::Meta => out.extend_from_slice(b"mn\r\n"),
            Speech::Binary => binary::end_several(Tag::new(part.number, 0, false), out),
            Speech::Resp => {}
        }
    }

    /// Appends a request of one key, or one key of a multiget.
    #[inline(always)]
    fn write_key(&mut self, part: &Part<'_>, key: u64, tag: Tag, out: &mut Vec<u8>) {
        let kind = if tag.is_of_several() { VERBS.len() } else { part.verb as usize };
        match &mut self.templates[kind].0 {
            Some(template) if template.fits(part) => template.write(key, tag, &self.names, out),
            _ => {
                self.learn(part, key, (tag, kind));
                self.spell(part, key, tag, out);
            }
        }
    }

    /// Makes a template of requests like this one.
    #[inline(never)]
    fn learn(&mut self, part: &Part<'_>, key: u64, (tag, kind): (Tag, usize)) {
        let left = self.templates[kind].1;
        if left == 0 {
            return;
        }
        let mut written = Vec::new();
        let places = self.spell(part, key, tag, &mut written);
        let template = Template::new(part, key, (&written, &places), &self.names);
        self.templates[kind] = (template, left - 1);
    }

    /// Appends the bytes piece by piece, without a template.
    #[inline(never)]
    fn spell(&mut self, part: &Part<'_>, key: u64, tag: Tag, out: &mut Vec<u8>) -> Places {
        match self.speech {
            Speech::Text => text::write(part, key, tag, &self.names, out),
            Speech::Meta => meta::write(part, key, tag, &self.names, out),
            Speech::Binary => binary::write(part, key, tag, &self.names, out),
            Speech::Resp => resp::write(part, key, tag, (&self.names, &mut self.key), out),
        }
    }
}

/// Reads the answers of one connection, or of one datagram.
#[derive(Clone, Debug)]
pub struct Reader {
    speech: Speech,
    /// RESP: elements of an array that are still to come.
    elements: u32,
    memo: Memo,
}

impl Reader {
    /// Returns a reader at the start of a stream.
    #[must_use]
    pub fn new(speech: Speech) -> Reader {
        Reader { speech, elements: 0, memo: Memo::default() }
    }

    /// Returns the answer at the start of `input`, if it is whole, of a usual form, and to a
    /// request of one key. Other answers are for `next`.
    #[inline(always)]
    #[must_use]
    pub fn quick(&mut self, input: &[u8]) -> Option<Quick> {
        match self.speech {
            Speech::Text => usual::text(input, &mut self.memo),
            Speech::Meta => usual::meta(input),
            Speech::Binary => usual::binary(input),
            Speech::Resp if self.elements == 0 => usual::resp(input, &mut self.memo),
            Speech::Resp => None,
        }
    }

    /// Returns the piece at the start of `input`.
    #[inline]
    #[must_use]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Found<'a> {
        match self.speech {
            Speech::Text => {
                let found = text::read(input);
                if let Found::Piece(Piece { said: Said::Value(Some(key), _), .. }, _) = found {
                    self.memo.key_bytes = key.len();
                }
                found
            }
            Speech::Meta => meta::read(input),
            Speech::Binary => binary::read(input),
            Speech::Resp => resp::read(input, &mut self.elements),
        }
    }
}
