//! Datagrams to send, each gathered into a chunk.
//!
//! ```text
//! chunk     free --- add ---> transmit ring --- kernel --- completion ring ---> free
//! frame     | Ethernet | IP | UDP | head | piece | piece | ...
//! ```
//!
//! Where: a column's replies, after the turns that made them, like `udp::outbox` for sockets. An
//! idle column that answers requests stolen from a queue sends by that queue too.
//! Invariant: the bytes given to `add` are free when it returns: they were copied, or a reference
//! to their chunk is held until they have left.
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

/// Longest sleep while the kernel has not taken all datagrams.
pub const UNSENT_WAIT: Duration = Duration::from_millis(1);

/// Packets that every kernel sends in one call in copy mode, if that number is waiting.
const SENT_PER_CALL_MIN: u32 = 32;

/// The sending half of a port.
#[derive(Debug)]
pub struct Outbox {
    queue: Arc<Queue>,
    /// Counts of what was added since the last post.
    tally: Tally,
}

/// Datagrams that the owner or a thief is writing. From the first one to the post, nobody else adds
/// datagrams to the queue.
#[derive(Debug)]
pub struct Letters<'q> {
    queue: &'q Queue,
    /// The lock, held while datagrams are added.
    leaving: Option<MutexGuard<'q, Leaving>>,
    tally: Tally,
}

impl Outbox {
    pub(super) fn new(queue: Arc<Queue>) -> Outbox {
        Outbox { queue, tally: Tally::default() }
    }

    /// Most bytes of a datagram's payload to `to`.
    #[must_use]
    pub fn letter_bytes_max(&self, to: &Peer) -> usize {
        self.queue.leaving().letter_bytes_max(to, &self.queue.socket.umem)
    }

    /// Adds a datagram: `head`, followed by `pieces`. It leaves with the next post.
    ///
    /// False, and nothing is added, if there is no room: then post, and add it again. If there is
    /// still no room, earlier datagrams have not left yet. A datagram that is longer than
    /// `letter_bytes_max` is dropped, and the next post counts it as too long.
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

    /// Hands all datagrams to the kernel and has it send them. Datagrams that it cannot send now
    /// stay with it (`waiting`) for the next post; those without room in the device count as
    /// refused.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }

    /// Number of descriptors that the kernel has not taken, because the device is full or down. No
    /// event tells when it takes them: while there are some, sleep for at most `UNSENT_WAIT`, and
    /// post again.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Number of datagrams that have not left, and whose chunks are still the kernel's. `add` and a
    /// post find out by themselves which have left; only who counts chunks has to call `reap`.
    #[must_use]
    pub fn in_transmission(&self) -> usize {
        self.queue.leaving().in_transmission()
    }

    /// Takes back the chunks of datagrams that have left.
    pub fn reap(&mut self) {
        self.queue.leaving().reap(&self.queue.socket);
    }

    /// Number of completions from the kernel, since the socket was opened, that named no chunk
    /// handed to it. A correct kernel makes none.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.queue.leaving().strays()
    }

    /// Number of free chunks, and number of chunks in transmission, counted independently.
    pub(super) fn free_and_sent(&self) -> (usize, usize) {
        self.queue.leaving().free_and_sent()
    }
}

impl<'q> Letters<'q> {
    /// No datagrams yet, to be sent by `queue`.
    #[inline]
    #[must_use]
    pub fn of(queue: &'q Queue) -> Letters<'q> {
        Letters { queue, leaving: None, tally: Tally::default() }
    }

    /// Like `Outbox::add`.
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

    /// Like `Outbox::post_or_drop`.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.leaving = None;
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }
}

impl Queue {
    /// Hands the kernel what was added here and by others meanwhile, and has it send that. While it
    /// sends, others may add. The kernel lets one thread send by a socket at a time.
    pub fn post(&self, mut tally: Tally, calls: &Calls) -> Tally {
        let (mut left, mut sleeps) = self.leaving().publish();
        // Before 6.17, only the next call tells what a kernel took that has reached its limit.
        let mut untold_max = if is(Fault::UntoldNotAwaited) { 0 } else { left / SENT_PER_CALL_MIN };
        while left > 0 && sleeps {
            calls.writes.add(1);
            let kicked = self.socket.kick_transmit();
            if kicked == Err(Errno::BUSY) {
                tally.refused += 1;
            }
            // Each call takes some, up to the kernel's own limit, unless the device is full or
            // down. Or somebody else has added at least as many since, and posts them.
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
