//! Datagrams in several chunks that stay there, where what has arrived may be kept.
//!
//! ```text
//! frame   | headers | payload's first piece |  | its next piece |  | its last piece |
//! shown             | Datagram::bytes       |  | Datagram::more ...                 |
//! ```
//!
//! Where: beside the arrivals of an inbox. Where nothing is kept, such frames are joined.
//! Invariant: each piece lies in a chunk that the inbox holds as long as it shows the datagram.
//! Source: the KV-Cache paper, section 4.1.3 (linked packet buffers).
#![allow(unsafe_code, reason = "slices of chunks")]

use arrayvec::ArrayVec;

use super::queue::PIECES_MAX;
use super::umem::{Span, Umem};
use crate::wire::{self, NotOurs, Packet, Sums};

/// What of a datagram lies behind its first piece.
#[derive(Debug)]
pub struct Pieces {
    umem: Umem,
    spans: ArrayVec<Span, { Pieces::MAX }>,
}

impl Pieces {
    /// Most pieces of a datagram, the first one too.
    pub const MAX: usize = PIECES_MAX as usize;

    /// None, of this memory.
    pub(super) fn new(umem: &Umem) -> Pieces {
        Pieces { umem: umem.clone(), spans: ArrayVec::new() }
    }

    /// The pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        // SAFETY: the inbox, which shows this as long as it is borrowed, holds the chunks until
        // then, and nobody writes to held chunks.
        self.spans.iter().map(|span| unsafe { self.umem.read(*span) })
    }

    /// Reads a frame that begins with `first` and goes on with these spans, in chunks that are the
    /// caller's. Returns where the payload's first piece lies too; the others are these.
    ///
    /// # Errors
    /// As `wire::read_parted`.
    pub(super) fn read(
        &mut self,
        first: Span,
        spans: &[Span],
        sums: Sums,
    ) -> Result<(Packet, Span), NotOurs> {
        self.spans.clear();
        self.spans.extend(spans.iter().copied());
        // SAFETY: the kernel has given the chunks back, which are not lent before they are shown no
        // more, and nobody writes to such chunks.
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
