//! A queue of an interface, past the kernel's network stack.
//!
//! Where: a datapath. With `--xdp` each of the first columns has one, beside its UDP sockets, which
//! receive the packets that pass to the kernel. If columns steal, the other columns have one
//! without a queue.
//! Invariant: requests are executed where they lie: in the chunks of packets, or, if stolen, in the
//! room to which they were copied. Answers are copied into chunks once, and leave by the queue at
//! which the request came. Chunks are released when all requests received with them are executed.
//! Source: the KV-Cache paper, section 4.1.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use net::xdp::{Arrived, Peer, Port, Queue, Stolen};
use net::{Calls, Datagram, Received, Tally};
use protocol::Speak;

use super::{Datapath, Letters, Outgoing, Sender};

/// A column's queue, and its inbox for packets of other columns' queues.
#[derive(Debug)]
pub struct Xdp {
    port: Option<Port>,
    /// Present if columns steal.
    stolen: Option<Stolen>,
    /// A queue at which answers to stolen requests have not left yet, if it still exists.
    owed: Weak<Queue>,
    /// The queues of all columns, as long as they exist.
    queues: Arc<[Weak<Queue>]>,
    column: usize,
    /// The column whose queue the last receive read.
    home: usize,
    speak: Speak,
    datagram_bytes_max: Arc<AtomicUsize>,
    /// Packets may have arrived.
    is_ready: bool,
    /// The last receive brought packets: more are looked for without a system call.
    is_flowing: bool,
}

/// The result of receiving nothing.
const NOTHING: Received = Received { datagrams: 0, cut: 0, damaged: 0, is_drained: true };

impl Xdp {
    /// Makes the datapaths of the first columns, which get these ports, and, if columns steal, of
    /// all `thieves` columns. `datagram_bytes_max` may change.
    #[must_use]
    pub fn of_columns(
        ports: Vec<Port>,
        thieves: usize,
        speak: Speak,
        datagram_bytes_max: &Arc<AtomicUsize>,
    ) -> Vec<Xdp> {
        let columns = thieves.max(ports.len());
        let like = ports.first().map(|port| Arc::clone(port.inbox.queue()));
        let queues: Arc<[_]> = ports.iter().map(|it| Arc::downgrade(it.inbox.queue())).collect();
        let mut ports = ports.into_iter();
        let of_column = |column| {
            let port = ports.next();
            Xdp {
                is_ready: port.is_some(),
                port,
                stolen: like.as_deref().filter(|_| thieves > 1).map(Stolen::new),
                owed: Weak::new(),
                queues: Arc::clone(&queues),
                column,
                home: column,
                speak,
                datagram_bytes_max: Arc::clone(datagram_bytes_max),
                is_flowing: false,
            }
        };
        (0..columns).map(of_column).collect()
    }

    /// True if columns take packets from each other's queues.
    pub(crate) fn is_shared(&self) -> bool {
        self.stolen.is_some()
    }

    pub(crate) fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// Closes the port, as the interface is gone. Returns the bytes of its packets, a part of `-m`.
    pub(crate) fn close(&mut self) -> usize {
        self.is_ready = false;
        self.port.take().map_or(0, |port| port.memory_bytes())
    }
}

impl Datapath for Xdp {
    type Peer = Peer;
    type Arrived<'a> = XdpArrived<'a>;
    type Outgoing<'a> = XdpOutgoing<'a>;

    fn column(&self) -> usize {
        self.column
    }

    fn home(&self) -> usize {
        self.home
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.port.iter().map(AsFd::as_fd)
    }

    fn note_input(&mut self, _: u64) {
        self.is_ready = self.port.is_some();
    }

    fn has_input(&mut self) -> bool {
        let flows = |port: &mut Port| self.is_flowing && port.inbox.has_input();
        self.is_ready || self.port.as_mut().is_some_and(flows)
    }

    fn is_undrained(&self) -> bool {
        self.is_ready
    }

    fn has_unsent(&mut self) -> bool {
        self.port.as_ref().is_some_and(|port| port.inbox.queue().is_unsettled())
            || self.owed.upgrade().is_some_and(|queue| queue.is_unsettled())
    }

    fn limit(&mut self, at_once: usize) {
        self.port.iter_mut().for_each(|it| it.inbox.limit(at_once));
        self.stolen.iter_mut().for_each(|it| it.limit(at_once));
    }

    fn receive(&mut self, calls: &Calls) -> Received {
        self.home = self.column;
        if let Some(queue) = std::mem::take(&mut self.owed).upgrade() {
            queue.post(Tally::default(), calls);
            self.owe(&queue);
        }
        let received = match &mut self.port {
            Some(port) => port.inbox.receive(calls),
            None => NOTHING,
        };
        self.is_ready = !received.is_drained;
        self.is_flowing = received.datagrams + received.cut + received.damaged > 0;
        received
    }

    fn steal(&mut self, column: usize, _: usize, calls: &Calls) -> Received {
        self.home = column;
        match (&mut self.stolen, self.queues.get(column).and_then(Weak::upgrade)) {
            (Some(stolen), Some(queue)) => stolen.steal(queue, calls),
            _ => NOTHING,
        }
    }

    fn speak(&self) -> Speak {
        self.speak
    }

    fn datagram_bytes_max(&self) -> usize {
        // Relaxed: pairs with the store of `Bypass::look`; a number by itself.
        self.datagram_bytes_max.load(Ordering::Relaxed)
    }

    fn halves(&mut self) -> (XdpArrived<'_>, XdpOutgoing<'_>) {
        let stolen = self.stolen.as_ref().and_then(Stolen::halves);
        let own = || self.port.as_ref().map(|it| (it.inbox.datagrams(), &**it.inbox.queue()));
        let (arrived, queue) = stolen.or_else(own).unzip();
        (XdpArrived(arrived), XdpOutgoing(queue))
    }

    fn release(&mut self) {
        self.port.iter_mut().for_each(|port| port.inbox.release());
        if let Some(queue) = self.stolen.as_mut().and_then(Stolen::release) {
            self.owe(&queue);
        }
    }

    /// The chunks are not included: they are a part of `-m`.
    fn held_bytes(&self) -> usize {
        self.stolen.as_ref().map_or(0, Stolen::held_bytes)
    }
}

impl Xdp {
    /// Has the next receive post what has not left by `queue`, because its owner may sleep.
    fn owe(&mut self, queue: &Arc<Queue>) {
        if queue.is_unsettled() {
            self.owed = Arc::downgrade(queue);
        }
    }
}

/// The packets that a queue has received, if there is a queue.
#[derive(Clone, Debug)]
pub struct XdpArrived<'a>(Option<Arrived<'a>>);

impl<'a> Iterator for XdpArrived<'a> {
    type Item = Datagram<'a, Peer>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a, Peer>> {
        self.0.as_mut()?.next()
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

/// The way out by a queue; empty on a column that has none and has stolen nothing.
#[derive(Debug)]
pub struct XdpOutgoing<'a>(Option<&'a Queue>);

/// Datagrams to be sent by the queue.
#[derive(Debug)]
pub struct XdpLetters<'a>(Option<net::xdp::Letters<'a>>);

impl Outgoing for XdpOutgoing<'_> {
    type Peer = Peer;
    type Letters<'a>
        = XdpLetters<'a>
    where
        Self: 'a;

    fn open(&mut self) -> XdpLetters<'_> {
        XdpLetters(self.0.map(net::xdp::Letters::of))
    }
}

impl<'a> Letters<'a, Peer> for XdpLetters<'a> {
    #[inline]
    fn add(&mut self, to: &'a Peer, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        self.0.as_mut().is_some_and(|letters| letters.add(to, head, pieces))
    }

    fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.0.as_mut().map_or_else(Tally::default, |letters| letters.post_or_drop(calls))
    }
}
