//! The Ethernet header.
//!
//! ```text
//! 0             6             12     14
//! | to          | from        | type | IPv4 or IPv6 ...
//! ```
//!
//! Where: the first bytes of a frame. The network card checks the checksum at the frame's end.
//! Invariant: a frame that is read goes from one machine to one machine, and has no VLAN tag.
//! Source: IEEE 802.3, clause 3; RFC 894, RFC 2464.

use super::rejected::Rejected;

pub(super) const HEADER_BYTES: usize = 14;

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const IPV6: [u8; 2] = 0x86dd_u16.to_be_bytes();
/// The types of VLAN tags: 802.1Q, 802.1ad, and the predecessor of 802.1ad.
const TAGS: [[u8; 2]; 3] =
    [0x8100_u16.to_be_bytes(), 0x88a8_u16.to_be_bytes(), 0x9100_u16.to_be_bytes()];

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// True if this is the address of one machine: neither a group address nor zero.
    #[must_use]
    pub fn is_one(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

/// The Ethernet addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// The Ethernet address of the sender, or of the last router.
    pub from: Mac,
    /// The Ethernet address of the receiver, or of the next router.
    pub to: Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkProtocol {
    Ipv4,
    Ipv6,
}

/// Reads the header; returns the addresses, the carried protocol, and the bytes after the header.
#[inline]
pub(super) fn read(frame: &[u8]) -> Result<(Macs, NetworkProtocol, &[u8]), Rejected> {
    let (header, rest) = frame.split_first_chunk::<HEADER_BYTES>().ok_or(Rejected::Short)?;
    let [t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, kind @ ..] = *header;
    let macs = Macs { from: Mac([f0, f1, f2, f3, f4, f5]), to: Mac([t0, t1, t2, t3, t4, t5]) };
    if !macs.from.is_one() || !macs.to.is_one() {
        return Err(Rejected::Group);
    }
    match kind {
        IPV4 => Ok((macs, NetworkProtocol::Ipv4, rest)),
        IPV6 => Ok((macs, NetworkProtocol::Ipv6, rest)),
        kind if TAGS.contains(&kind) => Err(Rejected::Tagged),
        _ => Err(Rejected::NotIp),
    }
}

/// Writes the header; returns the bytes after the header.
#[inline]
pub(super) fn write<'f>(
    frame: &'f mut [u8],
    macs: &Macs,
    protocol: NetworkProtocol,
) -> Option<&'f mut [u8]> {
    let (header, rest) = frame.split_first_chunk_mut::<HEADER_BYTES>()?;
    header[..6].copy_from_slice(&macs.to.0);
    header[6..12].copy_from_slice(&macs.from.0);
    header[12..].copy_from_slice(match protocol {
        NetworkProtocol::Ipv4 => &IPV4,
        NetworkProtocol::Ipv6 => &IPV6,
    });
    Some(rest)
}
