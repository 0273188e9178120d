//! Ways by which datagrams come and go, and what each of them must be able to do.
//!
//! Where: between the system and `datagram`, which executes what has come and writes answers.
//! Invariant: a datapath gives out whole datagrams and sends an answer or drops it; it never knows
//! what stands in them. Another one is a file beside `udp` and a field of the column.

pub mod udp;
pub mod xdp;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use net::{Calls, Datagram, Received, Tally};
use protocol::Speak;

/// A column's sockets of one kind, and what they have received last.
pub trait Datapath {
    /// Who sent a datagram, and all that leads an answer back.
    type Peer: Sender;
    /// What has been received.
    type Arrived<'a>: Iterator<Item = Datagram<'a, Self::Peer>>
    where
        Self: 'a;
    /// What answers it.
    type Outgoing<'a>: Outgoing<Peer = Self::Peer>
    where
        Self: 'a;

    /// The number of the column.
    fn column(&self) -> usize;

    /// The number of the column to whose descriptor that was sent which was received last.
    fn home(&self) -> usize;

    /// What the column's epoll is to watch, each by its number.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// The kernel says that a descriptor has input.
    fn note_input(&mut self, number: u64);

    /// A descriptor may have input.
    fn has_input(&mut self) -> bool;

    /// The last receive has left something.
    fn is_undrained(&self) -> bool;

    /// Some of what was sent has not left, and nothing will tell when it can: another turn sends
    /// it.
    fn has_unsent(&mut self) -> bool;

    /// From now on a receive takes at most so many datagrams, or bursts of them, and at least one.
    fn limit(&mut self, at_once: usize);

    /// Receives once, from the next socket that is ready.
    fn receive(&mut self, calls: &Calls) -> Received;

    /// Receives once from another column's socket of this number, or from its queue.
    fn steal(&mut self, column: usize, socket: usize, calls: &Calls) -> Received;

    /// The protocols that may be spoken to the socket that received last.
    fn speak(&self) -> Speak;

    /// The most bytes that a datagram from that socket carries, the frame included.
    fn datagram_bytes_max(&self) -> usize;

    /// What was received last, and what answers it.
    fn halves(&mut self) -> (Self::Arrived<'_>, Self::Outgoing<'_>);

    /// All that was received is executed and answered: what it lies in may be used again.
    fn release(&mut self);

    /// Memory that it takes beside the store.
    fn held_bytes(&self) -> usize;
}

/// Who sent a datagram.
pub trait Sender: Copy + std::fmt::Debug {
    /// Address and port.
    fn address(&self) -> Option<SocketAddr>;

    /// The datagram was sent to many: to a multicast or broadcast address.
    fn is_for_many(&self) -> bool;
}

/// The way out.
pub trait Outgoing {
    /// To whom it leads.
    type Peer;
    /// What is being written.
    type Letters<'a>: Letters<'a, Self::Peer>
    where
        Self: 'a;

    /// Begins: there is no letter.
    fn open(&mut self) -> Self::Letters<'_>;
}

/// Datagrams that are being written and sent.
pub trait Letters<'a, P> {
    /// Adds a letter: `head`, of at most `net::HEAD_BYTES_MAX` bytes, and behind it `pieces`.
    /// False, and nothing is added, if there is no room: then post, and add it again.
    fn add(&mut self, to: &'a P, head: &[u8], pieces: impl Iterator<Item = &'a [u8]>) -> bool;

    /// Sends what can be sent and drops the rest.
    fn post_or_drop(&mut self, calls: &Calls) -> Tally;
}
