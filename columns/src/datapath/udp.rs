//! UDP sockets of the kernel.
//!
//! Where: each column has a `Udp`, with a socket for each address of `-U`. An idle column also
//! receives from another column's sockets.
//! Invariant: there is at least one socket, and `inbox` holds the datagrams that `current`
//! received. Ready sockets take turns, so a busy socket does not starve the other sockets. A
//! datagram is answered through the socket that received it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use net::{Calls, DatagramIter, Inbox, Outbox, Peer, Received, SLOT_BYTES_MAX, Tally};
use protocol::ProtocolMode;

use super::{Datapath, Outgoing, SendBatch, Sender};
use crate::limits::{DATAGRAM_PIECES_SENT_MAX, DATAGRAMS_RECEIVED_MAX, DATAGRAMS_SENT_MAX};

/// A UDP socket, and the limits for its datagrams.
#[derive(Clone, Debug)]
pub struct ColumnSocket {
    /// The socket.
    pub socket: Arc<net::Datagrams>,
    /// The protocols that the socket's clients may use.
    pub speak: ProtocolMode,
    /// Maximum number of bytes of a datagram that is sent, including the memcached UDP header.
    pub datagram_bytes_max: usize,
}

/// A column's UDP sockets.
#[derive(Debug)]
pub struct Udp {
    /// The sockets of each column. All columns have the same number of sockets.
    sockets: Arc<[Vec<ColumnSocket>]>,
    column: usize,
    /// The column of the socket that received last, and the socket's number in this column.
    current: (usize, usize),
    /// One bit for each socket of this column, set if datagrams may have arrived.
    ready: u64,
    /// Number of the socket at which the next receive begins to search for a ready socket.
    next: u32,
    inbox: Inbox,
    outbox: Outbox,
}

impl Udp {
    /// Makes the datapath of `column` from all columns' sockets; `None` if `column` has no socket.
    pub fn new(sockets: Arc<[Vec<ColumnSocket>]>, column: usize) -> Option<Udp> {
        if sockets.get(column).is_none_or(Vec::is_empty) {
            return None;
        }
        Some(Udp {
            sockets,
            column,
            current: (column, 0),
            ready: 0,
            next: 0,
            inbox: Inbox::new(DATAGRAMS_RECEIVED_MAX, SLOT_BYTES_MAX),
            outbox: Outbox::new(DATAGRAMS_SENT_MAX, DATAGRAM_PIECES_SENT_MAX, true),
        })
    }

    fn current(&self) -> &ColumnSocket {
        &self.sockets[self.current.0][self.current.1]
    }

    fn receive_from(&mut self, column: usize, socket: usize, calls: &Calls) -> Received {
        self.current = (column, socket.min(self.sockets[column].len() - 1));
        self.sockets[column][self.current.1].socket.receive(&mut self.inbox, calls)
    }
}

impl Datapath for Udp {
    type Peer = Peer;
    type Arrived<'a> = DatagramIter<'a>;
    type Outgoing<'a> = UdpOutgoing<'a>;

    fn column(&self) -> usize {
        self.column
    }

    fn home(&self) -> usize {
        self.current.0
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets[self.column].iter().map(|it| it.socket.as_fd())
    }

    fn note_input(&mut self, number: u64) {
        self.ready |= 1 << number.min(63);
    }

    fn has_input(&mut self) -> bool {
        self.ready != 0
    }

    fn is_undrained(&self) -> bool {
        self.ready != 0
    }

    fn shared_descriptor(&self) -> Option<usize> {
        Some(self.current.1)
    }

    fn has_unsent(&mut self) -> bool {
        false // the kernel sends what it has accepted
    }

    fn limit(&mut self, at_once: usize) {
        self.inbox.limit(at_once);
    }

    fn receive(&mut self, calls: &Calls) -> Received {
        // The search begins after the socket that received last, and wraps around.
        let ahead = self.ready.rotate_right(self.next).trailing_zeros();
        let number = (self.next + ahead) % u64::BITS;
        self.next = (number + 1) % u64::BITS;
        let received = self.receive_from(self.column, number as usize, calls);
        if received.is_drained {
            self.ready &= !(1 << number);
        }
        received
    }

    fn steal(&mut self, column: usize, socket: usize, calls: &Calls) -> Received {
        self.receive_from(column, socket, calls)
    }

    fn speak(&self) -> ProtocolMode {
        self.current().speak
    }

    fn datagram_bytes_max(&self) -> usize {
        self.current().datagram_bytes_max
    }

    fn halves(&mut self) -> (DatagramIter<'_>, UdpOutgoing<'_>) {
        let socket = &*self.sockets[self.current.0][self.current.1].socket;
        let outgoing = UdpOutgoing { outbox: &mut self.outbox, socket };
        (self.inbox.datagrams(), outgoing)
    }

    fn release(&mut self) {}

    fn held_bytes(&self) -> usize {
        DATAGRAMS_RECEIVED_MAX * SLOT_BYTES_MAX
    }
}

impl Sender for Peer {
    #[inline]
    fn address(&self) -> Option<SocketAddr> {
        Peer::address(self)
    }

    #[inline]
    fn is_for_many(&self) -> bool {
        Peer::is_for_many(self)
    }
}

/// Opens batches of answers that one socket sends.
#[derive(Debug)]
pub struct UdpOutgoing<'a> {
    outbox: &'a mut Outbox,
    socket: &'a net::Datagrams,
}

/// A batch of datagrams, and the socket that sends it.
#[derive(Debug)]
pub struct UdpSendBatch<'a> {
    batch: net::SendBatch<'a>,
    socket: &'a net::Datagrams,
}

impl Outgoing for UdpOutgoing<'_> {
    type Peer = Peer;
    type SendBatch<'a>
        = UdpSendBatch<'a>
    where
        Self: 'a;

    fn open(&mut self) -> UdpSendBatch<'_> {
        UdpSendBatch { batch: self.outbox.open(), socket: self.socket }
    }
}

impl<'a> SendBatch<'a, Peer> for UdpSendBatch<'a> {
    #[inline]
    fn add(&mut self, to: &'a Peer, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool {
        self.batch.add(Some(to), head, pieces)
    }

    fn post_or_drop(&mut self, calls: &Calls) -> Tally {
        self.batch.post_or_drop(self.socket, calls)
    }
}
