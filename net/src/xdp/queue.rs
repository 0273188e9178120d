//! A queue of an interface: its socket, and the socket's rings.
//!
//! ```text
//! owner   Inbox, Outbox --.
//!                          > arriving: receive ring, fill ring, the inbox's chunks
//! thief   Stolen, Letters -'  leaving: transmit ring, completion ring, the outbox's chunks
//! ```
//!
//! Where: under a port's inbox and outbox, and under other columns that steal from the queue.
//! Invariant: a ring is used only under the lock of its half. A lock is held while one receive
//! copies, or while the datagrams of one post are added, and never during a call that sends; its
//! holder takes no other. A request is answered by the queue that brought it, whoever answers.
//! Source: `net/xdp/xsk.c` of Linux, whose socket takes one sender at a time.

use std::ops::Range;
use std::sync::Arc;

use memory::plant::{Fault, is};
use memory::sync::{Mutex, MutexGuard, lock_soon};
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::leaving::Leaving;
use super::port::Socket;
use super::ring::{Consuming, Producing};
use super::umem::{Span, Umem};
use crate::wire::Sums;

/// Most chunks of one frame.
pub(super) const PIECES_MAX: u32 = 18;

/// A queue: one column receives from it and sends by it, and others may steal from it.
#[derive(Debug)]
pub struct Queue {
    arriving: Mutex<Arriving>,
    leaving: Mutex<Leaving>,
    /// Declared behind the rings, and so closed after them.
    pub(super) socket: Arc<Socket>,
    pub(super) frames: Frames,
}

/// The receive ring and the fill ring.
pub(super) type Incoming = (Consuming<XdpDesc>, Producing<u64>);
/// The transmit ring and the completion ring.
pub(super) type Outgoing = (Producing<XdpDesc>, Consuming<u64>);

/// Properties of the frames that come by a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// Most bytes of a frame.
    pub(super) bytes_max: usize,
    /// True if a frame may lie in several chunks.
    pub(super) are_long: bool,
    /// The UDP checksums that are accepted.
    pub(super) sums: Sums,
}

/// The receiving half of a queue.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) receive: Consuming<XdpDesc>,
    fill: Producing<u64>,
    /// The first of the inbox's chunks. If received data may be kept, any chunk of the arena may be
    /// the inbox's, and this is 0.
    first: u32,
    /// For each chunk from `first` on: true if the kernel has it.
    is_lent: Box<[bool]>,
    /// Chunks to be lent to the kernel.
    pub(super) spare: Vec<u32>,
    /// Number of system calls that have not been counted yet.
    pub(super) kicks: u64,
}

impl Queue {
    /// Makes a queue that receives into the first half of `chunks`, all of it lent to the kernel,
    /// and sends from the second half.
    pub(super) fn new(
        socket: Arc<Socket>,
        (receive, fill): Incoming,
        outgoing: Outgoing,
        chunks: Range<u32>,
        frames: Frames,
    ) -> Queue {
        let (first, half) = (chunks.start, (chunks.end - chunks.start) / 2);
        let arena = socket.umem.arena();
        let any = if arena.keeps() { (0, arena.chunks()) } else { (first, half) };
        let mut arriving = Arriving {
            receive,
            fill,
            first: any.0,
            is_lent: vec![false; any.1 as usize].into_boxed_slice(),
            spare: (first..first + half).rev().collect(),
            kicks: 0,
        };
        arriving.lend(&socket);
        let leaving = Leaving::new(outgoing, first + half, half, frames.bytes_max);
        Queue { arriving: Mutex::new(arriving), leaving: Mutex::new(leaving), socket, frames }
    }

    #[inline]
    pub(super) fn arriving(&self) -> MutexGuard<'_, Arriving> {
        lock_soon(&self.arriving)
    }

    /// Locks the receiving half; `None` if somebody else has it.
    pub(super) fn try_arriving(&self) -> Option<MutexGuard<'_, Arriving>> {
        self.arriving.try_lock().ok()
    }

    #[inline]
    pub(super) fn leaving(&self) -> MutexGuard<'_, Leaving> {
        lock_soon(&self.leaving)
    }

    /// Number of descriptors that the kernel has not taken; a datagram may have several.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.leaving().waiting() as usize
    }

    /// True if somebody has to post again, even with nothing to add: the kernel has not taken all
    /// datagrams, or parts of values that may have left are still held.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.socket.flying.sum() > 0 || self.waiting() > 0
    }
}

impl Arriving {
    pub(super) fn lent(&self) -> usize {
        self.is_lent.iter().filter(|is_lent| **is_lent).count()
    }

    /// Number of chunks of the frame that begins `next` entries ahead; `None` if its last chunk has
    /// not arrived. A frame with more than `PIECES_MAX` chunks is taken for several frames.
    pub(super) fn pieces(&self, next: u32, ready: u32) -> Option<u32> {
        let is_last = |ahead: u32| {
            let options = self.receive.peek(next + ahead).options;
            !options.contains(XdpDescOptions::XDP_PKT_CONTD)
        };
        let there = (ready - next).min(PIECES_MAX);
        let last = (0..there).find(|ahead| is_last(*ahead));
        let is_as_long = there == PIECES_MAX || is(Fault::HalfFrameTaken);
        last.map(|ahead| ahead + 1).or(is_as_long.then_some(there))
    }

    /// Takes the chunk `ahead` entries on from the kernel; `None` if it is not the inbox's, or not
    /// lent.
    pub(super) fn take(&mut self, umem: &Umem, ahead: u32) -> Option<Span> {
        let descriptor = self.receive.peek(ahead);
        let span = umem.span(descriptor.addr, descriptor.len)?;
        let is_ours = std::mem::take(self.is_lent(span.chunk)?) || is(Fault::StrayTaken);
        is_ours.then_some(span)
    }

    /// The flag of one of the inbox's chunks: true if the kernel has it.
    #[inline]
    fn is_lent(&mut self, chunk: u32) -> Option<&mut bool> {
        self.is_lent.get_mut(chunk.checked_sub(self.first)? as usize)
    }

    /// Lends the spare chunks to the kernel.
    pub(super) fn lend(&mut self, socket: &Socket) {
        if self.spare.is_empty() {
            return;
        }
        while let Some(chunk) = self.spare.pop() {
            // The ring has room for all chunks, unless the kernel has written a wrong count.
            if !self.fill.push(socket.umem.address(chunk)) {
                self.spare.push(chunk);
                break;
            }
            if let Some(is_lent) = self.is_lent(chunk) {
                *is_lent = true;
            }
        }
        self.fill.publish();
        // A driver that ran out of chunks sleeps, and reports no more packets until it is woken.
        if self.fill.needs_wakeup() && !is(Fault::DriverNotWoken) {
            self.kicks += 1;
            socket.kick_receive();
        }
    }
}
