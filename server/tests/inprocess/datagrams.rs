//! A client that sends datagrams and joins the parts of answers.
//!
//! Where: shared by the tests of UDP.
//! Invariant: an answer comes from the address to which the request went, and has the request's id.
//! Each part comes once and has at most 1,400 bytes, as in memcached. Every wait has a deadline.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use hypostyle::run::Server;
use hypostyle::start::settings::{Listen, Port};
use protocol::ProtocolMode;
use protocol::udp::{ANSWER_BYTES_MAX, Header};

use super::{PATIENCE, shown};

/// If no answer comes within this time, the datagram counts as unanswered.
const SILENCE: Duration = Duration::from_millis(100);

pub(crate) fn at(host: &str) -> Vec<Listen> {
    vec![Listen { host: Some(host.to_owned()), port: Port::Any, protocol: ProtocolMode::Auto }]
}

/// The value of `udp_allow` for all networks, so that the server limits no answers.
pub(crate) fn everybody() -> Vec<ipnet::IpNet> {
    ["0.0.0.0/0", "::/0"].map(|network| network.parse().unwrap()).to_vec()
}

/// Repeats `receive` if a signal interrupts it, because the kernel does not restart a `recv` on a
/// socket with a timeout.
pub(crate) fn uninterrupted<T>(mut receive: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

pub(crate) struct Client {
    pub(crate) socket: UdpSocket,
    pub(crate) server: SocketAddr,
    pub(crate) id: u16,
}

impl Client {
    pub(crate) fn of(server: &Server) -> Client {
        Client::to(server.datagram_addresses()[0])
    }

    pub(crate) fn to(server: SocketAddr) -> Client {
        let here = if server.is_ipv4() { "127.0.0.1" } else { "::1" };
        Client::at(here.parse().unwrap(), server)
    }

    pub(crate) fn at(here: IpAddr, server: SocketAddr) -> Client {
        let socket = UdpSocket::bind((here, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket, server, id: 0x0102 }
    }

    /// Sends `message` in several datagrams. `order` rearranges the datagrams before they are sent.
    pub(crate) fn send_parts(
        &mut self,
        message: &[u8],
        part_bytes: usize,
        order: fn(&mut Vec<Vec<u8>>),
    ) {
        self.id = self.id.wrapping_add(1);
        let parts: Vec<&[u8]> = message.chunks(part_bytes).collect();
        let total = u16::try_from(parts.len()).unwrap();
        let mut datagrams: Vec<Vec<u8>> = (0..)
            .zip(parts)
            .map(|(number, part)| {
                let header = Header { id: self.id, number, total, flow: 0 };
                [&header.bytes()[..], part].concat()
            })
            .collect();
        order(&mut datagrams);
        for datagram in datagrams {
            self.socket.send_to(&datagram, self.server).unwrap();
        }
    }

    pub(crate) fn send(&mut self, message: impl AsRef<[u8]>) -> u16 {
        self.send_parts(message.as_ref(), 60_000, |_| {});
        self.id
    }

    pub(crate) fn receive(&mut self) -> (Vec<u8>, usize) {
        self.receive_of(self.id)
    }

    pub(crate) fn receive_of(&mut self, id: u16) -> (Vec<u8>, usize) {
        let mut parts: Vec<Option<Vec<u8>>> = Vec::new();
        let mut buffer = [0; 65_536];
        loop {
            let (bytes, from) = uninterrupted(|| self.socket.recv_from(&mut buffer)).unwrap();
            assert_eq!(from, self.server, "the answer's source is the request's destination");
            let (header, part) = Header::read(&buffer[..bytes]).unwrap();
            assert_eq!(header.id, id);
            assert!(bytes <= ANSWER_BYTES_MAX, "{bytes} bytes");
            parts.resize(header.total.into(), None);
            let place = &mut parts[usize::from(header.number)];
            assert!(place.is_none(), "part {} came twice", header.number);
            *place = Some(part.to_vec());
            if parts.iter().all(Option::is_some) {
                let count = parts.len();
                return (parts.into_iter().flatten().flatten().collect(), count);
            }
        }
    }

    pub(crate) fn expect(&mut self, id: u16, reply: impl AsRef<[u8]>) {
        let (got, _) = self.receive_of(id);
        let reply = reply.as_ref();
        assert!(got == reply, "{:?} instead of {:?}", shown(&got), shown(reply));
    }

    pub(crate) fn ask(&mut self, message: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        let id = self.send(message);
        self.expect(id, reply);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Asserts that no answer comes within `SILENCE`.
    pub(crate) fn expect_silence(&mut self) {
        self.socket.set_read_timeout(Some(SILENCE)).unwrap();
        let got = self.socket.recv_from(&mut [0; 65_536]);
        assert!(got.is_err(), "an answer of {got:?}");
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}
