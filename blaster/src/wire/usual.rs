//! Usual answers to requests of one key, recognized in a few instructions.
//!
//! Where: `Reader::quick`, before the protocol's own `read`.
//! Invariant: an answer recognized here is the one that `read` would have returned, as a test
//! checks for any bytes; all other answers are left to `read`.
//! Source: like for each protocol; flags are 0, because the client writes 0.

use protocol::binary::{HEADER_BYTES, MAGIC_REPLY};

use super::{Tag, binary};

/// The kind of a usual answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usual {
    /// A value, and the end of the request.
    Hit,
    /// There is no value.
    Miss,
    /// Stored, deleted or appended.
    Done,
}

/// A usual answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quick {
    /// The answer's kind.
    pub said: Usual,
    /// The tag of the request; without one, the oldest waiting request is meant.
    pub tag: Option<Tag>,
    /// Length in bytes.
    pub used: usize,
}

impl Quick {
    #[inline(always)]
    fn untagged(said: Usual, used: usize) -> Option<Quick> {
        Some(Quick { said, tag: None, used })
    }

    #[inline(always)]
    fn tagged(said: Usual, tag: u32, used: usize) -> Option<Quick> {
        let tag = Tag(tag);
        (!tag.is_of_several()).then_some(Quick { said, tag: Some(tag), used })
    }
}

/// The last value's line: the next one is mostly the same, and then need not be parsed digit by
/// digit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memo {
    /// Text: bytes of the key.
    pub(super) key_bytes: usize,
    /// The line, or what follows the key, including the line end, in the bytes under `mask`.
    word: u64,
    mask: u64,
    line_bytes: usize,
    value_bytes: usize,
}

impl Default for Memo {
    /// A word that equals no line.
    fn default() -> Memo {
        Memo { key_bytes: 0, word: 1, mask: 0, line_bytes: 0, value_bytes: 0 }
    }
}

impl Memo {
    /// Returns the length of the line that ends with a number behind `lead`, and the number.
    #[inline(always)]
    fn line<const N: usize>(&mut self, line: &[u8], lead: &[u8; N]) -> Option<(usize, usize)> {
        let word = u64::from_le_bytes(*line.first_chunk()?);
        if word & self.mask != self.word {
            self.learn(line, word, lead)?;
        }
        Some((self.line_bytes, self.value_bytes))
    }

    /// Like `line`, but only if the line equals the last one.
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
        // A longer line does not fit the word, so it is parsed each time.
        (self.word, self.mask) = match 8_usize.checked_sub(self.line_bytes) {
            Some(others) => (word & (u64::MAX >> (8 * others)), u64::MAX >> (8 * others)),
            None => (1, 0),
        };
        Some(())
    }
}

/// Most digits of a number that is parsed here.
const DIGITS_MAX: usize = 8;
/// Most digits of a tag: 32 bits.
const TAG_DIGITS_MAX: usize = 10;
const LINE_END: [u8; 2] = *b"\r\n";

/// Recognizes `VALUE <key> 0 <bytes>`, the value and `END`, with a key as long as the last one;
/// `END`; `STORED`.
#[inline(always)]
pub(super) fn text(input: &[u8], memo: &mut Memo) -> Option<Quick> {
    const START: &[u8; 6] = b"VALUE ";
    if input.first_chunk() == Some(START) {
        let (head, rest) = input.split_at_checked(START.len() + memo.key_bytes)?;
        let (line, bytes) = memo.line(rest, b" 0 ")?;
        let end = ended(rest, line + bytes, b"\r\nEND\r\n")?;
        is_name(&head[START.len()..]).then_some(())?;
        return Quick::untagged(Usual::Hit, head.len() + end);
    }
    match input.first_chunk::<5>()? {
        b"END\r\n" => Quick::untagged(Usual::Miss, 5),
        b"STORE" if input.first_chunk()? == b"STORED\r\n" => Quick::untagged(Usual::Done, 8),
        _ => None,
    }
}

/// Recognizes `VA <bytes> O<tag>` and the value, `HD O<tag>`, or `EN`.
#[inline(always)]
pub(super) fn meta(input: &[u8]) -> Option<Quick> {
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
            Quick::tagged(Usual::Hit, tag, end)
        }
        b"HD O" => {
            let (tag, digits) = decimal(&input[4..], TAG_DIGITS_MAX)?;
            let end = input.get(4 + digits..)?.first_chunk()?;
            (*end == LINE_END).then_some(())?;
            Quick::tagged(Usual::Done, tag, 4 + digits + LINE_END.len())
        }
        b"EN\r\n" => Quick::untagged(Usual::Miss, 4),
        _ => None,
    }
}

/// Recognizes a frame that answers GETK, SET, ADD, REPLACE, APPEND or DELETE.
#[inline(always)]
pub(super) fn binary(input: &[u8]) -> Option<Quick> {
    let header = input.first_chunk::<HEADER_BYTES>()?;
    let &[magic, opcode, k0, k1, extras, _, s0, s1, b0, b1, b2, b3, o0, o1, o2, o3, ..] = header;
    let body = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
    let inner = usize::from(u16::from_be_bytes([k0, k1])) + usize::from(extras);
    let used = HEADER_BYTES + body;
    if magic != MAGIC_REPLY || inner > body || used > input.len() {
        return None;
    }
    let said = match (opcode, u16::from_be_bytes([s0, s1])) {
        (binary::GETK, binary::FOUND) => Usual::Hit,
        (binary::GETK, binary::NOT_FOUND) => Usual::Miss,
        (
            binary::SET | binary::ADD | binary::REPLACE | binary::APPEND | binary::DELETE,
            binary::FOUND,
        ) => Usual::Done,
        _ => return None,
    };
    Quick::tagged(said, u32::from_be_bytes([o0, o1, o2, o3]), used)
}

/// Recognizes `$<bytes>` and the value, `$-1`, or `+OK`.
#[inline(always)]
pub(super) fn resp(input: &[u8], memo: &mut Memo) -> Option<Quick> {
    if let Some((line, bytes)) = memo.known(input) {
        return Quick::untagged(Usual::Hit, ended(input, line + bytes, &LINE_END)?);
    }
    match input.first()? {
        b'$' if input.first_chunk()? == b"$-1\r\n" => Quick::untagged(Usual::Miss, 5),
        b'$' => {
            let (line, bytes) = memo.line(input, b"$")?;
            Quick::untagged(Usual::Hit, ended(input, line + bytes, &LINE_END)?)
        }
        b'+' if input.first_chunk()? == b"+OK\r\n" => Quick::untagged(Usual::Done, 5),
        _ => None,
    }
}

/// Parses a number that ends at another character, of 1 to `digits_max` digits. Returns it with its
/// number of digits.
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

/// Returns the end of an answer whose value ends at `value_end` and is followed by `last`.
#[inline(always)]
fn ended<const N: usize>(input: &[u8], value_end: usize, last: &[u8; N]) -> Option<usize> {
    let is_right = input.get(value_end..)?.first_chunk()? == last;
    is_right.then_some(value_end + N)
}

/// True if all bytes are above the space. Checks sixteen at a time, without a branch for each.
#[inline(always)]
fn is_name(key: &[u8]) -> bool {
    let is_above = |word: &[u8; 16]| word.iter().fold(true, |all, &byte| all & (byte > b' '));
    match key.last_chunk() {
        Some(last) => is_above(last) && key.as_chunks().0.iter().all(is_above),
        None => !key.is_empty() && key.iter().all(|&byte| byte > b' '),
    }
}
