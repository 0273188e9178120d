//! Packet in, packet out: TCP and Unix sockets; a client's half of both, and UDP.
//!
//! Where: the first and the last stop on a packet's path. A column sleeps in `epoll`, takes
//! connections from its `listener`, reads requests from a `stream` and writes replies to it; `wake`
//! ends its sleep from outside, `beat` once per second.
//! Invariant: nothing here blocks but `Epoll::wait`; no call raises SIGPIPE; every system call made
//! for a connection is counted in the column's `Calls`.

mod beat;
mod calls;
mod clock;
mod connect;
mod datagram;
mod epoll;
mod listener;
mod nic;
mod pin;
mod stream;
mod wake;

pub use beat::Beat;
pub use calls::Calls;
pub use clock::{monotonic_ns, thread_time_ns};
pub use datagram::{
    BATCH_MAX, Datagram, Datagrams, Inbox, Outbox, Received, SentDatagrams, Source,
};
pub use epoll::{Epoll, Event, Interest, Timeout};
pub use listener::{Accepted, Listener, Place, PortHold};
pub use nic::nic_settings;
pub use pin::{pin_thread, thread_cpus};
pub use stream::{Got, Sent, Stream};
pub use wake::Waker;
