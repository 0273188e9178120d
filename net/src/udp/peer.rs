//! A datagram's peer: its sender, and our address to which the datagram was sent.
//!
//! Where: `inbox` returns a peer with each datagram; `outbox` takes a peer with each answer.
//! Invariant: a datagram to a peer leaves from the address to which the peer sent, even if the
//! route to the peer leads elsewhere. Some clients accept answers only from that address.
//! Source: ip(7), `IP_PKTINFO`; ipv6(7), `IPV6_RECVPKTINFO`; RFC 3542, section 6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::control::Control;

/// Size of a `sockaddr_in6`, the longest address.
pub(super) const ADDRESS_BYTES: usize = 28;
/// Size of a `sockaddr_in`.
const V4_ADDRESS_BYTES: usize = 16;

/// The sender of a datagram, and our address to which the datagram was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub(super) address: Address,
    pub(super) destination: Destination,
}

/// A socket address in the kernel's layout.
///
/// ```text
/// 0        2      4        8         24      28
/// | family | port | IPv4 |                      the port and addresses are big-endian
/// | family | port | flow   | IPv6    | scope |
/// ```
#[repr(C, align(4))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) bytes: [u8; ADDRESS_BYTES],
    /// Number of bytes in use; the other bytes are zero.
    pub(super) len: libc::socklen_t,
}

/// The address that a datagram was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The address to which the socket is bound; the kernel reported no other address.
    Bound,
    /// `interface` is the index of the interface that received the datagram. For broadcast and
    /// multicast, `ours` is the interface's address; otherwise `ours` equals `destination`.
    V4 {
        destination: Ipv4Addr,
        ours: Ipv4Addr,
        interface: u32,
    },
    V6 {
        destination: Ipv6Addr,
        interface: u32,
    },
}

impl Peer {
    pub(super) const NONE: Peer = Peer {
        address: Address { bytes: [0; ADDRESS_BYTES], len: 0 },
        destination: Destination::Bound,
    };

    /// The sender's address and port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.address.bytes[..];
        let (family, rest) = bytes.split_first_chunk::<2>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (word, rest) = rest.split_first_chunk::<4>()?;
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        let port = u16::from_be_bytes(*port);
        let v6_len = ADDRESS_BYTES;
        match (i32::from(u16::from_ne_bytes(*family)), self.address.len as usize) {
            (libc::AF_INET, V4_ADDRESS_BYTES..) => Some((Ipv4Addr::from(*word), port).into()),
            (libc::AF_INET6, len) if len >= v6_len => {
                let scope = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
                let flow = u32::from_be_bytes(*word);
                let ip = Ipv6Addr::from(*ip);
                Some(std::net::SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }

    /// The address that the datagram was sent to; `None` if the socket is bound to that address.
    #[must_use]
    pub fn destination(&self) -> Option<IpAddr> {
        match self.destination {
            Destination::Bound => None,
            Destination::V4 { destination, .. } => Some(destination.into()),
            Destination::V6 { destination, .. } => Some(destination.into()),
        }
    }

    /// The index of the interface that received the datagram; 0 if `destination` returns `None`.
    #[must_use]
    pub fn interface(&self) -> u32 {
        match self.destination {
            Destination::Bound => 0,
            Destination::V4 { interface, .. } | Destination::V6 { interface, .. } => interface,
        }
    }

    /// True if the datagram was sent to a multicast or broadcast address. A socket bound to a
    /// unicast address gets no such datagram.
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        match self.destination {
            Destination::Bound => false,
            Destination::V4 { destination, ours, .. } => {
                destination.is_multicast() || destination != ours
            }
            Destination::V6 { destination, .. } => destination.is_multicast(),
        }
    }

    pub(super) fn has_source(&self) -> bool {
        self.destination != Destination::Bound
    }

    /// Writes a control message after the first `bytes` bytes, so that a datagram leaves from the
    /// address to which the peer sent. The message names the interface only if the address is
    /// link-local. Returns the new number of bytes.
    pub(super) fn leave_from(&self, control: &mut Control, bytes: usize) -> usize {
        match self.destination {
            Destination::Bound => bytes,
            Destination::V4 { ours, .. } => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ours.octets());
                control.push(bytes, libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
            }
            Destination::V6 { destination, .. } if destination.is_multicast() => bytes,
            Destination::V6 { destination, interface } => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&destination.octets());
                if destination.is_unicast_link_local() {
                    info[16..].copy_from_slice(&interface.to_ne_bytes());
                }
                control.push(bytes, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
            }
        }
    }
}

impl Destination {
    /// Reads a control message; `None` if the message does not hold the datagram's destination.
    ///
    /// ```text
    /// 0           4      8       12      in_pktinfo: interface, our address, destination
    /// 0                        16    20  in6_pktinfo: destination, interface
    /// ```
    pub(super) fn read(level: i32, kind: i32, value: &[u8]) -> Option<Destination> {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let (interface, rest) = value.split_first_chunk::<4>()?;
                let (ours, rest) = rest.split_first_chunk::<4>()?;
                let destination = rest.first_chunk::<4>()?;
                let interface = u32::from_ne_bytes(*interface);
                Some(Destination::V4 {
                    destination: (*destination).into(),
                    ours: (*ours).into(),
                    interface,
                })
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let (destination, rest) = value.split_first_chunk::<16>()?;
                let interface = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
                Some(Destination::V6 { destination: (*destination).into(), interface })
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Peer")
            .field("address", &self.address())
            .field("destination", &self.destination)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_leaves_from_the_address_asked_and_names_an_interface_only_where_it_must() {
        let v4 = |ours: [u8; 4]| Destination::V4 {
            destination: [224, 0, 0, 1].into(),
            ours: ours.into(),
            interface: 7,
        };
        let v6 = |destination: &str| Destination::V6 {
            destination: destination.parse().unwrap(),
            interface: 7,
        };
        for (destination, source) in [
            (Destination::Bound, None),
            (v4([10, 1, 2, 3]), Some("10.1.2.3")),
            (v6("fd00::5"), Some("fd00::5")),
            (v6("fe80::5"), Some("fe80::5")),
            (v6("ff02::1"), None),
        ] {
            let (mut control, peer) = (Control::EMPTY, Peer { destination, ..Peer::NONE });
            let bytes = peer.leave_from(&mut control, 0);
            let read_back: Vec<Destination> = control
                .read(bytes)
                .map(|(level, kind, value)| Destination::read(level, kind, value).unwrap())
                .collect();
            let due = source.map(|source| match source.parse().unwrap() {
                IpAddr::V4(ours) => {
                    Destination::V4 { destination: [0; 4].into(), ours, interface: 0 }
                }
                IpAddr::V6(destination) => Destination::V6 {
                    destination,
                    interface: if destination.is_unicast_link_local() { 7 } else { 0 },
                },
            });
            assert_eq!(read_back, due.into_iter().collect::<Vec<_>>(), "{destination:?}");
        }
    }
}
