//! Redis's protocol, from the client's side: GET, MGET, SET (also NX and XX), DEL, APPEND.
//!
//! Where: `Writer` and `Reader` come here.
//! Invariant: answers come in the order of the requests, so none has a tag; the elements of an
//! array are pieces, the last of which ends its request.
//! Source: the Redis serialization protocol, version 2.

use protocol::reply::number;
use protocol::resp::{Decoded, Reply, bulk, bulk_head, command};

use super::{Found, Part, Piece, Places, Said, Tag, TagPlace};
use crate::workload::{Names, Verb};

const LINE_END: &[u8] = b"\r\n";

#[inline]
pub(super) fn write(
    part: &Part<'_>,
    key: u64,
    tag: Tag,
    (names, scratch): (&Names, &mut Vec<u8>),
    out: &mut Vec<u8>,
) -> Places {
    let start = out.len();
    let expires = part.exptime_s > 0;
    let (name, words): (&[u8], _) = match part.verb {
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
    let mut places = Places { key_end, tag: TagPlace::Absent, value_at: out.len() - start };
    if !part.verb.writes() {
        return places;
    }
    bulk_head(part.value_bytes as usize, out);
    places.value_at = out.len() - start;
    names.value(key, part.value_bytes, out);
    out.extend_from_slice(LINE_END);
    if part.verb.makes() && expires {
        bulk(b"EX", out);
        scratch.clear();
        number(scratch, part.exptime_s);
        bulk(scratch, out);
    }
    match part.verb {
        Verb::Add => bulk(b"NX", out),
        Verb::Replace => bulk(b"XX", out),
        _ => {}
    }
    places
}

/// Appends the beginning of a multiget.
pub(super) fn begin_several(keys: usize, out: &mut Vec<u8>) {
    command(1 + keys, out);
    bulk(b"MGET", out);
}

#[inline]
pub(super) fn read<'a>(input: &'a [u8], elements: &mut u32) -> Found<'a> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return Found::More,
        Decoded::Broken => return Found::Broken,
    };
    if let Reply::Array(count) = reply {
        if *elements > 0 {
            return Found::Broken;
        }
        *elements = count;
        // An empty array answers no request of ours; the elements of another are the pieces.
        let tells = Piece { tag: None, said: Said::End, ends: count == 0 };
        return Found::Piece(tells, used);
    }
    let said = match reply {
        Reply::Bulk(value) => Said::Value(None, value),
        Reply::Null => Said::Absent,
        Reply::Simple(_) => Said::Done,
        Reply::Integer(count) => Said::Count(count),
        Reply::Error(text) => Said::Refused(text),
        Reply::Array(_) => Said::Refused(b"an array in an array"),
    };
    let ends = *elements <= 1;
    *elements = elements.saturating_sub(1);
    Found::Piece(Piece { tag: None, said, ends }, used)
}
