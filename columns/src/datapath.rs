//! The two ways to receive and send datagrams (UDP sockets, AF_XDP), and their trait `Datapath`.
//!
//! Where: between the system and `datagram`, which executes received requests and writes answers.
//! Invariant: a datapath returns only complete datagrams, sends or drops each answer, and never
//! interprets the bytes of a datagram.

pub mod list;
pub mod udp;
pub mod xdp;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use net::{Calls, Datagram, Received, Tally};
use protocol::ProtocolMode;
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES};

/// Bytes of an IPv4 packet that every host must accept (RFC 791). A smaller MTU counts as this.
const MTU_MIN: usize = 576;

/// Bytes of the headers of IPv6 and UDP. The headers of IPv4 and UDP are shorter.
const HEADERS_BYTES: usize = 48;

/// Bytes of a packet of `MTU_MIN` bytes that remain for an answer after all headers.
pub const PAYLOAD_BYTES_MIN: usize = MTU_MIN - HEADERS_BYTES - HEADER_BYTES;

/// Returns the maximum bytes of a datagram sent over an interface with this MTU.
#[must_use]
pub fn datagram_bytes_for(mtu: usize) -> usize {
    (mtu.max(MTU_MIN) - HEADERS_BYTES).min(ANSWER_BYTES_MAX)
}

/// A column's UDP sockets or its AF_XDP queue, with the datagrams of the last receive.
pub trait Datapath {
    /// The sender of a datagram, with all data that are needed to send an answer to this sender.
    type Peer: Sender;
    /// The datagrams of the last receive.
    type Arrived<'a>: Iterator<Item = Datagram<'a, Self::Peer>>
    where
        Self: 'a;
    /// The path by which answers to the received datagrams are sent.
    type Outgoing<'a>: Outgoing<Peer = Self::Peer>
    where
        Self: 'a;

    /// The number of the column.
    fn column(&self) -> usize;

    /// The number of the column whose socket or queue was read by the last receive.
    fn home(&self) -> usize;

    /// The descriptors for the column's epoll. Other methods get the position of a descriptor.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Notes that the kernel reported input for descriptor `number`.
    fn note_input(&mut self, number: u64);

    /// True if a descriptor may have input.
    fn has_input(&mut self) -> bool;

    /// True if the last receive left datagrams in the socket or the queue.
    fn is_undrained(&self) -> bool;

    /// The descriptor of this column from which other columns may steal now.
    fn shared_descriptor(&self) -> Option<usize>;

    /// True if the system has not sent some datagrams yet, and no event will report when it can
    /// send. The column must then take another turn, which sends the datagrams.
    fn has_unsent(&mut self) -> bool;

    /// Limits each receive to `at_once` datagrams or bursts of datagrams; 0 counts as 1.
    fn limit(&mut self, at_once: usize);

    /// Receives once, from the next socket that is ready.
    fn receive(&mut self, calls: &Calls) -> Received;

    /// Receives once from the queue, or from socket number `socket`, of another column.
    fn steal(&mut self, column: usize, socket: usize, calls: &Calls) -> Received;

    /// The protocols that clients may use on the socket or queue of the last receive.
    fn speak(&self) -> ProtocolMode;

    /// Maximum bytes of one datagram of an answer, including memcached's UDP header.
    fn datagram_bytes_max(&self) -> usize;

    /// The datagrams of the last receive, and the path by which answers to them are sent.
    fn halves(&mut self) -> (Self::Arrived<'_>, Self::Outgoing<'_>);

    /// Allows the reuse of the memory of the received datagrams.
    fn release(&mut self);

    /// Bytes of memory that the datapath takes outside the store.
    fn held_bytes(&self) -> usize;

    /// True if `look` must be called while no input arrives.
    fn wakes_each_second(&self) -> bool {
        false
    }

    /// Checks the interface, if the datapath has one. Called about once a second.
    fn look(&mut self, _now_ms: u64) {}

    /// True if answers can be sent now. False while the interface of the datapath is down.
    fn can_send(&self) -> bool {
        true
    }
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

/// A batch of datagrams, which are first written and then sent together.
pub trait SendBatch<'a, P> {
    /// Adds a datagram for `to`: `head` (at most `net::HEAD_BYTES_MAX` bytes), then `pieces`.
    /// Returns false if the batch is full; the caller then calls `post_or_drop` and tries again.
    fn add(&mut self, to: &'a P, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool;

    /// Sends all datagrams that the system takes, and drops the others.
    fn post_or_drop(&mut self, calls: &Calls) -> Tally;
}
