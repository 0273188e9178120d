//! Connections: the transports that carry requests to a target and its answers back.
//!
//! ```text
//! sending half    requests -> `Outward` -> socket     one write per wake-up and connection
//! reading half    socket -> bytes or datagrams        many answers per read
//! ```
//!
//! Where: between the module `drive` and the sockets of `net`. A new transport needs a variant of
//! `Socket` and a variant of `Outward`.
//! Invariant: no function blocks. On each connection, at most `OUT_BYTES_MAX` bytes and one request
//! wait to be sent. The two halves share one socket, so that they can run on different threads.

pub(crate) mod datagram_batch;
pub(crate) mod packets;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use net::{
    Calls, Datagrams, Endpoint, Epoll, Interest, Obstacle, Outbox, Sizes, Stream, WriteResult,
};
use protocol::udp::{self, Header};

use crate::line::datagram_batch::DatagramBatch;
use crate::line::packets::Packets;
use crate::target::{Bypass, Place};

/// A socket with this number of waiting bytes takes no more requests.
pub(crate) const OUT_BYTES_MAX: usize = 256 << 10;
const OUT_DATAGRAMS_MAX: usize = 1024;

/// A socket of any transport.
#[derive(Clone, Debug)]
pub(crate) enum Socket {
    /// TCP or a Unix stream.
    Stream(Arc<Stream>),
    /// memcached's protocol over UDP.
    Udp(Arc<Datagrams>),
    /// memcached's protocol over UDP, bypassing the kernel's network stack.
    Packets(Arc<Packets>),
}

impl Socket {
    /// True if answers may be lost or may arrive in any order.
    #[inline]
    pub(crate) fn is_datagrams(&self) -> bool {
        !matches!(self, Socket::Stream(_))
    }

    /// Begins to connect. When `open` returns, a stream may still be connecting, but a UDP socket
    /// is connected. The closure `bypass` opens a connection that bypasses the kernel. `bypass` has
    /// to know all targets that are reached through the same network interface. Fails if the
    /// address cannot be reached, or the process has no file descriptors left.
    pub(crate) fn open(
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

    /// Makes a socket from a stream that is already connected and does not block.
    pub(crate) fn connected(stream: TcpStream) -> Socket {
        Socket::Stream(Stream::from(OwnedFd::from(stream)).into())
    }

    /// Adds the socket to `epoll`. A connection that bypasses the kernel is not added. Fails as
    /// `Epoll::add` does.
    pub(crate) fn watch(
        &self,
        epoll: &Epoll,
        token: u64,
        on: Interest,
        calls: &Calls,
    ) -> io::Result<()> {
        match self {
            Socket::Stream(stream) => epoll.add(stream, token, on, calls),
            Socket::Udp(socket) => epoll.add(socket, token, on, calls),
            Socket::Packets(_) => Ok(()),
        }
    }

    /// Removes the socket from `epoll`.
    pub(crate) fn forget(&self, epoll: &Epoll, calls: &Calls) {
        // An error means that the socket was not watched.
        let _ = match self {
            Socket::Stream(stream) => epoll.remove(stream, calls),
            Socket::Udp(socket) => epoll.remove(socket, calls),
            Socket::Packets(_) => Ok(()),
        };
    }

    /// Returns the result of the attempt to connect. Fails if the connection could not be made.
    pub(crate) fn outcome(&self) -> io::Result<()> {
        match self {
            Socket::Stream(stream) => stream.outcome(),
            Socket::Udp(_) | Socket::Packets(_) => Ok(()),
        }
    }
}

/// The result of passing requests to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// All requests were passed to the socket.
    All,
    /// The socket's send buffer is full.
    Full,
    /// The queue that bypasses the kernel is full. No event will report that the queue has room
    /// again, so the caller has to try again.
    Later,
    /// The connection is broken.
    Broken,
    /// A datagram is larger than the network path allows.
    TooLarge,
}

/// The sending half: the waiting requests and their socket.
#[derive(Debug)]
pub(crate) enum Outward {
    /// A stream of bytes, of which the first `done` are sent.
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
        batch: DatagramBatch,
    },
    /// Datagrams that bypass the kernel.
    Packets {
        /// The queue that bypasses the kernel.
        packets: Arc<Packets>,
        /// Requests.
        batch: DatagramBatch,
    },
}

impl Outward {
    /// Returns a socket's sending half. If `gso` is true, datagrams of one flow are sent together.
    pub(crate) fn new(socket: &Socket, gso: bool) -> Outward {
        match socket {
            Socket::Stream(stream) => {
                Outward::Stream { stream: Arc::clone(stream), bytes: Vec::new(), done: 0 }
            }
            Socket::Udp(socket) => {
                Outward::Udp { socket: Arc::clone(socket), batch: DatagramBatch::new(gso) }
            }
            Socket::Packets(packets) => {
                Outward::Packets { packets: Arc::clone(packets), batch: DatagramBatch::default() }
            }
        }
    }

    /// True if one more request fits.
    #[inline(always)]
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Outward::Stream { bytes, done, .. } => bytes.len() - done < OUT_BYTES_MAX,
            Outward::Udp { batch, .. } | Outward::Packets { batch, .. } => {
                batch.len() < OUT_DATAGRAMS_MAX && batch.total_bytes() < OUT_BYTES_MAX
            }
        }
    }

    /// Begins request `number` for column `flow`. The caller appends the request to the result.
    #[inline(always)]
    pub(crate) fn begin(&mut self, number: u16, flow: u16) -> &mut Vec<u8> {
        match self {
            Outward::Stream { bytes, .. } => bytes,
            Outward::Udp { batch, .. } | Outward::Packets { batch, .. } => {
                let bytes = batch.begin(None, flow);
                bytes.extend_from_slice(&Header::request(number, flow).bytes());
                bytes
            }
        }
    }

    /// Number of waiting bytes. Sent bytes are included until all bytes are sent.
    #[inline(always)]
    pub(crate) fn total_bytes(&self) -> usize {
        match self {
            Outward::Stream { bytes, .. } => bytes.len(),
            Outward::Udp { batch, .. } | Outward::Packets { batch, .. } => batch.total_bytes(),
        }
    }

    /// Ends the request that was begun last. If no datagram can hold the request, removes the
    /// request and returns false.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> bool {
        match self {
            Outward::Stream { .. } => true,
            Outward::Udp { batch, .. } | Outward::Packets { batch, .. } => {
                let fits = batch.end() <= udp::REQUEST_BYTES_MAX;
                if !fits {
                    batch.remove_last();
                }
                fits
            }
        }
    }

    /// Sends the waiting requests. Requests that bypass the kernel only move to a send queue.
    #[inline]
    pub(crate) fn flush(&mut self, outbox: &mut Outbox, calls: &Calls) -> FlushOutcome {
        match self {
            Outward::Stream { stream, bytes, done } => {
                while *done < bytes.len() {
                    match stream.write(&bytes[*done..], calls) {
                        WriteResult::Bytes(0) => return FlushOutcome::Full,
                        WriteResult::Bytes(sent) => *done += sent,
                        WriteResult::Broken => return FlushOutcome::Broken,
                    }
                }
                bytes.clear();
                *done = 0;
            }
            Outward::Udp { socket, batch } => return flushed(batch.post(outbox, socket, calls)),
            Outward::Packets { packets, batch } => {
                return if packets.enqueue(batch, calls) {
                    FlushOutcome::All
                } else {
                    FlushOutcome::Later
                };
            }
        }
        FlushOutcome::All
    }
}

fn flushed(obstacle: Option<Obstacle>) -> FlushOutcome {
    match obstacle {
        None => FlushOutcome::All,
        Some(Obstacle::Full) => FlushOutcome::Full,
        Some(Obstacle::TooLong) => FlushOutcome::TooLarge,
        Some(Obstacle::Refused) => FlushOutcome::Broken,
    }
}
