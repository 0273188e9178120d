//! memcached's meta commands, from the client's side.
//!
//! Where: called by `Writer` and `Reader`.
//! Invariant: every request except `mn` has a tag as its opaque. An answer whose opaque is not a
//! tag breaks the stream. `EN` and `MN` have no opaque and answer the oldest request. A multiget is
//! a quiet `mg` for each key, which a server answers only with a hit, and an `mn`, which ends the
//! multiget.
//! Source: memcached's `protocol.txt`, "Meta commands".

use protocol::LineTokens;
use protocol::Reply;
use protocol::number::strict_u32;
use protocol::reply::{Decoded, number};

use super::answer::{Content, Piece, ReadOutcome};
use super::request::{Positions, Tag, TagPosition, WireRequest};
use crate::workload::{Names, Verb};

#[inline]
pub(super) fn write(
    request: &WireRequest<'_>,
    key: u64,
    tag: Tag,
    names: &Names,
    out: &mut Vec<u8>,
) -> Positions {
    let start = out.len();
    let verb = match request.verb {
        Verb::Get => b"mg ",
        Verb::Delete => b"md ",
        Verb::Set | Verb::Append | Verb::Add | Verb::Replace => b"ms ",
    };
    out.extend_from_slice(verb);
    names.key(key, out);
    let key_end = out.len() - start;
    if request.verb.writes() {
        out.push(b' ');
        number(out, request.value_bytes);
    }
    let mode: &[u8] = match request.verb {
        Verb::Get if tag.is_of_several() => b" v q O",
        Verb::Get => b" v O",
        Verb::Append => b" MA O",
        Verb::Add => b" ME O",
        Verb::Replace => b" MR O",
        Verb::Set | Verb::Delete => b" O",
    };
    out.extend_from_slice(mode);
    let tag_at = out.len() - start;
    number(out, tag.0);
    let tag = TagPosition::Digits(tag_at, out.len() - start);
    if request.verb.makes() && request.exptime_s > 0 {
        out.extend_from_slice(b" T");
        number(out, request.exptime_s);
    }
    out.extend_from_slice(b"\r\n");
    let value_at = out.len() - start;
    if request.verb.writes() {
        names.value(key, request.value_bytes, out);
        out.extend_from_slice(b"\r\n");
    }
    Positions { key_end, tag, value_at }
}

#[inline]
pub(super) fn read(input: &[u8]) -> ReadOutcome<'_> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return ReadOutcome::More,
        Decoded::Broken => return ReadOutcome::Broken,
    };
    let (tag, content) = match reply {
        Reply::MetaValue { flags, value } => (tag(flags), Content::Value(None, value)),
        Reply::Meta { code, flags } => match &code {
            b"HD" => (tag(flags), Content::Done),
            b"NS" | b"EX" | b"NF" => (tag(flags), Content::NotDone),
            b"EN" => (Ok(None), Content::Absent),
            _ => return ReadOutcome::Broken,
        },
        Reply::Line(b"MN") => (Ok(None), Content::End),
        Reply::Line(b"ERROR") | Reply::ClientError(_) | Reply::ServerError(_) => {
            (Ok(None), Content::Refused(input[..used].trim_ascii_end()))
        }
        _ => return ReadOutcome::Broken,
    };
    let Ok(tag) = tag else { return ReadOutcome::Broken };
    let ends = tag.is_none_or(|tag| !tag.is_of_several());
    ReadOutcome::Piece(Piece { tag, content, ends }, used)
}

/// Returns the tag in `flags`, `None` if there is no opaque, or an error if the opaque is no tag.
#[inline]
fn tag(flags: LineTokens<'_>) -> Result<Option<Tag>, ()> {
    let Some(opaque) = flags.tokens().find(|token| token[0] == b'O') else { return Ok(None) };
    let digits = &opaque[1..];
    if digits.is_empty() {
        return Err(());
    }
    strict_u32(digits).map(|tag| Some(Tag(tag))).ok_or(())
}
