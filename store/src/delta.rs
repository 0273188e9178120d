//! Arithmetic: incr and decr on decimal text.
//!
//! Where: the executor's arithmetic arm.
//! Invariant: the number is read and written under one lock; a number that needs no more digits
//! than the text has keeps its length, padded with spaces.
//! Source: memcached's `do_add_delta`, `process_marithmetic_cmd`, `safe_strtoull` (1.6.45).

use crate::Store;
use crate::column::Local;
use crate::publish::{ATTEMPTS_MAX, KEEP_ALL, Modified, New, NewCas, NewValue, Plan, Seen};
use crate::verbs::{Counted, Delta, Refused};
use memory::plant::{self, Fault};

/// Digits of the largest u64.
const DIGITS_MAX: usize = 20;

/// A number as text.
#[derive(Clone, Copy)]
struct Digits {
    bytes: [u8; DIGITS_MAX],
    start: usize,
}

impl Digits {
    fn new(mut value: u64) -> Self {
        let mut digits = Self { bytes: [0; DIGITS_MAX], start: DIGITS_MAX };
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + u8::try_from(value % 10).unwrap_or(0);
            value /= 10;
            if value == 0 {
                return digits;
            }
        }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// What a look at the item says.
#[derive(Clone, Copy)]
struct Sum {
    value: u64,
    exptime: u32,
    vivified: bool,
}

impl Local {
    pub(crate) fn delta(&mut self, store: &Store, delta: &Delta<'_>) -> Result<Counted, Refused> {
        let hash = store.hash.hash(delta.key);
        for _ in 0..ATTEMPTS_MAX {
            // The text to write must outlive the plan that names it, so the number is worked out
            // first, and the plan only checks that it still is the one.
            let (locked, first) = self.lock_live(store, hash, delta.key);
            let sum = match look(delta, first.as_ref().map(|first| &first.seen)) {
                Ok(sum) => sum,
                Err(answer) => return Ok(answer),
            };
            drop(locked);
            let digits = Digits::new(sum.value);
            let (mut moved_on, mut exptime) = (false, sum.exptime);
            let modified = self.modify(store, delta.key, |seen| match look(delta, seen) {
                Err(answer) => Plan::Answer(answer),
                Ok(now)
                    if (now.value != sum.value || now.vivified != sum.vivified)
                        && !plant::is(Fault::NumberNotCompared) =>
                {
                    moved_on = true;
                    Plan::Answer(Counted::NotFound)
                }
                Ok(now) => {
                    (moved_on, exptime) = (false, now.exptime);
                    Plan::Write(counted(delta, seen, digits.text()))
                }
            })?;
            match modified {
                Modified::Answered(_) if moved_on => {}
                Modified::Answered(answer) => return Ok(answer),
                Modified::Written { cas } => {
                    let Sum { value, vivified, .. } = sum;
                    if vivified {
                        self.counters(store).total_items.add(1);
                    }
                    return Ok(Counted::Counted { value, cas, exptime, vivified });
                }
            }
        }
        Err(Refused::Later)
    }
}

fn look(delta: &Delta<'_>, seen: Option<&Seen<'_>>) -> Result<Sum, Counted> {
    let Some(seen) = seen else {
        let vivify = delta.vivify.ok_or(Counted::NotFound)?;
        return Ok(Sum { value: vivify.initial, exptime: 0, vivified: true });
    };
    let item = &seen.item;
    if item.shape().value_bytes == 0 {
        return Err(Counted::NonNumeric);
    }
    if delta.cas != 0 && delta.cas != seen.cas {
        return Err(Counted::Exists);
    }
    if item.shape().is_chained() {
        return Err(Counted::NonNumeric);
    }
    let old = number(item.log_value()).ok_or(Counted::NonNumeric)?;
    let value = match delta.incr {
        true => old.wrapping_add(delta.delta),
        false => old.saturating_sub(delta.delta),
    };
    Ok(Sum { value, exptime: item.exptime(), vivified: false })
}

fn counted<'d>(delta: &Delta<'_>, seen: Option<&Seen<'_>>, digits: &'d [u8]) -> New<'d> {
    let cas = delta.cas_in.map_or(NewCas::Next, NewCas::Given);
    let Some(seen) = seen else {
        let exptime = delta.vivify.map_or(0, |vivify| vivify.exptime);
        return New {
            value: NewValue::Padded(digits, digits.len()),
            exptime,
            client_flags: 0,
            key_binary: false,
            cas,
            keep_bits: 0,
            set_bits: 0,
        };
    };
    let shape = seen.item.shape();
    let len = shape.value_bytes as usize;
    // With room for the digits memcached rewrites in place: the item stays what it is. Else it
    // makes a new one.
    let in_place = digits.len() <= len;
    New {
        value: NewValue::Padded(digits, len.max(digits.len())),
        exptime: delta.exptime.unwrap_or(seen.item.exptime()),
        client_flags: seen.item.client_flags(),
        key_binary: in_place && shape.key_binary(),
        cas,
        keep_bits: if in_place { KEEP_ALL } else { 0 },
        set_bits: 0,
    }
}

/// The decimal number a value begins with, as strtoull reads it before the value's CRLF: spaces, a
/// sign, digits, and then the end or a space.
fn number(value: &[u8]) -> Option<u64> {
    let space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let mut rest = value.trim_ascii_start();
    // trim_ascii_start leaves vertical tabs, which C's isspace takes.
    while let Some((first, more)) = rest.split_first()
        && space(first)
    {
        rest = more;
    }
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

    #[test]
    fn digits_are_decimal() {
        assert_eq!(Digits::new(0).text(), b"0");
        assert_eq!(Digits::new(u64::MAX).text(), b"18446744073709551615");
    }
}
