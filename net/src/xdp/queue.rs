//! A queue of an interface: its socket, and the socket's rings.
//!
//! ```text
//! owner   Inbox, Outbox ------------.
//!                                    > receive_half: receive ring, fill ring, inbox's chunks
//! thief   StolenBatch, SendBatch --'   send_half: transmit ring, completion ring, outbox's chunks
//! ```
//!
//! Where: below a port's inbox and outbox. Other columns also use a queue when they steal from it.
//! Invariant: a ring is used only under the lock of its half of the queue. A lock is held during
//! one receive, or while the datagrams of one post are added, and never during a system call that
//! sends. A thread that holds one of the two locks takes no other lock. The answer to a request is
//! sent through the queue from which the request came, whichever column answers.
//! Source: `net/xdp/xsk.c` of Linux, whose socket takes one sender at a time.

use std::ops::Range;
use std::sync::Arc;

use memory::plant::{Fault, is};
use memory::sync::{Mutex, MutexGuard, lock_soon};
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::port::Socket;
use super::ring::{ConsumerRing, ProducerRing};
use super::send_half::SendHalf;
use super::umem::{Span, Umem};
use crate::wire::Sums;

/// Maximum number of chunks of one frame.
pub(super) const PIECES_MAX: u32 = 18;

/// A queue. One column receives and sends through the queue; other columns may steal from it.
#[derive(Debug)]
pub struct Queue {
    receive_half: Mutex<ReceiveHalf>,
    send_half: Mutex<SendHalf>,
    /// Declared after the rings, so that the rings are unmapped before the socket is closed.
    pub(super) socket: Arc<Socket>,
    pub(super) frames: Frames,
}

pub(super) type ReceiveRings = (ConsumerRing<XdpDesc>, ProducerRing<u64>);
pub(super) type SendRings = (ProducerRing<XdpDesc>, ConsumerRing<u64>);

/// Properties of the frames that arrive in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    pub(super) bytes_max: usize,
    /// True if a frame may lie in several chunks.
    pub(super) are_long: bool,
    /// The UDP checksums that are accepted.
    pub(super) sums: Sums,
}

#[derive(Debug)]
pub(super) struct ReceiveHalf {
    pub(super) receive: ConsumerRing<XdpDesc>,
    fill: ProducerRing<u64>,
    /// Number of the inbox's first chunk; 0 if received data may be kept, because any chunk of the
    /// arena may then become the inbox's.
    first: u32,
    /// For each chunk from `first` on, true if the kernel has the chunk.
    is_lent: Box<[bool]>,
    pub(super) spare: Vec<u32>,
    /// Number of system calls that are not yet counted in a column's `Calls`.
    pub(super) kicks: u64,
}

impl Queue {
    /// Makes a queue: lends the kernel the first half of `chunks`, and sends from the second half.
    pub(super) fn new(
        socket: Arc<Socket>,
        (receive, fill): ReceiveRings,
        outgoing: SendRings,
        chunks: Range<u32>,
        frames: Frames,
    ) -> Queue {
        let (first, half) = (chunks.start, (chunks.end - chunks.start) / 2);
        let arena = socket.umem.arena();
        let any = if arena.keeps() { (0, arena.chunks()) } else { (first, half) };
        let mut receive_half = ReceiveHalf {
            receive,
            fill,
            first: any.0,
            is_lent: vec![false; any.1 as usize].into_boxed_slice(),
            spare: (first..first + half).rev().collect(),
            kicks: 0,
        };
        receive_half.lend(&socket);
        let send_half = SendHalf::new(outgoing, first + half, half, frames.bytes_max);
        Queue {
            receive_half: Mutex::new(receive_half),
            send_half: Mutex::new(send_half),
            socket,
            frames,
        }
    }

    #[inline]
    pub(super) fn receive_half(&self) -> MutexGuard<'_, ReceiveHalf> {
        lock_soon(&self.receive_half)
    }

    pub(super) fn try_receive_half(&self) -> Option<MutexGuard<'_, ReceiveHalf>> {
        self.receive_half.try_lock().ok()
    }

    #[inline]
    pub(super) fn send_half(&self) -> MutexGuard<'_, SendHalf> {
        lock_soon(&self.send_half)
    }

    /// Number of descriptors that the kernel has not taken; a datagram may have several of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.send_half().waiting() as usize
    }

    /// True if another post is needed even without new datagrams: the kernel has not taken all
    /// datagrams, or has not yet reported that all parts of values have left.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.socket.in_flight.sum() > 0 || self.waiting() > 0
    }
}

impl ReceiveHalf {
    pub(super) fn lent(&self) -> usize {
        self.is_lent.iter().filter(|is_lent| **is_lent).count()
    }

    /// Number of chunks of the frame that begins `next` entries ahead; `None` if the frame's last
    /// chunk has not arrived. A frame of more than `PIECES_MAX` chunks counts as several frames.
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

    /// Takes back the chunk that the receive ring's entry number `ahead` (from 0) names. Returns
    /// `None` if this chunk was not lent.
    pub(super) fn take(&mut self, umem: &Umem, ahead: u32) -> Option<Span> {
        let descriptor = self.receive.peek(ahead);
        let span = umem.span(descriptor.addr, descriptor.len)?;
        let is_ours = std::mem::take(self.is_lent(span.chunk)?) || is(Fault::StrayTaken);
        is_ours.then_some(span)
    }

    #[inline]
    fn is_lent(&mut self, chunk: u32) -> Option<&mut bool> {
        self.is_lent.get_mut(chunk.checked_sub(self.first)? as usize)
    }

    pub(super) fn lend(&mut self, socket: &Socket) {
        if self.spare.is_empty() {
            return;
        }
        while let Some(chunk) = self.spare.pop() {
            // The fill ring has room for all chunks, unless the kernel has written a wrong count.
            if !self.fill.push(socket.umem.address(chunk)) {
                self.spare.push(chunk);
                break;
            }
            if let Some(is_lent) = self.is_lent(chunk) {
                *is_lent = true;
            }
        }
        self.fill.publish();
        // A driver that ran out of chunks sleeps, and receives no packets until it is woken.
        if self.fill.needs_wakeup() && !is(Fault::DriverNotWoken) {
            self.kicks += 1;
            socket.kick_receive();
        }
    }
}
