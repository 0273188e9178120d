//! The IPv6 header, without extensions.
//!
//! ```text
//! 0                4       6     7      8       24      40
//! | 6, class, flow | bytes | UDP | hops | from  | to    | UDP header ...
//! ```
//!
//! Where: after the Ethernet header.
//! Invariant: a packet that is read is no fragment; the bytes after its end are padding.
//! Source: RFC 8200, section 3.

use std::net::Ipv6Addr;

use super::ip::{HOPS, Ips, UDP};
use super::rejected::Rejected;

pub(super) const HEADER_BYTES: usize = 40;

const VERSION: u8 = 6;

/// Numbers of extension headers that may precede the UDP header: hop-by-hop options, routing,
/// fragment, authentication, destination options, mobility, host identity, shim6, experiments.
const EXTENSIONS: [u8; 10] = [0, 43, 44, 51, 60, 135, 139, 140, 253, 254];

/// Reads the header. Returns the addresses, the bytes from the UDP header on, and how many of the
/// `beyond` bytes after `packet` belong to the packet.
#[inline]
pub(super) fn read(packet: &[u8], beyond: usize) -> Result<(Ips, &[u8], usize), Rejected> {
    let (header, rest) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(Rejected::Short)?;
    let [version, _, _, _, b0, b1, carries, _, addresses @ ..] = header;
    if version >> 4 != VERSION {
        return Err(Rejected::NotIp);
    }
    if *carries != UDP {
        let is_extension = EXTENSIONS.contains(carries);
        return Err(if is_extension { Rejected::Extension } else { Rejected::NotUdp });
    }
    let bytes = usize::from(u16::from_be_bytes([*b0, *b1]));
    let rest = &rest[..bytes.min(rest.len())];
    let later = bytes - rest.len();
    if later > beyond {
        return Err(Rejected::Length);
    }
    let ([from, to], []) = addresses.as_chunks::<16>() else { return Err(Rejected::Short) };
    Ok((Ips::V6 { from: (*from).into(), to: (*to).into() }, rest, later))
}

/// Writes the header of a packet that consists of `packet` and `beyond` further bytes. Returns the
/// bytes of `packet` after the header.
#[inline]
pub(super) fn write(
    packet: &mut [u8],
    beyond: usize,
    (from, to): (Ipv6Addr, Ipv6Addr),
) -> Option<&mut [u8]> {
    let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
    let bytes = u16::try_from(rest.len() + beyond).ok()?;
    *header = [0; HEADER_BYTES];
    header[0] = VERSION << 4;
    header[4..6].copy_from_slice(&bytes.to_be_bytes());
    (header[6], header[7]) = (UDP, HOPS);
    header[8..24].copy_from_slice(&from.octets());
    header[24..].copy_from_slice(&to.octets());
    Some(rest)
}
