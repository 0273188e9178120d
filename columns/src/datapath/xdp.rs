//! AF_XDP: an interface's queue that bypasses the kernel's network stack.
//!
//! Where: with `--xdp`, each column that has a queue has an `Xdp` in addition to its `Udp`. If
//! columns steal, each column without a queue also has an `Xdp`.
//! Invariant: requests are executed in the chunks in which packets were received. Stolen requests
//! are executed in the buffer to which they were copied. An answer is copied into chunks at most
//! once, and is sent by the queue that received the request. The chunks of one receive are released
//! after all its requests have been executed.
//! Source: the KV-Cache paper, section 4.1.

mod interface;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use net::xdp::{DatagramIter, Peer, Port, Queue, StolenBatch};
use net::{Calls, Datagram, Received, Tally};
use protocol::ProtocolMode;

use super::{Datapath, Outgoing, SendBatch, Sender};
pub use interface::Interface;

/// A column's queue, and its inbox for packets of other columns' queues.
#[derive(Debug)]
pub struct Xdp {
    port: Option<Port>,
    /// Present if columns steal.
    stolen: Option<StolenBatch>,
    /// A queue that may have unsent answers to requests that this column stole from the queue.
    owed: Weak<Queue>,
    /// The queues of all columns. A queue is gone after its port is closed.
    queues: Arc<[Weak<Queue>]>,
    column: usize,
    home: usize,
    speak: ProtocolMode,
    interface: Arc<Interface>,
    /// True if packets may have arrived.
    is_ready: bool,
    /// True if the last receive returned packets. A check for more then needs no system call.
    is_flowing: bool,
}

/// The result of a receive that found nothing.
const NOTHING: Received = Received { datagrams: 0, cut: 0, damaged: 0, is_drained: true };

impl Xdp {
    /// Makes a datapath for each of `ports`, beginning with column 0. If columns steal, all
    /// `thieves` columns get a datapath.
    #[must_use]
    pub fn of_columns(
        ports: Vec<Port>,
        thieves: usize,
        speak: ProtocolMode,
        interface: &Arc<Interface>,
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
                stolen: like.as_deref().filter(|_| thieves > 1).map(StolenBatch::new),
                owed: Weak::new(),
                queues: Arc::clone(&queues),
                column,
                home: column,
                speak,
                interface: Arc::clone(interface),
                is_flowing: false,
            }
        };
        (0..columns).map(of_column).collect()
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

    fn shared_descriptor(&self) -> Option<usize> {
        self.stolen.as_ref().map(|_| 0)
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

    fn speak(&self) -> ProtocolMode {
        self.speak
    }

    fn datagram_bytes_max(&self) -> usize {
        self.interface.datagram_bytes_max()
    }

    fn halves(&mut self) -> (XdpArrived<'_>, XdpOutgoing<'_>) {
        let stolen = self.stolen.as_ref().and_then(StolenBatch::halves);
        let own = || self.port.as_ref().map(|it| (it.inbox.datagrams(), &**it.inbox.queue()));
        let (arrived, queue) = stolen.or_else(own).unzip();
        (XdpArrived(arrived), XdpOutgoing(queue))
    }

    fn release(&mut self) {
        self.port.iter_mut().for_each(|port| port.inbox.release());
        if let Some(queue) = self.stolen.as_mut().and_then(StolenBatch::release) {
            self.owe(&queue);
        }
    }

    /// Does not include the chunks, because their memory counts towards `-m`.
    fn held_bytes(&self) -> usize {
        self.stolen.as_ref().map_or(0, StolenBatch::held_bytes)
    }

    fn wakes_each_second(&self) -> bool {
        self.port.is_some()
    }

    /// Closes the port if the interface is gone. While the interface is down or no memory is free
    /// for packets, the kernel reports no packets; so the next turn checks for packets.
    fn look(&mut self, now_ms: u64) {
        self.is_ready = self.port.is_some();
        if self.port.is_some() && self.interface.look(now_ms) {
            self.is_ready = false;
            let memory_bytes = self.port.take().map_or(0, |port| port.memory_bytes());
            self.interface.closed(memory_bytes);
        }
    }

    fn can_send(&self) -> bool {
        self.interface.is_up()
    }
}

impl Xdp {
    /// If `queue` has unsent answers, makes the next receive send them, because the column that
    /// owns the queue may sleep.
    fn owe(&mut self, queue: &Arc<Queue>) {
        if queue.is_unsettled() {
            self.owed = Arc::downgrade(queue);
        }
    }
}

/// The packets that a queue has received, if there is a queue.
#[derive(Clone, Debug)]
pub struct XdpArrived<'a>(Option<DatagramIter<'a>>);

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

/// Opens batches of answers that a queue sends. `None` if there is no queue that could send them.
#[derive(Debug)]
pub struct XdpOutgoing<'a>(Option<&'a Queue>);

/// A batch of datagrams that the queue sends.
#[derive(Debug)]
pub struct XdpSendBatch<'a>(Option<net::xdp::SendBatch<'a>>);

impl Outgoing for XdpOutgoing<'_> {
    type Peer = Peer;
    type SendBatch<'a>
        = XdpSendBatch<'a>
    where
        Self: 'a;

    fn open(&mut self) -> XdpSendBatch<'_> {
        XdpSendBatch(self.0.map(net::xdp::SendBatch::of))
    }
}

impl<'a> SendBatch<'a, Peer> for XdpSendBatch<'a> {
    #[inline]
    fn add(&mut self, to: &'a Peer, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        self.0.as_mut().is_some_and(|batch| batch.add(to, head, pieces))
    }

    fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.0.as_mut().map_or_else(Tally::default, |batch| batch.post_or_drop(calls))
    }
}
