//! AF_XDP: packets go from an interface's queue to a column and back without the kernel's network
//! stack.
//!
//! ```text
//! interface -> program -> queue's socket -> Inbox  | datagram | datagram | ...
//!              else -> the kernel's stack
//! interface <------------ queue's socket <- Outbox | letter | letter | ...
//! ```
//!
//! Where: beside `udp`, whose `Inbox` and `Outbox` these resemble. `open` makes a `Port` for each
//! queue, as root; a column uses one.
//! Invariant: only UDP to our addresses and ports is taken. What the kernel says is checked against
//! what it was lent, and what it is told is valid. A port's chunks are all accounted for.
//! Source: the KV-Cache paper, section 4; `Documentation/networking/af_xdp.rst` of Linux.

mod bpf;
mod inbox;
mod interface;
mod link;
mod netlink;
mod outbox;
mod port;
mod program;
mod ring;
#[cfg(test)]
mod tests;
mod umem;

pub use inbox::{Arrived, Inbox, Peer};
pub use link::{Facts, Health, Mode, Opened, Refused, Wanted, Watch, open};
pub use outbox::Outbox;
pub use port::{CHUNKS_MAX, CHUNKS_MIN, Chunks, Meter, Port, Statistics};
