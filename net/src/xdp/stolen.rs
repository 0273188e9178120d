//! Datagrams taken from another column's queue.
//!
//! ```text
//! victim's chunk  | frame |  --- copied under the lock --->  thief's room  | frame | frame | ...
//!                     '--- fill ring --- kernel
//! ```
//!
//! Where: at an idle column, beside its own inbox if it has one.
//! Invariant: chunks never leave their queue: when `steal` returns, the kernel has them again, so
//! nothing has to be brought back. Answers leave by the queue that brought the requests.

use std::sync::Arc;

use super::inbox::{Arrived, Taken};
use super::queue::Queue;
use crate::calls::Calls;
use crate::udp::Received;
use memory::plant::{Fault, is};

/// Most datagrams that one `steal` takes.
const STOLEN_MAX: usize = 32;

/// The datagrams that a column has taken from another column's queue.
#[derive(Debug)]
pub struct Stolen {
    taken: Taken,
    /// The queue that was stolen from, until the release.
    from: Option<Arc<Queue>>,
}

impl Stolen {
    /// Makes room for one `steal` from this queue, or from another one of its interface. The system
    /// provides the room's pages on their first use.
    #[must_use]
    pub fn new(like: &Queue) -> Stolen {
        let room_bytes = STOLEN_MAX * like.frames.bytes_max;
        Stolen { taken: Taken::new(STOLEN_MAX, room_bytes, like.frames), from: None }
    }

    /// Limits each later `steal` to this number of datagrams, at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.taken.limit(datagrams);
    }

    /// Takes at most `STOLEN_MAX` datagrams that have arrived at a queue, and forgets those stolen
    /// before. Takes nothing if another thread is receiving there.
    #[must_use]
    pub fn steal(&mut self, from: Arc<Queue>, calls: &Calls) -> Received {
        self.taken.forget();
        let Some(mut arriving) = from.try_arriving() else {
            return Received { datagrams: 0, cut: 0, damaged: 0, is_drained: false };
        };
        let received = self.taken.receive(&mut arriving, &from.socket.umem, true);
        if !is(Fault::StolenChunksKept) {
            arriving.lend(&from.socket);
        }
        calls.reads.add(std::mem::take(&mut arriving.kicks));
        drop(arriving);
        self.from = Some(from);
        received
    }

    /// Returns the stolen datagrams in the order of their arrival, and the queue to answer them by.
    /// `None` if nothing was stolen since the last release.
    #[inline]
    #[must_use]
    pub fn halves(&self) -> Option<(Arrived<'_>, &Queue)> {
        let from = self.from.as_deref()?;
        Some((self.taken.datagrams(&from.socket.umem), from))
    }

    /// Forgets the stolen datagrams, which are answered; returns the queue that they came from.
    pub fn release(&mut self) -> Option<Arc<Queue>> {
        self.taken.forget();
        self.from.take()
    }

    /// Size of the room, in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.taken.room_bytes()
    }
}
