//! The receiving half of a queue: its rx ring, and the fill ring that provides the chunks.
//!
//! ```text
//! chunk    fill ring --- kernel writes a frame --- rx ring --- taken by an inbox or a thief
//! ```
//!
//! Where: below `inbox` and `steal`, under the lock of the queue's receiving half.
//! Invariant: a frame is taken only after its last chunk has arrived. A chunk is taken only if it
//! was lent.
//! Source: `net/xdp/xsk.c` of Linux, `__xsk_rcv`.

use std::ops::Range;

use memory::arena::Arena;
use memory::plant::{Fault, is};
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::fill::Fill;
use super::parted::PIECES_MAX;
use super::ring::{ConsumerRing, ProducerRing};
use super::umem::{Span, Umem};

pub(super) type RxRings = (ConsumerRing<XdpDesc>, ProducerRing<u64>);

#[derive(Debug)]
pub(super) struct Rx {
    pub(super) ring: ConsumerRing<XdpDesc>,
    pub(super) fill: Fill,
}

impl Rx {
    /// Makes the receiving half of the inbox that has these chunks, none of which is lent yet.
    pub(super) fn new((ring, fill): RxRings, arena: &Arena, chunks: Range<u32>) -> Rx {
        Rx { ring, fill: Fill::new(fill, arena, chunks) }
    }

    /// Number of chunks of the frame that begins `next` entries ahead; `None` if the frame's last
    /// chunk has not arrived. A frame of more than `PIECES_MAX` chunks counts as several frames.
    pub(super) fn pieces(&self, next: u32, ready: u32) -> Option<u32> {
        let is_last = |ahead: u32| {
            let options = self.ring.peek(next + ahead).options;
            !options.contains(XdpDescOptions::XDP_PKT_CONTD)
        };
        let there = (ready - next).min(PIECES_MAX);
        let last = (0..there).find(|ahead| is_last(*ahead));
        let is_as_long = there == PIECES_MAX || is(Fault::HalfFrameTaken);
        last.map(|ahead| ahead + 1).or(is_as_long.then_some(there))
    }

    /// Takes back the chunk that the rx ring's entry number `ahead` (from 0) names. Returns `None`
    /// if this chunk was not lent.
    pub(super) fn take(&mut self, umem: &Umem, ahead: u32) -> Option<Span> {
        let descriptor = self.ring.peek(ahead);
        let span = umem.span(descriptor.addr, descriptor.len)?;
        let is_ours = std::mem::take(self.fill.is_lent(span.chunk)?) || is(Fault::StrayTaken);
        is_ours.then_some(span)
    }
}
