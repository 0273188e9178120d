//! Counts of value chunks that the kernel sends in place.
//!
//! ```text
//! a value's chunk   -- hold --> transmit ring -> kernel -> completion ring -- release -->
//! references          + 1                                                    - 1
//! ```
//!
//! Where: beside a socket, whose outbox names such chunks in descriptors.
//! Invariant: for each descriptor that names a value's chunk and has not completed, the arena has a
//! reference to that chunk. All these references are given back when the socket is closed.
//! Source: the KV-Cache paper, section 4.1.3.

use std::sync::Arc;

use memory::arena::Arena;
use memory::plant::{self, Fault};
use memory::sync::{AtomicU32, Ordering};

/// For each chunk of the arena, the number of incomplete descriptors of a socket that name it.
#[derive(Debug)]
pub(super) struct Flying {
    arena: Arc<Arena>,
    /// Changed only under the lock of the queue's sending half.
    counts: Box<[AtomicU32]>,
    sum: AtomicU32,
}

impl Flying {
    /// No chunks yet. If no value is sent in place, there is no table.
    pub(super) fn new(arena: &Arc<Arena>, has_values: bool) -> Flying {
        let chunks = if has_values { arena.chunks() } else { 0 };
        let counts = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        Flying { arena: Arc::clone(arena), counts, sum: AtomicU32::new(0) }
    }

    /// Takes a reference to the chunk, until a descriptor that names it completes. False if the
    /// chunk has none.
    #[inline]
    pub(super) fn hold(&self, chunk: u32) -> bool {
        let Some(count) = self.counts.get(chunk as usize) else { return false };
        if !plant::is(Fault::ValueSentUnheld) && !self.arena.hold(chunk) {
            return false;
        }
        // Relaxed, here and below: one thread at a time changes these, under the sending half's
        // lock.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sum.store(self.sum() + 1, Ordering::Relaxed);
        true
    }

    /// Gives back a reference to the chunk, whose descriptor has completed or was not handed to the
    /// kernel. False if there was none.
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

impl Drop for Flying {
    fn drop(&mut self) {
        if self.sum() > 0 && !plant::is(Fault::FlyingKeptAtClose) {
            let chunks = 0..self.arena.chunks();
            chunks.for_each(|chunk| while self.release(chunk) {});
        }
    }
}
