//! The network: TCP and Unix sockets for servers and clients, UDP, AF_XDP, epoll.
//!
//! Where: the server receives requests and sends replies through this crate. A column (one of the
//! server's threads) sleeps in `epoll`, accepts connections from its `listener`, reads requests
//! from a `stream` and writes replies to it. `udp` receives and sends datagrams. `xdp` receives and
//! sends packets that bypass the kernel's stack; `wire` reads and writes the headers of these
//! packets. `wake` and `timer` end a column's sleep. A load generator also uses `connect`; the load
//! generator's test server, which stores nothing, also uses `in_place`.
//! Invariant: while a column serves, only `Epoll::wait` blocks, and each system call that accepts,
//! receives or sends is counted in the column's `Calls`. No call raises SIGPIPE.

mod calls;
mod clock;
mod connect;
mod epoll;
mod in_place;
mod interface;
mod listener;
mod netlink;
mod nic;
mod option;
mod pin;
mod stream;
mod timer;
mod udp;
mod wake;
pub mod wire;
pub mod xdp;

pub use calls::Calls;
pub use clock::{monotonic_ns, thread_time_ns};
pub use epoll::{Epoll, Event, Interest, Timeout};
pub use in_place::{Completions, Pipe};
pub use interface::{OwnAddress, own_addresses};
pub use listener::{Accepted, Endpoint, Listener, ReservedPort, own_endpoint};
pub use nic::nic_settings;
pub use pin::{pin_thread, thread_cpus};
pub use stream::{ReadResult, Stream, WriteResult};
pub use timer::SecondTimer;
pub use udp::{
    BATCH_MAX, Datagram, DatagramIter, Datagrams, HEAD_BYTES_MAX, Inbox, Obstacle, Outbox, Peer,
    PostResult, Received, SLOT_BYTES_MAX, SendBatch, Sizes, Tally, bind_columns, bind_ports,
};
pub use wake::Waker;
pub use xdp::parted::Pieces;
