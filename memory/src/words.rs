//! A long array of atomic words in reserved address space: grows in place, never moves.
//!
//! Where: under the index (lines, group words, overflow lines).
//! Invariant: a word is zero until first written, and its address never changes; memory is used
//! only for pages that were touched.

#[cfg(not(loom))]
pub use mapped::Words;
#[cfg(loom)]
pub use modelled::Words;

#[cfg(not(loom))]
#[allow(unsafe_code, reason = "atomics inside a mapping")]
mod mapped {
    use crate::{map::Map, sync::AtomicU64, sync::plain_access};
    use std::{io, ptr::NonNull};

    /// Atomic words, at most a fixed number of them.
    #[derive(Debug)]
    pub struct Words {
        map: Map,
        base: NonNull<AtomicU64>,
        words: usize,
        lines: usize,
    }

    // SAFETY: `base` points into `map`, which the struct owns; the words are atomics and may be
    // shared.
    unsafe impl Send for Words {}
    // SAFETY: as for Send.
    unsafe impl Sync for Words {}

    impl Words {
        /// Address space for `words` words, all zero.
        ///
        /// # Errors
        /// The system's, when it refuses the address space.
        pub fn new(words: usize) -> io::Result<Self> {
            let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
            let map = Map::new(words.checked_mul(8).ok_or_else(too_much)?)?;
            let base = map.base().cast();
            Ok(Self { map, base, words, lines: words / 8 })
        }

        /// Word `at`.
        ///
        /// # Panics
        /// Outside the array.
        #[inline]
        #[must_use]
        pub fn word(&self, at: usize) -> &AtomicU64 {
            assert!(at < self.words, "word outside the array");
            // SAFETY: in bounds (just checked), aligned (the map is page-aligned), alive as long as
            // `self.map`, and only ever accessed as an atomic.
            unsafe { self.base.add(at).as_ref() }
        }

        /// How many words there may be.
        #[must_use]
        pub fn len(&self) -> usize {
            self.words
        }

        /// Has it no words at all?
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.words == 0
        }

        /// Eight neighbouring words, a cache line.
        ///
        /// # Panics
        /// Outside the array.
        #[inline]
        #[must_use]
        pub fn line(&self, line: usize) -> &[AtomicU64; 8] {
            assert!(line < self.lines, "line outside the array");
            // SAFETY: as in `word`, for eight words; an array has its element's alignment.
            unsafe { self.base.add(line * 8).cast::<[AtomicU64; 8]>().as_ref() }
        }

        /// Asks the processor to bring a line near.
        #[inline]
        pub fn prefetch(&self, line: usize) {
            crate::prefetch(self.base.as_ptr().wrapping_add(line * 8).cast());
        }

        /// Bytes of the system's pages.
        #[must_use]
        pub fn page_bytes(&self) -> usize {
            self.map.page_bytes()
        }

        /// Gives memory back to the system, of byte `from` to byte `to` what is whole pages: the
        /// words there are zero then, whoever looks.
        ///
        /// # Panics
        /// Outside the array.
        pub fn give_back(&self, from: usize, to: usize) {
            if from < to {
                plain_access(self.base.as_ptr().cast::<u8>().wrapping_add(from), to - from, true);
                // SAFETY: the range is in bounds, which is asserted there. The words are atomics,
                // whose readers and writers bear any value at any time; the caller relies on none.
                unsafe { self.map.give_back(from, to - from) };
            }
        }

        /// As `give_back` from byte `from` on, where nothing from byte `to` on was ever written:
        /// the page that this lies in goes too.
        pub fn give_back_rest(&self, from: usize, to: usize) {
            let end = to.next_multiple_of(self.page_bytes()).min(self.map.bytes());
            self.give_back(from, end);
        }

        /// Has the first so many bytes become memory, and keeps them from being swapped out until
        /// they are given back.
        ///
        /// # Errors
        /// The system refuses (RLIMIT_MEMLOCK), or has no memory for it.
        pub fn lock(&self, bytes: usize) -> io::Result<()> {
            self.map.lock(0, bytes.min(self.map.bytes()))
        }

        /// Asks for huge pages under the first `bytes`.
        pub fn want_huge(&self, bytes: usize) {
            self.map.want_huge(bytes);
        }
    }
}

#[cfg(loom)]
mod modelled {
    use crate::sync::AtomicU64;
    use std::io;

    /// The same in loom's memory: small arrays only.
    #[derive(Debug)]
    pub struct Words {
        lines: Vec<[AtomicU64; 8]>,
        words: usize,
    }

    impl Words {
        /// `words` words, all zero.
        ///
        /// # Errors
        /// Never.
        pub fn new(words: usize) -> io::Result<Self> {
            let line = |_| std::array::from_fn(|_| AtomicU64::new(0));
            Ok(Self { lines: (0..words.div_ceil(8)).map(line).collect(), words })
        }

        /// Word `at`.
        pub fn word(&self, at: usize) -> &AtomicU64 {
            &self.lines[at / 8][at % 8]
        }

        /// How many words there may be.
        pub fn len(&self) -> usize {
            self.words
        }

        /// Has it no words at all?
        pub fn is_empty(&self) -> bool {
            self.words == 0
        }

        /// Eight neighbouring words.
        pub fn line(&self, line: usize) -> &[AtomicU64; 8] {
            &self.lines[line]
        }

        /// Nothing to bring near.
        pub fn prefetch(&self, _line: usize) {}

        /// There are none.
        pub fn page_bytes(&self) -> usize {
            1 << 40
        }

        /// Nothing to give.
        pub fn give_back(&self, _from: usize, _to: usize) {}

        /// Nothing to give.
        pub fn give_back_rest(&self, _from: usize, _to: usize) {}

        /// Nothing to lock.
        ///
        /// # Errors
        /// Never.
        pub fn lock(&self, _bytes: usize) -> io::Result<()> {
            Ok(())
        }

        /// Nothing to ask for.
        pub fn want_huge(&self, _bytes: usize) {}
    }
}
