//! Datagrams that stay in several chunks, so that received values may be kept.
//!
//! ```text
//! frame   | headers | payload's first piece |  | its next piece |  | its last piece |
//! shown             | Datagram::bytes       |  | Datagram::more ...                 |
//! ```
//!
//! Where: in an inbox, and in the `Datagram`s that it shows. If the arena keeps no values, the
//! inbox joins such frames instead.
//! Invariant: while the inbox shows a datagram, the inbox holds the chunks of all pieces of the
//! datagram.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).
#![allow(unsafe_code, reason = "slices of chunks")]

use arrayvec::ArrayVec;

use super::umem::{Span, Umem};
use crate::wire::{self, Packet, Rejected, Sums};

/// Maximum number of chunks of one frame.
pub(super) const PIECES_MAX: u32 = 18;

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
        // SAFETY: the inbox shows `self` at least as long as `self` is borrowed, and holds the
        // chunks as long as the inbox shows `self`. No code writes to held chunks.
        self.spans.iter().map(|span| unsafe { self.umem.read(*span) })
    }

    /// Reads a frame that begins in `first` and continues in `spans`. Returns the packet and the
    /// payload's first piece; puts the other pieces into `self`. The caller has taken the chunks.
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
