//! Datagrams that have arrived in chunks.
//!
//! ```text
//! chunk    kernel --- receive ring ---> held --- release ---> fill ring --- kernel
//! frame    | Ethernet | IP | UDP | payload |        shown where it lies
//!          | frame ... |  | ... of it |             in several chunks: joined first
//! ```
//!
//! Where: a column's receive, before its turn, as `udp::inbox` is for sockets.
//! Invariant: each of the inbox's chunks is lent to the kernel or held, with a datagram; the kernel
//! always has some. What it names that is not lent to it is a stray: nobody touches it.
//! `datagrams` shows whole datagrams only, which `wire` has read.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_rcv`.
#![allow(unsafe_code, reason = "slices of chunks")]

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::port::Socket;
use super::ring::{Consuming, Producing};
use super::umem::Span;
use crate::calls::Calls;
use crate::udp::{BATCH_MAX, Datagram, Received};
use crate::wire::{self, Ends, NotOurs, Sums};

/// Most chunks that one frame lies in.
const PIECES_MAX: u32 = 18;
/// Most chunks that one `receive` looks at, with whatever frames.
const LOOKED_AT_MAX: u32 = 256;
/// Frames in several chunks that one `receive` joins.
const JOINED_MAX: usize = 16;

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
    socket: Arc<Socket>,
    receive: Consuming<XdpDesc>,
    fill: Producing<u64>,
    /// Of each chunk, by its number: the kernel has it. The inbox's are the first of all.
    is_lent: Box<[bool]>,
    /// Chunks of arrivals.
    held: Vec<u32>,
    /// Chunks that are to be lent.
    spare: Vec<u32>,
    arrivals: Vec<Arrival>,
    joined: Joined,
    pub(super) sums: Sums,
    refused: [u64; NotOurs::ALL.len()],
    strays: u64,
    /// Calls that are yet to be counted.
    kicks: u64,
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
    Joined { at: usize, bytes: usize },
}

/// Room for frames that came in several chunks.
#[derive(Debug)]
struct Joined {
    bytes: Box<[u8]>,
    used: usize,
    frame_bytes_max: usize,
}

impl Inbox {
    /// With the first `chunks` chunks of the socket's, all of which it lends to the kernel. A frame
    /// has at most `frame_bytes_max` bytes; `is_long` says that it may lie in several chunks.
    pub(super) fn new(
        socket: Arc<Socket>,
        (receive, fill): (Consuming<XdpDesc>, Producing<u64>),
        chunks: u32,
        (frame_bytes_max, is_long): (usize, bool),
        sums: Sums,
    ) -> Inbox {
        let frames = if is_long { JOINED_MAX } else { 0 };
        let bytes = vec![0; frames * frame_bytes_max].into_boxed_slice();
        let mut inbox = Inbox {
            socket,
            receive,
            fill,
            is_lent: vec![false; chunks as usize].into_boxed_slice(),
            held: Vec::with_capacity(BATCH_MAX),
            spare: (0..chunks).rev().collect(),
            arrivals: Vec::with_capacity(BATCH_MAX),
            joined: Joined { bytes, used: 0, frame_bytes_max },
            sums,
            refused: [0; NotOurs::ALL.len()],
            strays: 0,
            kicks: 0,
        };
        inbox.release();
        inbox
    }

    /// Something has arrived, though it may be the beginning of a frame alone. It costs no call.
    #[inline]
    #[must_use]
    pub fn has_input(&mut self) -> bool {
        self.receive.look() > 0
    }

    /// Receives what has arrived, at most `BATCH_MAX` datagrams; what was in the inbox is gone.
    /// What is not ours is dropped and counted; what is longer than the interface sends counts as
    /// cut. It costs no call, unless the driver sleeps because it ran out of chunks.
    #[must_use]
    pub fn receive(&mut self, calls: &Calls) -> Received {
        self.release();
        calls.reads.add(std::mem::take(&mut self.kicks));
        let ready = self.receive.look();
        let (mut next, mut cut, mut damaged, mut is_drained) = (0, 0, 0, true);
        while next < ready {
            // A frame of which the end is not there yet is reported when it is.
            let Some(pieces) = self.pieces(next, ready) else { break };
            let is_full = self.arrivals.len() == BATCH_MAX || next >= LOOKED_AT_MAX;
            if is_full || (pieces > 1 && self.joined.is_full()) {
                is_drained = false;
                break;
            }
            let came = match pieces {
                1 => self.take_one(self.receive.peek(next)),
                _ => self.take_pieces(next, pieces),
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
        self.receive.release(next);
        self.lend();
        Received { datagrams: self.arrivals.len(), cut, damaged, is_drained }
    }

    /// The number of chunks in which the frame lies that begins `next` places ahead; none if it has
    /// not come whole. One that has more than a frame can is taken for several.
    fn pieces(&self, next: u32, ready: u32) -> Option<u32> {
        let is_last = |ahead: u32| {
            let options = self.receive.peek(next + ahead).options;
            !options.contains(XdpDescOptions::XDP_PKT_CONTD)
        };
        let there = (ready - next).min(PIECES_MAX);
        let last = (0..there).find(|ahead| is_last(*ahead));
        last.map(|ahead| ahead + 1).or((there == PIECES_MAX).then_some(there))
    }

    /// Takes a chunk from the kernel; none if it is not ours to take.
    fn take(&mut self, descriptor: XdpDesc) -> Option<Span> {
        let span = self.socket.umem.span(descriptor.addr, descriptor.len)?;
        let is_lent = self.is_lent.get_mut(span.chunk as usize)?;
        std::mem::take(is_lent).then_some(span)
    }

    /// Takes a frame of one chunk, which is held if it has a datagram.
    fn take_one(&mut self, descriptor: XdpDesc) -> Came {
        let Some(span) = self.take(descriptor) else { return Came::Stray };
        let came = if span.bytes > self.joined.frame_bytes_max {
            Came::TooLong
        } else {
            // SAFETY: the kernel has given the chunk back, by `take`, which has seen that it was
            // lent. It is not lent before this call is over, and nobody writes to such chunks.
            let frame = unsafe { self.socket.umem.read(span) };
            Came::of(frame, self.sums, |at, bytes| {
                Place::Chunk(Span { at: span.at + at, bytes, ..span })
            })
        };
        let chunks = if let Came::Whole(_) = came { &mut self.held } else { &mut self.spare };
        chunks.push(span.chunk);
        came
    }

    /// Joins a frame of several chunks, which are done with then.
    fn take_pieces(&mut self, next: u32, pieces: u32) -> Came {
        let (start, mut end) = (self.joined.used, self.joined.used);
        let (mut is_stray, mut is_too_long) = (false, false);
        for ahead in 0..pieces {
            let Some(span) = self.take(self.receive.peek(next + ahead)) else {
                is_stray = true;
                continue;
            };
            self.spare.push(span.chunk);
            // SAFETY: as in `take_one`: it is lent by `lend` alone, when `receive` is at its end.
            let piece = unsafe { self.socket.umem.read(span) };
            let room_end = (start + self.joined.frame_bytes_max).min(self.joined.bytes.len());
            match self.joined.bytes[..room_end].get_mut(end..end + piece.len()) {
                Some(room) => {
                    room.copy_from_slice(piece);
                    end += piece.len();
                }
                None => is_too_long = true,
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

    /// The datagrams of the last `receive`, in the order of their arrival.
    #[inline]
    #[must_use]
    pub fn datagrams(&self) -> Arrived<'_> {
        Arrived { inbox: self, arrivals: self.arrivals.iter() }
    }

    /// Gives all chunks back to the kernel: what was in the inbox is gone. `receive` does so too;
    /// call it before a sleep, so that the kernel has them all meanwhile. It always has
    /// `CHUNKS_MIN / 2 - BATCH_MAX` at least.
    pub fn release(&mut self) {
        self.arrivals.clear();
        self.joined.used = 0;
        self.spare.append(&mut self.held);
        self.lend();
    }

    /// Lends the chunks that are spare.
    fn lend(&mut self) {
        if self.spare.is_empty() {
            return;
        }
        while let Some(chunk) = self.spare.pop() {
            // The ring has room for all chunks, unless the kernel has lost count.
            if !self.fill.push(self.socket.umem.address(chunk)) {
                self.spare.push(chunk);
                break;
            }
            if let Some(is_lent) = self.is_lent.get_mut(chunk as usize) {
                *is_lent = true;
            }
        }
        self.fill.publish();
        // A driver that ran out of chunks sleeps, and would tell of no packet any more.
        if self.fill.needs_wakeup() {
            self.kicks += 1;
            self.socket.kick_receive();
        }
    }

    /// The number of frames that were dropped for a reason, since the socket was opened.
    #[must_use]
    pub fn refused(&self, reason: NotOurs) -> u64 {
        self.refused[reason as usize]
    }

    /// The number of descriptors from the kernel that named no chunk of ours that it had, since the
    /// socket was opened. A kernel without a fault makes none.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// The number of chunks that the kernel has, and the number of those held.
    pub(super) fn lent_and_held(&self) -> (usize, usize) {
        let lent = self.is_lent.iter().filter(|is_lent| **is_lent).count();
        (lent, self.held.len() + self.spare.len())
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
    inbox: &'a Inbox,
    arrivals: std::slice::Iter<'a, Arrival>,
}

impl<'a> Iterator for Arrived<'a> {
    type Item = Datagram<'a, Peer>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a, Peer>> {
        let arrival = self.arrivals.next()?;
        let bytes = match arrival.payload {
            // SAFETY: a chunk of an arrival is held, from `take_one` until `release`, which takes
            // the inbox mutably and forgets the arrival. Nobody writes to held chunks.
            Place::Chunk(span) => unsafe { self.inbox.socket.umem.read(span) },
            Place::Joined { at, bytes } => self.inbox.joined.bytes.get(at..at + bytes)?,
        };
        Some(Datagram { bytes, peer: &arrival.peer })
    }
}
