//! Writes all of a server's answers in the binary protocol.
//!
//! Where: `Form` calls these functions; lookups use `Value` through the trait `Show`.
//! Invariant: each function appends one whole frame. Exception: if `Show::head` returns true, the
//! caller completes the frame by appending the value.
//! Source: memcached 1.6.45 `add_bin_header`, `write_bin_error`, `process_bin_get_or_touch`.

use std::fmt::Arguments;
use std::io::Write;

use super::opcode::{self, Shape};
use super::{HEADER_BYTES, Header, MAGIC_REPLY, Tag};
use crate::outcome::{Outcome, Refusal};
use crate::show::{FoundItem, Show};
use memory::short::{ShortText, Surround};
use memory::verb::Verb;

const FLAGS_BYTES: u8 = 4;

fn status(refusal: Refusal) -> (u16, &'static str) {
    match refusal {
        Refusal::NotFound
        | Refusal::StatsUnknown
        | Refusal::StatsDetailOff
        | Refusal::StatsDetailUsage
        | Refusal::StatsCachedumpOff => (0x01, "Not found"),
        Refusal::Exists => (0x02, "Data exists for key."),
        Refusal::ReplyTooLong => (0x03, "Reply is longer than udp_reply_max"),
        Refusal::MessageSpent => (0x03, "Message asks for more than 1024 requests"),
        Refusal::StatsDetailTooLong => (0x03, "Prefixes take more than 1048576 bytes"),
        Refusal::TooLarge => (0x03, "Too large."),
        Refusal::NotStored => (0x05, "Not stored."),
        Refusal::NonNumeric => (0x06, "Non-numeric server-side value for incr or decr"),
        Refusal::FlushOff => (0x20, "Auth failure."),
        Refusal::UnknownCommand => (0x81, "Unknown command"),
        Refusal::ConnectionOnly => (0x83, "Answered over connections only"),
        Refusal::OperatorOnly => (0x83, "Obeyed over UDP only with -o udp_admin"),
        Refusal::NoMemoryRequest => (0x82, "Out of memory reading request"),
        Refusal::NoMemory => (0x82, "Out of memory allocating item"),
        Refusal::NoMemoryDelta => (0x82, "Out of memory incrementing value"),
        Refusal::NoMemoryVivify => (0x82, "Out of memory allocating new item"),
        // All other refusals: a frame that does not fit its command, and refusals of text requests.
        _ => (0x04, "Invalid arguments"),
    }
}

fn header(tag: Tag) -> Header {
    let (opcode, opaque) = (tag.opcode, tag.opaque);
    Header { magic: MAGIC_REPLY, opcode, opaque, ..Header::default() }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the length of a key or of the name of a statistic.
#[inline(always)]
fn key_length(key: &[u8]) -> u16 {
    u16::try_from(key.len()).unwrap_or(u16::MAX)
}

fn frame(out: &mut Vec<u8>, header: Header, parts: &[&[u8]]) {
    let body_bytes = length(parts.iter().map(|part| part.len()).sum());
    out.extend_from_slice(&Header { body_bytes, ..header }.to_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends a request's outcome. A quiet request that succeeded gets no answer.
#[inline(always)]
pub(crate) fn say(out: &mut Vec<u8>, tag: Tag, outcome: Outcome) {
    match outcome {
        Outcome::Refused(refusal) => refuse(out, tag, refusal),
        _ if tag.quiet => {}
        Outcome::Stored(cas) => {
            out.extend_from_slice(&Header { cas, ..header(tag) }.to_bytes());
        }
        _ => out.extend_from_slice(&header(tag).to_bytes()),
    }
}

#[cold]
fn refuse(out: &mut Vec<u8>, tag: Tag, refusal: Refusal) {
    let shape = opcode::find(tag.opcode).map(|opcode| opcode.shape);
    let (status, words) = status(match (refusal, shape) {
        (Refusal::NotStored, Some(Shape::Store(Verb::Add))) => Refusal::Exists,
        (Refusal::NotStored, Some(Shape::Store(Verb::Replace))) => Refusal::NotFound,
        (refusal, _) => refusal,
    });
    frame(out, Header { status, ..header(tag) }, &[words.as_bytes()]);
}

pub(crate) fn text(out: &mut Vec<u8>, tag: Tag, text: &str) {
    frame(out, header(tag), &[text.as_bytes()]);
}

/// Appends a number as 64 bits; a negative number is its two's complement.
#[inline]
pub(crate) fn number(out: &mut Vec<u8>, tag: Tag, number: i128, cas: u64) {
    if !tag.quiet {
        frame(out, Header { cas, ..header(tag) }, &[&number.to_be_bytes()[8..]]);
    }
}

/// Appends one statistic. After the last statistic, `say` appends an empty frame.
pub(crate) fn stat(out: &mut Vec<u8>, tag: Tag, name: &str, value: Arguments<'_>) {
    let start = out.len();
    frame(out, header(tag), &[name.as_bytes()]);
    // Writing to a `Vec` does not fail.
    let _ = out.write_fmt(value);
    let head = Header {
        key_bytes: key_length(name.as_bytes()),
        body_bytes: length(out.len() - start - HEADER_BYTES),
        ..header(tag)
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&head.to_bytes());
}

/// Writes the answer to a GET, GAT or TOUCH of any opcode.
#[derive(Clone, Copy, Debug)]
pub struct Value<'k> {
    /// The key, 1 to 250 bytes.
    pub key: &'k [u8],
    /// The request's tag.
    pub tag: Tag,
}

impl Value<'_> {
    /// Returns the key, or no bytes if the command's answer does not show the key.
    fn shown_key(&self) -> &[u8] {
        match opcode::find(self.tag.opcode).map(|opcode| opcode.shape) {
            Some(Shape::Get { key: true } | Shape::GetAndTouch { key: true }) => self.key,
            _ => &[],
        }
    }

    #[inline(always)]
    fn header(&self, key_bytes: u16, value_bytes: u32, cas: u64) -> Header {
        Header {
            extras_bytes: FLAGS_BYTES,
            key_bytes,
            body_bytes: u32::from(FLAGS_BYTES) + u32::from(key_bytes) + value_bytes,
            cas,
            ..header(self.tag)
        }
    }
}

impl Show for Value<'_> {
    const COUNTS_FOR_PREFIX: bool = true;

    #[inline(always)]
    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline(always)]
    fn surround(&self, found: &impl FoundItem) -> Option<Surround> {
        // The caller uses `surround` only for GET: GAT and TOUCH look the item up under its lock.
        let key = matches!(self.tag.opcode, opcode::GETK | opcode::GETKQ);
        let key_bytes = if key { key_length(self.key) } else { 0 };
        let header = self.header(key_bytes, found.value_bytes(), found.cas());
        let [one, two, three] = header.to_words().map(ShortText::word);
        let flags = ShortText::of(&found.client_flags().to_be_bytes());
        Some(Surround { before: [one, two, three, flags], key, ..Surround::default() })
    }

    fn head(&self, found: &impl FoundItem, out: &mut Vec<u8>) -> Option<bool> {
        let is_touch = opcode::find(self.tag.opcode).is_some_and(|it| it.shape == Shape::Touch);
        let value_bytes = if is_touch { 0 } else { found.value_bytes() };
        let key = self.shown_key();
        out.extend_from_slice(&self.header(key_length(key), value_bytes, found.cas()).to_bytes());
        out.extend_from_slice(&found.client_flags().to_be_bytes());
        out.extend_from_slice(key);
        Some(value_bytes > 0)
    }

    fn end(&self, _out: &mut Vec<u8>) {}

    fn miss(&self, out: &mut Vec<u8>) {
        if self.tag.quiet {
            return;
        }
        let key = self.shown_key();
        if key.is_empty() {
            return refuse(out, self.tag, Refusal::NotFound);
        }
        let (status, _) = status(Refusal::NotFound);
        frame(out, Header { status, key_bytes: key_length(key), ..header(self.tag) }, &[key]);
    }
}
