//! UDP: one system call sends or receives many datagrams.
//!
//! ```text
//! recvmmsg -> Inbox   | slot | slot | ...      each slot: a datagram, or a burst of equal lengths
//! sendmmsg <- Outbox  | entry | entry | ...    a run of datagrams of equal length is one send
//! ```
//!
//! Where: used by a server's columns, by a load generator, and by the test servers that check the
//! load generator. `steer` makes a server's sockets; a `Peer` holds the addresses for a reply.
//! Invariant: no call blocks; one call receives at most `BATCH_MAX` bursts; the caller learns of
//! each datagram that could not be sent.
//! Source: udp(7).

pub(crate) mod control;
mod inbox;
mod outbox;
mod peer;
mod socket;
mod steer;

#[cfg(test)]
mod tests;

pub use inbox::{Datagram, DatagramIter, Inbox, Received, SLOT_BYTES_MAX};
pub use outbox::{HEAD_BYTES_MAX, Obstacle, Outbox, PostResult, SendBatch, Tally};
pub use peer::Peer;
pub use socket::{BATCH_MAX, Datagrams, Sizes};
pub use steer::{bind_columns, bind_ports};
