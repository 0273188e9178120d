//! The client's codecs: encode requests and decode answers in each protocol of a cache.
//!
//! ```text
//! bits of a tag   31..16 request's number on its connection   15 multiget   14..0 index of the key
//! ```
//!
//! Where: between the workload, which chooses requests, and the transports, which move bytes.
//! Invariant: a server can decode the requests that this module encodes. Any received bytes are
//! decoded to pieces, `More` or `Broken`, and never cause a panic. Nothing is allocated per
//! request.
//! Source: memcached's `protocol.txt`; the Redis serialization protocol, version 2. The KV-Cache
//! paper (section 6.2) puts the send time into the opaque field of a request; here the field holds
//! the tag, and the client stores the time.

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
use template::{TagPosition, Template};
use usual::Memo;
pub use usual::{UsualAnswer, UsualKind};

/// The maximum number of keys of one request, because a tag has 15 bits for a key's index.
pub const KEYS_MAX: usize = 1 << 15;

/// A protocol between clients and caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// memcached's classic text protocol.
    Text,
    /// memcached's meta commands: `mg`, `ms`, `md`.
    Meta,
    /// memcached's binary protocol.
    Binary,
    /// The Redis serialization protocol, version 2.
    Resp,
}

/// All protocols.
pub const PROTOCOLS: [Protocol; 4] =
    [Protocol::Text, Protocol::Meta, Protocol::Binary, Protocol::Resp];

impl Protocol {
    /// The protocol's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Text => "text",
            Protocol::Meta => "meta",
            Protocol::Binary => "binary",
            Protocol::Resp => "resp",
        }
    }

    /// Returns the protocol that has this name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Protocol> {
        PROTOCOLS.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Returns a request that every server answers and that changes no items.
    #[must_use]
    pub fn ping(self) -> &'static [u8] {
        match self {
            Protocol::Text | Protocol::Meta => b"version\r\n",
            Protocol::Binary => &binary::PING,
            Protocol::Resp => b"PING\r\n",
        }
    }
}

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

/// A request's number on its connection, and the index of a key in the request. A server repeats a
/// request's tag in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    const OF_SEVERAL: u32 = 1 << 15;

    /// Returns the tag of key `index` of request `number`; `several` is true for a multiget.
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

    /// True if the tag belongs to a key of a multiget. The multiget ends with a separate piece.
    #[inline]
    #[must_use]
    pub fn is_of_several(self) -> bool {
        self.0 & Tag::OF_SEVERAL != 0
    }
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
    #[must_use]
    pub fn outcome(&self, verb: Verb) -> Answer {
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
    #[must_use]
    pub fn error_text(&self) -> &[u8] {
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

/// A request to one server, or the part of a multiget that goes to one server.
#[derive(Clone, Copy, Debug)]
pub struct WireRequest<'a> {
    /// The verb of the request.
    pub verb: Verb,
    /// The keys: a get has up to `KEYS_MAX` keys, any other request has one.
    pub keys: &'a [u64],
    /// Length of the value to write, in bytes.
    pub value_bytes: u32,
    /// Seconds until the item expires; 0 means never.
    pub exptime_s: u32,
    /// The request's number on the connection.
    pub number: u16,
}

/// Positions in the bytes that are written for a request of one key, or for one key of a multiget.
#[derive(Clone, Copy, Debug)]
struct Positions {
    key_end: usize,
    tag: TagPosition,
    /// The start of the value. If there is no value, the end of the request.
    value_at: usize,
}

/// Maximum number of templates made per verb, because templates do not help if sizes keep changing.
const TEMPLATES_MAX: u32 = 64;

/// Writes requests of one protocol.
#[derive(Clone, Debug)]
pub struct Writer {
    protocol: Protocol,
    names: Names,
    /// Scratch space for a key: RESP writes a key's length before the key.
    key: Vec<u8>,
    /// A template for each verb; the last element is the template for a key of a multiget. The
    /// number says how many more templates may be made to replace the template.
    templates: [(Option<Template>, u32); VERBS.len() + 1],
}

impl Writer {
    /// Returns a writer of this protocol that takes the bytes of keys and values from `names`.
    #[must_use]
    pub fn new(protocol: Protocol, names: Names) -> Writer {
        let templates = [const { (None, TEMPLATES_MAX) }; VERBS.len() + 1];
        Writer { protocol, names, key: Vec::new(), templates }
    }

    /// Appends the request's bytes.
    #[inline(always)]
    pub fn write(&mut self, request: &WireRequest<'_>, out: &mut Vec<u8>) {
        match *request.keys {
            [key] => self.write_key(request, key, Tag::new(request.number, 0, false), out),
            _ => self.write_several(request, out),
        }
    }

    #[inline(never)]
    fn write_several(&mut self, request: &WireRequest<'_>, out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Text => out.extend_from_slice(b"get"),
            Protocol::Resp => resp::begin_several(request.keys.len(), out),
            Protocol::Meta | Protocol::Binary => {}
        }
        for (index, &key) in request.keys.iter().enumerate() {
            self.write_key(request, key, Tag::new(request.number, index, true), out);
        }
        match self.protocol {
            Protocol::Text => out.extend_from_slice(b"\r\n"),
            Protocol::Meta => out.extend_from_slice(b"mn\r\n"),
            Protocol::Binary => binary::end_several(Tag::new(request.number, 0, false), out),
            Protocol::Resp => {}
        }
    }

    #[inline(always)]
    fn write_key(&mut self, request: &WireRequest<'_>, key: u64, tag: Tag, out: &mut Vec<u8>) {
        let kind = if tag.is_of_several() { VERBS.len() } else { request.verb as usize };
        match &mut self.templates[kind].0 {
            Some(template) if template.fits(request) => template.write(key, tag, &self.names, out),
            _ => {
                self.learn(request, key, (tag, kind));
                self.spell(request, key, tag, out);
            }
        }
    }

    /// Replaces the template of this `kind` by a template for requests with the sizes of `request`.
    #[inline(never)]
    fn learn(&mut self, request: &WireRequest<'_>, key: u64, (tag, kind): (Tag, usize)) {
        let left = self.templates[kind].1;
        if left == 0 {
            return;
        }
        let mut written = Vec::new();
        let places = self.spell(request, key, tag, &mut written);
        let template = Template::new(request, key, (&written, &places), &self.names);
        self.templates[kind] = (template, left - 1);
    }

    #[inline(never)]
    fn spell(
        &mut self,
        request: &WireRequest<'_>,
        key: u64,
        tag: Tag,
        out: &mut Vec<u8>,
    ) -> Positions {
        match self.protocol {
            Protocol::Text => text::write(request, key, tag, &self.names, out),
            Protocol::Meta => meta::write(request, key, tag, &self.names, out),
            Protocol::Binary => binary::write(request, key, tag, &self.names, out),
            Protocol::Resp => resp::write(request, key, tag, (&self.names, &mut self.key), out),
        }
    }
}

/// Reads the answers of one connection, or of one datagram.
#[derive(Clone, Debug)]
pub struct Reader {
    protocol: Protocol,
    /// RESP: number of elements of the current array that are still to be read.
    elements: u32,
    memo: Memo,
}

impl Reader {
    /// Returns a reader at the start of a stream.
    #[must_use]
    pub fn new(protocol: Protocol) -> Reader {
        Reader { protocol, elements: 0, memo: Memo::default() }
    }

    /// Returns the answer at the start of `input` if the answer is complete, has a common form and
    /// belongs to a request of one key. Any other answer must be read by `next`.
    #[inline(always)]
    #[must_use]
    pub fn next_usual(&mut self, input: &[u8]) -> Option<UsualAnswer> {
        match self.protocol {
            Protocol::Text => usual::text(input, &mut self.memo),
            Protocol::Meta => usual::meta(input),
            Protocol::Binary => usual::binary(input),
            Protocol::Resp if self.elements == 0 => usual::resp(input, &mut self.memo),
            Protocol::Resp => None,
        }
    }

    /// Returns the piece at the start of `input`.
    #[inline]
    #[must_use]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> ReadOutcome<'a> {
        match self.protocol {
            Protocol::Text => {
                let found = text::read(input);
                if let ReadOutcome::Piece(Piece { content: Content::Value(Some(key), _), .. }, _) =
                    found
                {
                    self.memo.key_bytes = key.len();
                }
                found
            }
            Protocol::Meta => meta::read(input),
            Protocol::Binary => binary::read(input),
            Protocol::Resp => resp::read(input, &mut self.elements),
        }
    }
}
