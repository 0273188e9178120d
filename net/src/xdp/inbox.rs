//! Datagrams received into chunks.
//!
//! ```text
//! chunk    kernel --- rx ring ---> held --- release ---> fill ring --- kernel
//! frame    | Ethernet | IP | UDP | payload |        shown in its chunk
//!          | its start |  | its rest |              in several chunks: shown joined, or in pieces
//! ```
//!
//! Where: an inbox holds the requests that a column executes next, like the `Inbox` of `udp`.
//! Invariant: each chunk of the inbox is either lent to the kernel or held with a datagram, and the
//! kernel always has some chunks. If the arena keeps values, a received chunk may become part of a
//! value; the inbox then gets another chunk in exchange. If the kernel's descriptor names a chunk
//! that was not lent, the inbox counts the descriptor as a stray and does not access the chunk.
//! `datagrams` shows only whole datagrams that `wire` has read.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_rcv`.
#![allow(unsafe_code, reason = "slices of chunks")]

use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::arena::Arena;
use memory::plant::{self, Fault};

use super::parted::Pieces;
use super::peer::Peer;
use super::queue::{Frames, Queue};
use super::rx::Rx;
use super::umem::{Span, Umem};
use crate::calls::Calls;
use crate::udp::{BATCH_MAX, Datagram, Received};
use crate::wire::{self, Rejected, Sums};

/// After this number of chunks, one `receive` takes no more frames, even if all were rejected.
const LOOKED_AT_MAX: u32 = 256;
/// Maximum number of frames of several chunks that one `receive` joins.
const JOINED_MAX: usize = 16;

/// Maximum number of frames of several chunks that one `receive` leaves in their chunks. Each such
/// frame has at least two chunks.
const PARTED_MAX: usize = BATCH_MAX / 2;

/// The receiving half of a port.
#[derive(Debug)]
pub struct Inbox {
    queue: Arc<Queue>,
    pub(super) batch: ReceivedBatch,
}

/// The datagrams that one `receive` has taken from a queue.
#[derive(Debug)]
pub(super) struct ReceivedBatch {
    arrivals: Vec<Arrival>,
    datagrams_max: usize,
    held: Vec<u32>,
    joined: JoinBuffer,
    /// Pieces of datagrams that stay in several chunks; `parted_used` elements are in use.
    parted: Box<[Pieces]>,
    parted_used: usize,
    pub(super) sums: Sums,
    refused: [u64; Rejected::ALL.len()],
    strays: u64,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    peer: Peer,
    payload: PayloadLocation,
}

#[derive(Clone, Copy, Debug)]
enum PayloadLocation {
    Chunk(Span),
    JoinBuffer {
        at: usize,
        bytes: usize,
    },
    /// The first piece, and the index in `parted` of the other pieces.
    Parted(Span, usize),
}

/// Buffer for copies of frames that arrived in several chunks, or that were stolen.
#[derive(Debug)]
struct JoinBuffer {
    bytes: Box<[u8]>,
    used: usize,
    frame_bytes_max: usize,
}

impl Inbox {
    pub(super) fn new(queue: Arc<Queue>) -> Inbox {
        let umem = &queue.socket.umem;
        let (joined, parted) = match (queue.frames.are_long, umem.arena().keeps()) {
            (false, _) => (0, 0),
            (true, false) => (JOINED_MAX, 0),
            (true, true) => (0, PARTED_MAX),
        };
        let room_bytes = joined * queue.frames.bytes_max;
        let mut batch = ReceivedBatch::new(BATCH_MAX, room_bytes, queue.frames);
        batch.parted = (0..parted).map(|_| Pieces::new(umem)).collect();
        Inbox { queue, batch }
    }

    /// The inbox's queue, for other columns to steal from.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// True if a frame, or the beginning of a frame, has arrived. Makes no system call.
    #[inline]
    #[must_use]
    pub fn has_input(&mut self) -> bool {
        self.queue.rx().ring.look() > 0
    }

    /// Receives at most `BATCH_MAX` datagrams, and forgets the datagrams of the last call. A
    /// rejected frame is dropped and counted. A frame that is longer than the interface's MTU
    /// allows counts as cut. Makes no system call, unless the driver ran out of chunks and sleeps.
    #[must_use]
    pub fn receive(&mut self, calls: &Calls) -> Received {
        let Inbox { queue, batch } = self;
        batch.forget();
        batch.let_go(queue.socket.umem.arena());
        let mut rx = queue.rx();
        rx.fill.spare.append(&mut batch.held);
        calls.reads.add(std::mem::take(&mut rx.fill.kicks));
        let received = batch.receive(&mut rx, &queue.socket.umem, false);
        rx.fill.lend(&queue.socket);
        received
    }

    /// Limits each later `receive` to this number of datagrams, at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.batch.limit(datagrams);
    }

    /// Returns the datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> DatagramIter<'_> {
        self.batch.datagrams(&self.queue.socket.umem)
    }

    /// Gives the chunks of the datagrams back to the kernel, as the next `receive` would. Call
    /// `release` before a sleep, in which the kernel may otherwise run out of chunks.
    pub fn release(&mut self) {
        let Inbox { queue, batch } = self;
        batch.forget();
        if !batch.held.is_empty() {
            batch.let_go(queue.socket.umem.arena());
            let mut rx = queue.rx();
            rx.fill.spare.append(&mut batch.held);
            rx.fill.lend(&queue.socket);
        }
    }

    /// Number of frames rejected for `reason` since the socket was opened.
    #[must_use]
    pub fn refused(&self, reason: Rejected) -> u64 {
        self.batch.refused[reason as usize]
    }

    /// Number of descriptors from the kernel that named a chunk not lent; 0 with a correct kernel.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.batch.strays
    }

    /// Number of chunks that the kernel has, and number of chunks that the inbox holds.
    pub(super) fn lent_and_held(&self) -> (usize, usize) {
        let rx = self.queue.rx();
        (rx.fill.lent(), self.batch.held.len() + rx.fill.spare.len())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.batch.let_go(self.queue.socket.umem.arena());
    }
}

impl ReceivedBatch {
    pub(super) fn new(datagrams_max: usize, room_bytes: usize, frames: Frames) -> ReceivedBatch {
        let bytes = vec![0; room_bytes].into_boxed_slice();
        ReceivedBatch {
            arrivals: Vec::with_capacity(datagrams_max),
            datagrams_max,
            held: Vec::with_capacity(datagrams_max),
            joined: JoinBuffer { bytes, used: 0, frame_bytes_max: frames.bytes_max },
            parted: Box::default(),
            parted_used: 0,
            sums: frames.sums,
            refused: [0; Rejected::ALL.len()],
            strays: 0,
        }
    }

    #[inline]
    pub(super) fn datagrams<'a>(&'a self, umem: &'a Umem) -> DatagramIter<'a> {
        let ReceivedBatch { joined, parted, arrivals, .. } = self;
        DatagramIter { umem, joined, parted, arrivals: arrivals.iter() }
    }

    pub(super) fn room_bytes(&self) -> usize {
        self.joined.bytes.len()
    }

    /// Forgets the datagrams; their chunks stay in `held`.
    pub(super) fn forget(&mut self) {
        self.arrivals.clear();
        (self.joined.used, self.parted_used) = (0, 0);
    }

    /// If a held chunk contains a kept value, puts a free chunk in its place.
    #[inline]
    fn let_go(&mut self, arena: &Arena) {
        if arena.keeps() {
            self.held.iter_mut().for_each(|chunk| *chunk = arena.recycle(*chunk));
        }
    }

    pub(super) fn limit(&mut self, datagrams: usize) {
        self.datagrams_max = datagrams.clamp(1, self.arrivals.capacity());
    }

    /// Takes arrived frames, up to the limits. If `copies` is true, copies them and holds no chunk.
    pub(super) fn receive(&mut self, rx: &mut Rx, umem: &Umem, copies: bool) -> Received {
        let ready = rx.ring.look();
        let (mut next, mut cut, mut damaged, mut is_drained) = (0, 0, 0, true);
        while next < ready {
            // A frame is taken only after its last chunk has arrived.
            let Some(pieces) = rx.pieces(next, ready) else { break };
            let (parts, is_parted) = (!self.parted.is_empty(), pieces > 1);
            let joins = copies || (is_parted && !parts);
            let is_flood = next >= LOOKED_AT_MAX && !plant::is(Fault::FloodTakenWhole);
            let is_full = self.arrivals.len() >= self.datagrams_max || is_flood;
            let lacks_room = (joins && self.joined.is_full()) || (parts && self.is_full(pieces));
            if is_full || lacks_room {
                is_drained = false;
                break;
            }
            let result = match (joins, is_parted) {
                (true, _) => self.take_pieces(rx, umem, next, pieces),
                (false, false) => self.take_one(rx, umem, next),
                (false, true) => self.take_parted(rx, umem, next, pieces),
            };
            next += pieces;
            match result {
                FrameResult::Whole(arrival) => self.arrivals.push(arrival),
                FrameResult::Rejected(reason) => {
                    self.refused[reason as usize] += 1;
                    damaged += 1;
                }
                FrameResult::TooLong => cut += 1,
                FrameResult::Stray => self.strays += 1,
            }
        }
        rx.ring.release(next);
        Received { datagrams: self.arrivals.len(), cut, damaged, is_drained }
    }

    /// Takes a frame of one chunk. The chunk is held if the frame has a datagram for us.
    fn take_one(&mut self, rx: &mut Rx, umem: &Umem, next: u32) -> FrameResult {
        let Some(span) = rx.take(umem, next) else { return FrameResult::Stray };
        let result = if span.bytes > self.joined.frame_bytes_max {
            FrameResult::TooLong
        } else {
            // SAFETY: `take` has checked that the chunk was lent, so the kernel has given it back.
            // It is not lent again before this call ends, and until then no code writes to it.
            let frame = unsafe { umem.read(span) };
            FrameResult::of(frame, self.sums, |at, bytes| {
                PayloadLocation::Chunk(Span { at: span.at + at, bytes, ..span })
            })
        };
        let is_whole = matches!(result, FrameResult::Whole(_));
        if !is_whole && plant::is(Fault::RefusedChunkLost) {
            return result;
        }
        let chunks = if is_whole { &mut self.held } else { &mut rx.fill.spare };
        chunks.push(span.chunk);
        result
    }

    /// True if the inbox may not hold `pieces` more chunks, or has no free `Pieces` for a frame.
    fn is_full(&self, pieces: u32) -> bool {
        let lacks_parted = pieces > 1 && self.parted_used == self.parted.len();
        lacks_parted || self.held.len() + pieces as usize > BATCH_MAX
    }

    /// Takes a frame of several chunks. The chunks are held if the frame has a datagram for us.
    fn take_parted(&mut self, rx: &mut Rx, umem: &Umem, next: u32, pieces: u32) -> FrameResult {
        let spans = (next..next + pieces).filter_map(|ahead| rx.take(umem, ahead));
        let spans: ArrayVec<Span, { Pieces::MAX }> = spans.collect();
        let bytes: usize = spans.iter().map(|span| span.bytes).sum();
        let number = self.parted_used;
        let result = match spans.split_first() {
            Some(_) if spans.len() < pieces as usize => FrameResult::Stray,
            Some(_) if bytes > self.joined.frame_bytes_max => FrameResult::TooLong,
            Some((first, rest)) => match self.parted[number].read(*first, rest, self.sums) {
                Ok((packet, shown)) => FrameResult::Whole(Arrival {
                    peer: Peer { back: packet.ends.reversed() },
                    payload: PayloadLocation::Parted(shown, number),
                }),
                Err(reason) => FrameResult::Rejected(reason),
            },
            None => FrameResult::Stray,
        };
        let is_whole = matches!(result, FrameResult::Whole(_));
        self.parted_used += usize::from(is_whole);
        let chunks = if is_whole { &mut self.held } else { &mut rx.fill.spare };
        let count = if plant::is(Fault::LastPieceLost) { spans.len() - 1 } else { spans.len() };
        chunks.extend(spans[..count].iter().map(|span| span.chunk));
        result
    }

    /// Copies a frame of one or several chunks; the chunks can then be lent again.
    fn take_pieces(&mut self, rx: &mut Rx, umem: &Umem, next: u32, pieces: u32) -> FrameResult {
        let (start, mut end) = (self.joined.used, self.joined.used);
        let (mut is_stray, mut is_too_long) = (false, false);
        for ahead in 0..pieces {
            let Some(span) = rx.take(umem, next + ahead) else {
                is_stray = true;
                continue;
            };
            rx.fill.spare.push(span.chunk);
            if plant::is(Fault::ChunkReturnedTwice) {
                rx.fill.spare.push(span.chunk);
            }
            // SAFETY: `take` has checked that the chunk was lent, so the kernel has given it back.
            // Only `lend` lends the chunk again, and `lend` needs the receiving half of the queue,
            // which the caller of this function has locked.
            let piece = unsafe { umem.read(span) };
            let room_end = (start + self.joined.frame_bytes_max).min(self.joined.bytes.len());
            match self.joined.bytes[..room_end].get_mut(end..end + piece.len()) {
                Some(room) => {
                    room.copy_from_slice(piece);
                    end += piece.len();
                }
                None => is_too_long = !plant::is(Fault::CutFrameTaken),
            }
        }
        match (is_stray, is_too_long) {
            (true, _) => FrameResult::Stray,
            (false, true) => FrameResult::TooLong,
            (false, false) => {
                self.joined.used = end;
                FrameResult::of(&self.joined.bytes[start..end], self.sums, |at, bytes| {
                    PayloadLocation::JoinBuffer { at: start + at, bytes }
                })
            }
        }
    }
}

enum FrameResult {
    Whole(Arrival),
    Rejected(Rejected),
    TooLong,
    Stray,
}

impl FrameResult {
    /// Reads a frame; `place` makes a `PayloadLocation` from the payload's offset and length.
    #[inline]
    fn of(
        frame: &[u8],
        sums: Sums,
        place: impl FnOnce(usize, usize) -> PayloadLocation,
    ) -> FrameResult {
        match wire::read(frame, sums) {
            Ok(packet) => FrameResult::Whole(Arrival {
                peer: Peer { back: packet.ends.reversed() },
                payload: place(packet.ends.header_bytes(), packet.payload_bytes),
            }),
            Err(reason) => FrameResult::Rejected(reason),
        }
    }
}

impl JoinBuffer {
    fn is_full(&self) -> bool {
        self.used > 0 && self.bytes.len() - self.used < self.frame_bytes_max
    }
}

/// An iterator over received datagrams.
#[derive(Clone, Debug)]
pub struct DatagramIter<'a> {
    umem: &'a Umem,
    joined: &'a JoinBuffer,
    parted: &'a [Pieces],
    arrivals: std::slice::Iter<'a, Arrival>,
}

impl<'a> Iterator for DatagramIter<'a> {
    type Item = Datagram<'a, Peer>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a, Peer>> {
        let arrival = self.arrivals.next()?;
        // SAFETY: an arrival's chunk is held from `take_one` or `take_parted` until the inbox is
        // borrowed mutably and the arrival forgotten. Both functions take chunks only from the
        // inbox's own queue, whose memory is `umem`. No code writes to held chunks.
        let read = |span| unsafe { self.umem.read(span) };
        let (bytes, more) = match arrival.payload {
            PayloadLocation::Chunk(span) => (read(span), None),
            PayloadLocation::JoinBuffer { at, bytes } => {
                (self.joined.bytes.get(at..at + bytes)?, None)
            }
            PayloadLocation::Parted(first, number) => (read(first), Some(self.parted.get(number)?)),
        };
        Some(Datagram { bytes, more, peer: &arrival.peer })
    }
}
