//! The client's codecs: encode requests and decode answers in each protocol of a cache.
//!
//! Where: between the workload, which chooses requests, and the transports, which move bytes.
//! Invariant: a server can decode the requests that this module encodes. Any received bytes are
//! decoded to pieces, `More` or `Broken`, and never cause a panic. Nothing is allocated per
//! request.
//! Source: memcached's `protocol.txt`; the Redis serialization protocol, version 2. The KV-Cache
//! paper (section 6.2) puts the send time into the opaque field of a request; here the field holds
//! the tag, and the client stores the time.

mod answer;
mod binary;
mod meta;
mod request;
mod resp;
mod template;
mod text;
mod usual;

#[cfg(test)]
mod tests;

use crate::workload::{Names, VERBS};
pub use answer::{Answer, Content, Piece, ReadOutcome};
use request::Positions;
pub use request::{Tag, WireRequest};
use serde::{Deserialize, Serialize};
use template::Template;
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
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Text => "text",
            Protocol::Meta => "meta",
            Protocol::Binary => "binary",
            Protocol::Resp => "resp",
        }
    }

    /// Returns the protocol that has this name on the command line.
    pub fn named(name: &str) -> Option<Protocol> {
        PROTOCOLS.into_iter().find(|protocol| protocol.name() == name)
    }

    /// Returns a request that every server answers and that changes no items.
    pub(crate) fn ping(self) -> &'static [u8] {
        match self {
            Protocol::Text | Protocol::Meta => b"version\r\n",
            Protocol::Binary => &binary::PING,
            Protocol::Resp => b"PING\r\n",
        }
    }
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
    pub(crate) fn new(protocol: Protocol, names: Names) -> Writer {
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
    pub(crate) fn new(protocol: Protocol) -> Reader {
        Reader { protocol, elements: 0, memo: Memo::default() }
    }

    /// Returns the answer at the start of `input` if the answer is complete, has a common form and
    /// belongs to a request of one key. Any other answer must be read by `next`.
    #[inline(always)]
    pub(crate) fn next_usual(&mut self, input: &[u8]) -> Option<UsualAnswer> {
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
    pub(crate) fn next<'a>(&mut self, input: &'a [u8]) -> ReadOutcome<'a> {
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
