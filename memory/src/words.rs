//! A long array of atomic words in reserved address space.
//!
//! Where: used by the store's index and by the tables of frames and of the arena's chunks.
//! Invariant: a word is zero until it is written, and never moves. Untouched pages use no memory.

/// Returns the lower 32 bits of a word.
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
pub fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(not(loom))]
pub use mapped::Words;
#[cfg(loom)]
pub use modelled::Words;

#[cfg(not(loom))]
#[allow(unsafe_code, reason = "atomics inside a mapping")]
mod mapped {
    use crate::{map::Map, sync::AtomicU64, sync::plain_access};
    use std::{io, ptr::NonNull};

    /// An array of a fixed number of atomic words, in reserved address space.
    #[derive(Debug)]
    pub struct Words {
        map: Map,
        base: NonNull<AtomicU64>,
        words: usize,
        lines: usize,
    }

    // SAFETY: `base` points into `map`, which the struct owns. Threads may share atomic words.
    unsafe impl Send for Words {}
    // SAFETY: threads may share atomic words.
    unsafe impl Sync for Words {}

    impl Words {
        /// Reserves address space for `words` words, which are zero at first.
        ///
        /// # Errors
        /// The system refuses the address space.
        pub fn new(words: usize) -> io::Result<Self> {
            let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
            let map = Map::new(words.checked_mul(8).ok_or_else(too_much)?)?;
            let base = map.base().cast();
            Ok(Self { map, base, words, lines: words / 8 })
        }

        /// Returns word `at`.
        ///
        /// # Panics
        /// `at` is outside the array.
        #[inline]
        #[must_use]
        pub fn word(&self, at: usize) -> &AtomicU64 {
            assert!(at < self.words, "word outside the array");
            // SAFETY: the assertion above keeps the word in bounds. The map is page-aligned and
            // exists as long as `self`. Words are accessed only atomically.
            unsafe { self.base.add(at).as_ref() }
        }

        /// Number of words.
        #[must_use]
        pub fn len(&self) -> usize {
            self.words
        }

        /// True if the array has no words.
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.words == 0
        }

        /// Returns the eight words of cache line `line`.
        ///
        /// # Panics
        /// `line` is outside the array.
        #[inline]
        #[must_use]
        pub fn line(&self, line: usize) -> &[AtomicU64; 8] {
            assert!(line < self.lines, "line outside the array");
            // SAFETY: the assertion above keeps the eight words in bounds. The map is page-aligned
            // and exists as long as `self`. Words are accessed only atomically.
            unsafe { self.base.add(line * 8).cast::<[AtomicU64; 8]>().as_ref() }
        }

        /// Prefetches a cache line.
        #[inline]
        pub fn prefetch(&self, line: usize) {
            crate::prefetch(self.base.as_ptr().wrapping_add(line * 8).cast());
        }

        /// Size in bytes of the system's pages.
        #[must_use]
        pub fn page_bytes(&self) -> usize {
            self.map.page_bytes()
        }

        /// Gives the whole pages between bytes `from` and `to` back to the system.
        ///
        /// # Panics
        /// The range is outside the array.
        pub fn give_back(&self, from: usize, to: usize) {
            if from < to {
                plain_access(self.base.as_ptr().cast::<u8>().wrapping_add(from), to - from, true);
                // SAFETY: `Map::give_back` asserts that the range is in bounds. Words are accessed
                // only atomically, so a thread that reads a word during this call gets the old
                // value or zero, which are both valid.
                unsafe { self.map.give_back(from, to - from) };
            }
        }

        /// Like `give_back`, but rounds `to` up to the end of a page. Nothing was written between
        /// `to` and the end of the page.
        pub fn give_back_rest(&self, from: usize, to: usize) {
            let end = to.next_multiple_of(self.page_bytes()).min(self.map.bytes());
            self.give_back(from, end);
        }

        /// Populates the first `bytes` bytes, and locks them in memory until they are given back.
        ///
        /// # Errors
        /// The system refuses to lock the bytes (RLIMIT_MEMLOCK), or has no memory for the bytes.
        pub fn lock(&self, bytes: usize) -> io::Result<()> {
            self.map.lock(0, bytes.min(self.map.bytes()))
        }

        /// Asks the system to use huge pages for the first `bytes` bytes.
        pub fn want_huge(&self, bytes: usize) {
            self.map.want_huge(bytes);
        }
    }
}

#[cfg(loom)]
mod modelled {
    use crate::sync::AtomicU64;
    use std::io;

    /// Like `mapped::Words`, but consists of loom's atomics and lies on the heap. For small arrays.
    #[derive(Debug)]
    pub struct Words {
        lines: Vec<[AtomicU64; 8]>,
        words: usize,
    }

    impl Words {
        /// Makes an array of `words` words, which are zero at first.
        ///
        /// # Errors
        /// Never.
        pub fn new(words: usize) -> io::Result<Self> {
            let line = |_| std::array::from_fn(|_| AtomicU64::new(0));
            Ok(Self { lines: (0..words.div_ceil(8)).map(line).collect(), words })
        }

        /// Returns word `at`.
        pub fn word(&self, at: usize) -> &AtomicU64 {
            &self.lines[at / 8][at % 8]
        }

        /// Number of words.
        pub fn len(&self) -> usize {
            self.words
        }

        /// True if the array has no words.
        pub fn is_empty(&self) -> bool {
            self.words == 0
        }

        /// Returns the eight words of cache line `line`.
        pub fn line(&self, line: usize) -> &[AtomicU64; 8] {
            &self.lines[line]
        }

        /// Does nothing.
        pub fn prefetch(&self, _line: usize) {}

        /// Returns a size that exceeds every array, so that no range contains a whole page.
        pub fn page_bytes(&self) -> usize {
            1 << 40
        }

        /// Does nothing.
        pub fn give_back(&self, _from: usize, _to: usize) {}

        /// Does nothing.
        pub fn give_back_rest(&self, _from: usize, _to: usize) {}

        /// Does nothing.
        ///
        /// # Errors
        /// Never.
        pub fn lock(&self, _bytes: usize) -> io::Result<()> {
            Ok(())
        }

        /// Does nothing.
        pub fn want_huge(&self, _bytes: usize) {}
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::Ordering::Relaxed;

    #[test]
    fn a_line_is_eight_words_in_a_row_and_the_last_ones_are_in_none() {
        let words = Words::new(27).expect("address space");
        (0..27).for_each(|at| words.word(at).store(at as u64, Relaxed));
        assert!(words.len() == 27 && !words.is_empty());
        assert_eq!(words.page_bytes(), crate::map::page_bytes());
        for line in 0..3 {
            let there = words.line(line).each_ref().map(|word| word.load(Relaxed));
            assert_eq!(there, std::array::from_fn(|at| (line * 8 + at) as u64));
        }
        assert!(Words::new(0).expect("no address space").is_empty());
    }

    #[test]
    #[should_panic(expected = "line outside the array")]
    fn there_is_no_line_of_fewer_words() {
        let _ = Words::new(27).expect("address space").line(3);
    }

    #[test]
    #[should_panic(expected = "word outside the array")]
    fn there_is_no_word_behind_the_last() {
        let _ = Words::new(27).expect("address space").word(27);
    }
}
