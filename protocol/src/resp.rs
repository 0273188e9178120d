//! RESP2, Redis's protocol: writes and reads commands and replies.
//!
//! ```text
//! command   *3\r\n $3\r\nSET\r\n $1\r\nk\r\n $2\r\nhi\r\n
//! reply     +OK\r\n   -ERR why\r\n   :12\r\n   $2\r\nhi\r\n   $-1\r\n   *2\r\n and two replies
//! ```
//!
//! Where: a load generator writes `Command`s and reads `Reply`s; a test server does the reverse.
//! Invariant: a message that is written and read again stays the same; no bytes make a read panic;
//! no message may exceed the limits below. A `Reply::Array` is only the head of an array: the
//! elements are read as further replies, so that a long array need not arrive at once.
//! Source: the RESP specification, version 2; Redis' `networking.c` for the limits.

pub use crate::decoded::Decoded;
use crate::reply::number;

/// Maximum length of a line (simple string, error, number or length); a longer line is refused.
pub const LINE_BYTES_MAX: usize = 4096;
/// Longest bulk string (`proto-max-bulk-len`).
pub const BULK_BYTES_MAX: usize = 512 << 20;
/// Maximum number of elements of an array, or of words of a command.
pub const ELEMENTS_MAX: usize = 1 << 20;

/// One reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// `+`: a word, such as `OK`.
    Simple(&'a [u8]),
    /// `-`: an error's text.
    Error(&'a [u8]),
    /// `:`: a number.
    Integer(i64),
    /// `$`: a value.
    Bulk(&'a [u8]),
    /// `$-1` or `*-1`: the value does not exist.
    Null,
    /// `*`: an array of this many elements, which follow as replies.
    Array(u32),
}

/// Appends the head of a command; the caller must then append `words` bulk strings.
#[inline]
pub fn command(words: usize, out: &mut Vec<u8>) {
    out.push(b'*');
    number(out, words);
    out.extend_from_slice(b"\r\n");
}

/// Appends a bulk string: a word of a command, or a value.
#[inline]
pub fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    bulk_head(bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a bulk string; the caller must then append `bytes` bytes and a line end.
#[inline]
pub fn bulk_head(bytes: usize, out: &mut Vec<u8>) {
    out.push(b'$');
    number(out, bytes);
    out.extend_from_slice(b"\r\n");
}

impl<'a> Reply<'a> {
    /// Appends the reply's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (mark, text) = match *self {
            Reply::Simple(text) => (b'+', text),
            Reply::Error(text) => (b'-', text),
            Reply::Bulk(bytes) => return bulk(bytes, out),
            Reply::Null => (b'$', &b"-1"[..]),
            Reply::Integer(value) => {
                out.push(b':');
                number(out, value);
                return out.extend_from_slice(b"\r\n");
            }
            Reply::Array(elements) => return command(elements as usize, out),
        };
        out.push(mark);
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    }

    /// Reads the reply at the start of `input`.
    #[inline]
    #[must_use]
    pub fn decode(input: &'a [u8]) -> Decoded<Reply<'a>> {
        let Some(&mark) = input.first() else { return Decoded::More };
        if !matches!(mark, b'+' | b'-' | b':' | b'$' | b'*') {
            return Decoded::Broken;
        }
        let (line, used) = match line(&input[1..]) {
            Decoded::Whole(line, used) => (line, used + 1),
            Decoded::More => return Decoded::More,
            Decoded::Broken => return Decoded::Broken,
        };
        let reply = match mark {
            b'+' => Reply::Simple(line),
            b'-' => Reply::Error(line),
            b':' => match integer(line) {
                Some(value) => Reply::Integer(value),
                None => return Decoded::Broken,
            },
            _ if line == b"-1" => Reply::Null,
            b'$' => {
                return match length(line, BULK_BYTES_MAX) {
                    Some(bytes) => with_bytes(input, used, bytes),
                    None => Decoded::Broken,
                };
            }
            _ => match length(line, ELEMENTS_MAX).map(u32::try_from) {
                Some(Ok(elements)) => Reply::Array(elements),
                _ => return Decoded::Broken,
            },
        };
        Decoded::Whole(reply, used)
    }
}

/// A command with at least one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    text: &'a [u8],
    words: usize,
}

impl<'a> Command<'a> {
    /// Reads a command, which is an array of bulk strings, at the start of `input`.
    #[must_use]
    pub fn decode(input: &'a [u8]) -> Decoded<Command<'a>> {
        let (words, head) = match Reply::decode(input) {
            Decoded::Whole(Reply::Array(words @ 1..), used) => (words as usize, used),
            Decoded::Whole(..) | Decoded::Broken => return Decoded::Broken,
            Decoded::More => return Decoded::More,
        };
        let mut at = head;
        for _ in 0..words {
            match Reply::decode(&input[at..]) {
                Decoded::Whole(Reply::Bulk(_), used) => at += used,
                Decoded::Whole(..) | Decoded::Broken => return Decoded::Broken,
                Decoded::More => return Decoded::More,
            }
        }
        Decoded::Whole(Command { text: &input[head..at], words }, at)
    }

    /// Number of words, the command's name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
    }

    /// Always false, because each command has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Returns the words in order, the command's name first.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.text;
        std::iter::from_fn(move || match Reply::decode(rest) {
            Decoded::Whole(Reply::Bulk(word), used) => {
                rest = &rest[used..];
                Some(word)
            }
            _ => None,
        })
    }
}

#[inline]
fn line(input: &[u8]) -> Decoded<&[u8]> {
    let near = &input[..input.len().min(LINE_BYTES_MAX)];
    // Most lines are a few digits, so a loop costs less than a call of a search function.
    let Some(end) = near.iter().position(|&byte| byte == b'\n') else {
        return if near.len() == LINE_BYTES_MAX { Decoded::Broken } else { Decoded::More };
    };
    match near[..end].strip_suffix(b"\r") {
        Some(text) => Decoded::Whole(text, end + 1),
        None => Decoded::Broken,
    }
}

fn with_bytes(input: &[u8], head: usize, bytes: usize) -> Decoded<Reply<'_>> {
    match input[head..].split_at_checked(bytes) {
        Some((value, [b'\r', b'\n', ..])) => Decoded::Whole(Reply::Bulk(value), head + bytes + 2),
        Some((_, [] | [b'\r'])) | None => Decoded::More,
        Some(_) => Decoded::Broken,
    }
}

#[inline]
fn length(digits: &[u8], most: usize) -> Option<usize> {
    let length = usize::try_from(crate::number::strict_u32(digits)?).ok()?;
    (!digits.is_empty() && length <= most).then_some(length)
}

fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
