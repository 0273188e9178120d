//! The two ways by which datagrams come and go, and the trait that both implement.
//!
//! Where: between the system and `datagram`, which executes what has come and writes answers.
//! Invariant: a datapath yields whole datagrams, and sends each answer or drops it; it never
//! interprets the bytes in them. Another datapath is a file beside `udp` and a field of the column.

pub mod udp;
pub mod xdp;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use net::{Calls, Datagram, Received, Tally};
use protocol::Speak;

/// A column's sockets of one kind, with the datagrams of the last receive.
pub trait Datapath {
    /// The sender of a datagram, with all that an answer needs to get back.
    type Peer: Sender;
    /// The datagrams of the last receive.
    type Arrived<'a>: Iterator<Item = Datagram<'a, Self::Peer>>
    where
        Self: 'a;
    /// The way by which they are answered.
    type Outgoing<'a>: Outgoing<Peer = Self::Peer>
    where
        Self: 'a;

    /// The number of the column.
    fn column(&self) -> usize;

    /// The number of the column whose descriptor the last receive read.
    fn home(&self) -> usize;

    /// The descriptors that the column's epoll is to watch, each by its position.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Notes that the kernel reported input for a descriptor.
    fn note_input(&mut self, number: u64);

    /// True if a descriptor may have input.
    fn has_input(&mut self) -> bool;

    /// True if the last receive has left something.
    fn is_undrained(&self) -> bool;

    /// True if datagrams given to the system have not left, and nothing will tell when they can:
    /// another turn sends them.
    fn has_unsent(&mut self) -> bool;

    /// Limits each receive to `at_once` datagrams, or bursts of them, and to at least one.
    fn limit(&mut self, at_once: usize);

    /// Receives once, from the next socket that is ready.
    fn receive(&mut self, calls: &Calls) -> Received;

    /// Receives once from another column's socket of this number, or from its queue.
    fn steal(&mut self, column: usize, socket: usize, calls: &Calls) -> Received;

    /// The protocols that may be spoken to the socket that received last.
    fn speak(&self) -> Speak;

    /// Most bytes that a datagram from that socket carries, the memcached UDP header included.
    fn datagram_bytes_max(&self) -> usize;

    /// The datagrams of the last receive, and the way to answer them.
    fn halves(&mut self) -> (Self::Arrived<'_>, Self::Outgoing<'_>);

    /// Ends the use of the received datagrams: their memory may be used again.
    fn release(&mut self);

    /// Bytes of memory that the datapath takes beside the store.
    fn held_bytes(&self) -> usize;
}

/// The sender of a datagram.
pub trait Sender: Copy + std::fmt::Debug {
    /// The sender's address and port.
    fn address(&self) -> Option<SocketAddr>;

    /// True if the datagram was sent to many: to a multicast or broadcast address.
    fn is_for_many(&self) -> bool;
}

/// The way out for answers.
pub trait Outgoing {
    /// The receiver of an answer.
    type Peer;
    /// The datagrams that are being written.
    type Letters<'a>: Letters<'a, Self::Peer>
    where
        Self: 'a;

    /// Begins a set of datagrams, which is empty.
    fn open(&mut self) -> Self::Letters<'_>;
}

/// Datagrams that are being written and sent.
pub trait Letters<'a, P> {
    /// Adds a datagram: `head`, of at most `net::HEAD_BYTES_MAX` bytes, then `pieces`. Returns
    /// false and adds nothing if there is no room: post then, and add it again.
    fn add(&mut self, to: &'a P, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool;

    /// Sends all datagrams that the system takes, and drops the rest.
    fn post_or_drop(&mut self, calls: &Calls) -> Tally;
}
