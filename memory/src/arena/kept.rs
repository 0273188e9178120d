//! Lets received bytes stay in their chunk, where they become a value or a part of a value.
//!
//! ```text
//! received chunk  -- keep -->     a chain with two references: the receiver's and `KeptBytes`'
//! free chunk      -- keep -->     the spare, whose number is in the received chunk's extent word
//! spare           -- recycle -->  a ring chunk; the receiver drops its reference to the chain
//! ```
//!
//! Where: an inbox returns received bytes, and a draft makes a value of the bytes without a copy.
//! Invariant: `keep` and `recycle` exchange one chunk for another, so a ring's number of chunks
//! never changes. Kept bytes do not change: a ring gets their chunk only after the chunk's last
//! reference is dropped, and each reader of the packet has a reference.
//! Source: the KV-Cache paper, section 4.1.3 (packet buffers that hold values).

#![allow(unsafe_code, reason = "slices of chunks")]

use super::{Arena, GROUP};
use crate::plant::{self, Fault};
use crate::sync::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Received bytes that stay in their chunk while the `KeptBytes` exists.
#[derive(Debug)]
pub struct KeptBytes {
    arena: Arc<Arena>,
    chunk: u32,
}

impl Arena {
    /// Keeps received bytes in their chunk. `None` if `keeps` is false, if the bytes lie outside
    /// the arena, if their chunk has kept bytes already, or if no chunk is free for the ring.
    ///
    /// The receiver of the bytes must pass the bytes' chunk to `recycle` afterwards.
    #[inline]
    #[must_use]
    pub fn keep(self: &Arc<Self>, bytes: &[u8]) -> Option<KeptBytes> {
        if !self.keeps || bytes.is_empty() {
            return None;
        }
        let (chunk, offset) = self.chunk_of(bytes.as_ptr())?;
        let is_kept = self.keep_in(chunk, (offset, bytes.len()));
        is_kept.then(|| KeptBytes { arena: Arc::clone(self), chunk })
    }

    /// Like `keep`. If it returns true, the chunk has a reference that belongs to the caller, and a
    /// reference that `recycle` drops.
    pub(super) fn keep_in(&self, chunk: u32, (offset, bytes): (usize, usize)) -> bool {
        if bytes > self.chunk_bytes - offset || self.chains.snapshot(chunk).0 > 0 {
            return false;
        }
        let Some(spare) = self.take_free() else { return false };
        if !self.chains.begin_shared(chunk) {
            self.vacant.give(spare / GROUP, spare % GROUP);
            return false;
        }
        let extent = u64::from(spare) << 32 | (offset as u64) << 16 | bytes as u64;
        // Relaxed, paired with the loads in `extent` and `recycle`: the receiver passed the bytes
        // to this thread, and synchronises with this thread before it calls `recycle`.
        self.extents.word(chunk as usize).store(extent, Ordering::Relaxed);
        true
    }

    /// Ends the receiver's use of `chunk`. Returns the chunk into which the receiver receives next:
    /// `chunk` itself, or a free chunk if bytes in `chunk` are kept.
    #[inline]
    #[must_use]
    pub fn recycle(&self, chunk: u32) -> u32 {
        if self.chains.snapshot(chunk).0 == 0 || plant::is(Fault::KeptChunkLent) {
            return chunk;
        }
        // Relaxed: the receiver has synchronised with the thread that called `keep_in`.
        let extent = self.extents.word(chunk as usize).load(Ordering::Relaxed);
        self.release(chunk);
        u32::try_from(extent >> 32).unwrap_or(chunk)
    }
}

impl KeptBytes {
    /// Keeps only the bytes in `range`.
    ///
    /// # Panics
    /// The range does not lie within the kept bytes.
    pub fn cut(&mut self, range: Range<usize>) {
        let (offset, bytes) = self.arena.extent(self.chunk);
        assert!(
            range.start <= range.end && range.end <= bytes,
            "the range lies within the kept bytes"
        );
        self.arena.set_extent(self.chunk, offset + range.start, range.len());
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the chunk, which is a chain of its own. The caller gets a reference to the chain.
    pub(crate) fn into_chunk(self) -> u32 {
        // `hold` adds a reference for the caller, because the drop of `self` drops one reference.
        let is_held = self.arena.hold(self.chunk);
        debug_assert!(is_held, "`self` holds a reference");
        self.chunk
    }
}

impl Deref for KeptBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (at, bytes) = self.arena.piece(self.chunk);
        // SAFETY: the extent lies within the chunk, and all bytes of the mapping are initialised.
        // No thread writes to a chunk that has references, and this `KeptBytes` has a reference.
        unsafe { std::slice::from_raw_parts(at, bytes) }
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.arena.release(self.chunk);
    }
}
