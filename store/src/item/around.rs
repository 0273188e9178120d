//! Copies a value straight into a reply, together with the parts of the reply around it.
//!
//! Where: nearly every hit, see `read`.
//! Invariant: room for all pieces is reserved at once, and the buffer's length ends behind the last
//! byte written.
//! Source: none; whole registers are stored, which costs less than to check for room each time.

use super::Item;
use super::pieces::copy_out;
use crate::verbs::{Around, Word};

const WORDS_BYTES: usize = 7 * size_of::<u64>();

impl Item<'_> {
    /// Appends the value, which lies in the log as a whole, and the words of `around`, with `key`
    /// if that is to be shown. The item may be rewritten meanwhile: the caller checks that
    /// afterwards.
    #[inline(always)]
    pub(crate) fn append_around(&self, out: &mut Vec<u8>, around: &Around, key: &[u8]) {
        let value_bytes = self.shape.log_bytes as usize;
        let key_bytes = if around.key { key.len() } else { 0 };
        let Around { before: [one, two, three, four], between: [five, six], behind, .. } = *around;
        out.reserve(WORDS_BYTES + key_bytes + value_bytes);
        // SAFETY: there is room for seven words, the key and the value behind the end of `out`, and
        // each step writes one of these and goes no further than it has written. The value is
        // copied as in `copy_value`; loading the key's bytes as the same atomics does no harm. All
        // bytes between `start` and the end are written.
        unsafe {
            let start = out.as_mut_ptr().add(out.len());
            let mut at = put(put(put(put(start, one), two), three), four);
            if around.key {
                copy_out(key.as_ptr(), at, key_bytes);
                at = at.add(key_bytes);
            }
            at = put(put(at, five), six);
            copy_out(self.value_at(), at, value_bytes);
            let end = put(at.add(value_bytes), behind);
            out.set_len(out.len() + end.offset_from_unsigned(start));
        }
    }
}

/// Writes a word, and returns the end of its text.
///
/// # Safety
/// There is room for a whole word.
#[inline(always)]
unsafe fn put(at: *mut u8, word: Word) -> *mut u8 {
    if word.bytes == 0 {
        return at;
    }
    // SAFETY: the caller's; no more than a word is used.
    unsafe {
        at.cast::<u64>().write_unaligned(word.text.to_le());
        at.add(word.bytes as usize)
    }
}
