//! Datagrams that have arrived in chunks.
//!
//! ```text
//! chunk    kernel --- receive ring ---> held --- release ---> fill ring --- kernel
//! frame    | Ethernet | IP | UDP | payload |        shown where it lies
//!          | frame ... |  | ... of it |             in several chunks: joined first, or `parted`
//! ```
//!
//! Where: a column's receive, before its turn, as `udp::inbox` is for sockets.
//! Invariant: each of the inbox's chunks is lent to the kernel or held, with a datagram; the kernel
//! always has some. Where the arena keeps, some of a datagram may stay in its chunk when the inbox
//! lets go of it: then another chunk is the inbox's. What the kernel names that is not lent to it
//! is a stray: nobody touches it. `datagrams` shows whole datagrams only, which `wire` has read.
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

/// Most chunks that one `receive` looks at, with whatever frames.
const LOOKED_AT_MAX: u32 = 256;
/// Frames in several chunks that one `receive` joins.
const JOINED_MAX: usize = 16;

/// Frames in several chunks that one `receive` leaves there: of two chunks at least, of which an
/// inbox holds no more than of others.
const PARTED_MAX: usize = BATCH_MAX / 2;

/// Who sent a datagram, and which of our addresses and ports was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Those of a letter to it.
    pub(super) back: Ends,
}

impl Peer {
    /// To whom letters with these ends go.
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

    /// Our address and port that were asked.
    #[must_use]
    pub fn asked(&self) -> SocketAddr {
        self.back.from()
    }

    /// True if the datagram was sent to many. None such is taken.
    #[inline]
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        false
    }
}

/// What has arrived at a queue.
#[derive(Debug)]
pub struct Inbox {
    queue: Arc<Queue>,
    pub(super) taken: Taken,
}

/// What one receive has taken from a queue.
#[derive(Debug)]
pub(super) struct Taken {
    arrivals: Vec<Arrival>,
    /// The most that are taken at once.
    datagrams_max: usize,
    /// Their chunks, the inbox's own.
    held: Vec<u32>,
    joined: Joined,
    /// Of datagrams in several chunks that stay there, of which `parted_used` have come.
    parted: Box<[Pieces]>,
    parted_used: usize,
    pub(super) sums: Sums,
    refused: [u64; NotOurs::ALL.len()],
    strays: u64,
}

/// One datagram.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    peer: Peer,
    payload: Place,
}

/// Where bytes lie.
#[derive(Clone, Copy, Debug)]
enum Place {
    Chunk(Span),
    Joined {
        at: usize,
        bytes: usize,
    },
    /// The first piece, and the number of the others in `parted`.
    Parted(Span, usize),
}

/// Room for frames that came in several chunks, or were stolen.
#[derive(Debug)]
struct Joined {
    bytes: Box<[u8]>,
    used: usize,
    frame_bytes_max: usize,
}

impl Inbox {
    /// Of a queue, of which this is the one inbox.
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

    /// For others to steal from.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Something has arrived, though it may be the beginning of a frame alone. It costs no call.
    #[inline]
    #[must_use]
    pub fn has_input(&mut self) -> bool {
        self.queue.arriving().receive.look() > 0
    }

    /// Receives what has arrived, at most `BATCH_MAX` datagrams; what was in the inbox is gone.
    /// What is not ours is dropped and counted; what is longer than the interface sends counts as
    /// cut. It costs no call, unless the driver sleeps because it ran out of chunks.
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

    /// From now on a `receive` takes at most so many datagrams, and at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.taken.limit(datagrams);
    }

    /// The datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> Arrived<'_> {
        self.taken.datagrams(&self.queue.socket.umem)
    }

    /// Gives all chunks back to the kernel: what was in the inbox is gone. `receive` does so too;
    /// call it before a sleep, so that the kernel has them all meanwhile. It always has
    /// `CHUNKS_MIN / 2 - BATCH_MAX` at least.
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

    /// The number of frames that were dropped for a reason, since the socket was opened.
    #[must_use]
    pub fn refused(&self, reason: NotOurs) -> u64 {
        self.taken.refused[reason as usize]
    }

    /// The number of descriptors from the kernel that named no chunk of ours that it had, since the
    /// socket was opened. A kernel without a fault makes none.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.taken.strays
    }

    /// The number of chunks that the kernel has, and the number of those held.
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
    /// Room for `datagrams_max` datagrams, and `room_bytes` for those that are copied.
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

    /// What was taken from a queue that has this memory.
    #[inline]
    pub(super) fn datagrams<'a>(&'a self, umem: &'a Umem) -> Arrived<'a> {
        let Taken { joined, parted, arrivals, .. } = self;
        Arrived { umem, joined, parted, arrivals: arrivals.iter() }
    }

    /// Bytes of the room for what is copied.
    pub(super) fn room_bytes(&self) -> usize {
        self.joined.bytes.len()
    }

    /// What was taken is gone, but for its chunks.
    pub(super) fn forget(&mut self) {
        self.arrivals.clear();
        (self.joined.used, self.parted_used) = (0, 0);
    }

    /// Nothing is shown any more: where some of a chunk is kept, another one is held in its place.
    #[inline]
    fn let_go(&mut self, arena: &Arena) {
        if arena.keeps() {
            self.held.iter_mut().for_each(|chunk| *chunk = arena.let_go(*chunk));
        }
    }

    /// From now on at most so many datagrams are taken at once, and at least one.
    pub(super) fn limit(&mut self, datagrams: usize) {
        self.datagrams_max = datagrams.clamp(1, self.arrivals.capacity());
    }

    /// Takes what is ready, as much as it may. `copies` says that no chunk is to be held.
    pub(super) fn receive(
        &mut self,
        arriving: &mut Arriving,
        umem: &Umem,
        copies: bool,
    ) -> Received {
        let ready = arriving.receive.look();
        let (mut next, mut cut, mut damaged, mut is_drained) = (0, 0, 0, true);
        while next < ready {
            // A frame of which the end is not there yet is reported when it is.
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

    /// Takes a frame of one chunk, which is held if it has a datagram.
    fn take_one(&mut self, arriving: &mut Arriving, umem: &Umem, next: u32) -> Came {
        let Some(span) = arriving.take(umem, next) else { return Came::Stray };
        let came = if span.bytes > self.joined.frame_bytes_max {
            Came::TooLong
        } else {
            // SAFETY: the kernel has given the chunk back, by `take`, which has seen that it was
            // lent. It is not lent before this call is over, and nobody writes to such chunks.
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

    /// With a frame of so many chunks the inbox would hold more than it may.
    fn is_full(&self, pieces: u32) -> bool {
        let lacks_parted = pieces > 1 && self.parted_used == self.parted.len();
        lacks_parted || self.held.len() + pieces as usize > BATCH_MAX
    }

    /// Takes a frame of several chunks, which are held if it has a datagram.
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

    /// Copies a frame of one or several chunks, which are done with then.
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
            // SAFETY: as in `take_one`: it is lent by `lend` alone, which needs the half that this
            // call has.
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

/// What came of a frame.
enum Came {
    Whole(Arrival),
    NotOurs(NotOurs),
    TooLong,
    Stray,
}

impl Came {
    /// Reads a frame; `place` makes an offset in it and a length a place.
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
    /// True if it has frames, and no room for another one.
    fn is_full(&self) -> bool {
        self.used > 0 && self.bytes.len() - self.used < self.frame_bytes_max
    }
}

/// An iterator over what has arrived.
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
        // SAFETY: a chunk of an arrival is held, from `take_one` or `take_parted` until the inbox
        // is taken mutably and the arrival forgotten. They take from the inbox's own queue alone,
        // whose memory this is. Nobody writes to held chunks.
        let read = |span| unsafe { self.umem.read(span) };
        let (bytes, more) = match arrival.payload {
            Place::Chunk(span) => (read(span), None),
            Place::Joined { at, bytes } => (self.joined.bytes.get(at..at + bytes)?, None),
            Place::Parted(first, number) => (read(first), Some(self.parted.get(number)?)),
        };
        Some(Datagram { bytes, more, peer: &arrival.peer })
    }
}
