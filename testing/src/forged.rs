//! Datagrams from senders that did not send them.
//!
//! Where: under tests of whom a server answers.
//! Invariant: none leaves its namespace by another interface than `WIRE`.
//! Source: raw(7), for which a socket of `IPPROTO_RAW` takes packets with their IP headers.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use etherparse::PacketBuilder;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, netdevice, sendto, socket_with,
    sockopt,
};

use crate::namespace::{Namespace, WIRE};

/// Routers that a packet may pass.
const HOPS: u8 = 64;

impl Namespace {
    /// Sends a datagram that says it is from `from`, whoever that is. The kernel must have a route
    /// to `to`; to a group of IPv6 it goes by `WIRE`.
    ///
    /// # Panics
    /// The addresses are of two families; there is no route.
    pub fn forge(&self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let sent = self.on(|| send(from, to, &packet(from, to, payload)));
        sent.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
    }
}

fn packet(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let built = match (from.ip(), to.ip()) {
        (IpAddr::V4(here), IpAddr::V4(there)) => {
            PacketBuilder::ipv4(here.octets(), there.octets(), HOPS)
        }
        (IpAddr::V6(here), IpAddr::V6(there)) => {
            PacketBuilder::ipv6(here.octets(), there.octets(), HOPS)
        }
        _ => panic!("{from} and {to}"),
    };
    let mut bytes = Vec::new();
    let written = built.udp(from.port(), to.port()).write(&mut bytes, payload);
    written.unwrap_or_else(|error| panic!("no packet: {error}"));
    bytes
}

fn send(from: SocketAddr, to: SocketAddr, packet: &[u8]) -> io::Result<usize> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
    sockopt::set_socket_broadcast(&socket, true)?;
    // The port of a raw socket's address is a protocol, here that of the socket.
    let to = match to.ip() {
        IpAddr::V6(ip) if ip.is_multicast() => {
            by_wire(ip, netdevice::name_to_index(&socket, WIRE)?)
        }
        ip => SocketAddr::new(ip, 0),
    };
    Ok(sendto(&socket, packet, SendFlags::empty(), &to)?)
}

fn by_wire(ip: Ipv6Addr, interface: u32) -> SocketAddr {
    SocketAddrV6::new(ip, 0, 0, interface).into()
}

#[cfg(test)]
mod tests {
    use crate::namespace::{Veth, pair};
    use std::net::{IpAddr, UdpSocket};
    use std::time::Duration;

    #[test]
    fn a_forged_datagram_comes_from_whom_it_says() {
        let Some([near, far]) = pair(Veth::default()) else { return };
        let senders: [(IpAddr, IpAddr); 2] =
            [([10, 77, 0, 99].into(), far.v4.into()), ("fd77::99".parse().unwrap(), far.v6.into())];
        for (from, to) in senders {
            let socket = far.on(|| UdpSocket::bind((to, 4000)).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            for port in [0, 1, 4000, 65535] {
                near.forge((from, port).into(), (to, 4000).into(), b"hello");
                let mut buffer = [0; 10];
                let (bytes, sender) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!((&buffer[..bytes], sender), (&b"hello"[..], (from, port).into()));
            }
        }
    }
}
