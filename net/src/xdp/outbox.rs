//! Datagrams that are to be sent, each gathered into a chunk.
//!
//! ```text
//! chunk     free --- add ---> transmit ring --- kernel --- completion ring ---> free
//! frame     | Ethernet | IP | UDP | head | piece | piece | ...
//! ```
//!
//! Where: a column's replies, after the turns that made them, as `udp::outbox` is for sockets.
//! An idle column that answers what it has stolen from a queue writes letters there too.
//! Invariant: what letters were made of is free when `add` returns: it is copied, or a reference to
//! it is held until it has left.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_generic_xmit`.

use std::sync::Arc;
use std::time::Duration;

use memory::plant::{Fault, is};
use memory::sync::MutexGuard;
use rustix::io::Errno;

use super::inbox::Peer;
use super::leaving::Leaving;
use super::queue::Queue;
use crate::calls::Calls;
use crate::udp::Tally;

/// How long to sleep at most while letters wait for the kernel to take them.
pub const UNSENT_WAIT: Duration = Duration::from_millis(1);

/// Packets that any kernel sends by one call in copy mode, if there are so many.
const SENT_PER_CALL_MIN: u32 = 32;

/// What leaves by a queue, its owner's way.
#[derive(Debug)]
pub struct Outbox {
    queue: Arc<Queue>,
    /// What has been added since the last post.
    tally: Tally,
}

/// Letters that are being written, the owner's or a thief's. Nobody else writes some to the queue
/// between the first and the post.
#[derive(Debug)]
pub struct Letters<'q> {
    queue: &'q Queue,
    /// As long as letters are added.
    leaving: Option<MutexGuard<'q, Leaving>>,
    tally: Tally,
}

impl Outbox {
    /// Of a queue.
    pub(super) fn new(queue: Arc<Queue>) -> Outbox {
        Outbox { queue, tally: Tally::default() }
    }

    /// Most bytes that a letter to `to` has.
    #[must_use]
    pub fn letter_bytes_max(&self, to: &Peer) -> usize {
        self.queue.leaving().letter_bytes_max(to, &self.queue.socket.umem)
    }

    /// Adds a letter: `head` and behind it `pieces`. It leaves when letters are posted.
    ///
    /// False, and nothing is added, if there is no room: then post, and add it again. If there is
    /// no room then either, what was sent before has not left yet. A letter that is longer than
    /// `letter_bytes_max` is dropped, and the next post tells that it was too long.
    #[inline]
    pub fn add<'p>(
        &mut self,
        to: &Peer,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> bool {
        let Outbox { queue, tally } = self;
        queue.leaving().add(&queue.socket, to, (head, pieces), tally)
    }

    /// Hands all letters to the kernel, and has it send them. What it cannot send now stays with it
    /// (`waiting`) and leaves with the next post. Refused is what the device had no room for.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }

    /// The number of letters that the kernel has not taken: the device was full, or it is down.
    /// Nothing tells when it takes letters again: while there are some, sleep for `UNSENT_WAIT` at
    /// most, and post again.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// The number of letters that have not left: their chunks are the kernel's. Nothing tells when
    /// they have; whoever adds or posts finds out. Only who counts chunks has to look.
    #[must_use]
    pub fn in_transmission(&self) -> usize {
        self.queue.leaving().in_transmission()
    }

    /// Takes back the chunks of what has left.
    pub fn reap(&mut self) {
        self.queue.leaving().reap(&self.queue.socket);
    }

    /// The number of completions from the kernel that named no chunk of ours that it had, since the
    /// socket was opened. A kernel without a fault makes none.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.queue.leaving().strays()
    }

    /// The number of chunks that are free, and the number of those in transmission, each counted.
    pub(super) fn free_and_sent(&self) -> (usize, usize) {
        self.queue.leaving().free_and_sent()
    }
}

impl<'q> Letters<'q> {
    /// None yet.
    #[inline]
    #[must_use]
    pub fn of(queue: &'q Queue) -> Letters<'q> {
        Letters { queue, leaving: None, tally: Tally::default() }
    }

    /// As `Outbox::add`.
    #[inline]
    pub fn add<'p>(
        &mut self,
        to: &Peer,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> bool {
        let leaving = self.leaving.get_or_insert_with(|| self.queue.leaving());
        leaving.add(&self.queue.socket, to, (head, pieces), &mut self.tally)
    }

    /// As `Outbox::post_or_drop`.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.leaving = None;
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }
}

impl Queue {
    /// Hands the kernel what was added, and has it send that, and what others have handed it
    /// meanwhile. While it sends, others may add: it takes one sender at a time.
    pub fn post(&self, mut tally: Tally, calls: &Calls) -> Tally {
        let (mut left, mut sleeps) = self.leaving().publish();
        // A kernel before 6.17 that has reached its limit tells only by the next call what it took.
        let mut untold_max = if is(Fault::UntoldNotAwaited) { 0 } else { left / SENT_PER_CALL_MIN };
        while left > 0 && sleeps {
            calls.writes.add(1);
            let kicked = self.socket.kick_transmit();
            if kicked == Err(Errno::BUSY) {
                tally.refused += 1;
            }
            // Each call takes some, up to the kernel's own limit, or the device is full or down. Or
            // somebody has added as many since, and posts them.
            let before = left;
            (left, sleeps) = self.leaving().publish();
            if left >= before {
                if kicked != Err(Errno::AGAIN) || untold_max == 0 {
                    break;
                }
                untold_max -= 1;
            }
        }
        tally.sent = tally.sent.saturating_sub(tally.refused);
        self.leaving().reap(&self.socket);
        tally
    }
}
