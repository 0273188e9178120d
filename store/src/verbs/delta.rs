//! Arithmetic: incr and decr on decimal text.
//!
//! Where: the executor calls `Column::delta` for incr, decr and meta arithmetic.
//! Invariant: a number is read and written under one lock or, if the value is too long for the log,
//! is written only if the value is still the one that was read. If the new digits fit in the old
//! text, spaces pad the new text to the old text's length.
//! Source: memcached's `do_add_delta`, `process_marithmetic_cmd`, `safe_strtoull` (1.6.45).

use crate::column::Column;
use crate::column::handle::View;
use crate::engine::cas::NewCas;
use crate::engine::find::LockedItem;
use crate::engine::{ATTEMPTS_MAX, ChangeResult, Decision, KEEP_ALL, NewItem, NewValue};
use crate::error::StoreError;
use crate::item::Item;
use crate::verbs::digits::Digits;
use crate::verbs::extend::OldValue;
use crate::verbs::{Delta, DeltaResult};
use memory::frames::is_chunk;
use memory::plant::{self, Fault};

/// Maximum size of an item whose value is read as a number, in bytes as memcached counts them.
/// memcached keeps a larger item in several chunks, and refuses arithmetic on such an item.
const COUNTED_BYTES_MAX: u64 = 512 << 10;

#[derive(Clone, Copy)]
struct Sum {
    value: u64,
    exptime: u32,
    vivified: bool,
    /// True if memcached would link a new item: the key is new, or the new text is longer.
    is_new_item: bool,
}

enum NoSum {
    Answer(DeltaResult),
    /// The value is too long for the log, so `delta_in_frames` must change the number.
    IsLong,
}

impl Column {
    /// Adds to the number that is the value of a key, or subtracts from that number.
    ///
    /// # Errors
    /// `StoreError::NoMemory`: there is no room. `StoreError::Later`: the caller must try again.
    pub fn delta(&mut self, delta: &Delta<'_>) -> Result<DeltaResult, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(counted) = self.delta_in_log(delta)? {
                return Ok(counted);
            }
            if let Some(counted) = self.delta_in_frames(delta)? {
                return Ok(counted);
            }
        }
        Err(StoreError::Later)
    }

    /// Changes a number under one lock. Returns `None` if the value is too long for the log.
    #[inline(always)]
    fn delta_in_log(&mut self, delta: &Delta<'_>) -> Result<Option<DeltaResult>, StoreError> {
        let key = self.handle.view().key(delta.key);
        let mut done = None;
        let changed = self.change(key, None, |view, old| match sum(view, delta, old) {
            Err(NoSum::Answer(answer)) => Decision::Answer(Some(answer)),
            Err(NoSum::IsLong) => Decision::Answer(None),
            Ok(now) => {
                let before = done.filter(|_| plant::is(Fault::NumberNotCompared));
                let sum = done.insert(before.unwrap_or(now));
                let new = number_item(delta, old, Digits::new(sum.value));
                sum.is_new_item = new.keep_bits == 0;
                Decision::Write(new)
            }
        })?;
        match (changed, done) {
            (ChangeResult::Answered(answer), _) => Ok(answer),
            (ChangeResult::Written { .. }, None) => Err(StoreError::Later),
            (
                ChangeResult::Written { cas },
                Some(Sum { value, exptime, vivified, is_new_item }),
            ) => {
                self.handle.view().counters().total_items.add(is_new_item.into());
                Ok(Some(DeltaResult::Stored { value, cas, exptime, vivified }))
            }
        }
    }

    /// Changes a number in a value that is too long for the log, because there are spaces around
    /// the number. Builds the new value first, and stores the new value only if, under the lock,
    /// the key still has the old value. Returns `None` if another column has changed the value.
    #[cold]
    #[inline(never)]
    fn delta_in_frames(&mut self, delta: &Delta<'_>) -> Result<Option<DeltaResult>, StoreError> {
        let view = self.handle.view();
        let key = view.key(delta.key);
        let (read, locked) = view.look_locked(key, |_, old| {
            let old = old.filter(|old| is_long(view, old))?;
            let before = OldValue::of(view, old);
            Some((read_long(view, delta, old, &before), before))
        });
        drop(locked);
        let Some((read, before)) = read else { return Ok(None) };
        let value = match read {
            Ok(value) => value,
            Err(answer) => return Ok(Some(answer)),
        };
        let (digits, len) = (Digits::new(value), before.pieces().map(<[u8]>::len).sum::<usize>());
        // The new text gets the length of the old text, which is longer than any number.
        let spaces = vec![b' '; len.saturating_sub(digits.text().len())];
        let mut draft = self.draft_of_pieces(&[digits.text(), &spaces])?;
        let (new_value, mut exptime) = (draft.value(), 0);
        let changed = self.change(key, None, |_, old| match old {
            Some(old) if before.is_of(old) && (delta.cas == 0 || delta.cas == old.seen.cas) => {
                exptime = old.seen.item.exptime();
                Decision::Write(NewItem {
                    value: new_value,
                    ..number_item(delta, Some(old), digits)
                })
            }
            _ => Decision::Answer(None),
        })?;
        Ok(match changed {
            ChangeResult::Answered(answer) => answer,
            ChangeResult::Written { cas } => {
                draft.published();
                Some(DeltaResult::Stored { value, cas, exptime, vivified: false })
            }
        })
    }
}

fn sum(view: View<'_>, delta: &Delta<'_>, old: Option<&LockedItem<'_, '_>>) -> Result<Sum, NoSum> {
    let Some(old) = old else {
        let vivify = delta.vivify.ok_or(NoSum::Answer(DeltaResult::NotFound))?;
        return Ok(Sum { value: vivify.initial, exptime: 0, vivified: true, is_new_item: true });
    };
    if is_long(view, old) {
        return Err(NoSum::IsLong);
    }
    let item = &old.seen.item;
    let before = match item.first_frame() {
        None => number(old.log_value()),
        Some(first) => number_in_chunks(view, item, first),
    };
    let value = compute(delta, old, before).map_err(NoSum::Answer)?;
    Ok(Sum { value, exptime: item.exptime(), vivified: false, is_new_item: false })
}

fn compute(
    delta: &Delta<'_>,
    old: &LockedItem<'_, '_>,
    before: Option<u64>,
) -> Result<u64, DeltaResult> {
    if old.seen.item.shape().value_bytes == 0 {
        return Err(DeltaResult::NonNumeric);
    }
    if delta.cas != 0 && delta.cas != old.seen.cas {
        return Err(DeltaResult::Exists);
    }
    let before = before.ok_or(DeltaResult::NonNumeric)?;
    Ok(match delta.incr {
        true => before.wrapping_add(delta.delta),
        false => before.saturating_sub(delta.delta),
    })
}

fn is_long(view: View<'_>, old: &LockedItem<'_, '_>) -> bool {
    let item = &old.seen.item;
    item.value_bytes().0 > view.frame_bytes()
        || item.first_frame().is_some_and(|first| !is_chunk(first))
}

fn read_long(
    view: View<'_>,
    delta: &Delta<'_>,
    old: &LockedItem<'_, '_>,
    before: &OldValue,
) -> Result<u64, DeltaResult> {
    let item = &old.seen.item;
    let bytes = view.counted_bytes(delta.key, item.client_flags(), item.value_bytes().0.into());
    if bytes > COUNTED_BYTES_MAX {
        return Err(DeltaResult::NonNumeric);
    }
    let text = before.pieces().collect::<Vec<_>>().concat();
    compute(delta, old, number(&text))
}

#[cold]
#[inline(never)]
fn number_in_chunks(view: View<'_>, item: &Item<'_>, first: u32) -> Option<u64> {
    let pinned = view.pin(item, first)?;
    number(&pinned.pieces().collect::<Vec<_>>().concat())
}

fn number_item<'a>(
    delta: &Delta<'_>,
    old: Option<&LockedItem<'_, '_>>,
    digits: Digits,
) -> NewItem<'a> {
    let digits_bytes = digits.text().len();
    let cas = NewCas::of(delta.cas_in);
    let Some(old) = old else {
        let exptime = delta.vivify.map_or(0, |vivify| vivify.exptime);
        return NewItem {
            value: NewValue::Digits(digits, digits_bytes),
            exptime,
            cas,
            ..NewItem::default()
        };
    };
    let len = old.seen.item.shape().value_bytes as usize;
    // If the digits fit in the old value, memcached rewrites the item, so the slot's bits stay.
    let in_place = digits_bytes <= len;
    let kept = NewItem::kept(old);
    NewItem {
        value: NewValue::Digits(digits, len.max(digits_bytes)),
        exptime: delta.exptime.unwrap_or(kept.exptime),
        key_binary: in_place && kept.key_binary,
        cas,
        keep_bits: if in_place { KEEP_ALL } else { 0 },
        ..kept
    }
}

/// Reads the number at the start of a value like memcached's `safe_strtoull`: optional spaces and
/// an optional sign, then digits, then a space, a NUL byte or the end of the value.
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
    // strtoull negates after a minus sign; memcached then refuses a result whose top bit is 1.
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
