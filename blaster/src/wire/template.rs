//! Templates of requests of one key, and of the keys of multigets, that differ from the last of
//! their kind only in two numbers.
//!
//! ```text
//! head   | spare | get ........0000\r\n | spare     digits: 8 or 16 bytes that end with the
//! tail                                              key's number
//! ```
//!
//! Where: `Writer` comes here first.
//! Invariant: the bytes are those that the protocol's own `write` appends. Templates exist only if
//! all names are of one size: their numbers then lie in one place.
//! Source: none; a request then is two stores and one copy, instead of a dozen pieces. The reason
//! beside `write`: without it a GET costs 14 to 86 % more instructions (`bench drive` under
//! callgrind, 32 under way, all four protocols).

use protocol::reply::number;

use super::{Part, Places, Tag};
use crate::workload::{DIGITS_MAX, Names, Pattern};

#[derive(Clone, Debug)]
pub(super) struct Template {
    value_bytes: u32,
    exptime_s: u32,
    pattern: Pattern,
    /// The bytes before the value.
    head: Vec<u8>,
    head_bytes: usize,
    /// The bytes behind the value.
    tail: Vec<u8>,
    /// The position of the digits; below, the other bytes there.
    digits_at: usize,
    around: u128,
    mask: u128,
    tag: TagPlace,
    writes_value: bool,
}

/// Requests up to this length are copied without a call.
const CHUNK_BYTES: usize = 64;

/// The position of the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagPlace {
    Absent,
    /// Four bytes from this position on.
    Word(usize),
    /// Decimal digits from one position to the other.
    Digits(usize, usize),
}

impl Template {
    /// Makes a template of the request that was written for a key of these names.
    pub(super) fn new(
        part: &Part<'_>,
        key: u64,
        (written, places): (&[u8], &Places),
        names: &Names,
    ) -> Option<Template> {
        let pattern = names.pattern()?;
        let carries = places.value_at < written.len();
        let mut head = vec![0; DIGITS_MAX];
        head.extend_from_slice(written.get(..places.value_at)?);
        let value_end = places.value_at + if carries { part.value_bytes as usize } else { 0 };
        let tail = written.get(value_end..)?.to_vec();
        let tag = match places.tag {
            TagPlace::Absent => TagPlace::Absent,
            TagPlace::Word(at) => TagPlace::Word(DIGITS_MAX + at),
            TagPlace::Digits(from, to) => {
                head.drain(DIGITS_MAX + from..DIGITS_MAX + to);
                TagPlace::Digits(DIGITS_MAX + from, DIGITS_MAX + from)
            }
        };
        let head_bytes = head.len() - DIGITS_MAX;
        head.resize(head.len() + CHUNK_BYTES, 0);
        // These bytes end at the key's end, because the spare ones stand before the request.
        let digits_at = places.key_end;
        let there = head.get(digits_at..digits_at + DIGITS_MAX)?.first_chunk()?;
        // The upper bytes are the last ones.
        let mask = !(u128::MAX.checked_shr(8 * u32::try_from(pattern.digits).ok()?).unwrap_or(0));
        let own = u128::from_le_bytes(pattern.number(key)) & mask;
        let there = u128::from_le_bytes(*there);
        // If the digits are not where they should be, there is no template.
        (there & mask == own).then_some(Template {
            value_bytes: part.value_bytes,
            exptime_s: part.exptime_s,
            pattern,
            head,
            head_bytes,
            tail,
            digits_at,
            around: there & !mask,
            mask,
            tag,
            writes_value: carries && part.value_bytes > 0,
        })
    }

    /// True if this part has the template's sizes.
    #[inline]
    pub(super) fn fits(&self, part: &Part<'_>) -> bool {
        part.value_bytes == self.value_bytes && part.exptime_s == self.exptime_s
    }

    #[inline(always)]
    pub(super) fn write(&mut self, key: u64, own: Tag, names: &Names, out: &mut Vec<u8>) {
        let at = self.digits_at;
        if let Some(digits) = self.pattern.short_number(key) {
            let digits = digits & upper(self.mask) | upper(self.around);
            self.head[at + 8..at + DIGITS_MAX].copy_from_slice(&digits.to_le_bytes());
        } else {
            let digits = u128::from_le_bytes(self.pattern.number(key)) & self.mask | self.around;
            self.head[at..at + DIGITS_MAX].copy_from_slice(&digits.to_le_bytes());
        }
        let head_end = DIGITS_MAX + self.head_bytes;
        match self.tag {
            TagPlace::Absent => append(&self.head, head_end, out),
            TagPlace::Word(at) => {
                let tag = own.0.to_be_bytes();
                self.head[at..at + tag.len()].copy_from_slice(&tag);
                append(&self.head, head_end, out);
            }
            TagPlace::Digits(at, _) => {
                append(&self.head, at, out);
                number(out, own.0);
                out.extend_from_slice(&self.head[at..head_end]);
            }
        }
        if self.writes_value {
            names.value(key, self.value_bytes, out);
        }
        if !self.tail.is_empty() {
            out.extend_from_slice(&self.tail);
        }
    }
}

#[inline(always)]
fn upper(word: u128) -> u64 {
    (word >> 64) as u64
}

/// Appends the request up to `end`: copying a fixed length and truncating takes a few instructions.
#[inline(always)]
fn append(head: &[u8], end: usize, out: &mut Vec<u8>) {
    let bytes = end - DIGITS_MAX;
    match head[DIGITS_MAX..].first_chunk::<CHUNK_BYTES>() {
        Some(chunk) if bytes <= CHUNK_BYTES => {
            let whole = out.len() + bytes;
            out.extend_from_slice(chunk);
            out.truncate(whole);
        }
        _ => out.extend_from_slice(&head[DIGITS_MAX..end]),
    }
}
