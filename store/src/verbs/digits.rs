//! A number as decimal text.
//!
//! Where: arithmetic makes a `Digits` of each result; the engine writes the digits into an item.
//! Invariant: the text has no sign and no leading zeros.

/// Number of decimal digits of `u64::MAX`.
const DIGITS_MAX: usize = 20;

#[derive(Clone, Copy)]
pub(crate) struct Digits {
    bytes: [u8; DIGITS_MAX],
    start: usize,
}

impl Digits {
    const BLANK: Self = Self { bytes: [0; DIGITS_MAX], start: DIGITS_MAX };

    pub(crate) fn new(mut value: u64) -> Self {
        let mut digits = Self::BLANK;
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + u8::try_from(value % 10).unwrap_or(0);
            value /= 10;
            if value == 0 {
                return digits;
            }
        }
    }

    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_decimal() {
        assert_eq!(Digits::new(0).text(), b"0");
        assert_eq!(Digits::new(u64::MAX).text(), b"18446744073709551615");
    }
}
