//! What a ring has received and somebody keeps where it lies: to become a value, or a part of one.
//!
//! ```text
//! received into    -- keep -->  a chain of two references, one of whoever has received, one `Kept`
//! free             -- keep -->  nobody's, noted for the ring
//!                  -- let_go -> the ring's; the chain has one reference less
//! ```
//!
//! Where: between an inbox, which shows what a chunk has received, and a value that lies there.
//! Invariant: `keep` and `let_go` change one chunk for one, so that a ring has as many as before.
//! What is kept does not change: its chunk is no ring's before the last reference has gone, and
//! those who still read the packet have one.
//! Source: the KV-Cache paper, section 4.1.3 (packet buffers that are values).

#![allow(unsafe_code, reason = "slices of chunks")]

use super::{Arena, GROUP};
use crate::plant::{self, Fault};
use crate::sync::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that stay where they were received. Dropped, they are not kept any more.
#[derive(Debug)]
pub struct Kept {
    arena: Arc<Arena>,
    /// Of which the extent is what is kept.
    chunk: u32,
}

impl Arena {
    /// Keeps bytes that a ring has received, where they lie. `None`: the arena does not keep, they
    /// lie elsewhere, some of their chunk is kept already, or no chunk is free that the ring could
    /// have in its place.
    ///
    /// They are to be shown by whoever has received them, and gives their chunk to `let_go`
    /// afterwards.
    #[inline]
    #[must_use]
    pub fn keep(self: &Arc<Self>, bytes: &[u8]) -> Option<Kept> {
        if !self.keeps || bytes.is_empty() {
            return None;
        }
        let (chunk, offset) = self.chunk_of(bytes.as_ptr())?;
        let is_kept = self.keep_in(chunk, (offset, bytes.len()));
        is_kept.then(|| Kept { arena: Arc::clone(self), chunk })
    }

    /// The same of a chunk that a ring has received into. True: the caller has a reference, and so
    /// has whoever is to let go of the chunk.
    pub(super) fn keep_in(&self, chunk: u32, (offset, bytes): (usize, usize)) -> bool {
        if bytes > self.chunk_bytes - offset || self.chains.seen(chunk).0 > 0 {
            return false;
        }
        let Some(spare) = self.take_free() else { return false };
        if !self.chains.begin_shared(chunk) {
            self.vacant.give(spare / GROUP, spare % GROUP);
            return false;
        }
        let extent = u64::from(spare) << 32 | (offset as u64) << 16 | bytes as u64;
        // Relaxed, paired with the loads in `extent` and `let_go`: whoever lets go of the chunk has
        // shown the bytes to this thread, and knows by other means that they are not looked at any
        // more.
        self.extents.word(chunk as usize).store(extent, Ordering::Relaxed);
        true
    }

    /// Whoever has received into a chunk is done with it. Returns the chunk to be received into
    /// next: the same, or a free one if some of it is kept.
    #[inline]
    #[must_use]
    pub fn let_go(&self, chunk: u32) -> u32 {
        // A chunk that is kept has the reference that is given back here, whoever else has some.
        if self.chains.seen(chunk).0 == 0 || plant::is(Fault::KeptChunkLent) {
            return chunk;
        }
        let extent = self.extents.word(chunk as usize).load(Ordering::Relaxed); // as it is set
        self.release(chunk);
        u32::try_from(extent >> 32).unwrap_or(chunk)
    }
}

impl Kept {
    /// Keeps these of the bytes alone.
    ///
    /// # Panics
    /// There are fewer.
    pub fn cut(&mut self, range: Range<usize>) {
        let (offset, bytes) = self.arena.extent(self.chunk);
        assert!(range.start <= range.end && range.end <= bytes, "within what is kept");
        self.arena.set_extent(self.chunk, offset + range.start, range.len());
    }

    /// The arena in which they lie.
    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The chunk, as a chain of its own, with the reference.
    pub(crate) fn into_chunk(self) -> u32 {
        // `self` gives its own one back.
        let is_held = self.arena.hold(self.chunk);
        debug_assert!(is_held, "it has a reference");
        self.chunk
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (at, bytes) = self.arena.piece(self.chunk);
        // SAFETY: the extent lies within the chunk, which was received into as a whole. Nobody
        // writes to it while it has references, of which one is this one's.
        unsafe { std::slice::from_raw_parts(at, bytes) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.arena.release(self.chunk);
    }
}
