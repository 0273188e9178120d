//! Redis's protocol, from the client's side: GET, MGET, SET (also NX and XX), DEL, APPEND.
//!
//! Where: called by `Writer` and `Reader`.
//! Invariant: answers arrive in the order of the requests, so no piece has a tag. Each element of
//! an array is a piece, and the last element ends the request.
//! Source: the Redis serialization protocol, version 2.

use protocol::reply::number;
use protocol::resp::{Decoded, Reply, bulk, bulk_head, command};

use super::answer::{Content, Piece, ReadOutcome};
use super::request::{Positions, Tag, TagPosition, WireRequest};
use crate::workload::{Names, Verb};

const LINE_END: &[u8] = b"\r\n";

#[inline]
pub(super) fn write(
    request: &WireRequest<'_>,
    key: u64,
    tag: Tag,
    (names, scratch): (&Names, &mut Vec<u8>),
    out: &mut Vec<u8>,
) -> Positions {
    let start = out.len();
    let expires = request.exptime_s > 0;
    let (name, words): (&[u8], _) = match request.verb {
        Verb::Get => (b"GET", 2),
        Verb::Delete => (b"DEL", 2),
        Verb::Append => (b"APPEND", 3),
        Verb::Set => (b"SET", if expires { 5 } else { 3 }),
        Verb::Add | Verb::Replace => (b"SET", if expires { 6 } else { 4 }),
    };
    if !tag.is_of_several() {
        command(words, out);
        bulk(name, out);
    }
    scratch.clear();
    names.key(key, scratch);
    bulk(scratch, out);
    let key_end = out.len() - start - LINE_END.len();
    let mut places = Positions { key_end, tag: TagPosition::Absent, value_at: out.len() - start };
    if !request.verb.writes() {
        return places;
    }
    bulk_head(request.value_bytes as usize, out);
    places.value_at = out.len() - start;
    names.value(key, request.value_bytes, out);
    out.extend_from_slice(LINE_END);
    if request.verb.makes() && expires {
        bulk(b"EX", out);
        scratch.clear();
        number(scratch, request.exptime_s);
        bulk(scratch, out);
    }
    match request.verb {
        Verb::Add => bulk(b"NX", out),
        Verb::Replace => bulk(b"XX", out),
        _ => {}
    }
    places
}

pub(super) fn begin_several(keys: usize, out: &mut Vec<u8>) {
    command(1 + keys, out);
    bulk(b"MGET", out);
}

#[inline]
pub(super) fn read<'a>(input: &'a [u8], elements: &mut u32) -> ReadOutcome<'a> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return ReadOutcome::More,
        Decoded::Broken => return ReadOutcome::Broken,
    };
    if let Reply::Array(count) = reply {
        if *elements > 0 {
            return ReadOutcome::Broken;
        }
        *elements = count;
        // Only a faulty server sends an empty array. Such an array must also end the request.
        let array = Piece { tag: None, content: Content::End, ends: count == 0 };
        return ReadOutcome::Piece(array, used);
    }
    let content = match reply {
        Reply::Bulk(value) => Content::Value(None, value),
        Reply::Null => Content::Absent,
        Reply::Simple(_) => Content::Done,
        Reply::Integer(count) => Content::Count(count),
        Reply::Error(text) => Content::Refused(text),
        Reply::Array(_) => {
            Content::Refused(b"an answer that does not fit the request: an array in an array")
        }
    };
    let ends = *elements <= 1;
    *elements = elements.saturating_sub(1);
    ReadOutcome::Piece(Piece { tag: None, content, ends }, used)
}
