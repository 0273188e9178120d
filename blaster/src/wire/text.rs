//! memcached's classic text protocol, from the client's side.
//!
//! Where: `Writer` and `Reader` come here.
//! Invariant: answers come in the order of the requests, so none has a tag; a get ends with `END`,
//! or with an error.
//! Source: memcached's `protocol.txt`.

use protocol::Reply;
use protocol::reply::{Decoded, number};

use super::{Found, Part, Piece, Places, Said, Tag, TagPlace};
use crate::workload::Names;

const END: &[u8] = b"END\r\n";

#[inline]
pub(super) fn write(
    part: &Part<'_>,
    key: u64,
    tag: Tag,
    names: &Names,
    out: &mut Vec<u8>,
) -> Places {
    let start = out.len();
    if !tag.is_of_several() {
        out.extend_from_slice(part.verb.name().as_bytes());
    }
    out.push(b' ');
    names.key(key, out);
    let key_end = out.len() - start;
    let mut places = Places { key_end, tag: TagPlace::Absent, value_at: 0 };
    if part.verb.writes() {
        out.extend_from_slice(b" 0 ");
        number(out, part.exptime_s);
        out.push(b' ');
        number(out, part.value_bytes);
        out.extend_from_slice(b"\r\n");
        places.value_at = out.len() - start;
        names.value(key, part.value_bytes, out);
    }
    if !tag.is_of_several() {
        out.extend_from_slice(b"\r\n");
    }
    if !part.verb.writes() {
        places.value_at = out.len() - start;
    }
    places
}

#[inline]
pub(super) fn read(input: &[u8]) -> Found<'_> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return Found::More,
        Decoded::Broken => return Found::Broken,
    };
    let (said, ends) = match reply {
        Reply::Value { key, value, .. } => {
            let said = Said::Value(Some(key), value);
            // The usual case: the value of one key and END as one piece.
            let ends = input[used..].starts_with(END);
            let used = if ends { used + END.len() } else { used };
            return Found::Piece(Piece { tag: None, said, ends }, used);
        }
        Reply::Line(b"END") => (Said::End, true),
        Reply::Line(b"STORED" | b"DELETED") => (Said::Done, true),
        Reply::Line(b"NOT_STORED" | b"NOT_FOUND" | b"EXISTS") => (Said::NotDone, true),
        Reply::Line(b"ERROR") | Reply::ClientError(_) | Reply::ServerError(_) => {
            (Said::Refused(input[..used].trim_ascii_end()), true)
        }
        _ => return Found::Broken,
    };
    Found::Piece(Piece { tag: None, said, ends }, used)
}
