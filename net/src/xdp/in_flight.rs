//! Counts the references to chunks of values that the kernel sends in place.
//!
//! ```text
//! a value's chunk   -- hold --> tx ring -> kernel -> completion ring -- release -->
//! references          + 1                                                    - 1
//! ```
//!
//! Where: in each AF_XDP socket, whose outbox writes descriptors that name chunks of values.
//! Invariant: for each descriptor that names a value's chunk and has not completed, the arena has a
//! reference to that chunk. All these references are released when the socket is closed.
//! Source: the KV-Cache paper, section 4.1.3.

use std::sync::Arc;

use memory::arena::Arena;
use memory::plant::{self, Fault};
use memory::sync::{AtomicU32, Ordering};

/// Counts a socket's incomplete descriptors by the chunk of the arena that they name.
#[derive(Debug)]
pub(super) struct InFlight {
    arena: Arc<Arena>,
    /// Changed only under the lock of the queue's sending half.
    counts: Box<[AtomicU32]>,
    sum: AtomicU32,
}

impl InFlight {
    /// If `has_values` is false, no value is sent in place.
    pub(super) fn new(arena: &Arc<Arena>, has_values: bool) -> InFlight {
        let chunks = if has_values { arena.chunks() } else { 0 };
        let counts = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        InFlight { arena: Arc::clone(arena), counts, sum: AtomicU32::new(0) }
    }

    /// Adds a reference to the chunk. Returns false if the chunk had no reference, hence no value.
    #[inline]
    pub(super) fn hold(&self, chunk: u32) -> bool {
        let Some(count) = self.counts.get(chunk as usize) else { return false };
        if !plant::is(Fault::ValueSentUnheld) && !self.arena.hold(chunk) {
            return false;
        }
        // Relaxed, here and below: counts change only under the lock of the queue's sending half.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sum.store(self.sum() + 1, Ordering::Relaxed);
        true
    }

    /// Releases the reference of a descriptor that has completed or was not handed to the kernel.
    /// Returns false if no descriptor had a reference to the chunk.
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

    #[inline]
    pub(super) fn sum(&self) -> u32 {
        self.sum.load(Ordering::Relaxed)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.sum() > 0 && !plant::is(Fault::SentChunksKeptAtClose) {
            let chunks = 0..self.arena.chunks();
            chunks.for_each(|chunk| while self.release(chunk) {});
        }
    }
}
