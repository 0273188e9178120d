//! A few bytes of text, built in a register and appended at once.
//!
//! Where: a protocol makes the short texts around a key and a value, and the store appends them.
//! Invariant: a text has at most `BYTES_MAX` bytes; the bytes after the text's end are zero.
//! Source: none. An append of constant length compiles to a store, but any other append to a call.

/// Maximum length of a text.
const BYTES_MAX: usize = size_of::<u64>();

/// The first number that has too many digits for `ShortText::digits`.
const NUMBER_END: u32 = 10_000;

/// The digits of each number below 1,000, the first digit in the lowest byte; the highest byte is
/// the number of digits. The table avoids branches, which the processor would often mispredict.
static NUMBERS: [u32; 1000] = {
    let mut numbers = [0; 1000];
    let mut number = 0;
    while number < 1000 {
        let digits = [number / 100, number / 10 % 10, number % 10];
        let count = if number < 10 { 1 } else { 2 + (number >= 100) as u32 };
        let mut at = 3 - count;
        while at < 3 {
            numbers[number as usize] |=
                (b'0' as u32 + digits[at as usize]) << (8 * (at + count - 3));
            at += 1;
        }
        numbers[number as usize] |= count << 24;
        number += 1;
    }
    numbers
};

/// Text of at most `BYTES_MAX` bytes, packed into a word whose lowest byte is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortText {
    text: u64,
    bytes: u32,
}

impl ShortText {
    /// No text.
    pub const NONE: ShortText = ShortText { text: 0, bytes: 0 };

    /// Makes a text of a whole word, whose lowest byte is the first.
    #[inline(always)]
    #[must_use]
    pub const fn word(text: u64) -> ShortText {
        ShortText { text, bytes: u64::BITS / 8 }
    }

    /// Makes a text of constant length.
    #[inline(always)]
    #[must_use]
    pub const fn of<const N: usize>(text: &[u8; N]) -> ShortText {
        const { assert!(N <= BYTES_MAX) };
        let (mut word, mut at) = (0, 0);
        while at < N {
            word |= (text[at] as u64) << (8 * at);
            at += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        let bytes = N as u32;
        ShortText { text: word, bytes }
    }

    /// Makes a text of a number's digits; `None` if the number has more than four digits.
    #[inline(always)]
    #[must_use]
    pub fn digits(number: u32) -> Option<ShortText> {
        if number >= NUMBER_END {
            return None;
        }
        if let Some(&digits) = NUMBERS.get(number as usize) {
            return Some(ShortText { text: u64::from(digits & 0xff_ffff), bytes: digits >> 24 });
        }
        // The first digit, and the three digits after it, leading zeros included.
        let (first, rest) = (number / 1000, number % 1000);
        let rest = [rest / 100, rest / 10 % 10, rest % 10]
            .iter()
            .rev()
            .fold(0, |text, digit| (text << 8) | u64::from(digit + u32::from(b'0')));
        Some(ShortText { text: u64::from(first + u32::from(b'0')) | (rest << 8), bytes: 4 })
    }

    /// Returns this text followed by `more`. Both together must not be longer than `BYTES_MAX`.
    #[inline(always)]
    #[must_use]
    pub fn then(self, more: ShortText) -> ShortText {
        let bytes = self.bytes + more.bytes;
        debug_assert!(bytes as usize <= BYTES_MAX && self.bytes < u64::BITS / 8);
        // Callers rely on the maximum for the safety of stores, so release builds keep it too.
        let bytes = if bytes < u64::BITS / 8 { bytes } else { u64::BITS / 8 };
        ShortText { text: self.text | (more.text << (8 * (self.bytes & 7))), bytes }
    }

    /// Appends the text.
    #[inline(always)]
    pub fn append(self, out: &mut Vec<u8>) {
        let end = out.len() + self.bytes as usize;
        out.extend_from_slice(&self.text.to_le_bytes());
        out.truncate(end);
    }

    /// Returns the text's bytes as a word whose lowest byte is the first.
    #[inline(always)]
    #[must_use]
    pub fn text(self) -> u64 {
        self.text
    }

    /// Number of bytes of the text, eight at most.
    #[inline(always)]
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.bytes
    }
}

/// The texts around a value in a reply that the store writes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surround {
    /// The first texts of the reply.
    pub before: [ShortText; 4],
    /// True if the key follows `before`.
    pub key: bool,
    /// The texts right before the value.
    pub between: [ShortText; 2],
    /// The text right after the value.
    pub behind: ShortText,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits() {
        for number in 0..NUMBER_END {
            let mut out = b"x".to_vec();
            let digits = ShortText::digits(number).expect("four digits at most");
            ShortText::of(b" ").then(digits).then(ShortText::of(b"\r\n")).append(&mut out);
            assert_eq!(out, format!("x {number}\r\n").into_bytes());
        }
        assert!(ShortText::digits(NUMBER_END).is_none());
        assert!(ShortText::digits(u32::MAX).is_none());
    }

    #[test]
    fn texts_of_all_lengths_are_appended_whole() {
        let mut out = Vec::new();
        ShortText::of(b"").append(&mut out);
        ShortText::of(b"8 bytes ").append(&mut out);
        ShortText::of(b"of text")
            .then(ShortText::of(b"").then(ShortText::of(b".")))
            .append(&mut out);
        assert_eq!(out, b"8 bytes of text.");
    }
}
