//! The completion ring of a queue: takes back the chunks of datagrams that have left.
//!
//! Where: below `tx`, under the lock of the queue's sending half.
//! Invariant: each chunk of the outbox is free, or in transmission until each descriptor that names
//! it has completed.
//! Source: `Documentation/networking/af_xdp.rst` of Linux, "UMEM Completion Ring".
#![allow(unsafe_code, reason = "slices of chunks")]

use super::ring::ConsumerRing;
use super::socket::Socket;
use super::umem::Umem;

#[derive(Debug)]
pub(super) struct Completion {
    ring: ConsumerRing<u64>,
    /// The number of the outbox's first chunk, which all other chunks of the outbox follow.
    first: u32,
    /// For each chunk, the number of descriptors that name it and have not completed.
    sent: Box<[u8]>,
    pub(super) free: Vec<FreeChunk>,
    /// Number of completions that name a chunk not handed to the kernel; 0 with a correct kernel.
    pub(super) strays: u64,
}

impl Completion {
    pub(super) fn new(ring: ConsumerRing<u64>, first: u32, chunks: u32) -> Completion {
        let free = (first..first + chunks).rev().map(FreeChunk).collect();
        let sent = vec![0; chunks as usize].into_boxed_slice();
        Completion { ring, first, sent, free, strays: 0 }
    }

    #[inline]
    pub(super) fn free_chunk(&mut self, socket: &Socket) -> Option<FreeChunk> {
        if self.free.is_empty() {
            self.reap(socket);
        }
        self.free.pop()
    }

    /// Records that `descriptors` descriptors that name this chunk of the outbox were added.
    #[inline]
    pub(super) fn expect(&mut self, chunk: u32, descriptors: u8) {
        self.sent[(chunk - self.first) as usize] = descriptors;
    }

    /// Takes back the chunks of descriptors that have completed.
    pub(super) fn reap(&mut self, socket: &Socket) {
        let complete = self.ring.look();
        for ahead in 0..complete {
            let span = socket.umem.span(self.ring.peek(ahead), 0);
            if !span.is_some_and(|span| self.take_back(socket, span.chunk)) {
                self.strays += 1;
            }
        }
        if complete > 0 {
            self.ring.release(complete);
        }
    }

    /// Records the completion of a descriptor of this chunk. False if no completion was pending.
    #[inline]
    fn take_back(&mut self, socket: &Socket, chunk: u32) -> bool {
        let own = chunk.checked_sub(self.first).and_then(|own| self.sent.get_mut(own as usize));
        let Some(sent) = own else { return socket.in_flight.release(chunk) };
        let Some(left) = sent.checked_sub(1) else { return false };
        *sent = left;
        if left == 0 {
            self.free.push(FreeChunk(chunk));
        }
        true
    }

    pub(super) fn in_transmission(&self) -> usize {
        self.sent.len() - self.free.len()
    }

    /// Counts the free chunks, and separately the chunks in transmission.
    pub(super) fn free_and_sent(&self) -> (usize, usize) {
        (self.free.len(), self.sent.iter().filter(|sent| **sent > 0).count())
    }
}

/// A chunk of the outbox whose descriptors have all completed. A chunk has at most one `FreeChunk`:
/// `Completion::new` makes it, `Tx::add` drops it and counts the chunk's descriptors in `sent`, and
/// `take_back` makes a new `FreeChunk` when all of these descriptors have completed.
#[derive(Debug)]
pub(super) struct FreeChunk(u32);

impl FreeChunk {
    #[inline]
    pub(super) fn room<'r>(&'r mut self, umem: &'r Umem) -> (u32, &'r mut [u8]) {
        // SAFETY: the chunk is ours and not the kernel's, which has completed each descriptor that
        // named the chunk. No other code of ours uses the chunk: no other port has it (`link::open`
        // gives each port a range); the port's inbox has the other half of that range, or chunks of
        // values (`Fill::new`, `Arena::recycle`); and the arena gives values none of a port's
        // chunks. In the outbox only this slice accesses the chunk's bytes, because no second
        // `FreeChunk` of the chunk exists, and `self` is borrowed as long as the slice lives.
        (self.0, unsafe { umem.write(self.0) })
    }
}
