//! Short cuts for the lines that make up nearly all traffic, in one pass over each.
//!
//! Where: tried by the session before the general parser.
//! Invariant: yields exactly what the general parser would, or nothing; a test compares the two.
//! Source: the forms of memcached's `protocol.txt`.

use crate::KEY_BYTES_MAX;
use crate::form::{Form, GetForm};
use crate::request::{Delete, Delta, Get, Request, Store, StoreVerb};

/// What a short cut found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quick<'a> {
    /// A whole request, and the bytes it consumed.
    Request(Request<'a>, usize),
    /// A storage command without its value: length of its line, length of its value.
    Value(Request<'a>, usize, u32),
}

/// Most digits of a number taken here: it cannot overflow.
const DIGITS_MAX: usize = 9;

/// The request at the start of `input`, if it is whole and of the plainest form.
#[inline]
pub(crate) fn request(input: &[u8]) -> Option<Quick<'_>> {
    match input {
        [b'g', b'e', b't', b' ', rest @ ..] => get(rest, 4, false),
        [b's', b'e', b't', b' ', rest @ ..] => set(rest),
        [b'g', b'e', b't', b's', b' ', rest @ ..] => get(rest, 5, true),
        [b'd', b'e', b'l', b'e', b't', b'e', b' ', rest @ ..] => delete(rest),
        [b'i', b'n', b'c', b'r', b' ', rest @ ..] => delta(rest, true),
        [b'd', b'e', b'c', b'r', b' ', rest @ ..] => delta(rest, false),
        _ => None,
    }
}

/// `KEY\r\n`.
#[inline]
fn only_key(rest: &[u8]) -> Option<(&[u8], usize)> {
    let end = memchr::memchr2(b' ', b'\n', rest)?;
    if rest[end] != b'\n' {
        return None;
    }
    let key = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    (1..=KEY_BYTES_MAX).contains(&key.len()).then_some((key, end + 1))
}

#[inline]
fn get(rest: &[u8], name_bytes: usize, cas: bool) -> Option<Quick<'_>> {
    let (key, bytes) = only_key(rest)?;
    let get = Get { key, exptime: None, form: GetForm::Text { cas, last: true } };
    Some(Quick::Request(Request::Get(get), name_bytes + bytes))
}

fn delete(rest: &[u8]) -> Option<Quick<'_>> {
    let (key, bytes) = only_key(rest)?;
    // `delete noreply` is a key and wants no answer: not for here.
    if key == b"noreply" {
        return None;
    }
    let delete = Delete { key, cas: 0, form: Form::LINE };
    Some(Quick::Request(Request::Delete(delete), 7 + bytes))
}

/// `KEY ` and what follows.
#[inline]
fn key_and_rest(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr2(b' ', b'\n', rest)?;
    if rest[end] != b' ' || !(1..=KEY_BYTES_MAX).contains(&end) {
        return None;
    }
    Some((&rest[..end], &rest[end + 1..]))
}

/// A number of 1 to `DIGITS_MAX` digits, and what follows it.
#[inline]
fn number(text: &[u8]) -> Option<(u32, &[u8])> {
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

/// `[ noreply]\r\n`: whether an answer is wanted not, and what follows.
#[inline]
fn line_end(text: &[u8]) -> Option<(bool, &[u8])> {
    match text {
        [b'\r', b'\n', rest @ ..] => Some((false, rest)),
        _ => text.strip_prefix(b" noreply\r\n").map(|rest| (true, rest)),
    }
}

#[inline]
fn set(input: &[u8]) -> Option<Quick<'_>> {
    let (key, rest) = key_and_rest(input)?;
    let (client_flags, rest) = number(rest)?;
    let (exptime, rest) = number(rest.strip_prefix(b" ")?)?;
    let (value_bytes, rest) = number(rest.strip_prefix(b" ")?)?;
    let (noreply, rest) = line_end(rest)?;
    let store = Store {
        verb: StoreVerb::Set,
        key,
        client_flags,
        exptime: exptime.into(),
        cas: 0,
        form: Form::Text { noreply },
        value: &[],
        terminated: true,
    };
    let header_bytes = 4 + (input.len() - rest.len());
    Some(Quick::Value(Request::Store(store), header_bytes, value_bytes))
}

fn delta(input: &[u8], incr: bool) -> Option<Quick<'_>> {
    let (key, rest) = key_and_rest(input)?;
    let (delta, rest) = number(rest)?;
    let (noreply, rest) = line_end(rest)?;
    let (delta, form) = (u64::from(delta), Form::Text { noreply });
    let delta = Delta { incr, key, delta, cas: 0, initial: None, form };
    Some(Quick::Request(Request::Delta(delta), 5 + (input.len() - rest.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{Parsed, parse};
    use proptest::prelude::*;

    /// What the general parser makes of it, in this module's terms.
    fn general(line: &[u8]) -> Option<Quick<'_>> {
        match parse(line) {
            Parsed::Request(request) => Some(Quick::Request(request, line.len())),
            Parsed::Value(request, bytes) => Some(Quick::Value(request, line.len(), bytes)),
            Parsed::Keys { cas, exptime, keys_at } => {
                let (key, _) = only_key(&line[keys_at..])?;
                let get = Get { key, exptime, form: GetForm::Text { cas, last: true } };
                Some(Quick::Request(Request::Get(get), line.len()))
            }
            Parsed::Swallow(..) | Parsed::Close => None,
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
        ]
    }

    proptest! {
        #[test]
        fn short_cuts_lead_where_the_road_leads(
            name in "get|gets|set|delete|incr|decr|getx|se",
            words in proptest::collection::vec(word(), 0..6),
            gap in " {1,2}",
            end in "( )?(\r)?\n",
        ) {
            let mut line = name;
            for word in &words {
                line.push_str(&gap);
                line.push_str(word);
            }
            line.push_str(&end);
            if let Some(quick) = request(line.as_bytes()) {
                prop_assert_eq!(Some(quick), general(line.as_bytes()));
            }
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
        ] {
            assert!(request(line).is_some());
            assert_eq!(request(line), general(line));
            for cut in 0..line.len() {
                assert_eq!(request(&line[..cut]), None);
            }
        }
    }
}
