//! memcached's classic text protocol, from the client's side.
//!
//! Where: called by `Writer` and `Reader`.
//! Invariant: answers arrive in the order of the requests, so no piece has a tag. The answer to a
//! get ends with `END` or with an error.
//! Source: memcached's `protocol.txt`.

use protocol::Reply;
use protocol::reply::{Decoded, number};

use super::answer::{Content, Piece, ReadOutcome};
use super::request::{Positions, Tag, TagPosition, WireRequest};
use crate::workload::Names;

const END: &[u8] = b"END\r\n";

#[inline]
pub(super) fn write(
    request: &WireRequest<'_>,
    key: u64,
    tag: Tag,
    names: &Names,
    out: &mut Vec<u8>,
) -> Positions {
    let start = out.len();
    if !tag.is_of_several() {
        out.extend_from_slice(request.verb.name().as_bytes());
    }
    out.push(b' ');
    names.key(key, out);
    let key_end = out.len() - start;
    let mut places = Positions { key_end, tag: TagPosition::Absent, value_at: 0 };
    if request.verb.writes() {
        out.extend_from_slice(b" 0 ");
        number(out, request.exptime_s);
        out.push(b' ');
        number(out, request.value_bytes);
        out.extend_from_slice(b"\r\n");
        places.value_at = out.len() - start;
        names.value(key, request.value_bytes, out);
    }
    if !tag.is_of_several() {
        out.extend_from_slice(b"\r\n");
    }
    if !request.verb.writes() {
        places.value_at = out.len() - start;
    }
    places
}

#[inline]
pub(super) fn read(input: &[u8]) -> ReadOutcome<'_> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return ReadOutcome::More,
        Decoded::Broken => return ReadOutcome::Broken,
    };
    let (content, ends) = match reply {
        Reply::Value { key, value, .. } => {
            let content = Content::Value(Some(key), value);
            // A value and `END` are one piece, because gets of one key are the common case.
            let ends = input[used..].starts_with(END);
            let used = if ends { used + END.len() } else { used };
            return ReadOutcome::Piece(Piece { tag: None, content, ends }, used);
        }
        Reply::Line(b"END") => (Content::End, true),
        Reply::Line(b"STORED" | b"DELETED") => (Content::Done, true),
        Reply::Line(b"NOT_STORED" | b"NOT_FOUND" | b"EXISTS") => (Content::NotDone, true),
        Reply::Line(b"ERROR") | Reply::ClientError(_) | Reply::ServerError(_) => {
            (Content::Refused(input[..used].trim_ascii_end()), true)
        }
        _ => return ReadOutcome::Broken,
    };
    ReadOutcome::Piece(Piece { tag: None, content, ends }, used)
}
