//! Datagrams to send, each gathered into a chunk.
//!
//! ```text
//! chunk     free --- add ---> tx ring --- kernel --- completion ring ---> free
//! frame     | Ethernet | IP | UDP | head | piece | piece | ...
//! ```
//!
//! Where: an outbox holds the replies that a column sends together, like the `Outbox` of `udp`. An
//! idle column that has stolen requests from a queue also sends its answers through that queue.
//! Invariant: when `add` returns, its caller may reuse the given bytes: `add` has copied them, or
//! the outbox has a reference to their chunk until the kernel has sent them.
//! Source: the KV-Cache paper, section 4.1; `net/xdp/xsk.c` of Linux, `__xsk_generic_xmit`.

use std::sync::Arc;
use std::time::Duration;

use memory::plant::{Fault, is};
use memory::sync::MutexGuard;
use rustix::io::Errno;

use super::peer::Peer;
use super::queue::Queue;
use super::tx::Tx;
use crate::calls::Calls;
use crate::udp::Tally;

/// Longest sleep of a column that must post again, because the kernel has not taken all datagrams.
pub const UNSENT_WAIT: Duration = Duration::from_millis(1);

/// Number of packets that even the oldest kernel can send in one call in copy mode.
const SENT_PER_CALL_MIN: u32 = 32;

/// The sending half of a port.
#[derive(Debug)]
pub struct Outbox {
    queue: Arc<Queue>,
    tally: Tally,
}

/// Datagrams that a column adds to a queue, its own or another column's. From the first `add` to
/// the post, no other thread adds datagrams to the queue.
#[derive(Debug)]
pub struct SendBatch<'q> {
    queue: &'q Queue,
    tx: Option<MutexGuard<'q, Tx>>,
    tally: Tally,
}

impl Outbox {
    pub(super) fn new(queue: Arc<Queue>) -> Outbox {
        Outbox { queue, tally: Tally::default() }
    }

    /// Maximum length of a datagram's payload to `to`.
    #[must_use]
    pub fn payload_bytes_max(&self, to: &Peer) -> usize {
        self.queue.tx().payload_bytes_max(to, &self.queue.socket.umem)
    }

    /// Adds a datagram: `head`, followed by `pieces`. The next post sends the datagram. Returns
    /// false and adds nothing if there is no room: the caller then posts, and adds the datagram
    /// again. If the second `add` fails too, earlier datagrams have not left yet. A datagram that
    /// is longer than `payload_bytes_max` may be dropped; the next post then counts it as too long.
    #[inline]
    pub fn add<'p>(
        &mut self,
        to: &Peer,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> bool {
        let Outbox { queue, tally } = self;
        queue.tx().add(&queue.socket, to, (head, pieces), tally)
    }

    /// Hands all datagrams to the kernel. Datagrams that the kernel cannot send now stay in the
    /// ring (`waiting`) until the next post. Datagrams that the device drops count as refused.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }

    /// Number of descriptors that the kernel has not taken, because the device is full or down. No
    /// event reports that the kernel takes them: sleep at most `UNSENT_WAIT`, and post again.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Number of datagrams whose chunks the kernel still has, as of the last `reap`. `add` and
    /// `post_or_drop` call `reap` when they need chunks.
    #[must_use]
    pub fn in_transmission(&self) -> usize {
        self.queue.tx().completion.in_transmission()
    }

    /// Takes back the chunks of datagrams that have left.
    pub fn reap(&mut self) {
        self.queue.tx().completion.reap(&self.queue.socket);
    }

    /// Number of completions that name a chunk not handed to the kernel; 0 with a correct kernel.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.queue.tx().completion.strays
    }

    /// Counts the free chunks, and separately the chunks in transmission.
    pub(super) fn free_and_sent(&self) -> (usize, usize) {
        self.queue.tx().completion.free_and_sent()
    }
}

impl<'q> SendBatch<'q> {
    /// Makes an empty batch that is sent through `queue`.
    #[inline]
    #[must_use]
    pub fn of(queue: &'q Queue) -> SendBatch<'q> {
        SendBatch { queue, tx: None, tally: Tally::default() }
    }

    /// Like `Outbox::add`.
    #[inline]
    pub fn add<'p>(
        &mut self,
        to: &Peer,
        head: &[u8],
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> bool {
        let tx = self.tx.get_or_insert_with(|| self.queue.tx());
        tx.add(&self.queue.socket, to, (head, pieces), &mut self.tally)
    }

    /// Like `Outbox::post_or_drop`.
    pub fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.tx = None;
        self.queue.post(std::mem::take(&mut self.tally), calls)
    }
}

impl Queue {
    /// Publishes the datagrams of all threads, and calls the kernel to send them. Other threads may
    /// add datagrams meanwhile. The kernel lets only one thread at a time send on a socket.
    pub fn post(&self, mut tally: Tally, calls: &Calls) -> Tally {
        let (mut left, mut sleeps) = self.tx().publish();
        // A kernel before 6.17 that stops at its limit updates its count only in the next call.
        let mut untold_max =
            if is(Fault::SilentKernelCalledOnce) { 0 } else { left / SENT_PER_CALL_MIN };
        while left > 0 && sleeps {
            calls.writes.add(1);
            let kicked = self.socket.kick_transmit();
            if kicked == Err(Errno::BUSY) {
                tally.refused += 1;
            }
            // In each call the kernel takes descriptors, up to its limit, unless the device is full
            // or down. If another thread adds as many descriptors meanwhile, `left` does not
            // decrease; the other thread then posts its descriptors itself.
            let before = left;
            (left, sleeps) = self.tx().publish();
            if left >= before {
                if kicked != Err(Errno::AGAIN) || untold_max == 0 {
                    break;
                }
                untold_max -= 1;
            }
        }
        tally.sent = tally.sent.saturating_sub(tally.refused);
        self.tx().completion.reap(&self.socket);
        tally
    }
}
