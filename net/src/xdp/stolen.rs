//! Datagrams that were taken from another column's queue.
//!
//! ```text
//! victim's chunk  | frame |  --- copied under the lock --->  thief's room  | frame | frame | ...
//!                     '--- fill ring --- kernel
//! ```
//!
//! Where: an idle column's, beside its own inbox if it has one.
//! Invariant: chunks never leave the queue that they belong to: they are the kernel's again when
//! `steal` returns, so that there is nothing to bring home. Answers leave by the queue that the
//! requests came by.

use std::sync::Arc;

use super::inbox::{Arrived, Taken};
use super::queue::Queue;
use crate::calls::Calls;
use crate::udp::Received;
use memory::plant::{Fault, is};

/// Most datagrams that one `steal` takes.
const STOLEN_MAX: usize = 32;

/// What a column has taken from another one's queue.
#[derive(Debug)]
pub struct Stolen {
    taken: Taken,
    /// Where from, as long as it is not released.
    from: Option<Arc<Queue>>,
}

impl Stolen {
    /// With room for what one `steal` takes from this queue, or another one of its interface. It is
    /// memory once it is used.
    #[must_use]
    pub fn new(like: &Queue) -> Stolen {
        let room_bytes = STOLEN_MAX * like.frames.bytes_max;
        Stolen { taken: Taken::new(STOLEN_MAX, room_bytes, like.frames), from: None }
    }

    /// From now on a `steal` takes at most so many datagrams, and at least one.
    pub fn limit(&mut self, datagrams: usize) {
        self.taken.limit(datagrams);
    }

    /// Takes what has arrived at a queue, at most 32 datagrams; what was stolen before is gone.
    /// Nothing, if somebody else receives there.
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

    /// What was stolen, in the order of its arrival, and the queue by which it is to be answered.
    /// None, if nothing was stolen since the last release.
    #[inline]
    #[must_use]
    pub fn halves(&self) -> Option<(Arrived<'_>, &Queue)> {
        let from = self.from.as_deref()?;
        Some((self.taken.datagrams(&from.socket.umem), from))
    }

    /// What was stolen is answered: it is gone. Where it was from.
    pub fn release(&mut self) -> Option<Arc<Queue>> {
        self.taken.forget();
        self.from.take()
    }

    /// Bytes of the room.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.taken.room_bytes()
    }
}
