//! The peer of a datagram: its sender, and the address of ours that it was sent to.
//!
//! Where: from `inbox`, with each datagram, to `outbox`, with each answer.
//! Invariant: a datagram to a peer leaves from the address that the peer sent to, whatever the
//! route back is, because some clients accept answers only from that address.
//! Source: ip(7), `IP_PKTINFO`; ipv6(7), `IPV6_RECVPKTINFO`; RFC 3542, section 6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::control::Control;

/// Size of a `sockaddr_in6`, the longer of the two.
pub(super) const ADDRESS_BYTES: usize = 28;
/// Size of a `sockaddr_in`.
const V4_ADDRESS_BYTES: usize = 16;

/// The sender of a datagram, and the address of ours that it was sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub(super) address: Address,
    pub(super) asked: Asked,
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
    /// Number of bytes in use; the others are zero, for all of a socket's addresses have one
    /// length.
    pub(super) len: libc::socklen_t,
}

/// The address that a datagram was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The address to which the socket is bound.
    Bound,
    /// Another address: `asked` is the datagram's destination; `ours` is the same or, for a
    /// broadcast or multicast address, the interface's own.
    V4 {
        asked: Ipv4Addr,
        ours: Ipv4Addr,
        interface: u32,
    },
    V6 {
        asked: Ipv6Addr,
        interface: u32,
    },
}

impl Peer {
    pub(super) const NONE: Peer =
        Peer { address: Address { bytes: [0; ADDRESS_BYTES], len: 0 }, asked: Asked::Bound };

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

    /// The address that the datagram was sent to; `None` if the socket is bound to one address,
    /// which is then the destination.
    #[must_use]
    pub fn asked(&self) -> Option<IpAddr> {
        match self.asked {
            Asked::Bound => None,
            Asked::V4 { asked, .. } => Some(asked.into()),
            Asked::V6 { asked, .. } => Some(asked.into()),
        }
    }

    /// The index of the interface that the datagram came by; 0 if `asked` is `None`.
    #[must_use]
    pub fn interface(&self) -> u32 {
        match self.asked {
            Asked::Bound => 0,
            Asked::V4 { interface, .. } | Asked::V6 { interface, .. } => interface,
        }
    }

    /// True if the datagram was sent to a multicast or broadcast address. A socket bound to a
    /// unicast address gets no such datagram.
    #[must_use]
    pub fn is_for_many(&self) -> bool {
        match self.asked {
            Asked::Bound => false,
            Asked::V4 { asked, ours, .. } => asked.is_multicast() || asked != ours,
            Asked::V6 { asked, .. } => asked.is_multicast(),
        }
    }

    /// True if `leave_from` has something to write.
    pub(super) fn has_source(&self) -> bool {
        self.asked != Asked::Bound
    }

    /// Writes a control message, behind the first `bytes` bytes, that has a datagram leave from the
    /// address asked. Returns the new number of bytes.
    ///
    /// The message names an interface only for a link-local address, which needs one: a reply
    /// may take another way than the request came.
    pub(super) fn leave_from(&self, control: &mut Control, bytes: usize) -> usize {
        match self.asked {
            Asked::Bound => bytes,
            Asked::V4 { ours, .. } => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ours.octets());
                control.push(bytes, libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
            }
            Asked::V6 { asked, .. } if asked.is_multicast() => bytes,
            Asked::V6 { asked, interface } => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&asked.octets());
                if asked.is_unicast_link_local() {
                    info[16..].copy_from_slice(&interface.to_ne_bytes());
                }
                control.push(bytes, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)
            }
        }
    }
}

impl Asked {
    /// Reads a control message, if it holds the address asked.
    ///
    /// ```text
    /// 0           4      8       12      in_pktinfo: interface, our address, the datagram's
    /// 0                        16    20  in6_pktinfo: the datagram's, interface
    /// ```
    pub(super) fn read(level: i32, kind: i32, value: &[u8]) -> Option<Asked> {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let (interface, rest) = value.split_first_chunk::<4>()?;
                let (ours, rest) = rest.split_first_chunk::<4>()?;
                let asked = rest.first_chunk::<4>()?;
                let interface = u32::from_ne_bytes(*interface);
                Some(Asked::V4 { asked: (*asked).into(), ours: (*ours).into(), interface })
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let (asked, rest) = value.split_first_chunk::<16>()?;
                let interface = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
                Some(Asked::V6 { asked: (*asked).into(), interface })
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Peer")
            .field("address", &self.address())
            .field("asked", &self.asked)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_leaves_from_the_address_asked_and_names_an_interface_only_where_it_must() {
        let v4 = |ours: [u8; 4]| Asked::V4 {
            asked: [224, 0, 0, 1].into(),
            ours: ours.into(),
            interface: 7,
        };
        let v6 = |asked: &str| Asked::V6 { asked: asked.parse().unwrap(), interface: 7 };
        for (asked, source) in [
            (Asked::Bound, None),
            (v4([10, 1, 2, 3]), Some("10.1.2.3")),
            (v6("fd00::5"), Some("fd00::5")),
            (v6("fe80::5"), Some("fe80::5")),
            (v6("ff02::1"), None),
        ] {
            let (mut control, peer) = (Control::EMPTY, Peer { asked, ..Peer::NONE });
            let bytes = peer.leave_from(&mut control, 0);
            let told: Vec<Asked> = control
                .read(bytes)
                .map(|(level, kind, value)| Asked::read(level, kind, value).unwrap())
                .collect();
            let due = source.map(|source| match source.parse().unwrap() {
                IpAddr::V4(ours) => Asked::V4 { asked: [0; 4].into(), ours, interface: 0 },
                IpAddr::V6(asked) => Asked::V6 {
                    asked,
                    interface: if asked.is_unicast_link_local() { 7 } else { 0 },
                },
            });
            assert_eq!(told, due.into_iter().collect::<Vec<_>>(), "{asked:?}");
        }
    }
}
