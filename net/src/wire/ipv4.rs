//! The IPv4 header, without options.
//!
//! ```text
//! 0      1      2       4      6       8     9      10       12       16       20
//! | 0x45 | DSCP | bytes | id   | parts | TTL | UDP  | sum    | from   | to     | UDP header ...
//! ```
//!
//! Where: after the Ethernet header.
//! Invariant: a packet that is read is no fragment; the bytes after its end are padding of a short
//! frame. A packet that is written forbids fragmentation, and therefore needs no id.
//! Source: RFC 791, section 3.1; RFC 6864, section 4.1, on atomic datagrams.

use std::net::Ipv4Addr;

use memory::plant::{Fault, is};

use super::checksum::Sum;
use super::ip::{HOPS, Ips, UDP};
use super::rejected::Rejected;

pub(super) const HEADER_BYTES: usize = 20;

/// The first byte of the header: version 4, and a length of five words of four bytes.
const VERSION_AND_WORDS: u8 = 0x45;
/// Values of the field `parts`: `WHOLE` forbids fragmentation; only fragments have bits of `PART`.
const WHOLE: [u8; 2] = 0x4000_u16.to_be_bytes();
const PART: u16 = 0x3fff;

/// Reads the header. Returns the addresses, the bytes from the UDP header on, and how many of the
/// `beyond` bytes after `packet` belong to the packet.
#[inline]
pub(super) fn read(packet: &[u8], beyond: usize) -> Result<(Ips, &[u8], usize), Rejected> {
    let header = packet.first_chunk::<HEADER_BYTES>().ok_or(Rejected::Short)?;
    let [words, _, b0, b1, _, _, p0, p1, _, carries, _, _, f0, f1, f2, f3, to @ ..] = *header;
    match words {
        VERSION_AND_WORDS => {}
        0x46..=0x4f => return Err(Rejected::Options),
        0x40..=0x44 => return Err(Rejected::Length),
        _ => return Err(Rejected::NotIp),
    }
    if !Sum::default().add(header).is_right() {
        return Err(Rejected::HeaderChecksum);
    }
    if u16::from_be_bytes([p0, p1]) & PART != 0 && !is(Fault::FragmentRead) {
        return Err(Rejected::Fragment);
    }
    if carries != UDP {
        return Err(Rejected::NotUdp);
    }
    let bytes = usize::from(u16::from_be_bytes([b0, b1]));
    let here = bytes.min(packet.len());
    let rest = packet.get(HEADER_BYTES..here).ok_or(Rejected::Length)?;
    if bytes - here > beyond {
        return Err(Rejected::Length);
    }
    Ok((Ips::V4 { from: Ipv4Addr::new(f0, f1, f2, f3), to: to.into() }, rest, bytes - here))
}

/// Writes the header of a packet that consists of `packet` and `beyond` further bytes. Returns the
/// bytes of `packet` after the header.
#[inline]
pub(super) fn write(
    packet: &mut [u8],
    beyond: usize,
    (from, to): (Ipv4Addr, Ipv4Addr),
) -> Option<&mut [u8]> {
    let bytes = u16::try_from(packet.len() + beyond).ok()?;
    let (header, rest) = packet.split_first_chunk_mut::<HEADER_BYTES>()?;
    *header = [0; HEADER_BYTES];
    header[0] = VERSION_AND_WORDS;
    header[2..4].copy_from_slice(&bytes.to_be_bytes());
    header[6..8].copy_from_slice(&WHOLE);
    (header[8], header[9]) = (HOPS, UDP);
    header[12..16].copy_from_slice(&from.octets());
    header[16..].copy_from_slice(&to.octets());
    let sum = Sum::default().add(header).checksum();
    header[10..12].copy_from_slice(&sum);
    Some(rest)
}
