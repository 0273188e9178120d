//! A few bytes of text, put together in registers and appended at once.
//!
//! Where: the writers of hot replies, for what stands around a key and a value.
//! Invariant: no more than `BYTES_MAX` bytes; those behind the text's end are zero.
//! Source: none; an append of a length known beforehand is a store or two, where any other is a
//! call.

/// Most bytes.
const BYTES_MAX: usize = size_of::<u128>();

/// Numbers from here on have more digits than `Short::digits` makes.
const NUMBER_END: u32 = 10_000;

/// Text of at most `BYTES_MAX` bytes, first byte lowest.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    text: u128,
    bytes: u32,
}

impl Short {
    /// This text.
    #[inline(always)]
    pub(crate) const fn of<const N: usize>(text: &[u8; N]) -> Short {
        const { assert!(N <= BYTES_MAX) };
        let (mut word, mut at) = (0, 0);
        while at < N {
            word |= (text[at] as u128) << (8 * at);
            at += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        let bytes = N as u32;
        Short { text: word, bytes }
    }

    /// The digits of a number, at most four of them.
    #[inline(always)]
    pub(crate) fn digits(number: u32) -> Option<Short> {
        if number >= NUMBER_END {
            return None;
        }
        // Two digits in each half of a word, then one in each byte, the first lowest. Division by
        // ten as multiplication holds below 179.
        let (high, low) = (number / 100, number % 100);
        let pairs = high | (low << 16);
        let tens = ((pairs * 103) >> 10) & 0x000f_000f;
        let digits = tens | ((pairs - tens * 10) << 8);
        // Leading zeros go, but not the last digit.
        let skipped = (digits | 0x0100_0000).trailing_zeros() & !7;
        let text = u128::from((digits | 0x3030_3030) >> skipped);
        Some(Short { text, bytes: 4 - skipped / 8 })
    }

    /// This, and `more` behind it. Both together must be no longer than `BYTES_MAX`.
    #[inline(always)]
    pub(crate) fn then(self, more: Short) -> Short {
        let bytes = self.bytes + more.bytes;
        debug_assert!(bytes as usize <= BYTES_MAX);
        Short { text: self.text | (more.text << (8 * (self.bytes & 15))), bytes }
    }

    /// Appends it.
    #[inline(always)]
    pub(crate) fn append(self, out: &mut Vec<u8>) {
        let end = out.len() + self.bytes as usize;
        out.extend_from_slice(&self.text.to_le_bytes());
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_digits() {
        for number in 0..NUMBER_END {
            let mut out = b"x".to_vec();
            let digits = Short::digits(number).unwrap();
            Short::of(b" 0 ").then(digits).then(Short::of(b"\r\n")).append(&mut out);
            assert_eq!(out, format!("x 0 {number}\r\n").into_bytes());
        }
        assert!(Short::digits(NUMBER_END).is_none());
        assert!(Short::digits(u32::MAX).is_none());
    }

    #[test]
    fn texts_of_all_lengths_are_appended_whole() {
        let mut out = Vec::new();
        Short::of(b"").append(&mut out);
        Short::of(b"sixteen bytes of").append(&mut out);
        Short::of(b" text").then(Short::of(b"").then(Short::of(b"."))).append(&mut out);
        assert_eq!(out, b"sixteen bytes of text.");
    }
}
