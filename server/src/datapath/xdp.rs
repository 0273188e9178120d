//! A queue of an interface, past the kernel's network stack.
//!
//! Where: a datapath; with `--xdp` each of the first columns has one, beside its UDP sockets, which
//! get what passes to the kernel.
//! Invariant: requests are executed where they lie, in the chunks of packets; answers are copied
//! into chunks once. Chunks are released when all that was received with them is executed.
//! Source: the KV-Cache paper, section 4.1.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use net::xdp::{Arrived, Outbox, Peer, Port, Queue};
use net::{Calls, Received, Tally};
use protocol::Speak;

use super::{Datapath, Letters, Outgoing, Sender};

/// A column's queue.
#[derive(Debug)]
pub struct Xdp {
    port: Port,
    /// Each column's, as long as it has one. Whoever has received from another one's queue answers
    /// by its own.
    queues: Arc<[Weak<Queue>]>,
    column: usize,
    /// The column from whose queue was received last.
    home: usize,
    speak: Speak,
    datagram_bytes_max: Arc<AtomicUsize>,
    /// Packets may have arrived.
    is_ready: bool,
    /// The last receive brought something: more may arrive before the epoll is asked, and whether
    /// it has takes no call to see.
    is_flowing: bool,
}

impl Xdp {
    /// The ports of all columns that have one. `datagram_bytes_max` may change.
    pub(crate) fn of_columns(
        ports: Vec<Port>,
        speak: Speak,
        datagram_bytes_max: &Arc<AtomicUsize>,
    ) -> Vec<Xdp> {
        let queues: Arc<[_]> = ports.iter().map(|it| Arc::downgrade(it.inbox.queue())).collect();
        let of_port = |(column, mut port): (usize, Port)| {
            if queues.len() > 1 {
                port.inbox.make_room_to_steal();
            }
            let (queues, datagram_bytes_max) =
                (Arc::clone(&queues), Arc::clone(datagram_bytes_max));
            Xdp {
                port,
                queues,
                column,
                home: column,
                speak,
                datagram_bytes_max,
                is_ready: true,
                is_flowing: false,
            }
        };
        ports.into_iter().enumerate().map(of_port).collect()
    }

    /// Memory of its packets, a part of `-m`.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.port.memory_bytes()
    }
}

impl Datapath for Xdp {
    type Peer = Peer;
    type Arrived<'a> = Arrived<'a>;
    type Outgoing<'a> = XdpOutgoing<'a>;

    fn column(&self) -> usize {
        self.column
    }

    fn home(&self) -> usize {
        self.home
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.port.as_fd())
    }

    fn note_input(&mut self, _: u64) {
        self.is_ready = true;
    }

    fn has_input(&mut self) -> bool {
        self.is_ready || (self.is_flowing && self.port.inbox.has_input())
    }

    fn is_undrained(&self) -> bool {
        self.is_ready
    }

    fn has_unsent(&mut self) -> bool {
        self.port.outbox.waiting() > 0
    }

    fn receive(&mut self, calls: &Calls) -> Received {
        self.home = self.column;
        let received = self.port.inbox.receive(calls);
        self.is_ready = !received.is_drained;
        self.is_flowing = received.datagrams + received.cut + received.damaged > 0;
        received
    }

    fn steal(&mut self, column: usize, _: usize, calls: &Calls) -> Received {
        self.home = column;
        match self.queues[column].upgrade() {
            Some(queue) => self.port.inbox.steal(&queue, calls),
            None => Received { datagrams: 0, cut: 0, damaged: 0, is_drained: true },
        }
    }

    fn speak(&self) -> Speak {
        self.speak
    }

    fn datagram_bytes_max(&self) -> usize {
        // Relaxed: pairs with the store of `Bypass::look`; a number by itself.
        self.datagram_bytes_max.load(Ordering::Relaxed)
    }

    fn halves(&mut self) -> (Arrived<'_>, XdpOutgoing<'_>) {
        (self.port.inbox.datagrams(), XdpOutgoing(&mut self.port.outbox))
    }

    fn release(&mut self) {
        self.port.inbox.release();
    }

    /// The chunks are accounted for as a part of `-m`.
    fn held_bytes(&self) -> usize {
        0
    }
}

impl Sender for Peer {
    #[inline]
    fn address(&self) -> Option<std::net::SocketAddr> {
        Peer::address(self)
    }

    #[inline]
    fn is_for_many(&self) -> bool {
        Peer::is_for_many(self)
    }
}

/// The way out of the queue.
#[derive(Debug)]
pub struct XdpOutgoing<'a>(&'a mut Outbox);

/// Letters that leave by the queue.
#[derive(Debug)]
pub struct XdpLetters<'a>(&'a mut Outbox);

impl Outgoing for XdpOutgoing<'_> {
    type Peer = Peer;
    type Letters<'a>
        = XdpLetters<'a>
    where
        Self: 'a;

    fn open(&mut self) -> XdpLetters<'_> {
        XdpLetters(self.0)
    }
}

impl<'a> Letters<'a, Peer> for XdpLetters<'a> {
    #[inline]
    fn add(&mut self, to: &'a Peer, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        self.0.add(to, head, pieces)
    }

    fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.0.post_or_drop(calls)
    }
}
