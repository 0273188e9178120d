//! Templates for requests of one key and for keys of multigets. Requests with the same verb and
//! sizes differ only in the key's number and the tag.
//!
//! ```text
//! head   | spare | get ........0000\r\n | spare
//! tail   the bytes after the value
//! ```
//!
//! Where: `Writer` tries its templates first.
//! Invariant: a template writes the same bytes as the `write` function of the protocol. A template
//! exists only if all keys have equal length, because then a key's number has the same offset in
//! each request.
//! Source: none. A template writes a request with two stores (the number, the tag) and one copy
//! instead of a dozen appends. Without templates a GET costs 14 to 86 % more instructions
//! (`bench drive` under callgrind, 32 requests in flight, all four protocols).

use protocol::reply::number;

use super::request::{Positions, Tag, TagPosition, WireRequest};
use crate::workload::{DIGITS_MAX, Names, Pattern};

#[derive(Clone, Debug)]
pub(super) struct Template {
    value_bytes: u32,
    exptime_s: u32,
    pattern: Pattern,
    /// The bytes before the value, between spare bytes at the start and at the end.
    head: Vec<u8>,
    head_bytes: usize,
    tail: Vec<u8>,
    /// The position of the `DIGITS_MAX` bytes that end where the key's number ends.
    digits_at: usize,
    /// The 16 bytes at `digits_at`, with zeros instead of the number, whose bytes `mask` selects.
    around: u128,
    mask: u128,
    tag: TagPosition,
    writes_value: bool,
}

/// Shorter requests are copied with this fixed length, which needs no call of `memcpy`.
const CHUNK_BYTES: usize = 64;

impl Template {
    /// Makes a template from a request of `key` that was `written`. `None` if keys differ in
    /// length.
    pub(super) fn new(
        request: &WireRequest<'_>,
        key: u64,
        (written, places): (&[u8], &Positions),
        names: &Names,
    ) -> Option<Template> {
        let pattern = names.pattern()?;
        let carries = places.value_at < written.len();
        let mut head = vec![0; DIGITS_MAX];
        head.extend_from_slice(written.get(..places.value_at)?);
        let value_end = places.value_at + if carries { request.value_bytes as usize } else { 0 };
        let tail = written.get(value_end..)?.to_vec();
        let tag = match places.tag {
            TagPosition::Absent => TagPosition::Absent,
            TagPosition::Word(at) => TagPosition::Word(DIGITS_MAX + at),
            TagPosition::Digits(from, to) => {
                head.drain(DIGITS_MAX + from..DIGITS_MAX + to);
                TagPosition::Digits(DIGITS_MAX + from, DIGITS_MAX + from)
            }
        };
        let head_bytes = head.len() - DIGITS_MAX;
        head.resize(head.len() + CHUNK_BYTES, 0);
        // `DIGITS_MAX` spare bytes precede the request, so the `DIGITS_MAX` bytes from this
        // position end where the key ends.
        let digits_at = places.key_end;
        let there = head.get(digits_at..digits_at + DIGITS_MAX)?.first_chunk()?;
        // The number's digits are the last bytes, so the most significant in little endian.
        let mask = !(u128::MAX.checked_shr(8 * u32::try_from(pattern.digits).ok()?).unwrap_or(0));
        let own = u128::from_le_bytes(pattern.number(key)) & mask;
        let there = u128::from_le_bytes(*there);
        // Make no template if the key's number is not at the expected position.
        (there & mask == own).then_some(Template {
            value_bytes: request.value_bytes,
            exptime_s: request.exptime_s,
            pattern,
            head,
            head_bytes,
            tail,
            digits_at,
            around: there & !mask,
            mask,
            tag,
            writes_value: carries && request.value_bytes > 0,
        })
    }

    #[inline]
    pub(super) fn fits(&self, request: &WireRequest<'_>) -> bool {
        request.value_bytes == self.value_bytes && request.exptime_s == self.exptime_s
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
            TagPosition::Absent => append(&self.head, head_end, out),
            TagPosition::Word(at) => {
                let tag = own.0.to_be_bytes();
                self.head[at..at + tag.len()].copy_from_slice(&tag);
                append(&self.head, head_end, out);
            }
            TagPosition::Digits(at, _) => {
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

/// Appends the request up to `end`. Copying a fixed length and truncating the copy is fastest.
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
