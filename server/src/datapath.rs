//! The two ways to receive and send datagrams, and the trait that both implement.
//!
//! Where: between the system and `datagram`, which executes received requests and writes answers.
//! Invariant: a datapath yields whole datagrams, and sends each answer or drops it; it never
//! interprets their bytes. A third datapath would be a file beside `udp` and a field of the column.

pub mod udp;
pub mod xdp;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use net::{Calls, Datagram, Received, Tally};
use protocol::ProtocolMode;

/// A column's UDP sockets or its AF_XDP queue, with the datagrams of the last receive.
pub trait Datapath {
    /// The sender of a datagram, with everything needed to send an answer to it.
    type Peer: Sender;
    /// The datagrams of the last receive.
    type Arrived<'a>: Iterator<Item = Datagram<'a, Self::Peer>>
    where
        Self: 'a;
    /// The path by which answers to these datagrams are sent.
    type Outgoing<'a>: Outgoing<Peer = Self::Peer>
    where
        Self: 'a;

    /// The number of the column.
    fn column(&self) -> usize;

    /// The column whose socket or queue the last receive read.
    fn home(&self) -> usize;

    /// The descriptors for the column's epoll. Other methods number them from 0, in this order.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Notes that the kernel reported input for the descriptor of this number.
    fn note_input(&mut self, number: u64);

    /// True if a descriptor may have input.
    fn has_input(&mut self) -> bool;

    /// True if the last receive left datagrams in the socket or the queue.
    fn is_undrained(&self) -> bool;

    /// True if datagrams were handed to the system but are not sent, and no event will report when
    /// the system can send them. The column must then take another turn, which sends the datagrams.
    fn has_unsent(&mut self) -> bool;

    /// Limits each receive to `at_once` datagrams or bursts of datagrams; 0 counts as 1.
    fn limit(&mut self, at_once: usize);

    /// Receives once, from the next socket that is ready.
    fn receive(&mut self, calls: &Calls) -> Received;

    /// Receives once from the queue of another `column`, or from its socket number `socket`.
    fn steal(&mut self, column: usize, socket: usize, calls: &Calls) -> Received;

    /// The protocols that clients of the socket that received last may use.
    fn speak(&self) -> ProtocolMode;

    /// Maximum bytes of an answer's datagram, the memcached UDP header included.
    fn datagram_bytes_max(&self) -> usize;

    /// The datagrams of the last receive, and the path by which answers to them are sent.
    fn halves(&mut self) -> (Self::Arrived<'_>, Self::Outgoing<'_>);

    /// Ends the use of the received datagrams: their memory may be reused.
    fn release(&mut self);

    /// Bytes of memory that the datapath takes outside the store.
    fn held_bytes(&self) -> usize;
}

/// The sender of a datagram.
pub trait Sender: Copy + std::fmt::Debug {
    /// The sender's address and port.
    fn address(&self) -> Option<SocketAddr>;

    /// True if the datagram was sent to a multicast or broadcast address.
    fn is_for_many(&self) -> bool;
}

/// Opens batches of answers to be sent.
pub trait Outgoing {
    /// The receiver of an answer.
    type Peer;
    /// A batch of datagrams that are being written.
    type SendBatch<'a>: SendBatch<'a, Self::Peer>
    where
        Self: 'a;

    /// Begins an empty batch of datagrams.
    fn open(&mut self) -> Self::SendBatch<'_>;
}

/// A batch of datagrams that are written, then sent together.
pub trait SendBatch<'a, P> {
    /// Adds a datagram: `head`, of at most `net::HEAD_BYTES_MAX` bytes, then `pieces`. If there is
    /// no room, returns false and adds nothing; the caller then posts the batch and tries again.
    fn add(&mut self, to: &'a P, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool;

    /// Sends all datagrams that the system takes, and drops the others.
    fn post_or_drop(&mut self, calls: &Calls) -> Tally;
}
