//! Reads and writes packets: Ethernet, IPv4 or IPv6, UDP.
//!
//! ```text
//! 0          14                34     42
//! | Ethernet | IPv4            | UDP  | payload ...
//! | Ethernet | IPv6                 | UDP  | payload ...
//! 0          14                     54     62
//! ```
//!
//! Where: `xdp` reads the headers of received packets and writes the headers of packets to send,
//! because the kernel's stack sees neither of these packets. This module makes no system calls.
//! Invariant: a packet that is read is one whole datagram from one machine to one machine, has the
//! length that its headers state, and has valid checksums. A written packet can be read back.
//! Source: RFC 1122, sections 3.2.1 and 4.1.3, on what a host drops.

mod checksum;
mod ethernet;
mod ip;
mod ipv4;
mod ipv6;
mod rejected;
#[cfg(test)]
mod tests;
mod udp;

use std::net::{IpAddr, SocketAddr};

pub(crate) use checksum::Sum;
use ethernet::NetworkProtocol;
pub use ethernet::{Mac, Macs};
pub use ip::Ips;
use memory::plant::{Fault, is};
pub use rejected::Rejected;
pub use udp::{Ports, Sums};

/// Size of all headers of a packet over IPv4.
pub const HEADERS_BYTES_V4: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + udp::HEADER_BYTES;
/// Size of all headers of a packet over IPv6.
pub const HEADERS_BYTES_V6: usize = ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + udp::HEADER_BYTES;
/// Size of the Ethernet header, which is not part of an interface's MTU.
pub const ETHERNET_BYTES: usize = ethernet::HEADER_BYTES;

/// The addresses and ports of a packet's sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The Ethernet addresses of sender and receiver, or of their routers.
    pub macs: Macs,
    /// The IP addresses of sender and receiver.
    pub ips: Ips,
    /// The UDP ports of sender and receiver.
    pub ports: Ports,
}

impl Ends {
    /// The sender's address and port.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        let ip: IpAddr = match self.ips {
            Ips::V4 { from, .. } => from.into(),
            Ips::V6 { from, .. } => from.into(),
        };
        SocketAddr::new(ip, self.ports.from)
    }

    /// The receiver's address and port.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        let ip: IpAddr = match self.ips {
            Ips::V4 { to, .. } => to.into(),
            Ips::V6 { to, .. } => to.into(),
        };
        SocketAddr::new(ip, self.ports.to)
    }

    /// Returns the ends of an answer to this packet. The answer goes to the Ethernet address from
    /// which the packet came, so that no route and no neighbour is looked up.
    #[inline]
    #[must_use]
    pub fn reversed(&self) -> Ends {
        let Ends { macs, ips, ports } = *self;
        Ends {
            macs: Macs { from: macs.to, to: macs.from },
            ips: match ips {
                Ips::V4 { from, to } => Ips::V4 { from: to, to: from },
                Ips::V6 { from, to } => Ips::V6 { from: to, to: from },
            },
            ports: Ports { from: ports.to, to: ports.from },
        }
    }

    /// Size of all headers before the payload.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        match self.ips {
            Ips::V4 { .. } => HEADERS_BYTES_V4,
            Ips::V6 { .. } => HEADERS_BYTES_V6,
        }
    }
}

/// The result of reading a packet's headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender and the receiver.
    pub ends: Ends,
    /// Length of the payload, which begins at `ends.header_bytes()`.
    pub payload_bytes: usize,
}

/// Reads a frame that carries UDP.
#[inline]
pub fn read(frame: &[u8], sums: Sums) -> Result<Packet, Rejected> {
    read_parted(frame, std::iter::empty(), sums)
}

/// Like `read`, but for a frame in several pieces: `frame` has all headers and the beginning of the
/// payload, and `pieces` has the rest of the payload.
#[inline]
pub fn read_parted<'f>(
    frame: &[u8],
    pieces: impl Iterator<Item = &'f [u8]> + Clone,
    sums: Sums,
) -> Result<Packet, Rejected> {
    let beyond = pieces.clone().map(<[u8]>::len).sum();
    let (macs, protocol, rest) = ethernet::read(frame)?;
    let (ips, rest, beyond) = match protocol {
        NetworkProtocol::Ipv4 => ipv4::read(rest, beyond)?,
        NetworkProtocol::Ipv6 => ipv6::read(rest, beyond)?,
    };
    let (ports, payload_bytes) = udp::read(rest, (beyond, pieces), &ips, sums)?;
    if !is_from_another(&ips) {
        return Err(Rejected::Sender);
    }
    Ok(Packet { ends: Ends { macs, ips, ports }, payload_bytes })
}

/// True if the sender's address belongs to one machine and differs from the receiver's address.
fn is_from_another(ips: &Ips) -> bool {
    match *ips {
        Ips::V4 { from, to } => {
            let is_many = from.is_multicast() || from.is_broadcast();
            (from != to || is(Fault::SelfAnswered))
                && !is_many
                && !from.is_unspecified()
                && !from.is_loopback()
        }
        Ips::V6 { from, to } => {
            let is_one = !from.is_multicast() && !from.is_unspecified() && !from.is_loopback();
            from != to && is_one
        }
    }
}

/// Writes the headers of a packet in front of the payload, which fills `frame` from
/// `ends.header_bytes()` to the end. Returns false if the frame has no room for the headers or is
/// longer than an IP packet can be; the bytes of `frame` are then undefined.
#[inline]
#[must_use]
pub fn write(frame: &mut [u8], ends: &Ends) -> bool {
    write_all(frame, (0, Some(Sum::default())), ends).is_some()
}

/// Like `write`, but for a packet that continues with `beyond_bytes` bytes after `frame`. `rest` is
/// the sum of these bytes; the caller has added each part of these bytes by `Sum::add_behind`, with
/// the part's offset in the packet.
#[inline]
#[must_use]
pub(crate) fn write_before(frame: &mut [u8], beyond_bytes: usize, rest: Sum, ends: &Ends) -> bool {
    write_all(frame, (beyond_bytes, Some(rest)), ends).is_some()
}

/// Like `write`, but for a packet that continues with `beyond_bytes` bytes after `frame`. The UDP
/// checksum covers only the pseudo header; the kernel completes the checksum at the returned
/// `SumAt`.
#[inline]
#[must_use]
pub fn write_partly(frame: &mut [u8], beyond_bytes: usize, ends: &Ends) -> Option<SumAt> {
    write_all(frame, (beyond_bytes, None), ends)?;
    let from = u16::try_from(ends.header_bytes() - udp::HEADER_BYTES).ok()?;
    Some(SumAt { from, offset: udp::SUM_AT })
}

/// The place of a checksum in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumAt {
    /// Offset of the first byte that is summed. The sum includes all bytes up to the frame's end.
    pub from: u16,
    /// Distance of the checksum from the byte at `from`.
    pub offset: u16,
}

/// Writes the headers. `rest` is the sum of the `beyond` bytes after `frame`. If `rest` is `None`,
/// the UDP checksum covers only the pseudo header.
#[inline]
fn write_all(frame: &mut [u8], (beyond, rest): (usize, Option<Sum>), ends: &Ends) -> Option<()> {
    let packet = match ends.ips {
        Ips::V4 { from, to } => {
            let packet = ethernet::write(frame, &ends.macs, NetworkProtocol::Ipv4)?;
            ipv4::write(packet, beyond, (from, to))?
        }
        Ips::V6 { from, to } => {
            let packet = ethernet::write(frame, &ends.macs, NetworkProtocol::Ipv6)?;
            ipv6::write(packet, beyond, (from, to))?
        }
    };
    udp::write(packet, (beyond, rest), &ends.ips, ends.ports)
}
