//! A client that sends requests in datagrams, behind memcached's frame.
//!
//! Where: client side, a wire's link. What is sent before the next reply is awaited is one message.
//! Invariant: a message that is too long for one datagram goes in several; of the answer, parts are
//! taken in any order, and only those of the last message.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use protocol::udp::Header;
use rustix::net::sockopt;

use super::Stop;

/// Bytes of a message that one datagram carries.
const PART_BYTES: usize = 8_000;

/// Has the kernel keep as much of what comes to `socket` as a test needs that is not given the
/// processor for a while. False if this process may not have that.
pub(crate) fn keep_megabytes(socket: &UdpSocket) -> bool {
    const BYTES: usize = 4 << 20;
    sockopt::set_socket_recv_buffer_size_force(socket, BYTES).is_ok()
        || sockopt::set_socket_recv_buffer_size(socket, BYTES).is_ok()
            && sockopt::socket_recv_buffer_size(socket).unwrap() >= BYTES
}

/// The two ends of the messages.
pub(super) struct Messages {
    socket: UdpSocket,
    server: SocketAddr,
    id: u16,
    /// What the next message will be.
    pub(super) unsent: Vec<u8>,
    /// The answer's parts so far.
    parts: Vec<Option<Vec<u8>>>,
}

impl Messages {
    pub(super) fn to(server: SocketAddr) -> Messages {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        keep_megabytes(&socket);
        Messages { socket, server, id: 0, unsent: Vec::new(), parts: Vec::new() }
    }

    /// Sends what is unsent, and waits at most `left` for a datagram. The answer goes to the end of
    /// `arrived` once it is whole.
    pub(super) fn receive(&mut self, left: Duration, arrived: &mut Vec<u8>) -> Result<(), Stop> {
        self.send();
        self.socket.set_read_timeout(Some(left)).unwrap();
        let mut datagram = [0; 2000];
        let bytes = match self.socket.recv(&mut datagram) {
            Ok(bytes) => bytes,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Stop::Silent),
                io::ErrorKind::Interrupted => return Ok(()),
                _ => return Err(Stop::Closed),
            },
        };
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

    fn send(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        self.id = self.id.wrapping_add(1);
        self.parts.clear();
        let parts = self.unsent.chunks(PART_BYTES);
        let total = u16::try_from(parts.len()).unwrap();
        for (number, part) in (0..).zip(parts) {
            let header = Header { id: self.id, number, total, flow: 0 };
            let datagram = [&header.bytes()[..], part].concat();
            self.socket.send_to(&datagram, self.server).unwrap();
        }
        self.unsent.clear();
    }
}
