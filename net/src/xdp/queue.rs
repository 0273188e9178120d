//! A queue of an interface: the socket that packets come to and leave by, and its rings.
//!
//! ```text
//! owner   Inbox, Outbox --.
//!                          > arriving: receive ring, fill ring, the inbox's chunks
//! thief   Stolen, Letters -'  leaving: transmit ring, completion ring, the outbox's chunks
//! ```
//!
//! Where: under a port's inbox and outbox, and under what other columns steal from it.
//! Invariant: a ring is used under the lock of its half. A lock is held for copies of one receive,
//! or of the letters of one post, never for a call that sends; whoever holds it takes no other.
//! What came by a queue is answered by it, whoever answers.
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

/// Most chunks that one frame lies in.
pub(super) const PIECES_MAX: u32 = 18;

/// A queue, which one column receives from and answers by, and others may steal from.
#[derive(Debug)]
pub struct Queue {
    arriving: Mutex<Arriving>,
    leaving: Mutex<Leaving>,
    /// Behind the rings, which keep it open for the kernel.
    pub(super) socket: Arc<Socket>,
    pub(super) frames: Frames,
}

/// The receive ring and the fill ring.
pub(super) type Incoming = (Consuming<XdpDesc>, Producing<u64>);
/// The transmit ring and the completion ring.
pub(super) type Outgoing = (Producing<XdpDesc>, Consuming<u64>);

/// What frames come by a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// Most bytes of one.
    pub(super) bytes_max: usize,
    /// They may lie in several chunks.
    pub(super) are_long: bool,
    /// Which checksums they have.
    pub(super) sums: Sums,
}

/// The half of a queue by which packets come.
#[derive(Debug)]
pub(super) struct Arriving {
    pub(super) receive: Consuming<XdpDesc>,
    fill: Producing<u64>,
    /// The inbox's chunks are from this one on. Where what has arrived may be kept, any chunk may
    /// be the inbox's.
    first: u32,
    /// Of each of those: the kernel has it.
    is_lent: Box<[bool]>,
    /// Chunks that are to be lent.
    pub(super) spare: Vec<u32>,
    /// Calls that are yet to be counted.
    pub(super) kicks: u64,
}

impl Queue {
    /// Of whose `chunks` the first half receives, all of it lent to the kernel, and the second half
    /// sends.
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

    /// The half by which packets come.
    #[inline]
    pub(super) fn arriving(&self) -> MutexGuard<'_, Arriving> {
        lock_soon(&self.arriving)
    }

    /// The same; none if somebody else uses it.
    pub(super) fn try_arriving(&self) -> Option<MutexGuard<'_, Arriving>> {
        self.arriving.try_lock().ok()
    }

    /// The half by which packets leave.
    #[inline]
    pub(super) fn leaving(&self) -> MutexGuard<'_, Leaving> {
        lock_soon(&self.leaving)
    }

    /// The number of letters that the kernel has not taken; one in several parts counts as many.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.leaving().waiting() as usize
    }

    /// True if somebody has to post again, though there may be nothing to send: the kernel has not
    /// taken all letters, or parts of values are held that may have left.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.socket.flying.sum() > 0 || self.waiting() > 0
    }
}

impl Arriving {
    /// The number of chunks that the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.is_lent.iter().filter(|is_lent| **is_lent).count()
    }

    /// The number of chunks in which the frame lies that begins `next` places ahead; none if it has
    /// not come whole. One that has more than a frame can is taken for several.
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

    /// Takes the chunk `ahead` places on from the kernel; none if it is not ours to take.
    pub(super) fn take(&mut self, umem: &Umem, ahead: u32) -> Option<Span> {
        let descriptor = self.receive.peek(ahead);
        let span = umem.span(descriptor.addr, descriptor.len)?;
        let is_ours = std::mem::take(self.is_lent(span.chunk)?) || is(Fault::StrayTaken);
        is_ours.then_some(span)
    }

    /// Of one of the inbox's chunks: the kernel has it.
    #[inline]
    fn is_lent(&mut self, chunk: u32) -> Option<&mut bool> {
        self.is_lent.get_mut(chunk.checked_sub(self.first)? as usize)
    }

    /// Lends the chunks that are spare.
    pub(super) fn lend(&mut self, socket: &Socket) {
        if self.spare.is_empty() {
            return;
        }
        while let Some(chunk) = self.spare.pop() {
            // The ring has room for all chunks, unless the kernel has lost count.
            if !self.fill.push(socket.umem.address(chunk)) {
                self.spare.push(chunk);
                break;
            }
            if let Some(is_lent) = self.is_lent(chunk) {
                *is_lent = true;
            }
        }
        self.fill.publish();
        // A driver that ran out of chunks sleeps, and would tell of no packet any more.
        if self.fill.needs_wakeup() && !is(Fault::DriverNotWoken) {
            self.kicks += 1;
            socket.kick_receive();
        }
    }
}
