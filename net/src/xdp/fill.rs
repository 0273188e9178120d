//! The fill ring of a queue: lends chunks to the kernel, which receives frames into them.
//!
//! Where: below `rx`. An inbox or a thief puts chunks into `spare`, and then calls `lend`.
//! Invariant: `is_lent` names the chunks that the kernel has. A chunk is lent at most once.
//! Source: `Documentation/networking/af_xdp.rst` of Linux, "UMEM Fill Ring".

use std::ops::Range;

use memory::arena::Arena;
use memory::plant::{Fault, is};

use super::ring::ProducerRing;
use super::socket::Socket;

#[derive(Debug)]
pub(super) struct Fill {
    ring: ProducerRing<u64>,
    /// Number of the inbox's first chunk; 0 if received data may be kept, because any chunk of the
    /// arena may then become the inbox's.
    first: u32,
    /// For each chunk from `first` on, true if the kernel has the chunk.
    is_lent: Box<[bool]>,
    /// Chunks that the next `lend` lends.
    pub(super) spare: Vec<u32>,
    /// Number of system calls that are not yet counted in a column's `Calls`.
    pub(super) kicks: u64,
}

impl Fill {
    pub(super) fn new(ring: ProducerRing<u64>, arena: &Arena, chunks: Range<u32>) -> Fill {
        let any = if arena.keeps() { 0..arena.chunks() } else { chunks.clone() };
        Fill {
            ring,
            first: any.start,
            is_lent: vec![false; any.len()].into_boxed_slice(),
            spare: chunks.rev().collect(),
            kicks: 0,
        }
    }

    pub(super) fn lent(&self) -> usize {
        self.is_lent.iter().filter(|is_lent| **is_lent).count()
    }

    #[inline]
    pub(super) fn is_lent(&mut self, chunk: u32) -> Option<&mut bool> {
        self.is_lent.get_mut(chunk.checked_sub(self.first)? as usize)
    }

    pub(super) fn lend(&mut self, socket: &Socket) {
        if self.spare.is_empty() {
            return;
        }
        while let Some(chunk) = self.spare.pop() {
            // The fill ring has room for all chunks, unless the kernel has written a wrong count.
            if !self.ring.push(socket.umem.address(chunk)) {
                self.spare.push(chunk);
                break;
            }
            if let Some(is_lent) = self.is_lent(chunk) {
                *is_lent = true;
            }
        }
        self.ring.publish();
        // A driver that ran out of chunks sleeps, and receives no packets until it is woken.
        if self.ring.needs_wakeup() && !is(Fault::DriverNotWoken) {
            self.kicks += 1;
            socket.kick_receive();
        }
    }
}
