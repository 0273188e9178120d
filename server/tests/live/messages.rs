//! A client that sends requests in datagrams with memcached's UDP frame.
//!
//! Where: client side, as the `Link` of a `Wire`. A message is all bytes sent before the next wait
//! for a reply.
//! Invariant: a message too long for one datagram goes in several datagrams; a message too long for
//! UDP goes over TCP. Only parts of the last message's answer are accepted, in any order.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use columns::limits::MESSAGE_BYTES_MAX;
use protocol::udp::Header;
use rustix::net::sockopt;
use testing::namespace::Namespace;

use super::Stop;

/// Maximum bytes of a message in one datagram over loopback. Over a link between namespaces, the
/// maximum is `PART_BYTES_OF_LINK`.
const PART_BYTES: usize = 8_000;
const PART_BYTES_OF_LINK: usize = 1_400;

/// Enlarges the receive buffer of `socket`, which keeps datagrams while the test does not read.
/// Returns false if the kernel refuses.
pub(crate) fn keep_megabytes(socket: &UdpSocket) -> bool {
    const BYTES: usize = 4 << 20;
    sockopt::set_socket_recv_buffer_size_force(socket, BYTES).is_ok()
        || sockopt::set_socket_recv_buffer_size(socket, BYTES).is_ok()
            && sockopt::socket_recv_buffer_size(socket).unwrap() >= BYTES
}

pub(super) struct Messages {
    socket: UdpSocket,
    server: SocketAddr,
    id: u16,
    part_bytes: usize,
    pub(super) unsent: Vec<u8>,
    parts: Vec<Option<Vec<u8>>>,
    /// A connection for messages that are too long for UDP.
    stream: TcpStream,
    is_by_stream: bool,
}

impl Messages {
    /// The server's UDP port is `port`, and its TCP address is `tcp`.
    pub(super) fn here(port: u16, tcp: SocketAddr) -> Messages {
        Messages::between(tcp.ip(), (tcp.ip(), port).into(), tcp, PART_BYTES)
    }

    /// Like `here`, but with the client in the namespace `near` and the server in `far`.
    pub(super) fn over_link([near, far]: &[Namespace; 2], port: u16, tcp: SocketAddr) -> Messages {
        let udp = (far.v4, port).into();
        near.on(|| Messages::between(near.v4.into(), udp, tcp, PART_BYTES_OF_LINK))
    }

    fn between(here: IpAddr, server: SocketAddr, tcp: SocketAddr, part_bytes: usize) -> Messages {
        let socket = UdpSocket::bind((here, 0)).unwrap();
        keep_megabytes(&socket);
        let stream = TcpStream::connect(tcp).unwrap();
        let (unsent, parts) = (Vec::new(), Vec::new());
        let (id, is_by_stream) = (0, false);
        Messages { socket, server, id, part_bytes, unsent, parts, stream, is_by_stream }
    }

    /// Sends the unsent bytes, and waits for a datagram. If the datagram completes the answer,
    /// appends the answer to `arrived`.
    pub(super) fn receive(&mut self, left: Duration, arrived: &mut Vec<u8>) -> Result<(), Stop> {
        self.send();
        self.socket.set_read_timeout(Some(left)).unwrap();
        self.stream.set_read_timeout(Some(left)).unwrap();
        let mut datagram = [0; 2000];
        let received = match self.is_by_stream {
            true => self.stream.read(&mut datagram),
            false => self.socket.recv(&mut datagram),
        };
        let bytes = match received {
            Ok(0) if self.is_by_stream => return Err(Stop::Closed),
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Stop::Silent),
                io::ErrorKind::Interrupted => return Ok(()),
                _ => return Err(Stop::Closed),
            },
        };
        if self.is_by_stream {
            arrived.extend_from_slice(&datagram[..bytes]);
            return Ok(());
        }
        let (header, part) = Header::read(&datagram[..bytes]).unwrap();
        if header.id != self.id {
            return Ok(());
        }
        self.parts.resize(header.total.into(), None);
        self.parts[usize::from(header.number)] = Some(part.to_vec());
        if self.parts.iter().all(Option::is_some) {
            arrived.extend(std::mem::take(&mut self.parts).into_iter().flatten().flatten());
        }
        Ok(())
    }

    /// Sends the unsent bytes as a message, then `question` as another message, and waits for the
    /// answer to `question`. Appends the answer to the first message to `arrived`.
    pub(super) fn await_later_answer(
        &mut self,
        question: &[u8],
        left: Duration,
        arrived: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        self.send();
        let id = self.id;
        self.unsent.extend_from_slice(question);
        self.send();
        self.socket.set_read_timeout(Some(left)).unwrap();
        let mut datagram = [0; 2000];
        loop {
            let bytes = match self.socket.recv(&mut datagram) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Stop::Silent),
            };
            let (header, part) = Header::read(&datagram[..bytes]).unwrap();
            if header.id == self.id {
                return Ok(());
            }
            arrived.extend_from_slice(if header.id == id { part } else { b"" });
        }
    }

    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        self.is_by_stream = self.unsent.len() > MESSAGE_BYTES_MAX;
        if self.is_by_stream {
            // If the server closes the connection meanwhile, the next read returns `Stop::Closed`.
            let sent = self.stream.write_all(&std::mem::take(&mut self.unsent));
            let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
            assert!(sent.map_or_else(|error| closed.contains(&error.kind()), |()| true));
            return;
        }
        self.id = self.id.wrapping_add(1);
        self.parts.clear();
        let parts = self.unsent.chunks(self.part_bytes);
        let total = u16::try_from(parts.len()).unwrap();
        for (number, part) in (0..).zip(parts) {
            let header = Header { id: self.id, number, total, flow: 0 };
            let datagram = [&header.bytes()[..], part].concat();
            self.socket.send_to(&datagram, self.server).unwrap();
        }
        self.unsent.clear();
    }
}
