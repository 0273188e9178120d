//! A queue of an interface: its socket, and the socket's rings.
//!
//! ```text
//! owner   Inbox, Outbox ------------.
//!                                    > rx: rx ring, fill ring, the inbox's chunks
//! thief   StolenBatch, SendBatch --'   tx: tx ring, completion ring, the outbox's chunks
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

use memory::sync::{Mutex, MutexGuard, lock_soon};

use super::rx::{Rx, RxRings};
use super::socket::Socket;
use super::tx::{Tx, TxRings};
use crate::wire::Sums;

/// A queue. One column receives and sends through the queue; other columns may steal from it.
#[derive(Debug)]
pub struct Queue {
    rx: Mutex<Rx>,
    tx: Mutex<Tx>,
    /// Declared after the rings, so that the rings are unmapped before the socket is closed.
    pub(super) socket: Arc<Socket>,
    pub(super) frames: Frames,
}

/// Properties of the frames that arrive in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    pub(super) bytes_max: usize,
    /// True if a frame may lie in several chunks.
    pub(super) are_long: bool,
    /// The UDP checksums that are accepted.
    pub(super) sums: Sums,
}

impl Queue {
    /// Makes a queue: lends the kernel the first half of `chunks`, and sends from the second half.
    pub(super) fn new(
        socket: Arc<Socket>,
        incoming: RxRings,
        outgoing: TxRings,
        chunks: Range<u32>,
        frames: Frames,
    ) -> Queue {
        let (first, half) = (chunks.start, (chunks.end - chunks.start) / 2);
        let mut rx = Rx::new(incoming, socket.umem.arena(), first..first + half);
        rx.fill.lend(&socket);
        let tx = Tx::new(outgoing, first + half, half, frames.bytes_max);
        Queue { rx: Mutex::new(rx), tx: Mutex::new(tx), socket, frames }
    }

    #[inline]
    pub(super) fn rx(&self) -> MutexGuard<'_, Rx> {
        lock_soon(&self.rx)
    }

    pub(super) fn try_rx(&self) -> Option<MutexGuard<'_, Rx>> {
        self.rx.try_lock().ok()
    }

    #[inline]
    pub(super) fn tx(&self) -> MutexGuard<'_, Tx> {
        lock_soon(&self.tx)
    }

    /// Number of descriptors that the kernel has not taken; a datagram may have several of them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.tx().waiting() as usize
    }

    /// True if another post is needed even without new datagrams: the kernel has not taken all
    /// datagrams, or has not yet reported that all parts of values have left.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.socket.in_flight.sum() > 0 || self.waiting() > 0
    }
}
