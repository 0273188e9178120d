//! Fast path for the most common ("usual") answers to requests of one key.
//!
//! Where: called by `Reader::next_usual`; if no answer is recognized, the protocol's `read` is
//! used.
//! Invariant: an answer that is recognized here is the answer that `read` would return; a test
//! checks this with random bytes.
//! Source: see each protocol's module. The fast path expects an item's flags to be 0, because the
//! client stores items with flags 0.

use protocol::binary::{HEADER_BYTES, MAGIC_REPLY};

use super::binary;
use super::request::Tag;

/// The kind of a usual answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsualKind {
    /// A value, and the end of the answer.
    Hit,
    /// The server does not have the key.
    Miss,
    /// The item was stored, deleted or appended to.
    Done,
}

/// A usual answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualAnswer {
    /// The answer's kind.
    pub kind: UsualKind,
    /// The tag of the request. `None`: the answer is for the oldest waiting request.
    pub tag: Option<Tag>,
    /// Length of the answer in bytes.
    pub used: usize,
}

impl UsualAnswer {
    #[inline(always)]
    fn untagged(kind: UsualKind, used: usize) -> Option<UsualAnswer> {
        Some(UsualAnswer { kind, tag: None, used })
    }

    #[inline(always)]
    fn tagged(kind: UsualKind, tag: u32, used: usize) -> Option<UsualAnswer> {
        let tag = Tag(tag);
        (!tag.is_of_several()).then_some(UsualAnswer { kind, tag: Some(tag), used })
    }
}

/// The header line of the most recent value. Because most values have equal header lines, one
/// comparison usually recognizes the next line, and no digits have to be parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memo {
    /// Text protocol: length of the key.
    pub(super) key_bytes: usize,
    /// The header line with its line end, if it has at most 8 bytes; in the text protocol, the part
    /// after the key. Bytes that `mask` does not select are 0.
    word: u64,
    mask: u64,
    line_bytes: usize,
    value_bytes: usize,
}

impl Default for Memo {
    /// Returns a memo that recognizes no line.
    fn default() -> Memo {
        Memo { key_bytes: 0, word: 1, mask: 0, line_bytes: 0, value_bytes: 0 }
    }
}

impl Memo {
    /// Parses a line of `lead`, a number and a line end. Returns the line's length and the number.
    #[inline(always)]
    fn line<const N: usize>(&mut self, line: &[u8], lead: &[u8; N]) -> Option<(usize, usize)> {
        let word = u64::from_le_bytes(*line.first_chunk()?);
        if word & self.mask != self.word {
            self.learn(line, word, lead)?;
        }
        Some((self.line_bytes, self.value_bytes))
    }

    /// Like the method `line`, but returns `None` if the line is not the remembered line.
    #[inline(always)]
    fn known(&self, line: &[u8]) -> Option<(usize, usize)> {
        let word = u64::from_le_bytes(*line.first_chunk()?);
        (word & self.mask == self.word).then_some((self.line_bytes, self.value_bytes))
    }

    #[inline(never)]
    fn learn(&mut self, line: &[u8], word: u64, lead: &[u8]) -> Option<()> {
        let rest = line.strip_prefix(lead)?;
        let (bytes, digits) = decimal(rest, DIGITS_MAX)?;
        (*rest.get(digits..)?.first_chunk()? == LINE_END).then_some(())?;
        self.line_bytes = lead.len() + digits + LINE_END.len();
        self.value_bytes = bytes as usize;
        // A line of more than 8 bytes does not fit `word`, so the memo recognizes no line.
        (self.word, self.mask) = match 8_usize.checked_sub(self.line_bytes) {
            Some(others) => (word & (u64::MAX >> (8 * others)), u64::MAX >> (8 * others)),
            None => (1, 0),
        };
        Some(())
    }
}

const DIGITS_MAX: usize = 8;
/// Number of decimal digits of the largest 32-bit tag.
const TAG_DIGITS_MAX: usize = 10;
const LINE_END: [u8; 2] = *b"\r\n";

/// Recognizes `STORED`, `END`, and `VALUE <key> 0 <bytes>` with the value and `END`. The last form
/// is recognized only if the key is as long as the previous key.
#[inline(always)]
pub(super) fn text(input: &[u8], memo: &mut Memo) -> Option<UsualAnswer> {
    const START: &[u8; 6] = b"VALUE ";
    if input.first_chunk() == Some(START) {
        let (head, rest) = input.split_at_checked(START.len() + memo.key_bytes)?;
        let (line, bytes) = memo.line(rest, b" 0 ")?;
        let end = ended(rest, line + bytes, b"\r\nEND\r\n")?;
        is_name(&head[START.len()..]).then_some(())?;
        return UsualAnswer::untagged(UsualKind::Hit, head.len() + end);
    }
    match input.first_chunk::<5>()? {
        b"END\r\n" => UsualAnswer::untagged(UsualKind::Miss, 5),
        b"STORE" if input.first_chunk()? == b"STORED\r\n" => {
            UsualAnswer::untagged(UsualKind::Done, 8)
        }
        _ => None,
    }
}

/// Recognizes `VA <bytes> O<tag>` with the value, `HD O<tag>`, and `EN`.
#[inline(always)]
pub(super) fn meta(input: &[u8]) -> Option<UsualAnswer> {
    let first = input.first_chunk::<4>()?;
    match first {
        [b'V', b'A', b' ', _] => {
            let (bytes, digits) = decimal(&input[3..], DIGITS_MAX)?;
            let rest = input.get(3 + digits..)?;
            if rest.first_chunk()? != b" O" {
                return None;
            }
            let (tag, tag_digits) = decimal(&rest[2..], TAG_DIGITS_MAX)?;
            let line = 3 + digits + 2 + tag_digits;
            (*input.get(line..)?.first_chunk()? == LINE_END).then_some(())?;
            let end = ended(input, line + LINE_END.len() + bytes as usize, &LINE_END)?;
            UsualAnswer::tagged(UsualKind::Hit, tag, end)
        }
        b"HD O" => {
            let (tag, digits) = decimal(&input[4..], TAG_DIGITS_MAX)?;
            let end = input.get(4 + digits..)?.first_chunk()?;
            (*end == LINE_END).then_some(())?;
            UsualAnswer::tagged(UsualKind::Done, tag, 4 + digits + LINE_END.len())
        }
        b"EN\r\n" => UsualAnswer::untagged(UsualKind::Miss, 4),
        _ => None,
    }
}

/// Recognizes a binary frame that answers GETK, SET, ADD, REPLACE, APPEND or DELETE.
#[inline(always)]
pub(super) fn binary(input: &[u8]) -> Option<UsualAnswer> {
    let header = input.first_chunk::<HEADER_BYTES>()?;
    let &[magic, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, ..] = header;
    let body = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
    let inner = usize::from(u16::from_be_bytes([k0, k1])) + usize::from(extras);
    let used = HEADER_BYTES + body;
    if magic != MAGIC_REPLY || inner > body || used > input.len() {
        return None;
    }
    let kind = match (opcode, u16::from_be_bytes([s0, s1])) {
        (binary::GETK, binary::FOUND) => UsualKind::Hit,
        (binary::GETK, binary::NOT_FOUND) => UsualKind::Miss,
        (
            binary::SET | binary::ADD | binary::REPLACE | binary::APPEND | binary::DELETE,
            binary::FOUND,
        ) => UsualKind::Done,
        _ => return None,
    };
    UsualAnswer::tagged(kind, u32::from_be_bytes([o0, o1, o2, o3]), used)
}

/// Recognizes `$<bytes>` with the value, `$-1`, and `+OK`.
#[inline(always)]
pub(super) fn resp(input: &[u8], memo: &mut Memo) -> Option<UsualAnswer> {
    if let Some((line, bytes)) = memo.known(input) {
        return UsualAnswer::untagged(UsualKind::Hit, ended(input, line + bytes, &LINE_END)?);
    }
    match input.first()? {
        b'$' if input.first_chunk()? == b"$-1\r\n" => UsualAnswer::untagged(UsualKind::Miss, 5),
        b'$' => {
            let (line, bytes) = memo.line(input, b"$")?;
            UsualAnswer::untagged(UsualKind::Hit, ended(input, line + bytes, &LINE_END)?)
        }
        b'+' if input.first_chunk()? == b"+OK\r\n" => UsualAnswer::untagged(UsualKind::Done, 5),
        _ => None,
    }
}

/// Parses a number of 1 to `digits_max` digits. Returns the number, and the count of its digits.
#[inline(always)]
fn decimal(text: &[u8], digits_max: usize) -> Option<(u32, usize)> {
    let mut sum = 0_u64;
    for (at, &byte) in text.iter().enumerate().take(digits_max + 1) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (at > 0).then_some((u32::try_from(sum).ok()?, at));
        }
        sum = sum * 10 + u64::from(digit);
    }
    None
}

/// Returns the end of an answer whose value ends at `value_end`, if `last` follows the value.
#[inline(always)]
fn ended<const N: usize>(input: &[u8], value_end: usize, last: &[u8; N]) -> Option<usize> {
    let is_right = input.get(value_end..)?.first_chunk()? == last;
    is_right.then_some(value_end + N)
}

/// True if all bytes are greater than a space, as in valid keys. Checks 16 bytes at a time.
#[inline(always)]
fn is_name(key: &[u8]) -> bool {
    let is_above = |word: &[u8; 16]| word.iter().fold(true, |all, &byte| all & (byte > b' '));
    match key.last_chunk() {
        Some(last) => is_above(last) && key.as_chunks().0.iter().all(is_above),
        None => !key.is_empty() && key.iter().all(|&byte| byte > b' '),
    }
}
