//! Records which pieces are free: one bit per piece, and a hint bit per group that has free pieces.
//!
//! ```text
//!   group's word, u64:  one bit per piece, set = free
//!   hint, one bit:      the group has free pieces
//! ```
//!
//! Where: for the frames of the region (a group per segment) and the arena's chunks (64 per group).
//! Invariant: a hint of 0 is wrong only while a thread is about to set it. The thread that clears a
//! piece's bit owns the piece.

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

    /// A group's free pieces as bits, a hint.
    pub(crate) fn free(&self, group: u32) -> u64 {
        self.free.word(group as usize).load(Ordering::Relaxed) // a hint
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn is_hinted(&self, group: u32) -> bool {
        let some = self.hints.word(group as usize / 64).load(Ordering::Acquire); // as in `set_hint`
        some & (1 << (group % 64)) != 0
    }

    /// Takes a piece of the lowest group below `before` that has a free one, so that higher groups
    /// become empty. Returns the group, and the piece's number in it.
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

    /// Gives a piece back. Returns the group's free pieces, including this one.
    pub(crate) fn give(&self, group: u32, piece: u32) -> u64 {
        let (word, bit) = (self.free.word(group as usize), 1 << piece);
        // Release pairs with the Acquire in `take_from`; Acquire with the Release of earlier calls.
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
        // If another thread gives a piece back meanwhile, this thread sees the piece, or the other
        // thread sets the hint later.
        fence(Ordering::SeqCst);
        let free = self.free.word(group as usize).load(Ordering::Acquire);
        if free != 0 && !plant::is(Fault::FrameHintLost) {
            self.set_hint(group);
        }
    }
}
