//! The peer of a datagram over AF_XDP.
//!
//! Where: an inbox returns a peer with each datagram; an outbox takes a peer with each answer.
//! Invariant: an answer goes to the Ethernet address from which the request came, from the address
//! to which the request was sent.

use std::net::SocketAddr;

use crate::wire::Ends;

/// The sender of a datagram, and our address and port to which the datagram was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The addresses of an answer to the sender.
    pub(super) back: Ends,
}

impl Peer {
    /// Makes the peer to which a datagram with these ends is sent.
    #[must_use]
    pub fn at(ends: Ends) -> Peer {
        Peer { back: ends }
    }

    /// The sender's address and port.
    #[inline]
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        Some(self.back.to())
    }

    /// Our address and port to which the datagram was sent.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.back.from()
    }

    /// False, because AF_XDP takes no broadcast or multicast datagrams.
    #[inline]
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        false
    }
}
