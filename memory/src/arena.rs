//! The arena: memory divided into chunks of equal size, which hold packets or values.
//!
//! ```text
//! | chunk | chunk | ... | chunk | chunk | ...
//!   ring chunks (packets)   value chunks
//!
//! extent word, u64:   spare:32 | offset:16 | bytes:16     place of the value in the chunk; `spare`
//!                                                         is the chunk that the ring gets when the
//!                                                         receiver has finished with this chunk
//! ```
//!
//! Where: the rings of a network interface receive packets into the arena and send packets from the
//! arena; the store keeps values in the arena. The arena is not a part of the region, because an
//! interface registers the arena with the kernel. The kernel then pins the arena's pages, which
//! therefore cannot be given back to the system.
//! Invariant: a chunk belongs to a ring, is free, or is in a chain. If `keeps` is true, received
//! bytes may stay in their chunk as part of a value. The ring then gets a free chunk in exchange,
//! so the number of ring chunks never changes. A thread that has a reference to a chunk may read
//! the chunk's value. Until a value is published, only the thread that took the chunk writes it.
//! Source: the KV-Cache paper, section 4 (packet buffers that hold values).

#![allow(unsafe_code, reason = "hands out addresses in the mapping")]

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod kept;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod under_loom;

pub use kept::KeptBytes;

use crate::chains::Chains;
use crate::map::Map;
use crate::segments::NONE;
use crate::sync::{Ordering, plain_access};
use crate::vacant::Vacant;
use crate::words::{Words, low};
use std::io;
use std::ptr::NonNull;

/// Number of chunks in a group. The group's word has a bit for each chunk.
const GROUP: u32 = 64;
/// Maximum number of chunks. In the store's frame numbers, the top bit marks a chunk.
const CHUNKS_MAX: u32 = 1 << 30;
/// The sizes in bytes that the kernel allows for the chunks of a ring.
pub const CHUNK_BYTES: [usize; 2] = [2048, 4096];
/// Offset of a value in its chunk. The kernel may expect metadata before a value that it sends.
pub const VALUE_AT: usize = 16;
/// The byte with which debug builds fill a freed chunk, so that tests notice reads of freed chunks.
const OVERWRITTEN: u8 = 0xdd;

/// A mapping that is divided into chunks.
#[derive(Debug)]
pub struct Arena {
    map: Map,
    chunk_bytes: usize,
    chunks: u32,
    ring_chunks: u32,
    keeps: bool,
    chains: Chains,
    vacant: Vacant,
    extents: Words,
}

impl Arena {
    /// Makes an arena of `ring_chunks` chunks for rings, followed by `value_chunks` chunks for
    /// values. Each chunk has `chunk_bytes` bytes, and gets memory when it is first used.
    ///
    /// # Errors
    /// `chunk_bytes` is invalid, there are too many chunks, or the system refuses address space.
    pub fn new(ring_chunks: u32, value_chunks: u32, chunk_bytes: usize) -> io::Result<Arena> {
        let chunks = ring_chunks.checked_add(value_chunks).filter(|&chunks| chunks <= CHUNKS_MAX);
        let (Some(chunks), true) = (chunks, CHUNK_BYTES.contains(&chunk_bytes)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let bytes = (chunks as usize).checked_mul(chunk_bytes);
        let map = Map::new(bytes.ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?)?;
        map.want_huge(map.bytes());
        // The tables have entries for ring chunks too, because a ring chunk can get a value.
        let arena = Arena {
            map,
            chunk_bytes,
            chunks,
            ring_chunks,
            keeps: false,
            chains: Chains::new(chunks as usize)?,
            vacant: Vacant::new(chunks.div_ceil(GROUP) as usize)?,
            extents: Words::new(chunks as usize)?,
        };
        for group in ring_chunks / GROUP..chunks.div_ceil(GROUP) {
            let from = ring_chunks.saturating_sub(group * GROUP).min(GROUP);
            let to = (chunks - group * GROUP).min(GROUP);
            let below = |bit: u32| if bit < GROUP { (1_u64 << bit) - 1 } else { u64::MAX };
            arena.vacant.open(group, below(to) & !below(from));
        }
        Ok(arena)
    }

    /// Sets `keeps`: if true, received bytes may stay in their chunk. The default is false.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Arena {
        Arena { keeps, ..self }
    }

    /// True if received bytes may stay in their chunk. If so, a receiver that has finished with a
    /// chunk passes the chunk to `recycle`, and receives into the chunk that `recycle` returns.
    #[inline]
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.map.base()
    }

    /// Size of all chunks in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// Size of a chunk in bytes: a power of two.
    #[inline]
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Number of all chunks, which are numbered from 0.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Number of chunks that belong to rings. In a new arena, these chunks come first.
    #[must_use]
    pub fn ring_chunks(&self) -> u32 {
        self.ring_chunks
    }

    /// Total size in bytes of the chunks for values.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        (self.chunks - self.ring_chunks) as usize * self.chunk_bytes
    }

    /// Size in bytes of the tables that describe the chunks.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        8 * (2 * self.chunks as usize + self.chunks.div_ceil(GROUP) as usize)
    }

    /// Counts the free chunks. The result is a hint: other threads may take or free chunks.
    #[must_use]
    pub fn free(&self) -> u32 {
        (0..self.chunks.div_ceil(GROUP)).map(|group| self.vacant.free(group).count_ones()).sum()
    }

    /// Takes a free chunk and makes it a chain with one reference. `None` if no chunk is free.
    pub fn take(&self) -> Option<u32> {
        let chunk = self.take_free()?;
        self.chains.begin(chunk);
        Some(chunk)
    }

    fn take_free(&self) -> Option<u32> {
        let (group, chunk) = self.vacant.take_below(self.chunks.div_ceil(GROUP))?;
        Some(group * GROUP + chunk)
    }

    /// Adds a reference to a chunk. False if the chunk is free or belongs to a ring.
    #[must_use]
    pub fn hold(&self, chunk: u32) -> bool {
        self.chains.hold(chunk)
    }

    /// Drops a reference to a chunk. If no reference is left, frees the chunk and drops the chunk's
    /// reference to the next chunk in the same way. Returns the number of freed chunks.
    pub fn release(&self, chunk: u32) -> u32 {
        self.chains.release(chunk, |chunk| {
            self.overwrite(chunk);
            self.vacant.give(chunk / GROUP, chunk % GROUP);
        })
    }

    /// Makes `next` the successor of `chunk`, which takes over the caller's reference to `next`. If
    /// `next` is `None`, `chunk` ends its chain. Must be called before the chain is published.
    pub fn chain(&self, chunk: u32, next: Option<u32>) {
        self.chains.chain(chunk, next.unwrap_or(NONE));
    }

    /// Records that a chunk's value has `bytes` bytes at `offset`. Only the thread that took the
    /// chunk may call this function, before the chain is published.
    ///
    /// # Panics
    /// The bytes do not fit in a chunk.
    pub fn set_extent(&self, chunk: u32, offset: usize, bytes: usize) {
        assert!(offset <= self.chunk_bytes && bytes <= self.chunk_bytes - offset, "within a chunk");
        let word = self.extents.word(chunk as usize);
        // Relaxed, paired with the loads in `extent` and `recycle`: the chain is later published
        // with Release, which makes the lower half visible. The upper half does not change.
        let upper = word.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        word.store(upper | (offset as u64) << 16 | bytes as u64, Ordering::Relaxed);
    }

    /// The offset and the length of a chunk's value. The caller must have a reference to the chain.
    #[must_use]
    pub fn extent(&self, chunk: u32) -> (usize, usize) {
        // Relaxed: `set_extent` was called before the chain was published to the caller.
        let extent = low(self.extents.word(chunk as usize).load(Ordering::Relaxed));
        ((extent >> 16) as usize, (extent & 0xffff) as usize)
    }

    /// The address of a chunk's first byte.
    ///
    /// # Panics
    /// There is no such chunk.
    #[must_use]
    pub fn at(&self, chunk: u32) -> *mut u8 {
        assert!(chunk < self.chunks, "a chunk outside the arena");
        // SAFETY: the mapping has `chunks` chunks, and `chunk` is one of them, by the assertion.
        unsafe { self.map.base().as_ptr().add(chunk as usize * self.chunk_bytes) }
    }

    /// Returns the chunk that contains address `at`, and the offset of `at` in the chunk. Returns
    /// `None` if no value lies in the chunk.
    #[must_use]
    pub fn value_chunk_of(&self, at: *const u8) -> Option<(u32, usize)> {
        self.chunk_of(at).filter(|(chunk, _)| self.chains.snapshot(*chunk).0 > 0)
    }

    fn chunk_of(&self, at: *const u8) -> Option<(u32, usize)> {
        let from_base = at.addr().checked_sub(self.map.base().as_ptr().addr())?;
        let chunk = u32::try_from(from_base >> self.chunk_bytes.ilog2()).ok()?;
        (chunk < self.chunks).then_some((chunk, from_base & (self.chunk_bytes - 1)))
    }

    pub(crate) fn piece(&self, chunk: u32) -> (*mut u8, usize) {
        let (offset, bytes) = self.extent(chunk);
        (self.at(chunk).wrapping_add(offset), bytes)
    }

    pub(crate) fn chains(&self) -> &Chains {
        &self.chains
    }

    fn overwrite(&self, chunk: u32) {
        if cfg!(all(debug_assertions, not(loom))) {
            plain_access(self.at(chunk), self.chunk_bytes, true);
            // SAFETY: the chunk has no reference, so no thread reads it. The chunk is not marked as
            // free yet, so no thread takes it.
            unsafe { self.at(chunk).write_bytes(OVERWRITTEN, self.chunk_bytes) };
        }
    }
}
