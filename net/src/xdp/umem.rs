//! Memory that a socket shares with the kernel, cut into equal chunks.
//!
//! ```text
//! | chunk | chunk | ... | chunk | chunk | ...
//!   the inbox's           the outbox's
//!
//! received   | 256 bytes, the kernel's | frame ...  |
//! to send    | frame ...                            |
//! ```
//!
//! Where: under `inbox` and `outbox`. A mapping of its own, beside the region of segments: the
//! kernel keeps the very pages that were there at registration, so that nothing of it may ever be
//! given back to the system, as parts of the region are.
//! Invariant: a chunk belongs to the kernel or to us. Who has a chunk says who may touch it: the
//! inbox and the outbox keep account, each of its own chunks.
//! Source: `net/xdp/xdp_umem.c` of Linux, `xdp_umem_reg`.
#![allow(unsafe_code, reason = "slices of chunks")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use memory::map::Map;
use rustix::net::sockopt::set_xdp_umem_reg;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

/// What the kernel keeps before a received frame.
const HEADROOM_BYTES: usize = 256;
/// Bytes of chunks, of which the smaller is taken where a frame fits it.
const CHUNK_BYTES: [usize; 2] = [2048, 4096];

/// Bytes of each chunk for frames of at most `frame_bytes`, and whether such a frame needs more
/// than one.
pub(super) fn chunk_bytes(frame_bytes: usize) -> (usize, bool) {
    let fits = |bytes: &&usize| frame_bytes + HEADROOM_BYTES <= **bytes;
    match CHUNK_BYTES.iter().find(fits) {
        Some(bytes) => (*bytes, false),
        None => (CHUNK_BYTES[1], true),
    }
}

/// The memory.
#[derive(Debug)]
pub(super) struct Umem {
    map: Map,
    /// A power of two.
    chunk_bytes: usize,
    chunks: u32,
}

/// Bytes of one chunk that hold a frame, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) chunk: u32,
    /// From the chunk's beginning.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

impl Umem {
    /// Reserves `chunks` chunks of 2,048 or 4,096 bytes. They have memory when they are registered.
    pub(super) fn new(chunks: u32, chunk_bytes: usize) -> io::Result<Umem> {
        let bytes = usize::try_from(chunks).ok().and_then(|chunks| chunks.checked_mul(chunk_bytes));
        let bytes = bytes.ok_or(io::Error::from(io::ErrorKind::OutOfMemory))?;
        let map = Map::new(bytes)?;
        map.want_huge(bytes);
        Ok(Umem { map, chunk_bytes, chunks })
    }

    /// Makes the memory the socket's. The kernel backs it with pages, which stay where they are as
    /// long as the socket, or its rings, are there.
    pub(super) fn register(&self, socket: impl AsFd) -> io::Result<()> {
        let registration = XdpUmemReg {
            addr: self.map.base().as_ptr().expose_provenance() as u64,
            len: self.bytes() as u64,
            chunk_size: u32::try_from(self.chunk_bytes).map_err(io::Error::other)?,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        Ok(set_xdp_umem_reg(socket, registration)?)
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.chunks as usize * self.chunk_bytes
    }

    /// Bytes of a chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// The address of a chunk, as the kernel and we name it to each other.
    pub(super) fn address(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk_bytes as u64
    }

    /// What an address and a length from the kernel stand for; none if that is not within one
    /// chunk.
    pub(super) fn span(&self, address: u64, bytes: u32) -> Option<Span> {
        let address = usize::try_from(address).ok().filter(|&address| address < self.bytes())?;
        let chunk = u32::try_from(address >> self.chunk_bytes.ilog2()).ok()?;
        let at = address & (self.chunk_bytes - 1);
        let span = Span { chunk, at, bytes: bytes as usize };
        (span.at + span.bytes <= self.chunk_bytes).then_some(span)
    }

    /// The bytes of a span.
    ///
    /// # Safety
    /// The chunk is ours and not the kernel's, and nobody writes to it, as long as the slice lives.
    pub(super) unsafe fn read(&self, span: Span) -> &[u8] {
        // SAFETY: `start` has seen that the span lies in the mapping, which lives as long as
        // `self`. Its bytes are initialised, for an anonymous mapping reads as zero where nobody
        // wrote. That nobody writes to them, the caller answers for.
        unsafe { std::slice::from_raw_parts(self.start(span).as_ptr(), span.bytes) }
    }

    /// All bytes of a chunk.
    ///
    /// # Safety
    /// The chunk is ours and not the kernel's, and nobody else reads or writes it, as long as the
    /// slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller answers for its chunk being its alone")]
    pub(super) unsafe fn write(&self, chunk: u32) -> &mut [u8] {
        let span = Span { chunk, at: 0, bytes: self.chunk_bytes };
        // SAFETY: as in `read`; that nobody else uses the chunk, the caller answers for.
        unsafe { std::slice::from_raw_parts_mut(self.start(span).as_ptr(), span.bytes) }
    }

    fn start(&self, span: Span) -> NonNull<u8> {
        assert!(span.chunk < self.chunks && span.at + span.bytes <= self.chunk_bytes, "a stray");
        let at = span.chunk as usize * self.chunk_bytes + span.at;
        // SAFETY: by the assertion, `at` is below `self.bytes()`, which the mapping has.
        unsafe { self.map.base().add(at) }
    }
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
        let umem = Umem::new(3, 2048).unwrap();
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
        let umem = Umem::new(2, 4096).unwrap();
        // SAFETY: both chunks are this test's alone.
        let (one, two) = unsafe { (umem.write(0), umem.write(1)) };
        one.fill(1);
        two.fill(2);
        let span = Span { chunk: 1, at: 0, bytes: 2 };
        // SAFETY: as above; nobody writes any more.
        let read = unsafe { umem.read(span) };
        assert_eq!((read, one[4095], umem.address(1)), (&[2, 2][..], 1, 4096));
    }
}
