//! Reads the replies that a server sends to a client in the text protocol.
//!
//! Where: a load generator reads the replies of the text protocol here.
//! Invariant: `decode` never panics, and refuses an unfinished line of over `LINE_BYTES_MAX` bytes.
//! Source: memcached's `protocol.txt`.

use crate::KEY_BYTES_MAX;
pub use crate::decoded::Decoded;
pub use crate::digits::number;
use crate::number;
use crate::request::LineTokens;

/// Maximum length of an unfinished line; `decode` refuses a longer one.
pub const LINE_BYTES_MAX: usize = 2048;

/// One reply. A retrieval gets any number of `Value`s and then the line `END`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A key's value.
    Value {
        /// The key, 1 to 250 bytes.
        key: &'a [u8],
        /// The client flags.
        client_flags: u32,
        /// The CAS unique, if it was requested.
        cas: Option<u64>,
        /// The value.
        value: &'a [u8],
    },
    /// `VA`: a meta value.
    MetaValue {
        /// The flags returned.
        flags: LineTokens<'a>,
        /// The value.
        value: &'a [u8],
    },
    /// An answer to a meta command without a value: two letters (`HD EN NS EX NF`) and flags.
    Meta {
        /// The letters.
        code: [u8; 2],
        /// The flags returned.
        flags: LineTokens<'a>,
    },
    /// The answer to `incr` or `decr`.
    Number(u64),
    /// `STAT`: a name, and the text after it.
    Stat(&'a [u8], &'a [u8]),
    /// `VERSION`.
    Version(&'a [u8]),
    /// `CLIENT_ERROR`, and the reason.
    ClientError(&'a [u8]),
    /// `SERVER_ERROR`, and the reason.
    ServerError(&'a [u8]),
    /// Any other line, without its line end: `END`, `STORED`, `ERROR`, `MN`, ...
    Line(&'a [u8]),
}

impl<'a> Reply<'a> {
    /// Reads the reply at the start of `input`.
    #[must_use]
    pub fn decode(input: &'a [u8]) -> Decoded<Reply<'a>> {
        let Some(end) = memchr::memchr(b'\n', input) else {
            return if input.len() > LINE_BYTES_MAX { Decoded::Broken } else { Decoded::More };
        };
        let Some(line) = input[..end].strip_suffix(b"\r") else { return Decoded::Broken };
        let rest = &input[end + 1..];
        if let Some(text) = line.strip_prefix(b"VALUE ") {
            return classic_value(text, rest, end + 1);
        }
        if let Some(text) = line.strip_prefix(b"VA ") {
            return meta_value(text, rest, end + 1);
        }
        match one_line(line) {
            Some(reply) => Decoded::Whole(reply, end + 1),
            None => Decoded::Broken,
        }
    }
}

fn one_line(line: &[u8]) -> Option<Reply<'_>> {
    if line.is_empty() {
        return None;
    }
    if line.iter().all(u8::is_ascii_digit) {
        return number::strict_u64(line).map(Reply::Number);
    }
    if let Some(text) = line.strip_prefix(b"STAT ") {
        let space = memchr::memchr(b' ', text)?;
        return Some(Reply::Stat(&text[..space], &text[space + 1..]));
    }
    if let Some(text) = line.strip_prefix(b"VERSION ") {
        return Some(Reply::Version(text));
    }
    if let Some(text) = line.strip_prefix(b"CLIENT_ERROR ") {
        return Some(Reply::ClientError(text));
    }
    if let Some(text) = line.strip_prefix(b"SERVER_ERROR ") {
        return Some(Reply::ServerError(text));
    }
    match line {
        [a, b] | [a, b, b' ', ..] if [b"HD", b"EN", b"NS", b"EX", b"NF"].contains(&&[*a, *b]) => {
            Some(Reply::Meta { code: [*a, *b], flags: LineTokens::of(&line[2..]) })
        }
        _ => Some(Reply::Line(line)),
    }
}

/// Reads `KEY FLAGS BYTES[ CAS]`, then the value.
fn classic_value<'a>(text: &'a [u8], rest: &'a [u8], line_bytes: usize) -> Decoded<Reply<'a>> {
    let mut tokens = text.split(|&byte| byte == b' ');
    let key = tokens.next().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    let client_flags = tokens.next().and_then(number::strict_u32);
    let value_bytes = tokens.next().and_then(number::strict_u32);
    let cas = tokens.next().map(number::strict_u64);
    let (Some(key), Some(client_flags), Some(value_bytes)) = (key, client_flags, value_bytes)
    else {
        return Decoded::Broken;
    };
    if cas == Some(None) || tokens.next().is_some() {
        return Decoded::Broken;
    }
    let reply = |value| Reply::Value { key, client_flags, cas: cas.flatten(), value };
    with_value(reply, rest, value_bytes, line_bytes)
}

/// Reads `BYTES[ FLAGS]`, then the value.
fn meta_value<'a>(text: &'a [u8], rest: &'a [u8], line_bytes: usize) -> Decoded<Reply<'a>> {
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    let Some(value_bytes) = number::strict_u32(&text[..end]).filter(|_| end > 0) else {
        return Decoded::Broken;
    };
    let flags = LineTokens::of(&text[end..]);
    with_value(|value| Reply::MetaValue { flags, value }, rest, value_bytes, line_bytes)
}

fn with_value<'a>(
    reply: impl FnOnce(&'a [u8]) -> Reply<'a>,
    rest: &'a [u8],
    value_bytes: u32,
    line_bytes: usize,
) -> Decoded<Reply<'a>> {
    match rest.split_at_checked(value_bytes as usize) {
        Some((value, [b'\r', b'\n', ..])) => {
            Decoded::Whole(reply(value), line_bytes + value.len() + 2)
        }
        Some((_, [] | [b'\r'])) | None => Decoded::More,
        Some(_) => Decoded::Broken,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_by_their_first_words() {
        let one = |line: &'static [u8]| match Reply::decode(line) {
            Decoded::Whole(reply, bytes) if bytes == line.len() => Some(reply),
            _ => None,
        };
        assert_eq!(one(b"STORED\r\n"), Some(Reply::Line(b"STORED")));
        let bad = one(b"CLIENT_ERROR bad data chunk\r\n");
        assert_eq!(bad, Some(Reply::ClientError(b"bad data chunk")));
        assert!(matches!(one(b"EN\r\n"), Some(Reply::Meta { code: [b'E', b'N'], .. })));
        assert_eq!(one(b""), None);
        // The number of spaces between flags has no meaning.
        assert_eq!(one(b"HD  s1   c2 \r\n"), one(b"HD s1 c2\r\n"));
        assert_ne!(one(b"HD s1 c2\r\n"), one(b"HD s1c2\r\n"));
        assert_ne!(one(b"HD s1 c2\r\n"), one(b"HD s1\r\n"));
    }

    #[test]
    fn a_value_is_read_once_it_is_whole() {
        let text = b"VALUE k 5 3 9\r\nabc\r\n";
        for cut in 0..text.len() {
            assert_eq!(Reply::decode(&text[..cut]), Decoded::More);
        }
        let value = Reply::Value { key: b"k", client_flags: 5, cas: Some(9), value: b"abc" };
        assert_eq!(Reply::decode(text), Decoded::Whole(value, text.len()));
        assert_eq!(Reply::decode(b"VALUE k 5 3 9\r\nabcd\r\n"), Decoded::Broken);
        assert_eq!(Reply::decode(b"VALUE k 5\r\n"), Decoded::Broken);
    }
}
