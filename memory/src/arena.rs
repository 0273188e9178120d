//! The arena: chunks that hold packets and values at once.
//!
//! ```text
//! | chunk | chunk | ... | chunk | chunk | ...
//!   ring chunks: packets'   value chunks
//!
//! extent word, u64:   spare:32 | offset:16 | bytes:16     what of a chunk is its value's; while
//!                                                         it is a packet's too, which chunk its
//!                                                         ring gets in its place
//! ```
//!
//! Where: under the rings of an interface, which receive into it and send from it, and under the
//! store, which keeps values there. A mapping of its own, beside the region of segments: the kernel
//! keeps the very pages that were there at registration, so that nothing of it may ever be given
//! back to the system, as parts of the region are.
//! Invariant: a chunk is a ring's, free, or in a chain. What a ring has received may stay in its
//! chunk where the arena keeps: then the ring gets a free one, so that rings and values have as
//! many chunks as at the start, whichever they are. Whoever holds a reference to a chunk may
//! read what of it is a value's; nobody writes to it then but who took it, before it is published.
//! Source: the KV-Cache paper, section 4 (packet buffers that are values).

#![allow(unsafe_code, reason = "hands out addresses in the mapping")]

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod kept;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod under_loom;

pub use kept::Kept;

use crate::chains::Chains;
use crate::map::Map;
use crate::segments::NONE;
use crate::sync::{Ordering, plain_access};
use crate::vacant::Vacant;
use crate::words::{Words, low};
use std::io;
use std::ptr::NonNull;

/// Chunks of a group, each of which has a bit in the group's word.
const GROUP: u32 = 64;
/// Most chunks: the store's numbers of frames have a bit that says that they are the arena's.
const CHUNKS_MAX: u32 = 1 << 30;
/// Bytes that a chunk may have: those of the system's ring chunks.
pub const CHUNK_BYTES: [usize; 2] = [2048, 4096];
/// Where in its chunk a value begins that is to be sent from there: the kernel may want to be told
/// something in the bytes before whatever it sends.
pub const VALUE_AT: usize = 16;
/// What stands in a free chunk in debug builds, so that tests see who still reads it.
const OVERWRITTEN: u8 = 0xdd;

/// A mapping, cut into chunks.
#[derive(Debug)]
pub struct Arena {
    map: Map,
    /// A power of two.
    chunk_bytes: usize,
    chunks: u32,
    ring_chunks: u32,
    /// What rings have received may stay in its chunk.
    keeps: bool,
    chains: Chains,
    /// Which chunks are free.
    vacant: Vacant,
    /// Of each chunk of a value: where in the chunk it lies, and how long it is.
    extents: Words,
}

impl Arena {
    /// Reserves `ring_chunks` chunks for rings and then `value_chunks` for values, of `chunk_bytes`
    /// each. They have memory when they are touched, or registered.
    ///
    /// # Errors
    /// A chunk has neither 2,048 nor 4,096 bytes, there are more than 2^30, or the system refuses
    /// the address space.
    pub fn new(ring_chunks: u32, value_chunks: u32, chunk_bytes: usize) -> io::Result<Arena> {
        let chunks = ring_chunks.checked_add(value_chunks).filter(|&chunks| chunks <= CHUNKS_MAX);
        let (Some(chunks), true) = (chunks, CHUNK_BYTES.contains(&chunk_bytes)) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let bytes = (chunks as usize).checked_mul(chunk_bytes);
        let map = Map::new(bytes.ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?)?;
        map.want_huge(map.bytes());
        // A ring's chunk has no references, and is in no list of free ones; a value's may become
        // a ring's, so that the tables have room for all.
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

    /// Says whether what rings have received may stay in its chunk. At first it may not.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Arena {
        Arena { keeps, ..self }
    }

    /// May what rings have received stay in its chunk? Then whoever receives gives each chunk that
    /// it is done with to `let_go`, and receives into what that returns.
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

    /// Bytes of all chunks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// Bytes of a chunk: a power of two.
    #[inline]
    #[must_use]
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// The number of all chunks, numbered from 0.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// The number of those that rings begin with: the first ones.
    #[must_use]
    pub fn ring_chunks(&self) -> u32 {
        self.ring_chunks
    }

    /// Bytes of the chunks that values may have.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        (self.chunks - self.ring_chunks) as usize * self.chunk_bytes
    }

    /// Bytes of the tables beside the chunks.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        8 * (2 * self.chunks as usize + self.chunks.div_ceil(GROUP) as usize)
    }

    /// The number of free chunks. A hint, counted anew.
    #[must_use]
    pub fn free(&self) -> u32 {
        (0..self.chunks.div_ceil(GROUP)).map(|group| self.vacant.free(group).count_ones()).sum()
    }

    /// Takes a free chunk, as a chain of its own with one reference. `None`: there is none.
    pub fn take(&self) -> Option<u32> {
        let chunk = self.take_free()?;
        self.chains.begin(chunk);
        Some(chunk)
    }

    /// Takes a free chunk, to which nobody has a reference, as to a ring's.
    fn take_free(&self) -> Option<u32> {
        let (group, chunk) = self.vacant.take_below(self.chunks.div_ceil(GROUP))?;
        Some(group * GROUP + chunk)
    }

    /// Adds a reference to a chunk; false if it has none, and so is free or a ring's.
    #[must_use]
    pub fn hold(&self, chunk: u32) -> bool {
        self.chains.hold(chunk)
    }

    /// Drops a reference to a chunk. The last one frees it and drops its reference to the one
    /// behind it in its chain, and so on. Returns the number of chunks freed.
    pub fn release(&self, chunk: u32) -> u32 {
        self.chains.release(chunk, |chunk| {
            self.overwrite(chunk);
            self.vacant.give(chunk / GROUP, chunk % GROUP);
        })
    }

    /// Has the chain at `next` follow `chunk` in a chain that is not published yet; `None`: `chunk`
    /// is its last one. The caller's reference to `next` becomes that of `chunk`.
    pub fn chain(&self, chunk: u32, next: Option<u32>) {
        self.chains.chain(chunk, next.unwrap_or(NONE));
    }

    /// Says that the `bytes` bytes from `offset` on of a chunk are a value's. Only who took the
    /// chunk may, before its chain is published.
    ///
    /// # Panics
    /// They do not lie in a chunk.
    pub fn set_extent(&self, chunk: u32, offset: usize, bytes: usize) {
        assert!(offset <= self.chunk_bytes && bytes <= self.chunk_bytes - offset, "within a chunk");
        let word = self.extents.word(chunk as usize);
        // Relaxed, both, paired with the loads in `extent` and `let_go`: the chain is published
        // with Release, and the upper half stays as it is.
        let upper = word.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        word.store(upper | (offset as u64) << 16 | bytes as u64, Ordering::Relaxed);
    }

    /// Where in a chunk its value lies, to whose chain the caller has a reference, and its bytes.
    #[must_use]
    pub fn extent(&self, chunk: u32) -> (usize, usize) {
        let extent = low(self.extents.word(chunk as usize).load(Ordering::Relaxed)); // as it is set
        ((extent >> 16) as usize, (extent & 0xffff) as usize)
    }

    /// The address of a chunk's first byte.
    ///
    /// # Panics
    /// There are fewer chunks.
    #[must_use]
    pub fn at(&self, chunk: u32) -> *mut u8 {
        assert!(chunk < self.chunks, "a chunk outside the arena");
        // SAFETY: by the assertion the chunk lies in the mapping, which has `chunks` of them.
        unsafe { self.map.base().as_ptr().add(chunk as usize * self.chunk_bytes) }
    }

    /// The chunk in which an address lies and its distance from the chunk's beginning, if the chunk
    /// is a value's: it has references.
    #[must_use]
    pub fn value_chunk_of(&self, at: *const u8) -> Option<(u32, usize)> {
        self.chunk_of(at).filter(|(chunk, _)| self.chains.seen(*chunk).0 > 0)
    }

    /// The chunk in which an address lies and its distance from the chunk's beginning.
    fn chunk_of(&self, at: *const u8) -> Option<(u32, usize)> {
        let from_base = at.addr().checked_sub(self.map.base().as_ptr().addr())?;
        let chunk = u32::try_from(from_base >> self.chunk_bytes.ilog2()).ok()?;
        (chunk < self.chunks).then_some((chunk, from_base & (self.chunk_bytes - 1)))
    }

    /// The address of a chunk's value, and its bytes.
    pub(crate) fn piece(&self, chunk: u32) -> (*mut u8, usize) {
        let (offset, bytes) = self.extent(chunk);
        (self.at(chunk).wrapping_add(offset), bytes)
    }

    pub(crate) fn chains(&self) -> &Chains {
        &self.chains
    }

    /// In debug builds, overwrites a chunk to which nobody has a reference.
    fn overwrite(&self, chunk: u32) {
        if cfg!(all(debug_assertions, not(loom))) {
            plain_access(self.at(chunk), self.chunk_bytes, true);
            // SAFETY: the last reference to the chunk has gone, and it is not free yet: nobody
            // reads it or takes it.
            unsafe { self.at(chunk).write_bytes(OVERWRITTEN, self.chunk_bytes) };
        }
    }
}
