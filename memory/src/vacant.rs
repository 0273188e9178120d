//! Records which pieces of memory are free. Each piece has a bit. Each group of pieces has a hint,
//! which is set if a piece of the group is free.
//!
//! ```text
//!   group's word, u64:  one bit per piece, set = free
//!   hint, one bit:      the group has free pieces
//! ```
//!
//! Where: used for the region's frames (a group is a segment) and chunks (64 in a group).
//! Invariant: if a group with free pieces has no hint, a thread is about to set the hint. A thread
//! that clears the bit of a piece owns the piece.

use crate::plant::{self, Fault};
use crate::sync::{Ordering, fence};
use crate::words::Words;
use std::io;

#[derive(Debug)]
pub(crate) struct Vacant {
    free: Words,
    hints: Words,
}

impl Vacant {
    pub(crate) fn new(groups: usize) -> io::Result<Self> {
        Ok(Self { free: Words::new(groups)?, hints: Words::new(groups.div_ceil(64))? })
    }

    /// The bits of a group's free pieces, which other threads may change at any time.
    pub(crate) fn free(&self, group: u32) -> u64 {
        self.free.word(group as usize).load(Ordering::Relaxed) // a hint
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn is_hinted(&self, group: u32) -> bool {
        let some = self.hints.word(group as usize / 64).load(Ordering::Acquire); // as in `set_hint`
        some & (1 << (group % 64)) != 0
    }

    /// Takes a free piece of the lowest possible group below `before`, so that all pieces of higher
    /// groups become free. Returns the group, and the piece's number in the group.
    pub(crate) fn take_below(&self, before: u32) -> Option<(u32, u32)> {
        for at in 0..before.div_ceil(64) as usize {
            loop {
                let some = self.hints.word(at).load(Ordering::Relaxed); // a hint
                if some == 0 {
                    break;
                }
                let bit = some.trailing_zeros();
                let group = u32::try_from(at * 64).ok()? + bit;
                if group >= before {
                    return None;
                }
                if let Some(piece) = self.take_from(group) {
                    return Some((group, piece));
                }
                self.clear_hint(group);
            }
        }
        None
    }

    fn take_from(&self, group: u32) -> Option<u32> {
        let lowest = |free: u64| (free != 0).then(|| free & (free - 1));
        let word = self.free.word(group as usize);
        // Acquire pairs with the Release in `give`: former holders have finished reading the piece.
        let free = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest).ok()?;
        Some(free.trailing_zeros())
    }

    /// Sets which pieces of a group are free. The caller owns all pieces of the group.
    pub(crate) fn open(&self, group: u32, free: u64) {
        // Release pairs with the Acquire in `take_from`.
        self.free.word(group as usize).store(free, Ordering::Release);
        self.set_hint(group);
    }

    /// Gives a piece back. Returns the bits of all free pieces of the group.
    pub(crate) fn give(&self, group: u32, piece: u32) -> u64 {
        let (word, bit) = (self.free.word(group as usize), 1 << piece);
        // Release pairs with Acquire in `take_from`. Acquire pairs with Release in earlier calls.
        let old = word.fetch_or(bit, Ordering::AcqRel);
        debug_assert!(old & bit == 0, "a piece given back twice");
        if old == 0 {
            self.set_hint(group);
        }
        old | bit
    }

    pub(crate) fn close(&self, group: u32, all: u64) -> bool {
        let word = self.free.word(group as usize);
        // Acquire pairs with the Release of each `give` in the group.
        let closed = word.compare_exchange(all, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if closed {
            self.clear_hint(group);
        }
        closed
    }

    fn set_hint(&self, group: u32) {
        let (at, bit) = (group as usize / 64, 1_u64 << (group % 64));
        self.hints.word(at).fetch_or(bit, Ordering::SeqCst); // pairs with the fence in `clear_hint`
    }

    fn clear_hint(&self, group: u32) {
        let (at, bit) = (group as usize / 64, 1_u64 << (group % 64));
        self.hints.word(at).fetch_and(!bit, Ordering::SeqCst); // pairs with `set_hint`
        // If another thread gives a piece back meanwhile, either this thread sees the piece, or the
        // other thread sets the hint after this thread has cleared it.
        fence(Ordering::SeqCst);
        let free = self.free.word(group as usize).load(Ordering::Acquire);
        if free != 0 && !plant::is(Fault::FrameHintLost) {
            self.set_hint(group);
        }
    }
}
