//! Datagrams that stay in several chunks, so that received values may be kept.
//!
//! ```text
//! frame   | headers | payload's first piece |  | its next piece |  | its last piece |
//! shown             | Datagram::bytes       |  | Datagram::more ...                 |
//! ```
//!
//! Where: beside an inbox's arrivals. If the arena keeps no values, such frames are joined instead.
//! Invariant: each piece lies in a chunk that the inbox holds as long as it shows the datagram.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).
#![allow(unsafe_code, reason = "slices of chunks")]

use arrayvec::ArrayVec;

use super::queue::PIECES_MAX;
use super::umem::{Span, Umem};
use crate::wire::{self, Packet, Rejected, Sums};

/// The pieces of a datagram after its first piece.
#[derive(Debug)]
pub struct Pieces {
    umem: Umem,
    spans: ArrayVec<Span, { Pieces::MAX }>,
}

impl Pieces {
    /// Maximum number of pieces of a datagram, including the first.
    pub const MAX: usize = PIECES_MAX as usize;

    pub(super) fn new(umem: &Umem) -> Pieces {
        Pieces { umem: umem.clone(), spans: ArrayVec::new() }
    }

    /// Returns the pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        // SAFETY: the inbox holds the chunks as long as it shows `self`, and it shows `self` at
        // least as long as it is borrowed. No code writes to held chunks.
        self.spans.iter().map(|span| unsafe { self.umem.read(*span) })
    }

    /// Reads a frame that begins in `first` and continues in `spans`, all in the caller's chunks.
    /// Returns the packet and the payload's first piece; puts the other pieces into `self`.
    pub(super) fn read(
        &mut self,
        first: Span,
        spans: &[Span],
        sums: Sums,
    ) -> Result<(Packet, Span), Rejected> {
        self.spans.clear();
        self.spans.extend(spans.iter().copied());
        // SAFETY: the kernel has given the chunks back. They are lent again only after the caller
        // has read the packet, and until then no code writes to them.
        let packet = wire::read_parted(unsafe { self.umem.read(first) }, self.iter(), sums)?;
        let (header_bytes, mut left) = (packet.ends.header_bytes(), packet.payload_bytes);
        let mut trim = |span: &mut Span| {
            span.bytes = span.bytes.min(left);
            left -= span.bytes;
        };
        let mut shown =
            Span { at: first.at + header_bytes, bytes: first.bytes - header_bytes, ..first };
        trim(&mut shown);
        self.spans.iter_mut().for_each(trim);
        self.spans.retain(|span| span.bytes > 0);
        Ok((packet, shown))
    }
}
