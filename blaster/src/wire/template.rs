//! Requests of one key, and the keys of multigets, that differ from the last of their kind in two
//! numbers alone.
//!
//! ```text
//! head   | spare | get ........0000\r\n | spare     digits: 8 or 16 bytes that end with the
//! tail                                              key's number
//! ```
//!
//! Where: `Writer` comes here first. Invariant: the bytes are those that the protocol's own `write`
//! appends. Only where all names are of one size: their numbers then lie in one place.
//! Source: none; a request is two stores and one copy then, where it is written in a dozen pieces
//! otherwise. Why it stands beside `write`: without it a GET costs 14 to 86 % more instructions
//! (`bench drive` under callgrind, 32 under way, all four protocols).

use protocol::reply::number;

use super::{Part, Places, Tag};
use crate::workload::{DIGITS_MAX, Names, Pattern};

/// A request that is written in this way.
#[derive(Clone, Debug)]
pub(super) struct Template {
    value_bytes: u32,
    exptime_s: u32,
    pattern: Pattern,
    /// What comes before the value.
    head: Vec<u8>,
    head_bytes: usize,
    /// What comes behind it.
    tail: Vec<u8>,
    /// Where the digits lie, and what lies there besides.
    digits_at: usize,
    around: u128,
    mask: u128,
    tag: TagPlace,
    writes_value: bool,
}

/// Requests up to this length are copied without a call.
const CHUNK_BYTES: usize = 64;

/// Where the tag stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagPlace {
    /// Nowhere.
    Absent,
    /// Four bytes from there on.
    Word(usize),
    /// Decimal digits from here to there.
    Digits(usize, usize),
}

impl Template {
    /// A template of what was written for a key of such names.
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
        // The bytes before the key's end, for the spare ones stand before all.
        let digits_at = places.key_end;
        let there = head.get(digits_at..digits_at + DIGITS_MAX)?.first_chunk()?;
        // The upper bytes are the last ones.
        let mask = !(u128::MAX.checked_shr(8 * u32::try_from(pattern.digits).ok()?).unwrap_or(0));
        let own = u128::from_le_bytes(pattern.number(key)) & mask;
        let there = u128::from_le_bytes(*there);
        // Not where it was thought to be: then there is none.
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

    /// Is this part such a request?
    #[inline]
    pub(super) fn fits(&self, part: &Part<'_>) -> bool {
        part.value_bytes == self.value_bytes && part.exptime_s == self.exptime_s
    }

    /// Appends the request for a key.
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

/// The upper half.
#[inline(always)]
fn upper(word: u128) -> u64 {
    (word >> 64) as u64
}

/// Appends the request up to `end`: a copy of a fixed length, of which the rest is taken back, is a
/// few instructions.
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
