//! Short cuts: fast parsers of the lines that make up nearly all traffic, in one pass over a line.
//!
//! Where: the session calls the short cuts before the general parser (`parse`).
//! Invariant: a short cut returns the request that `parse` would return, or `None`; a test compares
//! both. Command names are patterns here, because comparing with constants is faster than a table.
//! Source: the forms of memcached's `protocol.txt`.

use super::{COMMAND_BYTES_MAX, scan};
use crate::KEY_BYTES_MAX;
use crate::command::MetaVerb;
use crate::form::{Form, GetForm};
use crate::request::{Delete, Delta, Get, LineTokens, Meta, Request, Store};
use crate::step::{Step, Tail, with_value};
use memory::verb::Verb;

/// Maximum number of digits of a number that the short cuts read; nine digits fit into 32 bits.
const DIGITS_MAX: usize = 9;

const GET: u32 = u32::from_le_bytes(*b"get ");
const GETS: u32 = u32::from_le_bytes(*b"gets");

/// Maximum number of flags, and of their bytes, in a meta command that the short cuts read.
const FLAGS_MAX: usize = 10;
const FLAGS_BYTES_MAX: usize = COMMAND_BYTES_MAX;

/// Returns true for `gets` and false for `get`, and the bytes after the name.
#[inline(always)]
fn retrieval(input: &[u8]) -> Option<(bool, &[u8])> {
    let (name, rest) = input.split_first_chunk()?;
    match u32::from_le_bytes(*name) {
        GET => Some((false, rest)),
        GETS => Some((true, rest.strip_prefix(b" ")?)),
        _ => None,
    }
}

/// Reads a `get` or `gets` of one key; returns the request and the length of its line.
#[inline(always)]
pub(crate) fn get(input: &[u8]) -> Option<(Get<'_>, usize)> {
    let (cas, rest) = retrieval(input)?;
    let (key, bytes) = only_key(rest)?;
    let bytes = input.len() - rest.len() + bytes;
    Some((Get { key, exptime: None, form: GetForm::Text { cas, last: true } }, bytes))
}

/// Reads a `get` of one key, if `input` contains nothing else. Reading it by `get` would cost 18
/// instructions more (`bench instructions`, `request: get, hit`): here the key's end is known.
#[inline(always)]
pub(crate) fn only_get(input: &[u8]) -> Option<Get<'_>> {
    let (name, rest) = input.split_first_chunk()?;
    let key = rest.strip_suffix(b"\r\n").filter(|_| u32::from_le_bytes(*name) == GET)?;
    let form = GetForm::Text { cas: false, last: true };
    is_key(key).then_some(Get { key, exptime: None, form })
}

/// Returns the key if all of `input` is one `mg` whose only flag is `v`. Reading it by `step` would
/// cost 111 instructions more (`bench instructions`, `request, meta: mg, hit`).
#[inline(always)]
pub(crate) fn only_meta_get(input: &[u8]) -> Option<&[u8]> {
    let key = input.strip_prefix(b"mg ")?.strip_suffix(b" v\r\n")?;
    is_key(key).then_some(key)
}

#[inline(always)]
fn is_key(text: &[u8]) -> bool {
    (1..=KEY_BYTES_MAX).contains(&text.len()) && !scan::has_blank(text)
}

/// For a `get` or `gets` line, returns true for `gets`, and the offset of the first key. `None` if
/// the line has not ended, or a key is too long.
pub(crate) fn keys(input: &[u8]) -> Option<(bool, usize)> {
    let (cas, rest) = retrieval(input)?;
    let mut keys = &rest[..memchr::memchr(b'\n', rest)?];
    // Advance to the last space among the next `KEY_BYTES_MAX + 1` bytes. If they have no space,
    // the key is too long.
    while keys.len() > KEY_BYTES_MAX {
        keys = &keys[memchr::memrchr(b' ', &keys[..=KEY_BYTES_MAX])? + 1..];
    }
    Some((cas, input.len() - rest.len()))
}

/// Reads a key in a retrieval line. Returns the key, the length of key and separator, and true for
/// the line's last key. `None` unless the line's end, or one space and a further key, follows.
#[inline]
pub(crate) fn key_of_many(input: &[u8]) -> Option<(&[u8], usize, bool)> {
    let (key, rest) = key(input)?;
    match rest {
        [b' ', b'!'..=u8::MAX, ..] => Some((key, key.len() + 1, false)),
        [b'\r', b'\n', ..] => Some((key, key.len() + 2, true)),
        _ => None,
    }
}

/// Reads any request but `get`, if its line is complete and in the form that clients mostly send.
#[inline]
pub(crate) fn step(input: &[u8]) -> Option<Step<'_>> {
    match input {
        [b'm', b'g', b' ', rest @ ..] => meta(rest, MetaVerb::Get),
        [b's', b'e', b't', b' ', rest @ ..] => set(input, rest),
        [b'm', b's', b' ', rest @ ..] => meta_set(input, rest),
        [b'd', b'e', b'l', b'e', b't', b'e', b' ', rest @ ..] => delete(rest),
        [b'i', b'n', b'c', b'r', b' ', rest @ ..] => delta(rest, true),
        [b'd', b'e', b'c', b'r', b' ', rest @ ..] => delta(rest, false),
        [b'm', b'd', b' ', rest @ ..] => meta(rest, MetaVerb::Delete),
        [b'm', b'a', b' ', rest @ ..] => meta(rest, MetaVerb::Arithmetic),
        [b'm', b'n', b'\r', b'\n', ..] => Some(Step::Request(Request::Noop(Form::LINE), 4)),
        _ => None,
    }
}

#[inline(always)]
fn key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = text.split_at_checked(scan::blank(text)?)?;
    (1..=KEY_BYTES_MAX).contains(&key.len()).then_some((key, rest))
}

/// Reads `KEY\r\n`; returns the key, and the length of the text read.
#[inline(always)]
fn only_key(text: &[u8]) -> Option<(&[u8], usize)> {
    let (key, rest) = key(text)?;
    match rest {
        [b'\r', b'\n', ..] => Some((key, key.len() + 2)),
        [b'\n', ..] => Some((key, key.len() + 1)),
        _ => None,
    }
}

fn delete(rest: &[u8]) -> Option<Step<'_>> {
    let (key, bytes) = only_key(rest)?;
    // In `delete noreply`, memcached and `parse` read the word as the key and as `noreply`.
    if key == b"noreply" {
        return None;
    }
    let delete = Delete { key, cas: 0, form: Form::LINE };
    Some(Step::Request(Request::Delete(delete), 7 + bytes))
}

/// Reads ` NUMBER` of at most `DIGITS_MAX` digits; returns the number and the bytes after it.
#[inline(always)]
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    match text {
        // Client flags and exptimes nearly always have one digit.
        [b' ', digit @ b'0'..=b'9', rest @ ..] if !rest.first().is_some_and(u8::is_ascii_digit) => {
            (!rest.is_empty()).then_some((u32::from(digit - b'0'), rest))
        }
        _ => longer_number(text),
    }
}

fn longer_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let [b' ', text @ ..] = text else { return None };
    let mut sum = 0;
    for (index, &byte) in text.iter().enumerate().take(DIGITS_MAX + 1) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (index > 0).then_some((sum, &text[index..]));
        }
        if index == DIGITS_MAX {
            break;
        }
        sum = sum * 10 + u32::from(digit);
    }
    None
}

/// Reads `[ noreply]\r\n`; returns true if `noreply` is there, and the bytes after the line's end.
#[inline]
fn line_end(text: &[u8]) -> Option<(bool, &[u8])> {
    match text {
        [b'\r', b'\n', rest @ ..] => Some((false, rest)),
        _ => text.strip_prefix(b" noreply\r\n").map(|rest| (true, rest)),
    }
}

/// Reads ` KEY FLAGS EXPTIME BYTES[ noreply]\r\n` after `set`; returns the request without its
/// value, the value's length, and the bytes after the line.
#[inline(always)]
fn set_line(rest: &[u8]) -> Option<(Store<'_>, u32, &[u8])> {
    let (key, rest) = key(rest)?;
    let (client_flags, rest) = number(rest)?;
    let (exptime, rest) = number(rest)?;
    let (value_bytes, rest) = number(rest)?;
    let (noreply, rest) = line_end(rest)?;
    let store = Store {
        verb: Verb::Set,
        key,
        client_flags,
        exptime: exptime.into(),
        cas: 0,
        form: Form::Text { noreply },
        value: &[],
        terminated: true,
    };
    Some((store, value_bytes, rest))
}

#[inline]
fn set<'a>(input: &'a [u8], rest: &'a [u8]) -> Option<Step<'a>> {
    let (store, value_bytes, rest) = set_line(rest)?;
    let header_bytes = input.len() - rest.len();
    Some(with_value(input, Request::Store(store), header_bytes, value_bytes, Tail::LineEnd))
}

/// Reads a `set` with its value, if `input` contains nothing else. Reading it by `step` would cost
/// 81 instructions more (`bench instructions`, `request: set`).
#[inline(always)]
pub(crate) fn only_set(input: &[u8]) -> Option<Store<'_>> {
    let (store, value_bytes, rest) = set_line(input.strip_prefix(b"set ")?)?;
    let value = rest.strip_suffix(b"\r\n")?;
    (value.len() == value_bytes as usize).then_some(Store { value, ..store })
}

fn delta(input: &[u8], incr: bool) -> Option<Step<'_>> {
    let (key, rest) = key(input)?;
    let (delta, rest) = number(rest)?;
    let (noreply, rest) = line_end(rest)?;
    let (delta, form) = (u64::from(delta), Form::Text { noreply });
    let delta = Delta { incr, key, delta, cas: 0, initial: None, form };
    Some(Step::Request(Request::Delta(delta), 5 + (input.len() - rest.len())))
}

/// Reads `[ FLAG...]\r\n` with single spaces; returns the flags and the bytes after the line.
#[inline]
fn flags(text: &[u8]) -> Option<(LineTokens<'_>, &[u8])> {
    let (mut rest, mut count) = (text, 0);
    loop {
        match rest {
            [b' ', letter, more @ ..] if letter.is_ascii_alphabetic() && count < FLAGS_MAX => {
                (rest, count) = (more, count + 1);
                while let [b'!'..=u8::MAX, more @ ..] = rest {
                    rest = more;
                }
            }
            [b'\r', b'\n', behind @ ..] | [b'\n', behind @ ..] => {
                let text = &text[..text.len() - rest.len()];
                // With more bytes of flags, the line could exceed `LINE_BYTES_MAX`.
                if text.len() > FLAGS_BYTES_MAX {
                    return None;
                }
                return Some((LineTokens { text: text.get(1..).unwrap_or(text), count }, behind));
            }
            _ => return None,
        }
    }
}

/// Reads a meta command without a value. `input` begins after the two letters and a space.
#[inline(always)]
fn meta(input: &[u8], verb: MetaVerb) -> Option<Step<'_>> {
    let (key, rest) = key(input)?;
    let (flags, rest) = flags(rest)?;
    let meta = Meta { verb, key, flags, value: &[], terminated: true };
    Some(Step::Request(Request::Meta(meta), 3 + (input.len() - rest.len())))
}

#[inline]
fn meta_set<'a>(input: &'a [u8], rest: &'a [u8]) -> Option<Step<'a>> {
    let (key, rest) = key(rest)?;
    let (value_bytes, rest) = number(rest)?;
    let (flags, rest) = flags(rest)?;
    let meta = Meta { verb: MetaVerb::Set, key, flags, value: &[], terminated: true };
    let header_bytes = input.len() - rest.len();
    Some(with_value(input, Request::Meta(meta), header_bytes, value_bytes, Tail::LineEnd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{ProtocolMode, Session};
    use proptest::prelude::*;

    fn quick(line: &[u8]) -> Option<Step<'_>> {
        let get = get(line).map(|(get, bytes)| Step::Request(Request::Get(get), bytes));
        get.or_else(|| step(line))
    }

    fn general(line: &[u8]) -> Option<Step<'_>> {
        let mut session = Session::new(ProtocolMode::Ascii);
        match session.any_line(line) {
            Step::Skip(skipped) => match session.next(&line[skipped..]) {
                Step::Request(Request::Answer(_), _) => None,
                Step::Request(request, bytes) => Some(Step::Request(request, skipped + bytes)),
                _ => None,
            },
            step => Some(step),
        }
    }

    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            3 => "[a-z0-9]{1,6}",
            3 => "[0-9]{1,11}",
            1 => Just("noreply".to_owned()),
            1 => "[-+]?[0-9]{0,3}",
            1 => "[\r\ta]{0,2}",
            1 => "k{249,252}",
            2 => "[a-zA-Z@~_][a-z0-9]{0,3}",
            1 => Just("v".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn short_cuts_lead_where_the_road_leads(
            name in "get|gets|set|delete|incr|decr|getx|se|mg|ms|md|ma|mn|me",
            words in proptest::collection::vec(word(), 0..14),
            gap in prop_oneof![9 => Just(" "), 1 => Just("  ")],
            plain in 0..4,
            odd_end in "( )?(\\r){0,2}\n",
            value in prop_oneof![Just(""), Just("v\r\n"), Just("valuevalue\r\nget k\r\n")],
        ) {
            let mut line = name;
            for word in &words {
                line.push_str(gap);
                line.push_str(word);
            }
            line.push_str(if plain > 0 { "\r\n" } else { &odd_end });
            line.push_str(value);
            if let Some(quick) = quick(line.as_bytes()) {
                prop_assert_eq!(Some(quick), general(line.as_bytes()));
            }
            let whole = |request| Some(Step::Request(request, line.len()));
            if let Some(get) = only_get(line.as_bytes()) {
                prop_assert_eq!(whole(Request::Get(get)), general(line.as_bytes()));
            }
            if let Some(store) = only_set(line.as_bytes()) {
                prop_assert_eq!(whole(Request::Store(store)), general(line.as_bytes()));
            }
            if let Some(key) = only_meta_get(line.as_bytes()) {
                let flags = LineTokens::of(b"v");
                let meta = Meta { verb: MetaVerb::Get, key, flags, value: &[], terminated: true };
                prop_assert_eq!(whole(Request::Meta(meta)), general(line.as_bytes()));
            }
        }
    }

    /// Returns the requests and the offsets of their ends. `way` 0 tries `next_get` before `next`;
    /// `way` 1 calls only `next`; `way` 2 parses the first line without short cuts.
    fn requests(input: &[u8], way: u32) -> Vec<(Request<'_>, usize)> {
        let (mut session, mut at, mut got) = (Session::new(ProtocolMode::Ascii), 0, Vec::new());
        loop {
            let rest = &input[at..];
            let get = if way == 0 { session.next_get(rest) } else { None };
            let get = get.map(|(get, bytes)| Step::Request(Request::Get(get), bytes));
            let step = get.unwrap_or_else(|| match (way, at) {
                (2, 0) => session.any_line(rest),
                _ => session.next(rest),
            });
            match step {
                Step::Request(request, bytes) => {
                    at += bytes;
                    got.push((request, at));
                }
                Step::Skip(bytes) => at += bytes,
                _ => return got,
            }
        }
    }

    proptest! {
        #[test]
        fn keys_of_a_line_are_the_same_by_short_cuts(
            name in "get|gets|gat 9",
            keys in proptest::collection::vec(
                prop_oneof![4 => "[a-z]{1,20}", 1 => "[a-z]?[\t\r]?[a-z]?", 1 => "k{249,252}"],
                0..6,
            ),
            gap in prop_oneof![3 => Just(" "), 1 => Just("  ")],
            end in "\r\n|\r\n| {0,3}\r?\n|",
        ) {
            let text = format!("{name} {}{end}get more\r\n", keys.join(gap));
            let shortly = requests(text.as_bytes(), 0);
            prop_assert_eq!(&shortly, &requests(text.as_bytes(), 1));
            prop_assert_eq!(&shortly, &requests(text.as_bytes(), 2));
        }
    }

    #[test]
    fn plain_lines_do_take_them() {
        for line in [
            &b"get k\r\n"[..],
            b"gets k\n",
            b"set k 0 0 5\r\n",
            b"set k 123456789 100 5 noreply\r\n",
            b"delete k\r\n",
            b"incr k 1\r\n",
            b"decr k 999999999 noreply\r\n",
            b"mg k\r\n",
            b"mg k v\n",
            b"mg k s v Oopaque k t\r\n",
            b"md k q\r\n",
            b"ma k D5 q\r\n",
            b"ms k 5\r\n",
            b"ms k 5 T90 F7\r\n",
            b"mn\r\n",
        ] {
            assert!(quick(line).is_some(), "{line:?}");
            assert_eq!(quick(line), general(line));
            for cut in 0..line.len() {
                assert_eq!(quick(&line[..cut]), None);
            }
        }
    }

    #[test]
    fn a_retrieval_alone_takes_the_shortest() {
        assert_eq!(only_get(b"get k\r\n"), get(b"get k\r\n").map(|(get, _)| get));
        assert_eq!(
            only_meta_get(b"mg a-key-of-many-bytes v\r\n"),
            Some(&b"a-key-of-many-bytes"[..])
        );
        for text in [&b"get k\n"[..], b"get k k\r\n", b"get k\r\nget k\r\n", b"get \r\n"] {
            assert_eq!(only_get(text), None);
        }
        let whole = b"set k 12 0 5\r\nvalue\r\n";
        let set = only_set(whole).map(|set| Step::Request(Request::Store(set), whole.len()));
        assert!(set.is_some() && set == general(whole), "{set:?}");
        for text in
            [&b"set k 0 0 5\r\nvalue\n"[..], b"set k 0 0 5\r\nvalue \r\n", b"set k 0 0 5\r\n\r\n"]
        {
            assert_eq!(only_set(text), None);
        }
        for text in [&b"mg k v\n"[..], b"mg k k v\r\n", b"mg k v\r\nmg k v\r\n", b"mg  v\r\n"] {
            assert_eq!(only_meta_get(text), None);
        }
    }

    #[test]
    fn a_line_with_its_value_takes_them_too() {
        for text in
            [&b"set k 0 0 5\r\nvalue\r\nget"[..], b"ms k 5 T90\r\nvalue\r\n", b"ms k 0\r\n??"]
        {
            assert!(matches!(quick(text), Some(Step::Request(..))), "{text:?}");
            assert_eq!(quick(text), general(text));
        }
    }
}
