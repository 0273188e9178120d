//! memcached's meta commands, from the client's side.
//!
//! Where: `Writer` and `Reader` come here.
//! Invariant: every request but `mn` carries its tag as opaque, and an answer with an opaque must
//! carry one of ours; `EN` and `MN` have none and answer the oldest request. A multiget is quiet
//! `mg`s, whose misses are not answered, and `mn`.
//! Source: memcached's `protocol.txt`, "Meta commands".

use protocol::Reply;
use protocol::number::strict_u32;
use protocol::reply::{Decoded, number};
use protocol::request::Args;

use super::{Found, Part, Piece, Places, Said, Tag, TagPlace};
use crate::workload::{Names, Verb};

#[inline]
pub(super) fn write(
    part: &Part<'_>,
    key: u64,
    tag: Tag,
    names: &Names,
    out: &mut Vec<u8>,
) -> Places {
    let start = out.len();
    let verb = match part.verb {
        Verb::Get => b"mg ",
        Verb::Delete => b"md ",
        Verb::Set | Verb::Append | Verb::Add | Verb::Replace => b"ms ",
    };
    out.extend_from_slice(verb);
    names.key(key, out);
    let key_end = out.len() - start;
    if part.verb.writes() {
        out.push(b' ');
        number(out, part.value_bytes);
    }
    let mode: &[u8] = match part.verb {
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
    let tag = TagPlace::Digits(tag_at, out.len() - start);
    if part.verb.makes() && part.exptime_s > 0 {
        out.extend_from_slice(b" T");
        number(out, part.exptime_s);
    }
    out.extend_from_slice(b"\r\n");
    let value_at = out.len() - start;
    if part.verb.writes() {
        names.value(key, part.value_bytes, out);
        out.extend_from_slice(b"\r\n");
    }
    Places { key_end, tag, value_at }
}

#[inline]
pub(super) fn read(input: &[u8]) -> Found<'_> {
    let (reply, used) = match Reply::decode(input) {
        Decoded::Whole(reply, used) => (reply, used),
        Decoded::More => return Found::More,
        Decoded::Broken => return Found::Broken,
    };
    let (tag, said) = match reply {
        Reply::MetaValue { flags, value } => (tag(flags), Said::Value(None, value)),
        Reply::Meta { code, flags } => match &code {
            b"HD" => (tag(flags), Said::Done),
            b"NS" | b"EX" | b"NF" => (tag(flags), Said::NotDone),
            b"EN" => (Ok(None), Said::Absent),
            _ => return Found::Broken,
        },
        Reply::Line(b"MN") => (Ok(None), Said::End),
        Reply::Line(b"ERROR") | Reply::ClientError(_) | Reply::ServerError(_) => {
            (Ok(None), Said::Refused(input[..used].trim_ascii_end()))
        }
        _ => return Found::Broken,
    };
    let Ok(tag) = tag else { return Found::Broken };
    let ends = tag.is_none_or(|tag| !tag.is_of_several());
    Found::Piece(Piece { tag, said, ends }, used)
}

/// The opaque among the flags; an error if it is none of ours.
#[inline]
fn tag(flags: Args<'_>) -> Result<Option<Tag>, ()> {
    let Some(at) = memchr_opaque(flags.text) else { return Ok(None) };
    let digits = flags.text[at..].split(|&byte| byte == b' ').next().unwrap_or_default();
    if digits.is_empty() {
        return Err(());
    }
    strict_u32(digits).map(|tag| Some(Tag(tag))).ok_or(())
}

/// The position of the opaque's digits.
#[inline]
fn memchr_opaque(text: &[u8]) -> Option<usize> {
    if text.first() == Some(&b'O') {
        return Some(1);
    }
    text.windows(2).position(|pair| pair == b" O").map(|at| at + 2)
}
