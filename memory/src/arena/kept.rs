//! Keeps received bytes in their chunk, to become a value or a part of one.
//!
//! ```text
//! received into    -- keep -->  a chain of two references, one of whoever has received, one `Kept`
//! free             -- keep -->  nobody's, noted for the ring
//!                  -- let_go -> the ring's; the chain has one reference less
//! ```
//!
//! Where: between an inbox, which shows the bytes in a chunk, and a value that lies there.
//! Invariant: `keep` and `let_go` exchange one chunk for one, so that a ring always has the same
//! number. Kept bytes do not change: their chunk becomes a ring's only after the last reference has
//! gone, and whoever still reads the packet has one.
//! Source: the KV-Cache paper, section 4.1.3 (packet buffers that are values).

#![allow(unsafe_code, reason = "slices of chunks")]

use super::{Arena, GROUP};
use crate::plant::{self, Fault};
use crate::sync::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that stay in the chunk they were received into, until this is dropped.
#[derive(Debug)]
pub struct Kept {
    arena: Arc<Arena>,
    /// The chunk; its extent is the kept bytes.
    chunk: u32,
}

impl Arena {
    /// Keeps received bytes in their chunk. `None` if the arena does not keep, the bytes lie
    /// elsewhere, their chunk has kept bytes already, or no chunk is free for the ring in exchange.
    ///
    /// The bytes must be shown by their receiver, who gives their chunk to `let_go` afterwards.
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

    /// Like `keep`, but for a range of a chunk. If true, the caller has a reference, and so has
    /// whoever will let go of the chunk.
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
        // shown the bytes to this thread, and knows by other means that this has ended.
        self.extents.word(chunk as usize).store(extent, Ordering::Relaxed);
        true
    }

    /// Ends the use of a chunk by its receiver. Returns the chunk to receive into next: the same,
    /// or a free one if bytes of the chunk are kept.
    #[inline]
    #[must_use]
    pub fn let_go(&self, chunk: u32) -> u32 {
        // A chunk with kept bytes has at least the reference that is given back here.
        if self.chains.seen(chunk).0 == 0 || plant::is(Fault::KeptChunkLent) {
            return chunk;
        }
        let extent = self.extents.word(chunk as usize).load(Ordering::Relaxed); // as it is set
        self.release(chunk);
        u32::try_from(extent >> 32).unwrap_or(chunk)
    }
}

impl Kept {
    /// Keeps only this range of the bytes.
    ///
    /// # Panics
    /// The range is longer than the bytes.
    pub fn cut(&mut self, range: Range<usize>) {
        let (offset, bytes) = self.arena.extent(self.chunk);
        assert!(range.start <= range.end && range.end <= bytes, "within what is kept");
        self.arena.set_extent(self.chunk, offset + range.start, range.len());
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the chunk as a chain of its own; the caller gets the reference.
    pub(crate) fn into_chunk(self) -> u32 {
        // Dropping `self` gives its own reference back.
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
        // writes to the chunk while it has references, and this value has one.
        unsafe { std::slice::from_raw_parts(at, bytes) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.arena.release(self.chunk);
    }
}
