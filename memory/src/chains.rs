//! Reference words. A piece of memory has a word, which counts the references to the piece and
//! contains the number of the next piece.
//!
//! ```text
//!   word, u64:   refs:32 | next piece:32        (next: NONE ends the chain)
//! ```
//!
//! Where: used for the frames of the region and for the chunks of the arena.
//! Invariant: only one thread writes a chain before the chain is published. A published chain never
//! changes. A piece is freed when the last reference to the piece is dropped. Each piece holds a
//! reference to the next piece. Each item and each reader holds a reference to the first piece. A
//! descriptor that is being sent holds a reference to the piece that it names.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).

use crate::plant::{self, Fault};
use crate::segments::NONE;
use crate::sync::Ordering;
use crate::words::{Words, low};
use std::io;

/// The amount that one reference adds to a piece's word.
pub(crate) const ONE_REF: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Chains {
    words: Words,
}

impl Chains {
    pub(crate) fn new(pieces: usize) -> io::Result<Self> {
        Ok(Self { words: Words::new(pieces)? })
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Turns a newly taken piece into a chain of one piece, with one reference.
    pub(crate) fn begin(&self, piece: u32) {
        // Release pairs with the Acquire in `hold`: if a reader has the piece's number from an old
        // item and gets a reference to the new chain, it sees that the old item is unlinked.
        self.words.word(piece as usize).store(ONE_REF | u64::from(NONE), Ordering::Release);
    }

    /// Like `begin`, but makes two references: for the caller, and for the piece's previous owner.
    /// Returns false if the piece already has a reference.
    #[must_use]
    pub(crate) fn begin_shared(&self, piece: u32) -> bool {
        let refs = if plant::is(Fault::KeptReleasedEarly) { 1 } else { 2 };
        let begun = |word: u64| (word < ONE_REF).then_some((refs * ONE_REF) | u64::from(NONE));
        let word = self.words.word(piece as usize);
        // Release pairs with the Acquire in `hold`, for the same reason as in `begin`.
        word.fetch_update(Ordering::Release, Ordering::Relaxed, begun).is_ok()
    }

    /// Makes `next` the successor of `piece`, which takes over the caller's reference to `next`. If
    /// `next` is `NONE`, `piece` ends its chain. Must be called before the chain is published. If
    /// `piece` had a successor, the caller gets the reference to the old successor. The number of
    /// references to `piece` does not change, because a reader with an old number may hold one.
    pub(crate) fn chain(&self, piece: u32, next: u32) {
        let link = |word: u64| Some((word & !u64::from(u32::MAX)) | u64::from(next));
        // Relaxed: until the chain is published with Release, only one thread reads its links.
        let word = self.words.word(piece as usize);
        let linked = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, link);
        debug_assert!(linked.is_ok(), "link never refuses");
    }

    /// Adds a reference to a piece. Returns false if the piece has no reference, which means that
    /// it is free. The piece may belong to another chain than when the caller read its number.
    #[must_use]
    pub(crate) fn hold(&self, piece: u32) -> bool {
        let held = |word: u64| word >= ONE_REF || plant::is(Fault::EmptyChainHeld);
        let more = |word: u64| held(word).then(|| word + ONE_REF);
        let word = self.words.word(piece as usize);
        // Acquire pairs with the Release in `begin` and with the AcqRel in `release`.
        word.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Drops a reference to a piece. If no reference is left, calls `free` with the piece, and
    /// drops the piece's reference to the next piece in the same way. Returns the number of freed
    /// pieces.
    pub(crate) fn release(&self, piece: u32, free: impl Fn(u32)) -> u32 {
        let (mut piece, mut freed) = (piece, 0);
        while piece != NONE {
            let word = self.words.word(piece as usize);
            // AcqRel, paired with itself: Release orders this thread's reads before the piece is
            // reused, and Acquire orders the other threads' reads before the call of `free`.
            let old = word.fetch_sub(ONE_REF, Ordering::AcqRel);
            debug_assert!(old >= ONE_REF, "released more often than held");
            if old >> 32 != 1 {
                break;
            }
            free(piece);
            freed += 1;
            piece = low(old);
        }
        freed
    }

    /// Returns the piece after `piece` in a chain to which the caller has a reference.
    pub(crate) fn next(&self, piece: u32) -> u32 {
        // Relaxed: the link never changes after the chain was published.
        low(self.words.word(piece as usize).load(Ordering::Relaxed))
    }

    /// Returns a piece's current number of references and its successor.
    pub(crate) fn snapshot(&self, piece: u32) -> (u64, u32) {
        // Acquire pairs with the Release stores of this file.
        let word = self.words.word(piece as usize).load(Ordering::Acquire);
        (word / ONE_REF, low(word))
    }
}
