//! Connections: the transports that carry requests to a target and its answers back.
//!
//! ```text
//! sending half    requests -> `Outward` -> socket     one write per wake-up and connection
//! reading half    socket -> bytes or datagrams        many answers per read
//! ```
//!
//! Where: below the drive, above the sockets of `net`; a new transport is one more variant of
//! `Socket` and of `Outward`.
//! Invariant: nothing blocks; `OUT_BYTES_MAX` and one request bound the bytes that wait to be sent.
//! Both halves hold the same socket, so that they can run on different threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use net::{Calls, Datagrams, Endpoint, Epoll, Interest, Obstacle, Outbox, Sent, Sizes, Stream};
use protocol::udp::{self, Header};

use crate::bag::Bag;
use crate::packets::Packets;
use crate::target::{Bypass, Place};

/// Most bytes of requests that wait for a socket.
pub const OUT_BYTES_MAX: usize = 256 << 10;
const OUT_DATAGRAMS_MAX: usize = 1024;

/// A socket of any transport.
#[derive(Clone, Debug)]
pub enum Socket {
    /// TCP or Unix: bytes in order.
    Stream(Arc<Stream>),
    /// memcached's UDP: datagrams with a header.
    Udp(Arc<Datagrams>),
    /// memcached's UDP past the kernel's network stack.
    Packets(Arc<Packets>),
}

impl Socket {
    /// True if answers may be lost, and come in any order.
    #[inline]
    #[must_use]
    pub fn is_datagrams(&self) -> bool {
        !matches!(self, Socket::Stream(_))
    }

    /// Begins to connect. A stream may not be connected yet; UDP is at once. `bypass` connects past
    /// the kernel; it needs to know all targets of the interface.
    ///
    /// # Errors
    /// The place cannot be reached, or there is no descriptor left.
    pub fn open(
        place: &Place,
        bypass: impl FnOnce(&Bypass, SocketAddr) -> io::Result<Packets>,
    ) -> io::Result<Socket> {
        let stream = |place| Stream::connect(&place).map(|stream| Socket::Stream(stream.into()));
        match place {
            Place::Tcp(address) => stream(Endpoint::Tcp(*address)),
            Place::Unix(path) => stream(Endpoint::Unix(path.clone())),
            Place::Udp(address) => Datagrams::connect(*address, Sizes::default())
                .map(|socket| Socket::Udp(socket.into())),
            Place::Xdp(over, address) => {
                bypass(over, *address).map(|packets| Socket::Packets(packets.into()))
            }
        }
    }

    /// Watches the socket. A connection past the kernel has no descriptor of its own: its queues
    /// are watched for all their connections.
    ///
    /// # Errors
    /// Like `Epoll::add`.
    pub fn watch(&self, epoll: &Epoll, token: u64, on: Interest, calls: &Calls) -> io::Result<()> {
        match self {
            Socket::Stream(stream) => epoll.add(stream, token, on, calls),
            Socket::Udp(socket) => epoll.add(socket, token, on, calls),
            Socket::Packets(_) => Ok(()),
        }
    }

    /// Stops watching the socket.
    pub fn forget(&self, epoll: &Epoll, calls: &Calls) {
        // An error means that it was not watched.
        let _ = match self {
            Socket::Stream(stream) => epoll.remove(stream, calls),
            Socket::Udp(socket) => epoll.remove(socket, calls),
            Socket::Packets(_) => Ok(()),
        };
    }

    /// The outcome of connecting.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub fn outcome(&self) -> io::Result<()> {
        match self {
            Socket::Stream(stream) => stream.outcome(),
            Socket::Udp(_) | Socket::Packets(_) => Ok(()),
        }
    }
}

/// The result of handing requests to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All were handed over.
    All,
    /// The socket is full.
    Full,
    /// There is no room past the kernel. No event will tell when there is, so try again.
    Later,
    /// The connection is broken.
    Broken,
    /// A datagram is larger than the path allows.
    TooLarge,
}

/// The sending half: requests that wait, and the socket they go to.
#[derive(Debug)]
pub enum Outward {
    /// Bytes, of which the first `done` are sent.
    Stream {
        /// The socket.
        stream: Arc<Stream>,
        /// Requests.
        bytes: Vec<u8>,
        /// Number of bytes sent.
        done: usize,
    },
    /// Datagrams.
    Udp {
        /// The socket.
        socket: Arc<Datagrams>,
        /// Requests.
        bag: Bag,
    },
    /// Datagrams past the kernel.
    Packets {
        /// The queue.
        packets: Arc<Packets>,
        /// Requests.
        bag: Bag,
    },
}

impl Outward {
    /// Returns the sending half of a socket. With `gso`, datagrams of one flow are sent together.
    #[must_use]
    pub fn new(socket: &Socket, gso: bool) -> Outward {
        match socket {
            Socket::Stream(stream) => {
                Outward::Stream { stream: Arc::clone(stream), bytes: Vec::new(), done: 0 }
            }
            Socket::Udp(socket) => Outward::Udp { socket: Arc::clone(socket), bag: Bag::new(gso) },
            Socket::Packets(packets) => {
                Outward::Packets { packets: Arc::clone(packets), bag: Bag::default() }
            }
        }
    }

    /// True if there is room for one more request.
    #[inline(always)]
    #[must_use]
    pub fn has_room(&self) -> bool {
        match self {
            Outward::Stream { bytes, done, .. } => bytes.len() - done < OUT_BYTES_MAX,
            Outward::Udp { bag, .. } | Outward::Packets { bag, .. } => {
                bag.len() < OUT_DATAGRAMS_MAX && bag.total_bytes() < OUT_BYTES_MAX
            }
        }
    }

    /// Begins request `number`; the caller appends its bytes to the returned vector. Over UDP, its
    /// flow names the server's column.
    #[inline(always)]
    pub fn begin(&mut self, number: u16, flow: u16) -> &mut Vec<u8> {
        match self {
            Outward::Stream { bytes, .. } => bytes,
            Outward::Udp { bag, .. } | Outward::Packets { bag, .. } => {
                let bytes = bag.begin(None, flow);
                bytes.extend_from_slice(&Header::request(number, flow).bytes());
                bytes
            }
        }
    }

    /// Bytes that wait, or waited when they were last flushed.
    #[inline(always)]
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        match self {
            Outward::Stream { bytes, .. } => bytes.len(),
            Outward::Udp { bag, .. } | Outward::Packets { bag, .. } => bag.total_bytes(),
        }
    }

    /// Ends the request that was begun. False if it fits no datagram; then it is dropped.
    #[inline(always)]
    pub fn end(&mut self) -> bool {
        match self {
            Outward::Stream { .. } => true,
            Outward::Udp { bag, .. } | Outward::Packets { bag, .. } => {
                let fits = bag.end() <= udp::REQUEST_BYTES_MAX;
                if !fits {
                    bag.take_back();
                }
                fits
            }
        }
    }

    /// Hands over what waits, datagrams through `outbox`. Past the kernel they are sent when the
    /// queues are posted.
    #[inline]
    pub fn flush(&mut self, outbox: &mut Outbox, calls: &Calls) -> Flushed {
        match self {
            Outward::Stream { stream, bytes, done } => {
                while *done < bytes.len() {
                    match stream.write(&bytes[*done..], calls) {
                        Sent::Bytes(0) => return Flushed::Full,
                        Sent::Bytes(sent) => *done += sent,
                        Sent::Broken => return Flushed::Broken,
                    }
                }
                bytes.clear();
                *done = 0;
            }
            Outward::Udp { socket, bag } => return flushed(bag.post(outbox, socket, calls)),
            Outward::Packets { packets, bag } => {
                return if packets.hand(bag, calls) { Flushed::All } else { Flushed::Later };
            }
        }
        Flushed::All
    }
}

fn flushed(obstacle: Option<Obstacle>) -> Flushed {
    match obstacle {
        None => Flushed::All,
        Some(Obstacle::Full) => Flushed::Full,
        Some(Obstacle::TooLong) => Flushed::TooLarge,
        Some(Obstacle::Refused) => Flushed::Broken,
    }
}
