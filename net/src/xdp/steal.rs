//! Datagrams stolen from another column's queue.
//!
//! ```text
//! victim's chunk  | frame |  --- copied under the lock --->  thief's room  | frame | frame | ...
//!                     '--- fill ring --- kernel
//! ```
//!
//! Where: an idle column calls `steal`, whether or not the column has an inbox of its own.
//! Invariant: chunks never leave their queue. `steal` returns each chunk to the kernel, so the
//! thief (the idle column) holds no chunks. Each answer is sent through its request's queue.

use std::sync::Arc;

use super::inbox::{DatagramIter, ReceivedBatch};
use super::queue::Queue;
use crate::calls::Calls;
use crate::udp::Received;
use memory::plant::{Fault, is};

/// Maximum number of datagrams that one `steal` takes.
const STOLEN_MAX: usize = 32;

/// The datagrams that a column has stolen from another column's queue.
#[derive(Debug)]
pub struct StolenBatch {
    batch: ReceivedBatch,
    /// The queue from which the datagrams were stolen; `None` after `release`.
    from: Option<Arc<Queue>>,
}

impl StolenBatch {
    /// Makes a buffer for datagrams from all queues of the interface that has the queue `like`.
    #[must_use]
    pub fn new(like: &Queue) -> StolenBatch {
        let room_bytes = STOLEN_MAX * like.frames.bytes_max;
        StolenBatch { batch: ReceivedBatch::new(STOLEN_MAX, room_bytes, like.frames), from: None }
    }

    /// Limits each later `steal` to this number of datagrams, at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.batch.limit(datagrams);
    }

    /// Takes at most `STOLEN_MAX` datagrams that have arrived in a queue, and forgets the datagrams
    /// stolen earlier. Takes nothing if another thread is receiving from the queue.
    #[must_use]
    pub fn steal(&mut self, from: Arc<Queue>, calls: &Calls) -> Received {
        self.batch.forget();
        let Some(mut rx) = from.try_rx() else {
            return Received { datagrams: 0, cut: 0, damaged: 0, is_drained: false };
        };
        let received = self.batch.receive(&mut rx, &from.socket.umem, true);
        if !is(Fault::StolenChunksKept) {
            rx.fill.lend(&from.socket);
        }
        calls.reads.add(std::mem::take(&mut rx.fill.kicks));
        drop(rx);
        self.from = Some(from);
        received
    }

    /// Returns the stolen datagrams in the order of their arrival, and the queue through which they
    /// must be answered; `None` if no `steal` has succeeded since the last `release`.
    #[inline]
    #[must_use]
    pub fn halves(&self) -> Option<(DatagramIter<'_>, &Queue)> {
        let from = self.from.as_deref()?;
        Some((self.batch.datagrams(&from.socket.umem), from))
    }

    /// Forgets the stolen datagrams, after they were answered; returns their queue.
    pub fn release(&mut self) -> Option<Arc<Queue>> {
        self.batch.forget();
        self.from.take()
    }

    /// Size of the buffer, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.batch.room_bytes()
    }
}
