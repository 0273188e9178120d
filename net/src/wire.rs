//! Packets as they are on the wire: Ethernet, IPv4 or IPv6, UDP.
//!
//! ```text
//! 0          14                34     42
//! | Ethernet | IPv4            | UDP  | payload ...
//! | Ethernet | IPv6                 | UDP  | payload ...
//! 0          14                     54     62
//! ```
//!
//! Where: what `xdp` receives is read here, and what it sends is written here; the kernel's network
//! stack sees neither. Pure: bytes in, bytes out.
//! Invariant: a packet that is read is one whole datagram from one machine to one machine, is as
//! long as its headers say, and its checksums are right. What is written reads back.
//! Source: RFC 1122, sections 3.2.1 and 4.1.3, on what a host drops.

mod checksum;
mod ethernet;
mod ipv4;
mod ipv6;
#[cfg(test)]
mod tests;
mod udp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(crate) use checksum::Sum;
use ethernet::Carries;
use memory::plant::{Fault, is};

/// The number of UDP in IP headers.
const UDP: u8 = 17;
/// How many routers what is written may pass.
const HOPS: u8 = 64;

/// Bytes of all headers of a packet over IPv4.
pub const HEADERS_BYTES_V4: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + udp::HEADER_BYTES;
/// Bytes of all headers of a packet over IPv6.
pub const HEADERS_BYTES_V6: usize = ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + udp::HEADER_BYTES;
/// Bytes of the Ethernet header, which an interface's MTU does not count.
pub const ETHERNET_BYTES: usize = ethernet::HEADER_BYTES;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True if it is one machine's: no group's and not zero.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// Ethernet addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// The sender's, or its router's.
    pub from: Mac,
    /// The receiver's, or its router's.
    pub to: Mac,
}

/// IP addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ips {
    /// Over IPv4.
    V4 {
        /// The sender's.
        from: Ipv4Addr,
        /// The receiver's.
        to: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// The sender's.
        from: Ipv6Addr,
        /// The receiver's.
        to: Ipv6Addr,
    },
}

/// UDP ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The sender's.
    pub from: u16,
    /// The receiver's.
    pub to: u16,
}

/// Who sends a packet to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// On this link.
    pub macs: Macs,
    /// From end to end.
    pub ips: Ips,
    /// At the ends.
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

    /// Those of an answer. It goes to the machine from which the packet came, on this link too: no
    /// route and no neighbour is looked up.
    #[inline]
    #[must_use]
    pub fn turned(&self) -> Ends {
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

    /// Bytes of all headers, before the payload.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        match self.ips {
            Ips::V4 { .. } => HEADERS_BYTES_V4,
            Ips::V6 { .. } => HEADERS_BYTES_V6,
        }
    }
}

/// Which UDP checksums are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// Those over the whole packet.
    Whole,
    /// Those over the pseudo header too. A kernel that sends to another one of the same machine
    /// leaves the rest to a network card that is not there.
    PartialToo,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// From whom to whom.
    pub ends: Ends,
    /// Bytes of the payload, which begins behind `ends.header_bytes()` bytes.
    pub payload_bytes: usize,
}

/// Why a frame is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// It ends within a header.
    Short,
    /// An Ethernet address is a group's, or zero.
    Group,
    /// It has a VLAN tag.
    Tagged,
    /// It carries neither IPv4 nor IPv6.
    NotIp,
    /// IPv4 with options.
    Options,
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// A part of an IPv4 packet.
    Fragment,
    /// IPv6 with a header before UDP's, such as that of a fragment.
    Extension,
    /// It carries no UDP.
    NotUdp,
    /// A header says that there are more bytes than there are, or fewer than its own.
    Length,
    /// The UDP checksum is wrong, or there is none over IPv6.
    Checksum,
    /// The sender is no single other machine: nobody could be answered there.
    Sender,
}

impl NotOurs {
    /// All reasons. The number of each is its place.
    pub const ALL: [NotOurs; 12] = [
        NotOurs::Short,
        NotOurs::Group,
        NotOurs::Tagged,
        NotOurs::NotIp,
        NotOurs::Options,
        NotOurs::HeaderChecksum,
        NotOurs::Fragment,
        NotOurs::Extension,
        NotOurs::NotUdp,
        NotOurs::Length,
        NotOurs::Checksum,
        NotOurs::Sender,
    ];
}

/// Reads a frame that carries UDP.
///
/// # Errors
/// Why it is none that can be taken.
#[inline]
pub fn read(frame: &[u8], sums: Sums) -> Result<Packet, NotOurs> {
    read_parted(frame, std::iter::empty(), sums)
}

/// As `read`, of a frame that goes on in other pieces. The first has all headers.
///
/// # Errors
/// As `read`.
#[inline]
pub fn read_parted<'f>(
    frame: &[u8],
    pieces: impl Iterator<Item = &'f [u8]> + Clone,
    sums: Sums,
) -> Result<Packet, NotOurs> {
    let beyond = pieces.clone().map(<[u8]>::len).sum();
    let (macs, carries, rest) = ethernet::read(frame)?;
    let (ips, rest, beyond) = match carries {
        Carries::Ipv4 => ipv4::read(rest, beyond)?,
        Carries::Ipv6 => ipv6::read(rest, beyond)?,
    };
    let (ports, payload_bytes) = udp::read(rest, (beyond, pieces), &ips, sums)?;
    if !is_from_another(&ips) {
        return Err(NotOurs::Sender);
    }
    Ok(Packet { ends: Ends { macs, ips, ports }, payload_bytes })
}

/// True if the sender is one machine, and not the receiver.
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

/// Writes the headers of a packet before its payload, which stands in `frame` behind
/// `ends.header_bytes()` bytes and to its end.
///
/// False, and nothing of use is written, if the frame has no room for the headers, or is longer
/// than an IP packet can be.
#[inline]
#[must_use]
pub fn write(frame: &mut [u8], ends: &Ends) -> bool {
    write_all(frame, (0, Some(Sum::default())), ends).is_some()
}

/// As `write`, for a packet of which `beyond_bytes` bytes are to follow those of `frame`. Their sum
/// is `rest`, to which each was added behind all that stand before it in the frame.
#[inline]
#[must_use]
pub(crate) fn write_before(frame: &mut [u8], beyond_bytes: usize, rest: Sum, ends: &Ends) -> bool {
    write_all(frame, (beyond_bytes, Some(rest)), ends).is_some()
}

/// As `write`, for a packet of which `beyond_bytes` bytes are to follow those of `frame`. Its UDP
/// checksum is one of `Sums::PartialToo`; where it stands, for whoever is to make it whole.
#[inline]
#[must_use]
pub fn write_partly(frame: &mut [u8], beyond_bytes: usize, ends: &Ends) -> Option<SumAt> {
    write_all(frame, (beyond_bytes, None), ends)?;
    let from = u16::try_from(ends.header_bytes() - udp::HEADER_BYTES).ok()?;
    Some(SumAt { from, offset: udp::SUM_AT })
}

/// Where a checksum stands in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumAt {
    /// Bytes of the frame before those that are summed up, to the frame's end.
    pub from: u16,
    /// Where the sum stands, behind `from`.
    pub offset: u16,
}

/// Bytes `beyond` the frame are to follow; without the sum of them the checksum is partial.
#[inline]
fn write_all(frame: &mut [u8], (beyond, rest): (usize, Option<Sum>), ends: &Ends) -> Option<()> {
    let packet = match ends.ips {
        Ips::V4 { from, to } => {
            let packet = ethernet::write(frame, &ends.macs, Carries::Ipv4)?;
            ipv4::write(packet, beyond, (from, to))?
        }
        Ips::V6 { from, to } => {
            let packet = ethernet::write(frame, &ends.macs, Carries::Ipv6)?;
            ipv6::write(packet, beyond, (from, to))?
        }
    };
    udp::write(packet, (beyond, rest), &ends.ips, ends.ports)
}
