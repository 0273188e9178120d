//! Datagrams received into chunks.
//!
//! ```text
//! chunk    kernel --- receive ring ---> held --- release ---> fill ring --- kernel
//! frame    | Ethernet | IP | UDP | payload |        shown where it lies
//!          | its start |  | its rest |              in several chunks: shown joined, or in parts
//! ```
//!
//! Where: a column's receive, before its turn, like `udp::inbox` for sockets.
//! Invariant: each chunk of the inbox is either lent to the kernel or held with a datagram, and the
//! kernel always has some. If the arena keeps values, part of a datagram may stay in its chunk when
//! the inbox lets go of the chunk; the inbox then gets another chunk in exchange. A chunk that the
//! kernel names without having it is a stray, and nobody touches it. `datagrams` shows only whole
//! datagrams that `wire` has read.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_rcv`.
#![allow(unsafe_code, reason = "slices of chunks")]

use std::net::SocketAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::arena::Arena;
use memory::plant::{self, Fault};

use super::parted::Pieces;
use super::queue::{Arriving, Frames, Queue};
use super::umem::{Span, Umem};
use crate::calls::Calls;
use crate::udp::{BATCH_MAX, Datagram, Received};
use crate::wire::{self, Ends, NotOurs, Sums};

/// Most chunks that one `receive` looks at, whatever frames are in them.
const LOOKED_AT_MAX: u32 = 256;
/// Most frames in several chunks that one `receive` joins.
const JOINED_MAX: usize = 16;

/// Most frames in several chunks that one `receive` leaves in their chunks. Such a frame has at
/// least two, and an inbox holds at most `BATCH_MAX` chunks.
const PARTED_MAX: usize = BATCH_MAX / 2;

/// The sender of a datagram, and our address and port that it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The ends of a datagram to the sender.
    pub(super) back: Ends,
}

impl Peer {
    /// The peer that datagrams with these ends go to.
    #[must_use]
    pub fn at(ends: Ends) -> Peer {
        Peer { back: ends }
    }

    /// The sender's address and port.
    #[inline]
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        Some(self.back.to())
    }

    /// Our address and port that the datagram was sent to.
    #[must_use]
    pub fn asked(&self) -> SocketAddr {
        self.back.from()
    }

    /// True if the datagram was sent by broadcast or multicast; AF_XDP takes none such.
    #[inline]
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        false
    }
}

/// The receiving half of a port.
#[derive(Debug)]
pub struct Inbox {
    queue: Arc<Queue>,
    pub(super) taken: Taken,
}

/// The datagrams that one receive took from a queue.
#[derive(Debug)]
pub(super) struct Taken {
    arrivals: Vec<Arrival>,
    /// Most datagrams to take at once.
    datagrams_max: usize,
    /// Chunks of the datagrams; they belong to the inbox.
    held: Vec<u32>,
    joined: Joined,
    /// Pieces of datagrams that stay in several chunks; the first `parted_used` are in use.
    parted: Box<[Pieces]>,
    parted_used: usize,
    pub(super) sums: Sums,
    refused: [u64; NotOurs::ALL.len()],
    strays: u64,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    peer: Peer,
    payload: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Chunk(Span),
    Joined {
        at: usize,
        bytes: usize,
    },
    /// The first piece, and the index in `parted` of the other pieces.
    Parted(Span, usize),
}

/// Buffer for frames that came in several chunks, or that were stolen.
#[derive(Debug)]
struct Joined {
    bytes: Box<[u8]>,
    used: usize,
    frame_bytes_max: usize,
}

impl Inbox {
    /// The only inbox of `queue`.
    pub(super) fn new(queue: Arc<Queue>) -> Inbox {
        let umem = &queue.socket.umem;
        let (joined, parted) = match (queue.frames.are_long, umem.arena().keeps()) {
            (false, _) => (0, 0),
            (true, false) => (JOINED_MAX, 0),
            (true, true) => (0, PARTED_MAX),
        };
        let room_bytes = joined * queue.frames.bytes_max;
        let mut taken = Taken::new(BATCH_MAX, room_bytes, queue.frames);
        taken.parted = (0..parted).map(|_| Pieces::new(umem)).collect();
        Inbox { queue, taken }
    }

    /// The inbox's queue, for other columns to steal from.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// True if something has arrived, perhaps only the beginning of a frame. Costs no system call.
    #[inline]
    #[must_use]
    pub fn has_input(&mut self) -> bool {
        self.queue.arriving().receive.look() > 0
    }

    /// Receives at most `BATCH_MAX` datagrams, and forgets those of the last call. A frame that is
    /// not for us is dropped and counted; a frame that is longer than the interface sends counts as
    /// cut. Costs no system call, unless the driver ran out of chunks and sleeps.
    #[must_use]
    pub fn receive(&mut self, calls: &Calls) -> Received {
        let Inbox { queue, taken } = self;
        taken.forget();
        taken.let_go(queue.socket.umem.arena());
        let mut arriving = queue.arriving();
        arriving.spare.append(&mut taken.held);
        calls.reads.add(std::mem::take(&mut arriving.kicks));
        let received = taken.receive(&mut arriving, &queue.socket.umem, false);
        arriving.lend(&queue.socket);
        received
    }

    /// Limits each later `receive` to this number of datagrams, at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.taken.limit(datagrams);
    }

    /// Returns the datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> Arrived<'_> {
        self.taken.datagrams(&self.queue.socket.umem)
    }

    /// Gives all chunks back to the kernel and forgets the datagrams in them, like `receive`. Call
    /// it before a sleep, so that the kernel has all chunks meanwhile. Without the call the kernel
    /// still has at least `CHUNKS_MIN / 2 - BATCH_MAX`.
    pub fn release(&mut self) {
        let Inbox { queue, taken } = self;
        taken.forget();
        if !taken.held.is_empty() {
            taken.let_go(queue.socket.umem.arena());
            let mut arriving = queue.arriving();
            arriving.spare.append(&mut taken.held);
            arriving.lend(&queue.socket);
        }
    }

    /// Number of frames dropped for `reason` since the socket was opened.
    #[must_use]
    pub fn refused(&self, reason: NotOurs) -> u64 {
        self.taken.refused[reason as usize]
    }

    /// Number of descriptors from the kernel, since the socket was opened, that named no chunk lent
    /// to it. A correct kernel makes none.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.taken.strays
    }

    /// Number of chunks that the kernel has, and number of chunks held here.
    pub(super) fn lent_and_held(&self) -> (usize, usize) {
        let arriving = self.queue.arriving();
        (arriving.lent(), self.taken.held.len() + arriving.spare.len())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.taken.let_go(self.queue.socket.umem.arena());
    }
}

impl Taken {
    /// Makes room for `datagrams_max` datagrams, and `room_bytes` for copied frames.
    pub(super) fn new(datagrams_max: usize, room_bytes: usize, frames: Frames) -> Taken {
        let bytes = vec![0; room_bytes].into_boxed_slice();
        Taken {
            arrivals: Vec::with_capacity(datagrams_max),
            datagrams_max,
            held: Vec::with_capacity(datagrams_max),
            joined: Joined { bytes, used: 0, frame_bytes_max: frames.bytes_max },
            parted: Box::default(),
            parted_used: 0,
            sums: frames.sums,
            refused: [0; NotOurs::ALL.len()],
            strays: 0,
        }
    }

    /// Returns the datagrams; `umem` is the memory of the queue that they came from.
    #[inline]
    pub(super) fn datagrams<'a>(&'a self, umem: &'a Umem) -> Arrived<'a> {
        let Taken { joined, parted, arrivals, .. } = self;
        Arrived { umem, joined, parted, arrivals: arrivals.iter() }
    }

    /// Size of the buffer for copied frames, in bytes.
    pub(super) fn room_bytes(&self) -> usize {
        self.joined.bytes.len()
    }

    /// Forgets the datagrams; their chunks stay in `held`.
    pub(super) fn forget(&mut self) {
        self.arrivals.clear();
        (self.joined.used, self.parted_used) = (0, 0);
    }

    /// Lets go of all held chunks, whose datagrams are no longer shown. Each chunk in which a value
    /// is kept is exchanged for another.
    #[inline]
    fn let_go(&mut self, arena: &Arena) {
        if arena.keeps() {
            self.held.iter_mut().for_each(|chunk| *chunk = arena.let_go(*chunk));
        }
    }

    /// Limits each later receive to this number of datagrams, at least one.
    pub(super) fn limit(&mut self, datagrams: usize) {
        self.datagrams_max = datagrams.clamp(1, self.arrivals.capacity());
    }

    /// Takes what is ready, up to the limits. If `copies`, no chunk is held.
    pub(super) fn receive(
        &mut self,
        arriving: &mut Arriving,
        umem: &Umem,
        copies: bool,
    ) -> Received {
        let ready = arriving.receive.look();
        let (mut next, mut cut, mut damaged, mut is_drained) = (0, 0, 0, true);
        while next < ready {
            // A frame is taken once its last chunk is there.
            let Some(pieces) = arriving.pieces(next, ready) else { break };
            let (parts, is_parted) = (!self.parted.is_empty(), pieces > 1);
            let joins = copies || (is_parted && !parts);
            let is_flood = next >= LOOKED_AT_MAX && !plant::is(Fault::FloodTakenWhole);
            let is_full = self.arrivals.len() >= self.datagrams_max || is_flood;
            let lacks_room = (joins && self.joined.is_full()) || (parts && self.is_full(pieces));
            if is_full || lacks_room {
                is_drained = false;
                break;
            }
            let came = match (joins, is_parted) {
                (true, _) => self.take_pieces(arriving, umem, next, pieces),
                (false, false) => self.take_one(arriving, umem, next),
                (false, true) => self.take_parted(arriving, umem, next, pieces),
            };
            next += pieces;
            match came {
                Came::Whole(arrival) => self.arrivals.push(arrival),
                Came::NotOurs(reason) => {
                    self.refused[reason as usize] += 1;
                    damaged += 1;
                }
                Came::TooLong => cut += 1,
                Came::Stray => self.strays += 1,
            }
        }
        arriving.receive.release(next);
        Received { datagrams: self.arrivals.len(), cut, damaged, is_drained }
    }

    /// Takes a frame of one chunk, which is held if the frame has a datagram for us.
    fn take_one(&mut self, arriving: &mut Arriving, umem: &Umem, next: u32) -> Came {
        let Some(span) = arriving.take(umem, next) else { return Came::Stray };
        let came = if span.bytes > self.joined.frame_bytes_max {
            Came::TooLong
        } else {
            // SAFETY: `take` has checked that the chunk was lent, so the kernel has given it back.
            // It is not lent again before this call ends, and nobody writes to such a chunk.
            let frame = unsafe { umem.read(span) };
            Came::of(frame, self.sums, |at, bytes| {
                Place::Chunk(Span { at: span.at + at, bytes, ..span })
            })
        };
        let is_whole = matches!(came, Came::Whole(_));
        if !is_whole && plant::is(Fault::RefusedChunkLost) {
            return came;
        }
        let chunks = if is_whole { &mut self.held } else { &mut arriving.spare };
        chunks.push(span.chunk);
        came
    }

    /// True if a frame of `pieces` chunks would make the inbox hold more chunks than it may.
    fn is_full(&self, pieces: u32) -> bool {
        let lacks_parted = pieces > 1 && self.parted_used == self.parted.len();
        lacks_parted || self.held.len() + pieces as usize > BATCH_MAX
    }

    /// Takes a frame of several chunks, which are held if the frame has a datagram for us.
    fn take_parted(
        &mut self,
        arriving: &mut Arriving,
        umem: &Umem,
        next: u32,
        pieces: u32,
    ) -> Came {
        let taken = (next..next + pieces).filter_map(|ahead| arriving.take(umem, ahead));
        let spans: ArrayVec<Span, { Pieces::MAX }> = taken.collect();
        let bytes: usize = spans.iter().map(|span| span.bytes).sum();
        let number = self.parted_used;
        let came = match spans.split_first() {
            Some(_) if spans.len() < pieces as usize => Came::Stray,
            Some(_) if bytes > self.joined.frame_bytes_max => Came::TooLong,
            Some((first, rest)) => match self.parted[number].read(*first, rest, self.sums) {
                Ok((packet, shown)) => Came::Whole(Arrival {
                    peer: Peer { back: packet.ends.turned() },
                    payload: Place::Parted(shown, number),
                }),
                Err(reason) => Came::NotOurs(reason),
            },
            None => Came::Stray,
        };
        let is_whole = matches!(came, Came::Whole(_));
        self.parted_used += usize::from(is_whole);
        let chunks = if is_whole { &mut self.held } else { &mut arriving.spare };
        let count = if plant::is(Fault::LastPieceLost) { spans.len() - 1 } else { spans.len() };
        chunks.extend(spans[..count].iter().map(|span| span.chunk));
        came
    }

    /// Copies a frame of one or several chunks, and frees the chunks.
    fn take_pieces(
        &mut self,
        arriving: &mut Arriving,
        umem: &Umem,
        next: u32,
        pieces: u32,
    ) -> Came {
        let (start, mut end) = (self.joined.used, self.joined.used);
        let (mut is_stray, mut is_too_long) = (false, false);
        for ahead in 0..pieces {
            let Some(span) = arriving.take(umem, next + ahead) else {
                is_stray = true;
                continue;
            };
            arriving.spare.push(span.chunk);
            if plant::is(Fault::ChunkReturnedTwice) {
                arriving.spare.push(span.chunk);
            }
            // SAFETY: as in `take_one`; only `lend` lends the chunk again, and it needs the half of
            // the queue that this call has locked.
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
            (true, _) => Came::Stray,
            (false, true) => Came::TooLong,
            (false, false) => {
                self.joined.used = end;
                Came::of(&self.joined.bytes[start..end], self.sums, |at, bytes| Place::Joined {
                    at: start + at,
                    bytes,
                })
            }
        }
    }
}

enum Came {
    Whole(Arrival),
    NotOurs(NotOurs),
    TooLong,
    Stray,
}

impl Came {
    /// Reads a frame; `place` makes a `Place` of an offset in the frame and a length.
    #[inline]
    fn of(frame: &[u8], sums: Sums, place: impl FnOnce(usize, usize) -> Place) -> Came {
        match wire::read(frame, sums) {
            Ok(packet) => Came::Whole(Arrival {
                peer: Peer { back: packet.ends.turned() },
                payload: place(packet.ends.header_bytes(), packet.payload_bytes),
            }),
            Err(reason) => Came::NotOurs(reason),
        }
    }
}

impl Joined {
    /// True if the buffer has frames, and no room for another one.
    fn is_full(&self) -> bool {
        self.used > 0 && self.bytes.len() - self.used < self.frame_bytes_max
    }
}

/// An iterator over received datagrams.
#[derive(Clone, Debug)]
pub struct Arrived<'a> {
    umem: &'a Umem,
    joined: &'a Joined,
    parted: &'a [Pieces],
    arrivals: std::slice::Iter<'a, Arrival>,
}

impl<'a> Iterator for Arrived<'a> {
    type Item = Datagram<'a, Peer>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a, Peer>> {
        let arrival = self.arrivals.next()?;
        // SAFETY: an arrival's chunk is held from `take_one` or `take_parted` until the inbox is
        // borrowed mutably and the arrival forgotten. Both take chunks only from the inbox's own
        // queue, whose memory this is. Nobody writes to held chunks.
        let read = |span| unsafe { self.umem.read(span) };
        let (bytes, more) = match arrival.payload {
            Place::Chunk(span) => (read(span), None),
            Place::Joined { at, bytes } => (self.joined.bytes.get(at..at + bytes)?, None),
            Place::Parted(first, number) => (read(first), Some(self.parted.get(number)?)),
        };
        Some(Datagram { bytes, more, peer: &arrival.peer })
    }
}
