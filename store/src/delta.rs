//! Arithmetic: incr and decr on decimal text.
//!
//! Where: the executor's arithmetic arm.
//! Invariant: the number is read and written under one lock; or, for a value in frames, the value
//! that is replaced is the value that was read. If the new number has no more digits than the old
//! text has bytes, the text keeps its length and is padded with spaces.
//! Source: memcached's `do_add_delta`, `process_marithmetic_cmd`, `safe_strtoull` (1.6.45).

use crate::cas::NewCas;
use crate::column::Column;
use crate::digits::Digits;
use crate::engine::{ATTEMPTS_MAX, Changed, Decision, KEEP_ALL, New, NewValue};
use crate::extend::Before;
use crate::handle::View;
use crate::item::Item;
use crate::read::Old;
use crate::verbs::{Counted, Delta, Refused};
use memory::frames::is_chunk;
use memory::plant::{self, Fault};

/// The longest item that is read as a number, in bytes as memcached counts them. Memcached keeps a
/// longer item in several chunks, and does not accept it as a number.
const COUNTED_BYTES_MAX: u64 = 512 << 10;

/// The number that an item is to get, and properties of the item.
#[derive(Clone, Copy)]
struct Sum {
    value: u64,
    exptime: u32,
    vivified: bool,
    /// True if memcached would link a new item: the key has no item, or the new text is longer than
    /// the old.
    is_new_item: bool,
}

/// The reason why there is no sum.
enum Unsummed {
    /// The request gets this answer.
    Answer(Counted),
    /// The value is too long for the log, in which values are read and replaced under one lock.
    IsLong,
}

impl Column {
    /// Adds to a number or subtracts from it.
    ///
    /// # Errors
    /// `Refused::NoMemory`: there is no room. `Refused::Later`: there is no room yet.
    pub fn delta(&mut self, delta: &Delta<'_>) -> Result<Counted, Refused> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(counted) = self.delta_in_log(delta)? {
                return Ok(counted);
            }
            if let Some(counted) = self.delta_in_frames(delta)? {
                return Ok(counted);
            }
        }
        Err(Refused::Later)
    }

    /// Changes a number whose text lies in the log. `None`: the value does not lie there.
    #[inline(always)]
    fn delta_in_log(&mut self, delta: &Delta<'_>) -> Result<Option<Counted>, Refused> {
        let key = self.handle.view().key(delta.key);
        let mut done = None;
        let changed = self.change(key, None, |view, old| match sum(view, delta, old) {
            Err(Unsummed::Answer(answer)) => Decision::Answer(Some(answer)),
            Err(Unsummed::IsLong) => Decision::Answer(None),
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
                Ok(Some(Counted::Counted { value, cas, exptime, vivified }))
            }
        }
    }

    /// Changes a number in a value that is too long for the log, because of spaces before or behind
    /// the number. The new value is built first. It is stored only if the key, under the lock,
    /// still has the value from which it was built. `None`: another column has changed the value.
    #[cold]
    #[inline(never)]
    fn delta_in_frames(&mut self, delta: &Delta<'_>) -> Result<Option<Counted>, Refused> {
        let view = self.handle.view();
        let key = view.key(delta.key);
        let (read, locked) = view.look_locked(key, |_, old| {
            let old = old.filter(|old| is_long(view, old))?;
            let before = Before::of(view, old);
            Some((read_long(view, delta, old, &before), before))
        });
        drop(locked);
        let Some((read, before)) = read else { return Ok(None) };
        let value = match read {
            Ok(value) => value,
            Err(answer) => return Ok(Some(answer)),
        };
        let (digits, len) = (Digits::new(value), before.pieces().map(<[u8]>::len).sum::<usize>());
        // The new text keeps the old text's length, which is longer than any number.
        let spaces = vec![b' '; len.saturating_sub(digits.text().len())];
        let mut draft = self.draft_of_pieces(&[digits.text(), &spaces])?;
        let (new_value, mut exptime) = (draft.value(), 0);
        let changed = self.change(key, None, |_, old| match old {
            Some(old) if before.is_of(old) && (delta.cas == 0 || delta.cas == old.seen.cas) => {
                exptime = old.seen.item.exptime();
                Decision::Write(New { value: new_value, ..counted(delta, Some(old), digits) })
            }
            _ => Decision::Answer(None),
        })?;
        Ok(match changed {
            Changed::Answered(answer) => answer,
            Changed::Written { cas } => {
                draft.published();
                Some(Counted::Counted { value, cas, exptime, vivified: false })
            }
        })
    }
}

/// The number that the item is to get.
fn sum(view: View<'_>, delta: &Delta<'_>, old: Option<&Old<'_, '_>>) -> Result<Sum, Unsummed> {
    let Some(old) = old else {
        let vivify = delta.vivify.ok_or(Unsummed::Answer(Counted::NotFound))?;
        return Ok(Sum { value: vivify.initial, exptime: 0, vivified: true, is_new_item: true });
    };
    if is_long(view, old) {
        return Err(Unsummed::IsLong);
    }
    let item = &old.seen.item;
    let before = match item.first_frame() {
        None => number(old.log_value()),
        Some(first) => number_in_chunks(view, item, first),
    };
    let value = summed(delta, old, before).map_err(Unsummed::Answer)?;
    Ok(Sum { value, exptime: item.exptime(), vivified: false, is_new_item: false })
}

/// The result of the arithmetic on `before`, or the answer if there is no result.
fn summed(delta: &Delta<'_>, old: &Old<'_, '_>, before: Option<u64>) -> Result<u64, Counted> {
    if old.seen.item.shape().value_bytes == 0 {
        return Err(Counted::NonNumeric);
    }
    if delta.cas != 0 && delta.cas != old.seen.cas {
        return Err(Counted::Exists);
    }
    let before = before.ok_or(Counted::NonNumeric)?;
    Ok(match delta.incr {
        true => before.wrapping_add(delta.delta),
        false => before.saturating_sub(delta.delta),
    })
}

/// True if the value is too long for the log.
fn is_long(view: View<'_>, old: &Old<'_, '_>) -> bool {
    let item = &old.seen.item;
    item.value_bytes().0 > view.frame_bytes()
        || item.first_frame().is_some_and(|first| !is_chunk(first))
}

/// Like `summed`, but for a value that is too long for the log.
fn read_long(
    view: View<'_>,
    delta: &Delta<'_>,
    old: &Old<'_, '_>,
    before: &Before,
) -> Result<u64, Counted> {
    let item = &old.seen.item;
    let bytes = view.counted_bytes(delta.key, item.client_flags(), item.value_bytes().0.into());
    if bytes > COUNTED_BYTES_MAX {
        return Err(Counted::NonNumeric);
    }
    let text = before.pieces().collect::<Vec<_>>().concat();
    summed(delta, old, number(&text))
}

/// The number at the beginning of a value that lies in chunks of the arena.
#[cold]
#[inline(never)]
fn number_in_chunks(view: View<'_>, item: &Item<'_>, first: u32) -> Option<u64> {
    let pinned = view.pin(item, first)?;
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
    // If the digits fit in the old value's length, memcached rewrites the item in place, and the
    // item keeps its marks. Otherwise memcached makes a new item.
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

/// The decimal number at the beginning of a value, as memcached's `safe_strtoull` reads it: spaces,
/// a sign, digits, and then the end of the value or a space.
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
    // Like strtoull, negate a number with a minus sign; then, like memcached, refuse it if its
    // highest bit is set.
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
