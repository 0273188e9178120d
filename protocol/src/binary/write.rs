//! A server's binary answers.
//!
//! Where: called by the executor, through `Form` for what has no value.
//! Invariant: what is written is one whole frame, but after `value`, whose value the caller
//! appends.
//! Source: memcached 1.6.45 `add_bin_header`, `write_bin_error`, `process_bin_get_or_touch`.

use std::fmt::Arguments;
use std::io::Write;

use super::opcode::{self, Shape};
use super::{HEADER_BYTES, Header, MAGIC_REPLY};
use crate::form::Tag;
use crate::outcome::{Outcome, Refusal};
use crate::reply::Words;
use crate::request::StoreVerb;
use crate::short::Short;

/// Bytes of the client flags before a value.
const FLAGS_BYTES: u8 = 4;

/// Status and words of a refusal.
fn status(refusal: Refusal) -> (u16, &'static str) {
    match refusal {
        Refusal::NotFound
        | Refusal::StatsUnknown
        | Refusal::StatsDetailOff
        | Refusal::StatsCachedumpOff => (0x01, "Not found"),
        Refusal::Exists => (0x02, "Data exists for key."),
        Refusal::TooLarge => (0x03, "Too large."),
        Refusal::NotStored => (0x05, "Not stored."),
        Refusal::NonNumeric => (0x06, "Non-numeric server-side value for incr or decr"),
        Refusal::FlushOff => (0x20, "Auth failure."),
        Refusal::UnknownCommand => (0x81, "Unknown command"),
        Refusal::NoMemory => (0x82, "Out of memory allocating item"),
        Refusal::NoMemoryDelta => (0x82, "Out of memory incrementing value"),
        Refusal::NoMemoryVivify => (0x82, "Out of memory allocating new item"),
        // A request that does not have its command's form; the others are of text requests only.
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

fn frame(out: &mut Vec<u8>, header: Header, parts: &[&[u8]]) {
    let body_bytes = length(parts.iter().map(|part| part.len()).sum());
    out.extend_from_slice(&Header { body_bytes, ..header }.to_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends what a request came to: success only where the client did not ask for quiet.
#[inline]
pub(crate) fn say(out: &mut Vec<u8>, tag: Tag, outcome: Outcome) {
    match outcome {
        Outcome::Refused(refusal) => refuse(out, tag, refusal),
        Outcome::StatsEnd | Outcome::StatsReset => stat(out, tag, "", format_args!("")),
        _ if tag.quiet => {}
        Outcome::Stored(cas) => frame(out, Header { cas, ..header(tag) }, &[]),
        _ => frame(out, header(tag), &[]),
    }
}

/// Appends why a request was not carried out.
#[cold]
fn refuse(out: &mut Vec<u8>, tag: Tag, refusal: Refusal) {
    let shape = opcode::find(tag.opcode).map(|opcode| opcode.shape);
    let (status, words) = status(match (refusal, shape) {
        (Refusal::NotStored, Some(Shape::Store(StoreVerb::Add))) => Refusal::Exists,
        (Refusal::NotStored, Some(Shape::Store(StoreVerb::Replace))) => Refusal::NotFound,
        (refusal, _) => refusal,
    });
    frame(out, Header { status, ..header(tag) }, &[words.as_bytes()]);
}

/// Appends success with a text.
pub(crate) fn text(out: &mut Vec<u8>, tag: Tag, text: &str) {
    frame(out, header(tag), &[text.as_bytes()]);
}

/// Appends the number that arithmetic came to.
pub(crate) fn number(out: &mut Vec<u8>, tag: Tag, number: u64, cas: u64) {
    if !tag.quiet {
        frame(out, Header { cas, ..header(tag) }, &[&number.to_be_bytes()]);
    }
}

/// Appends a statistic. One without a name is the end of them.
pub(crate) fn stat(out: &mut Vec<u8>, tag: Tag, name: &str, value: Arguments<'_>) {
    let start = out.len();
    frame(out, header(tag), &[name.as_bytes()]);
    // Writing to a `Vec` does not fail.
    let _ = out.write_fmt(value);
    let head = Header {
        key_bytes: u16::try_from(name.len()).unwrap_or(u16::MAX),
        body_bytes: length(out.len() - start - HEADER_BYTES),
        ..header(tag)
    };
    out[start..start + HEADER_BYTES].copy_from_slice(&head.to_bytes());
}

/// What stands around the value of a hit of GET, in whichever form; the key has so many bytes.
#[inline(always)]
#[must_use]
pub fn got_words(
    tag: Tag,
    key_bytes: usize,
    client_flags: u32,
    value_bytes: u32,
    cas: u64,
) -> Words {
    let key = matches!(tag.opcode, opcode::GETK | opcode::GETKQ);
    let header = hit_header(tag, if key { key_bytes } else { 0 }, value_bytes, cas).to_bytes();
    let word = |at: usize| header[at..].first_chunk::<8>().map_or(Short::NONE, Short::of);
    let flags = Short::of(&client_flags.to_be_bytes());
    Words { before: [word(0), word(8), word(16), flags], key, ..Words::default() }
}

/// Appends what stands before the value of a hit of GET, in whichever form.
pub fn got(out: &mut Vec<u8>, tag: Tag, key: &[u8], client_flags: u32, value_bytes: u32, cas: u64) {
    let key = if matches!(tag.opcode, opcode::GETK | opcode::GETKQ) { key } else { &[] };
    hit(out, tag, key, client_flags, value_bytes, cas);
}

/// Appends what stands before the value of a hit. True: the value is to follow; it has bytes.
#[inline]
pub fn value(
    out: &mut Vec<u8>,
    tag: Tag,
    key: &[u8],
    client_flags: u32,
    value_bytes: u32,
    cas: u64,
) -> bool {
    let (key, value_bytes) = match opcode::find(tag.opcode).map(|opcode| opcode.shape) {
        Some(Shape::Get { key: true } | Shape::GetAndTouch { key: true }) => (key, value_bytes),
        Some(Shape::Touch) => (&[][..], 0),
        _ => (&[][..], value_bytes),
    };
    hit(out, tag, key, client_flags, value_bytes, cas);
    value_bytes > 0
}

#[inline(always)]
fn hit_header(tag: Tag, key_bytes: usize, value_bytes: u32, cas: u64) -> Header {
    Header {
        extras_bytes: FLAGS_BYTES,
        key_bytes: u16::try_from(key_bytes).unwrap_or(u16::MAX),
        body_bytes: u32::from(FLAGS_BYTES) + length(key_bytes) + value_bytes,
        cas,
        ..header(tag)
    }
}

fn hit(out: &mut Vec<u8>, tag: Tag, key: &[u8], client_flags: u32, value_bytes: u32, cas: u64) {
    out.extend_from_slice(&hit_header(tag, key.len(), value_bytes, cas).to_bytes());
    out.extend_from_slice(&client_flags.to_be_bytes());
    out.extend_from_slice(key);
}

/// Appends the answer to a miss.
pub fn miss(out: &mut Vec<u8>, tag: Tag, key: &[u8]) {
    if tag.quiet {
        return;
    }
    match opcode::find(tag.opcode).map(|opcode| opcode.shape) {
        Some(Shape::Get { key: true } | Shape::GetAndTouch { key: true }) => {
            let (status, _) = status(Refusal::NotFound);
            let key_bytes = u16::try_from(key.len()).unwrap_or(u16::MAX);
            frame(out, Header { status, key_bytes, ..header(tag) }, &[key]);
        }
        _ => refuse(out, tag, Refusal::NotFound),
    }
}
