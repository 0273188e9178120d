//! Copies a value from the log straight into a reply, with the texts before and after the value.
//!
//! Where: nearly every hit, see `get`.
//! Invariant: room for all pieces is reserved at once; the buffer ends with the last byte written.
//! Source: none; storing whole words costs less than a check for room before each piece.

use super::Item;
use super::pieces::{copy_out, copy_still};
use memory::short::{ShortText, Surround};

const WORDS_BYTES: usize = 7 * size_of::<u64>();

impl Item<'_> {
    /// Appends the words of `around`, the value (all of which must be in the log) and, if
    /// `around.key`, the key. The caller must check afterwards that the item was not rewritten.
    #[inline(always)]
    pub(crate) fn append_around(&self, out: &mut Vec<u8>, around: &Surround, key: &[u8]) {
        let value_bytes = self.shape.log_bytes as usize;
        let key_bytes = if around.key { key.len() } else { 0 };
        let Surround { before: [one, two, three, four], between: [five, six], behind, .. } =
            *around;
        out.reserve(WORDS_BYTES + key_bytes + value_bytes);
        // SAFETY: there is room for seven words, the key and the value after the end of `out`. Each
        // step writes one of them, and advances `at` by no more than the step wrote. `copy_out`
        // reads the value by atomics, since another column may rewrite it; nobody stores to the
        // key, which is borrowed. All bytes between `start` and `end` have been written.
        unsafe {
            let start = out.as_mut_ptr().add(out.len());
            let mut at = put(put(put(put(start, one), two), three), four);
            if around.key {
                copy_still(key.as_ptr(), at, key_bytes);
                at = at.add(key_bytes);
            }
            at = put(put(at, five), six);
            copy_out(self.value_at(), at, value_bytes);
            let end = put(at.add(value_bytes), behind);
            out.set_len(out.len() + end.offset_from_unsigned(start));
        }
    }
}

/// Writes a word, and returns the address after its text.
///
/// # Safety
/// There is room for a whole word.
#[inline(always)]
unsafe fn put(at: *mut u8, short: ShortText) -> *mut u8 {
    if short.bytes() == 0 {
        return at;
    }
    // SAFETY: the caller guarantees room for a word, and `short.bytes()` is no more than that.
    unsafe {
        at.cast::<u64>().write_unaligned(short.text().to_le());
        at.add(short.bytes() as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::shape::{CasWidth, DecodedPrefix, Shape};
    use super::*;

    /// The item is outside the mapping, so that Miri can check it: Miri reports an access to the
    /// borrowed key through a pointer that allows stores.
    #[test]
    fn a_value_stands_between_its_words_behind_a_key_that_is_borrowed() {
        let mut log = *b"....keyvalue";
        let shape = Shape::new(3, 5, CasWidth::None);
        let item = Item::of(log.as_mut_ptr(), DecodedPrefix { shape, fields_at: 2, key_at: 4 });
        let none = ShortText::NONE;
        let (before, between) =
            ([b"VA", b"LU", b"E ", b"  "].map(ShortText::of), [ShortText::of(b" 5"), none]);
        let mut out = b"> ".to_vec();
        for (key, due) in [(true, "> VALUE   key 5value\r\n"), (false, "> VALUE    5value\r\n")] {
            let around = Surround { before, key, between, behind: ShortText::of(b"\r\n") };
            item.append_around(&mut out, &around, b"key");
            assert_eq!(out.as_slice(), due.as_bytes());
            out.truncate(2);
        }
    }
}
