//! Memory that sockets share with the kernel: an arena, cut into equal chunks.
//!
//! ```text
//! | chunk | chunk | ... | chunk | chunk | ... | chunk | chunk | ...
//!   an inbox's            its outbox's          values', of no queue
//!
//! received   | 256 bytes, the kernel's | frame ...  |
//! to send    | frame ...                            |
//!                                                       values:
//! to send    | frame ...                            |   | 16 bytes | a value's part ... |
//! ... if the kernel computes checksums:
//! to send    | 16 bytes: metadata | frame ...       |   | 16 bytes | a value's part ... |
//! ```
//!
//! Where: below `inbox` and `outbox`. The first socket of an interface registers the memory, and
//! the other sockets share this memory, so that each socket may send from any chunk.
//! Invariant: a chunk belongs to the kernel or to us, and only its owner accesses it. The inbox and
//! the outbox keep track of their own chunks; the arena keeps track of the chunks for values.
//! Source: `net/xdp/xdp_umem.c` of Linux, `xdp_umem_reg`; `net/xdp/xsk_queue.h`,
//! `xp_aligned_validate_desc`; `Documentation/networking/xsk-tx-metadata.rst`.
#![allow(unsafe_code, reason = "slices of chunks")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use memory::arena::{Arena, CHUNK_BYTES, VALUE_AT};
use memory::sync::plain_access;
use rustix::io::Errno;
use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpDesc, XdpDescOptions, XdpUmemReg, XdpUmemRegFlags};

use super::lacks::Lack;
use crate::wire::SumAt;

/// Number of bytes that the kernel reserves before a received frame.
const HEADROOM_BYTES: usize = 256;
/// Number of bytes of metadata before a frame to send. If the registration announces metadata, the
/// kernel expects room for them before each part that is sent, including parts of values.
const METADATA_BYTES: usize = 16;
/// A flag of the registration: `tx_metadata_len` gives the number of bytes of metadata.
const HAS_METADATA_BYTES: XdpUmemRegFlags = XdpUmemRegFlags::from_bits_retain(1 << 2);
/// A flag of the metadata: the kernel must compute the checksum.
const METADATA_CHECKSUM: u64 = 1 << 1;
/// A descriptor's option: metadata precede the frame.
pub(super) const HAS_METADATA: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);
const _: () = assert!(VALUE_AT >= METADATA_BYTES);

/// Returns a chunk's size for frames of this size, and true if a frame may need several chunks.
pub(super) fn chunk_bytes(frame_bytes: usize) -> (usize, bool) {
    let fits = |bytes: &&usize| frame_bytes + HEADROOM_BYTES <= **bytes;
    match CHUNK_BYTES.iter().find(fits) {
        Some(bytes) => (*bytes, false),
        None => (CHUNK_BYTES[1], true),
    }
}

/// The memory of an interface's sockets.
#[derive(Clone, Debug)]
pub(super) struct Umem {
    arena: Arc<Arena>,
    /// Number of bytes of metadata before a frame to send; 0 if none are registered.
    metadata_bytes: usize,
}

/// A range of bytes in one chunk, with a frame or a piece of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) chunk: u32,
    /// Offset from the chunk's beginning.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Umem {
    /// Makes the memory of an arena, whose chunks have 2,048 or 4,096 bytes, before registration.
    pub(super) fn new(arena: Arc<Arena>) -> Umem {
        Umem { arena, metadata_bytes: 0 }
    }

    /// Makes the memory in its state after registration with a kernel that supports metadata.
    #[cfg(test)]
    pub(super) fn with_metadata(arena: &Arc<Arena>) -> Umem {
        Umem { arena: Arc::clone(arena), metadata_bytes: METADATA_BYTES }
    }

    /// Registers the memory with the socket. The kernel pins the memory as long as the socket or
    /// its rings exist. With `with_metadata`, reserves room for metadata if Linux is 6.8 or newer.
    pub(super) fn register(&mut self, socket: impl AsFd, with_metadata: bool) -> io::Result<()> {
        let mut registration = XdpUmemReg {
            addr: self.arena.base().as_ptr().expose_provenance() as u64,
            len: self.bytes() as u64,
            chunk_size: u32::try_from(self.chunk_bytes()).map_err(io::Error::other)?,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        if with_metadata {
            let plain = registration;
            registration.flags = HAS_METADATA_BYTES;
            registration.tx_metadata_len =
                u32::try_from(METADATA_BYTES).map_err(io::Error::other)?;
            let is_taken = match Lack::Metadata.is_planted() {
                true => Err(Errno::INVAL),
                false => set_xdp_umem_reg(&socket, registration),
            };
            match is_taken {
                Ok(()) => {
                    self.metadata_bytes = METADATA_BYTES;
                    return Ok(());
                }
                Err(Errno::INVAL) => registration = plain,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(set_xdp_umem_reg(socket, registration)?)
    }

    #[inline]
    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    #[inline]
    pub(super) fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes()
    }

    #[inline]
    pub(super) fn chunk_bytes(&self) -> usize {
        self.arena.chunk_bytes()
    }

    /// The address of a chunk in descriptors: its offset in the memory.
    #[inline]
    pub(super) fn address(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk_bytes() as u64
    }

    /// Returns the descriptor for sending a span, whose offset is at least `metadata_bytes`.
    #[inline]
    pub(super) fn descriptor(&self, span: Span) -> XdpDesc {
        debug_assert!(span.at >= self.metadata_bytes && span.bytes > 0, "an invalid descriptor");
        let len = u32::try_from(span.bytes).unwrap_or(0);
        let addr = self.address(span.chunk) + span.at as u64;
        XdpDesc { addr, len, options: XdpDescOptions::empty() }
    }

    /// Returns the span of `bytes`, if they are part of a value and can be sent in place.
    #[inline]
    pub(super) fn value(&self, bytes: &[u8]) -> Option<Span> {
        let (chunk, at) = self.arena.value_chunk_of(bytes.as_ptr())?;
        let span = Span { chunk, at, bytes: bytes.len() };
        (at >= self.metadata_bytes && at + bytes.len() <= self.chunk_bytes()).then_some(span)
    }

    /// Returns the span for an address and a length from the kernel, if it is within one chunk.
    pub(super) fn span(&self, address: u64, bytes: u32) -> Option<Span> {
        let address = usize::try_from(address).ok().filter(|&address| address < self.bytes())?;
        let chunk = u32::try_from(address >> self.chunk_bytes().ilog2()).ok()?;
        let at = address & (self.chunk_bytes() - 1);
        let span = Span { chunk, at, bytes: bytes as usize };
        (span.at + span.bytes <= self.chunk_bytes()).then_some(span)
    }

    /// Returns the bytes of a span.
    ///
    /// # Safety
    /// While the slice lives, the chunk is ours and not the kernel's, and no code writes to it.
    pub(super) unsafe fn read(&self, span: Span) -> &[u8] {
        plain_access(self.start(span).as_ptr(), span.bytes, false);
        // SAFETY: `start` has checked that the span lies in the mapping, which lives as long as
        // `self`. Its bytes are initialised, because an anonymous mapping is zero where no code has
        // written. The caller guarantees that no code writes to the span.
        unsafe { std::slice::from_raw_parts(self.start(span).as_ptr(), span.bytes) }
    }

    /// Returns all bytes of a chunk.
    ///
    /// # Safety
    /// While the slice lives, the chunk is ours and not the kernel's, and no other code uses it.
    #[expect(clippy::mut_from_ref, reason = "the caller guarantees that only it uses the chunk")]
    pub(super) unsafe fn write(&self, chunk: u32) -> &mut [u8] {
        let span = Span { chunk, at: 0, bytes: self.chunk_bytes() };
        plain_access(self.start(span).as_ptr(), span.bytes, true);
        // SAFETY: `start` has checked that the span lies in the mapping, which lives as long as
        // `self`. The caller guarantees that no other code uses the chunk.
        unsafe { std::slice::from_raw_parts_mut(self.start(span).as_ptr(), span.bytes) }
    }

    #[inline]
    fn start(&self, span: Span) -> NonNull<u8> {
        let at = span.chunk as usize * self.chunk_bytes() + span.at;
        assert!(at + span.bytes <= self.bytes(), "a span beyond the arena");
        // SAFETY: by the assertion, `at` is within the arena's mapping.
        unsafe { self.arena.base().add(at) }
    }
}

/// Writes metadata that request the checksum at `sum`; false if `metadata` is too short.
///
/// ```text
/// 0               8       10       12     16
/// | flags         | from  | offset |      |      sum from `from` on; written at `from + offset`
/// ```
pub(super) fn sum_up(metadata: &mut [u8], sum: SumAt) -> bool {
    let Some(metadata) = metadata.first_chunk_mut::<METADATA_BYTES>() else { return false };
    *metadata = [0; METADATA_BYTES];
    metadata[..8].copy_from_slice(&METADATA_CHECKSUM.to_ne_bytes());
    metadata[8..10].copy_from_slice(&sum.from.to_ne_bytes());
    metadata[10..12].copy_from_slice(&sum.offset.to_ne_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_lies_in_one_chunk_where_it_can() {
        let cases =
            [(1294, 2048, false), (1514, 2048, false), (1792, 2048, false), (1793, 4096, false)];
        for (frame_bytes, bytes, is_long) in cases {
            assert_eq!(chunk_bytes(frame_bytes), (bytes, is_long));
        }
        assert_eq!(chunk_bytes(3841), (4096, true));
        assert_eq!(chunk_bytes(9014), (4096, true));
    }

    #[test]
    fn an_address_that_the_kernel_must_not_name_is_none() {
        let umem = Umem::new(Arc::new(Arena::new(3, 0, 2048).unwrap()));
        assert_eq!(umem.bytes(), 6144);
        assert_eq!(umem.span(256, 1792), Some(Span { chunk: 0, at: 256, bytes: 1792 }));
        assert_eq!(umem.span(6143, 1), Some(Span { chunk: 2, at: 2047, bytes: 1 }));
        for (address, bytes) in
            [(256, 1793), (6143, 2), (6144, 0), (u64::MAX, 1), (0, 2049), (1 << 48, 0)]
        {
            assert_eq!(umem.span(address, bytes), None, "{bytes} bytes at {address}");
        }
    }

    #[test]
    fn chunks_lie_apart() {
        let umem = Umem::new(Arc::new(Arena::new(2, 0, 4096).unwrap()));
        // SAFETY: only this test uses the chunks.
        let (one, two) = unsafe { (umem.write(0), umem.write(1)) };
        one.fill(1);
        two.fill(2);
        let span = Span { chunk: 1, at: 0, bytes: 2 };
        // SAFETY: only this test uses the chunks, and it no longer writes to chunk 1.
        let read = unsafe { umem.read(span) };
        assert_eq!((read, one[4095], umem.address(1)), (&[2, 2][..], 1, 4096));
    }
}
