//! Value chunks that the kernel has, to be sent from where they lie.
//!
//! ```text
//! a value's chunk   -- hold --> transmit ring -> kernel -> completion ring -- release -->
//! references          + 1                                                    - 1
//! ```
//!
//! Where: beside a socket, whose outbox names such chunks in descriptors.
//! Invariant: for each descriptor that names a value's chunk, and has not completed, the arena has
//! a reference to that chunk. When the socket is closed they are all given back.
//! Source: the KV-Cache paper, section 4.1.3.

use std::sync::Arc;

use memory::arena::Arena;
use memory::plant::{self, Fault};
use memory::sync::{AtomicU32, Ordering};

/// Of each chunk of the arena, how many descriptors of a socket name it that have not completed.
#[derive(Debug)]
pub(super) struct Flying {
    arena: Arc<Arena>,
    /// Changed by whoever has the half of the queue by which packets leave.
    counts: Box<[AtomicU32]>,
    sum: AtomicU32,
}

impl Flying {
    /// None yet. Where no value is sent from where it lies, there is no table.
    pub(super) fn new(arena: &Arc<Arena>, has_values: bool) -> Flying {
        let chunks = if has_values { arena.chunks() } else { 0 };
        let counts = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        Flying { arena: Arc::clone(arena), counts, sum: AtomicU32::new(0) }
    }

    /// Has a chunk keep what it has until a descriptor that names it completes. False if nobody has
    /// a reference to it.
    #[inline]
    pub(super) fn hold(&self, chunk: u32) -> bool {
        let Some(count) = self.counts.get(chunk as usize) else { return false };
        if !plant::is(Fault::ValueSentUnheld) && !self.arena.hold(chunk) {
            return false;
        }
        // Relaxed, here and below: one thread at a time changes them, under the lock of the half by
        // which packets leave.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sum.store(self.sum() + 1, Ordering::Relaxed);
        true
    }

    /// A descriptor that names the chunk has completed, or was not handed to the kernel. False if
    /// there was none.
    #[inline]
    pub(super) fn release(&self, chunk: u32) -> bool {
        let Some(count) = self.counts.get(chunk as usize) else { return false };
        let Some(less) = count.load(Ordering::Relaxed).checked_sub(1) else { return false };
        count.store(less, Ordering::Relaxed);
        self.sum.store(self.sum() - 1, Ordering::Relaxed);
        if !plant::is(Fault::ValueSentUnheld) && !plant::is(Fault::SentValueKept) {
            self.arena.release(chunk);
        }
        true
    }

    /// Of all chunks.
    #[inline]
    pub(super) fn sum(&self) -> u32 {
        self.sum.load(Ordering::Relaxed)
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if self.sum() > 0 && !plant::is(Fault::FlyingKeptAtClose) {
            let chunks = 0..self.arena.chunks();
            chunks.for_each(|chunk| while self.release(chunk) {});
        }
    }
}
