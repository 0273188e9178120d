//! Appends decimal numbers to a reply.
//!
//! Where: the writers of all protocols' replies.
//! Invariant: a number has no sign unless it is negative, and no leading zeros.
//! Source: none. A number of few digits is appended with its letters at once, see `ShortText`.

use memory::short::ShortText;

/// Appends a number's digits.
#[inline]
pub fn number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[inline(always)]
pub(crate) fn number_after<const N: usize>(
    out: &mut Vec<u8>,
    letters: &[u8; N],
    number: impl itoa::Integer + Copy + TryInto<u32>,
) {
    if let Some(digits) = number.try_into().ok().and_then(ShortText::digits) {
        return ShortText::of(letters).then(digits).append(out);
    }
    out.extend_from_slice(letters);
    self::number(out, number);
}
