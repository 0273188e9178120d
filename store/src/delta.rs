//! Arithmetic: incr and decr on decimal text.
//!
//! Where: the executor's arithmetic arm.
//! Invariant: the number is read and written under one lock; a number that needs no more digits
//! than the text has keeps its length, padded with spaces.
//! Source: memcached's `do_add_delta`, `process_marithmetic_cmd`, `safe_strtoull` (1.6.45).

use crate::cas::NewCas;
use crate::column::Column;
use crate::digits::Digits;
use crate::engine::{Changed, Decision, KEEP_ALL, New, NewValue};
use crate::handle::View;
use crate::item::Item;
use crate::read::Old;
use crate::verbs::{Counted, Delta, Refused};
use memory::frames::is_chunk;
use memory::plant::{self, Fault};

/// The number that an item is to have, and what it had.
#[derive(Clone, Copy)]
struct Sum {
    value: u64,
    exptime: u32,
    vivified: bool,
    /// memcached links another item for it: there was none, or its text is longer than the old
    /// one's.
    is_new_item: bool,
}

impl Column {
    /// Arithmetic.
    ///
    /// # Errors
    /// `Refused::NoMemory`: there is no room. `Refused::Later`: there is none yet.
    pub fn delta(&mut self, delta: &Delta<'_>) -> Result<Counted, Refused> {
        let key = self.handle.view().key(delta.key);
        let mut done = None;
        let changed = self.change(key, None, |view, old| match sum(view, delta, old) {
            Err(answer) => Decision::Answer(answer),
            Ok(now) => {
                let before = done.filter(|_| plant::is(Fault::NumberNotCompared));
                let sum = done.insert(before.unwrap_or(now));
                let new = counted(delta, old, Digits::new(sum.value));
                sum.is_new_item = new.keep_bits == 0;
                Decision::Write(new)
            }
        })?;
        match (changed, done) {
            (Changed::Answered(answer), _) => Ok(answer),
            (Changed::Written { .. }, None) => Err(Refused::Later),
            (Changed::Written { cas }, Some(Sum { value, exptime, vivified, is_new_item })) => {
                self.handle.view().counters().total_items.add(is_new_item.into());
                Ok(Counted::Counted { value, cas, exptime, vivified })
            }
        }
    }
}

fn sum(view: View<'_>, delta: &Delta<'_>, old: Option<&Old<'_, '_>>) -> Result<Sum, Counted> {
    let Some(old) = old else {
        let vivify = delta.vivify.ok_or(Counted::NotFound)?;
        return Ok(Sum { value: vivify.initial, exptime: 0, vivified: true, is_new_item: true });
    };
    let item = &old.seen.item;
    if item.shape().value_bytes == 0 {
        return Err(Counted::NonNumeric);
    }
    if delta.cas != 0 && delta.cas != old.seen.cas {
        return Err(Counted::Exists);
    }
    let before = match item.first_frame() {
        None => number(old.log_value()),
        Some(first) => number_in_chunks(view, item, first),
    };
    let before = before.ok_or(Counted::NonNumeric)?;
    let value = match delta.incr {
        true => before.wrapping_add(delta.delta),
        false => before.saturating_sub(delta.delta),
    };
    Ok(Sum { value, exptime: item.exptime(), vivified: false, is_new_item: false })
}

/// The number that a value in chunks of the arena begins with. None is read from a value that is
/// too long to lie in the log.
#[cold]
#[inline(never)]
fn number_in_chunks(view: View<'_>, item: &Item<'_>, first: u32) -> Option<u64> {
    let may_count = is_chunk(first) && item.value_bytes().0 <= view.frame_bytes();
    let pinned = may_count.then(|| view.pin(item, first)).flatten()?;
    number(&pinned.pieces().collect::<Vec<_>>().concat())
}

fn counted<'a>(delta: &Delta<'_>, old: Option<&Old<'_, '_>>, digits: Digits) -> New<'a> {
    let digits_bytes = digits.text().len();
    let cas = NewCas::of(delta.cas_in);
    let Some(old) = old else {
        let exptime = delta.vivify.map_or(0, |vivify| vivify.exptime);
        return New {
            value: NewValue::Digits(digits, digits_bytes),
            exptime,
            cas,
            ..New::default()
        };
    };
    let len = old.seen.item.shape().value_bytes as usize;
    // With room for the digits memcached rewrites in place: the item stays what it is. Else it
    // makes a new one.
    let in_place = digits_bytes <= len;
    let kept = New::kept(old);
    New {
        value: NewValue::Digits(digits, len.max(digits_bytes)),
        exptime: delta.exptime.unwrap_or(kept.exptime),
        key_binary: in_place && kept.key_binary,
        cas,
        keep_bits: if in_place { KEEP_ALL } else { 0 },
        ..kept
    }
}

/// The decimal number a value begins with, as strtoull reads it before the value's CRLF: spaces, a
/// sign, digits, and then the end or a space.
fn number(value: &[u8]) -> Option<u64> {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = value.iter().position(|byte| !space(byte)).unwrap_or(value.len());
    let rest = &value[start..];
    let (negative, digits) = match rest.split_first() {
        Some((b'-', digits)) => (true, digits),
        Some((b'+', digits)) => (false, digits),
        _ => (false, rest),
    };
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 || digits.get(end).is_some_and(|byte| !space(byte) && *byte != 0) {
        return None;
    }
    let magnitude = digits[..end]
        .iter()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    // strtoull negates; what then looks negative is refused.
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    (!negative || value >> 63 == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtoull_does() {
        for (text, value) in [
            ("0", Some(0)),
            ("12 abc", Some(12)),
            (" \t\x0b7", Some(7)),
            ("+5", Some(5)),
            ("-0", Some(0)),
            ("-5", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("12abc", None),
            ("abc", None),
            ("", None),
            (" ", None),
            ("5   ", Some(5)),
        ] {
            assert_eq!(number(text.as_bytes()), value, "{text:?}");
        }
    }
}
