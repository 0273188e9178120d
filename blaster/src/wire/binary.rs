//! memcached's binary protocol, from the client's side.
//!
//! Where: called by `Writer` and `Reader`.
//! Invariant: every binary frame carries a tag as its opaque, so answers can be matched in any
//! order. A get is a GETK, as in the KV-Cache paper. A multiget is a GETKQ for each key, which a
//! server answers only with a hit, and a NOOP, whose answer ends the multiget.
//! Source: memcached's `protocol_binary.h`; the KV-Cache paper, section 5.2.1.

use protocol::binary::frame::{Decoded, Frame};
use protocol::binary::{HEADER_BYTES, Header, MAGIC_REQUEST};

use super::answer::{Content, Piece, ReadOutcome};
use super::request::{Positions, Tag, TagPosition, WireRequest};
use crate::workload::{Names, Verb};

pub(super) const SET: u8 = 0x01;
pub(super) const ADD: u8 = 0x02;
pub(super) const REPLACE: u8 = 0x03;
pub(super) const DELETE: u8 = 0x04;
const NOOP: u8 = 0x0a;
pub(super) const GETK: u8 = 0x0c;
const GETKQ: u8 = 0x0d;
pub(super) const APPEND: u8 = 0x0e;

pub(super) const FOUND: u16 = 0x00;
pub(super) const NOT_FOUND: u16 = 0x01;
const EXISTS: u16 = 0x02;
const NOT_STORED: u16 = 0x05;

pub(super) const PING: [u8; HEADER_BYTES] = {
    let mut bytes = [0; HEADER_BYTES];
    (bytes[0], bytes[1]) = (MAGIC_REQUEST, NOOP);
    bytes
};

const OPAQUE_AT: usize = 12;

/// The largest relative exptime, in seconds. Servers interpret a larger exptime as a Unix time.
const EXPTIME_RELATIVE_MAX: u32 = 60 * 60 * 24 * 30;

#[inline]
pub(super) fn write(
    request: &WireRequest<'_>,
    key: u64,
    tag: Tag,
    names: &Names,
    out: &mut Vec<u8>,
) -> Positions {
    let opcode = match request.verb {
        Verb::Get if tag.is_of_several() => GETKQ,
        Verb::Get => GETK,
        Verb::Set => SET,
        Verb::Delete => DELETE,
        Verb::Append => APPEND,
        Verb::Add => ADD,
        Verb::Replace => REPLACE,
    };
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let mut extras_bytes = 0;
    if request.verb.makes() {
        let exptime_s = request.exptime_s.min(EXPTIME_RELATIVE_MAX);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&exptime_s.to_be_bytes());
        extras_bytes = 8;
    }
    let before = out.len();
    names.key(key, out);
    let key_bytes = u16::try_from(out.len() - before).unwrap_or(u16::MAX);
    let key_end = out.len() - start;
    if request.verb.writes() {
        names.value(key, request.value_bytes, out);
    }
    let body_bytes = u32::try_from(out.len() - start - HEADER_BYTES).unwrap_or(u32::MAX);
    let header = Header { key_bytes, extras_bytes, body_bytes, ..header(opcode, tag) };
    out[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Positions { key_end, tag: TagPosition::Word(OPAQUE_AT), value_at: key_end }
}

/// Appends the NOOP that ends a multiget. In the tag of the NOOP, the multiget bit is clear.
pub(super) fn end_several(tag: Tag, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(NOOP, tag).to_bytes());
}

fn header(opcode: u8, tag: Tag) -> Header {
    Header { magic: MAGIC_REQUEST, opcode, opaque: tag.0, ..Header::default() }
}

#[inline]
pub(super) fn read(input: &[u8]) -> ReadOutcome<'_> {
    let (frame, used) = match Frame::decode(input) {
        Decoded::Whole(frame, used) => (frame, used),
        Decoded::More => return ReadOutcome::More,
        Decoded::Broken => return ReadOutcome::Broken,
    };
    let tag = Tag(frame.header.opaque);
    let content = match (frame.header.opcode, frame.header.status) {
        (GETK | GETKQ, FOUND) => Content::Value(Some(frame.key), frame.value),
        (GETK | GETKQ, NOT_FOUND) => Content::Absent,
        (SET | ADD | REPLACE | APPEND | DELETE, FOUND) => Content::Done,
        (SET | ADD | REPLACE | APPEND | DELETE, NOT_FOUND | EXISTS | NOT_STORED) => {
            Content::NotDone
        }
        (NOOP, FOUND) => Content::End,
        (GETK | GETKQ | SET | ADD | REPLACE | APPEND | DELETE | NOOP, status) => {
            Content::Refused(words(status))
        }
        _ => return ReadOutcome::Broken,
    };
    ReadOutcome::Piece(Piece { tag: Some(tag), content, ends: !tag.is_of_several() }, used)
}

/// Returns the text protocol's error line that corresponds to a status.
#[cold]
fn words(status: u16) -> &'static [u8] {
    match status {
        0x03 => b"SERVER_ERROR object too large for cache",
        0x04 => b"CLIENT_ERROR invalid arguments",
        0x08 | 0x20 => b"CLIENT_ERROR unauthenticated",
        0x81 => b"ERROR unknown command",
        0x82 => b"SERVER_ERROR out of memory",
        0x83 => b"SERVER_ERROR not supported",
        0x84 => b"SERVER_ERROR internal error",
        0x85 => b"SERVER_ERROR busy",
        0x86 => b"SERVER_ERROR temporary failure",
        _ => b"SERVER_ERROR unknown status",
    }
}
