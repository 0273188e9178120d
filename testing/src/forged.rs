//! Forges datagrams with a false sender's address, and Ethernet frames that no kernel would send.
//!
//! Where: in tests that check which senders and requests a server answers.
//! Invariant: packets leave their namespace only through the interface `WIRE`.
//! Source: raw(7), where sockets of `IPPROTO_RAW` send packets with their IP headers; packet(7).
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

use etherparse::{PacketBuilder, PacketBuilderStep, UdpHeader};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::bind;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, netdevice, sendto, socket_with,
    sockopt,
};

use crate::namespace::{Namespace, WIRE};

const HOPS: u8 = 64;

impl Namespace {
    /// Sends a datagram with the sender's address `from`, even if this namespace has another
    /// address. The kernel must have a route to `to`. Datagrams to IPv6 multicast groups leave
    /// through `WIRE`.
    ///
    /// # Panics
    /// One address is IPv4 and the other address is IPv6, or there is no route.
    pub fn forge(&self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let sent = self.on(|| send(from, to, &packet(from, to, payload)));
        sent.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
    }

    /// Opens a socket that sends Ethernet frames through this namespace's end of the link.
    ///
    /// # Panics
    /// The system refuses the socket.
    #[must_use]
    pub fn frames(&self) -> Frames {
        let opened = self.on(|| packet_socket(WIRE));
        Frames(opened.unwrap_or_else(|error| panic!("no packet socket: {error}")))
    }

    /// Makes an Ethernet frame from this namespace's interface to the interface of `other`. The
    /// frame holds a datagram from address `from` to address `to`. Both have the same family.
    ///
    /// # Panics
    /// One address is IPv4 and the other address is IPv6.
    #[must_use]
    pub fn frame(
        &self,
        other: &Namespace,
        (from, to): (SocketAddr, SocketAddr),
        payload: &[u8],
    ) -> Vec<u8> {
        let link = PacketBuilder::ethernet2(self.mac, other.mac);
        let built = match (from.ip(), to.ip()) {
            (IpAddr::V4(here), IpAddr::V4(there)) => link.ipv4(here.octets(), there.octets(), HOPS),
            (IpAddr::V6(here), IpAddr::V6(there)) => link.ipv6(here.octets(), there.octets(), HOPS),
            _ => panic!("{from} and {to}"),
        };
        written(built.udp(from.port(), to.port()), payload)
    }
}

/// A socket that sends Ethernet frames unchanged.
#[derive(Debug)]
pub struct Frames(OwnedFd);

impl Frames {
    /// Sends `frame`, which begins with an Ethernet header.
    ///
    /// # Panics
    /// The interface refuses the frame.
    pub fn send(&self, frame: &[u8]) {
        let sent = rustix::net::send(&self.0, frame, SendFlags::empty());
        assert_eq!(sent, Ok(frame.len()));
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
    written(built.udp(from.port(), to.port()), payload)
}

fn written(built: PacketBuilderStep<UdpHeader>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = built.write(&mut bytes, payload);
    written.unwrap_or_else(|error| panic!("no packet: {error}"));
    bytes
}

fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let family = AddressFamily::PACKET;
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let addresses = getifaddrs()?.filter(|one| one.interface_name == interface);
    let of_link = addresses.filter_map(|one| one.address?.as_link_addr().copied()).next();
    let of_link = of_link.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
    bind(socket.as_raw_fd(), &of_link)?;
    Ok(socket)
}

fn send(from: SocketAddr, to: SocketAddr, packet: &[u8]) -> io::Result<usize> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))?;
    sockopt::set_socket_broadcast(&socket, true)?;
    // A raw socket interprets the port as a protocol number; 0 means the socket's own protocol.
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
