//! AF_XDP: passes packets between an interface's queue and a column, bypassing the kernel's stack.
//!
//! ```text
//! interface -> program -> queue's socket -> Inbox  | datagram | datagram | ...
//!              otherwise -> the kernel's stack
//! interface <------------ queue's socket <- Outbox | datagram | datagram | ...
//! ```
//!
//! Where: used instead of `udp`. `open`, which needs root, makes a `Port` for each queue; a column
//! uses one port. A client calls `reach` to find the way to its server, and then sends to a `Peer`
//! made of the `Ends` that `reach` returns. An echo server:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use net::{Calls, Epoll, Interest, Timeout, xdp};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let xdp::Opened { mut ports, watch, .. } = xdp::open(&xdp::OpenOptions {
//!     interface: "eth0",
//!     queues: Some(0..1),
//!     addresses: &["0.0.0.0".parse()?, "::".parse()?],
//!     ports: 11_211..=11_211,
//!     allow: &["10.0.0.0/8".parse()?],
//!     ports_max: 1,
//!     chunks: 4096,
//!     memory_bytes_max: 8 << 20,
//!     mode: xdp::Mode::Any,
//!     values: None,
//! })?;
//! println!("{:?}", watch.facts());
//! let (port, calls, mut epoll) = (&mut ports[0], Calls::default(), Epoll::new(1)?);
//! epoll.add(&*port, 0, Interest::Read, &calls)?;
//! loop {
//!     let received = port.inbox.receive(&calls);
//!     for datagram in port.inbox.datagrams() {
//!         // If there is no room, the answer is lost.
//!         port.outbox.add(datagram.peer, b"", [datagram.bytes]);
//!     }
//!     port.outbox.post_or_drop(&calls);
//!     port.inbox.release();
//!     if received.is_drained {
//!         let is_unsent = port.outbox.waiting() > 0;
//!         // Sleep a second at most: the kernel loses pending events when an interface goes down.
//!         let most = if is_unsent { xdp::UNSENT_WAIT } else { Duration::from_secs(1) };
//!         let _events = epoll.wait(Timeout::Within(most), &calls)?;
//!     }
//! }
//! # }
//! ```
//!
//! Invariant: only UDP packets to our addresses and ports are taken. Counts and descriptors from
//! the kernel are checked against the chunks (buffers for packets) and ring entries that the kernel
//! has; descriptors for the kernel are valid. No chunk of a port is ever lost.
//! Source: the KV-Cache paper, section 4; `Documentation/networking/af_xdp.rst` of Linux.

mod bpf;
mod completion;
mod fill;
mod in_flight;
mod inbox;
#[cfg(test)]
mod kept;
mod lacks;
mod link;
mod outbox;
pub(crate) mod parted;
mod peer;
mod port;
mod program;
mod queue;
mod ring;
mod route;
mod rx;
mod socket;
mod steal;
#[cfg(test)]
mod tests;
mod tx;
mod umem;
#[cfg(test)]
mod values;

pub use inbox::{DatagramIter, Inbox};
pub use link::{Facts, Health, Mode, OpenError, OpenOptions, Opened, Values, Watch, open};
pub use outbox::{Outbox, SendBatch, UNSENT_WAIT};
pub use peer::Peer;
pub use port::{CHUNKS_MAX, CHUNKS_MIN, Chunks, Meter, Port, Statistics};
pub use queue::Queue;
pub use route::{Unreachable, reach};
pub use steal::StolenBatch;
