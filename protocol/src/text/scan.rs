//! Finds the end of a word in a line, sixteen bytes at a time.
//!
//! Where: the session's short cuts find the end of a key by `blank`.
//! Invariant: the result is that of a loop over single bytes; a test compares the two.
//! Source: "Determine if a word has a byte less than n", S. E. Anderson, Bit Twiddling Hacks.

const STEP: usize = 16;

/// A word whose bytes are all 1.
const ONES: u64 = u64::MAX / 0xff;

/// Returns the index of the first byte up to 0x20: a space, a line end or another control byte.
#[inline(always)]
pub(crate) fn blank(text: &[u8]) -> Option<usize> {
    let (mut at, mut rest) = (0, text);
    while let Some((step, behind)) = rest.split_first_chunk::<STEP>() {
        if step_has_blank(step) {
            return Some(at + first(step));
        }
        (at, rest) = (at + STEP, behind);
    }
    match text.last_chunk::<STEP>() {
        // The last chunk of `text` begins before `at`, so some bytes are compared twice.
        Some(step) => step_has_blank(step).then(|| text.len() - STEP + first(step)),
        None => rest.iter().position(|&byte| byte <= b' ').map(|place| at + place),
    }
}

/// True if any byte is at most 0x20 (a space).
#[inline(always)]
pub(crate) fn has_blank(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk::<STEP>() else {
        return text.iter().any(|&byte| byte <= b' ');
    };
    let mut lowest = *last;
    let (steps, _) = text.as_chunks::<STEP>();
    for step in steps {
        // Taking the lower of each two bytes compiles to one instruction.
        lowest.iter_mut().zip(step).for_each(|(lowest, &byte)| *lowest = byte.min(*lowest));
    }
    step_has_blank(&lowest)
}

/// True if any byte is at most 0x20. Compiles to a comparison of all bytes at once.
#[inline(always)]
fn step_has_blank(step: &[u8; STEP]) -> bool {
    step.iter().fold(false, |found, &byte| found | (byte <= b' '))
}

/// Returns the index of the first byte that is at most 0x20; `step` must have such a byte.
#[inline(always)]
fn first(step: &[u8; STEP]) -> usize {
    let (low, high) = step.split_at(STEP / 2);
    match blanks(low) {
        0 => STEP / 2 + (blanks(high).trailing_zeros() / 8) as usize,
        blanks => (blanks.trailing_zeros() / 8) as usize,
    }
}

/// Returns a word whose lowest set bit is in the first byte up to 0x20; zero if no byte is.
#[inline(always)]
fn blanks(half: &[u8]) -> u64 {
    let word = half.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    word.wrapping_sub(ONES * (b' ' as u64 + 1)) & !word & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![8 => 0x21..=0xff_u8, 1 => 0..=0x20_u8, 1 => Just(0x21), 1 => Just(0x80)]
    }

    proptest! {
        #[test]
        fn the_first_blank_is_found_wherever_it_stands(
            text in proptest::collection::vec(byte(), 0..70),
        ) {
            prop_assert_eq!(blank(&text), text.iter().position(|&byte| byte <= b' '));
            prop_assert_eq!(has_blank(&text), blank(&text).is_some());
        }
    }

    #[test]
    fn every_byte_is_told_in_every_place() {
        for byte in 0..=u8::MAX {
            for (place, len) in (0..24).flat_map(|len| (0..len).map(move |place| (place, len))) {
                let mut text = vec![b'a'; len];
                text[place] = byte;
                assert_eq!(blank(&text), (byte <= b' ').then_some(place), "{byte} in {text:?}");
                assert_eq!(has_blank(&text), byte <= b' ', "{byte} in {text:?}");
            }
        }
    }
}
