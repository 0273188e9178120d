//! The UDP header, and the UDP checksum over header, payload and pseudo header.
//!
//! ```text
//! 0           2         4       6     8
//! | from port | to port | bytes | sum | payload ...
//!
//! pseudo header, part of the sum: | from IP | to IP | 0, UDP | bytes |
//! ```
//!
//! Where: the bytes after the IP header.
//! Invariant: a received packet over IPv6 must have a checksum; each written packet has a checksum.
//! Source: RFC 768; RFC 8200, section 8.1; RFC 9868 on bytes after the payload.

use memory::plant::{Fault, is};

use super::checksum::Sum;
use super::ip::{Ips, UDP};
use super::rejected::Rejected;

pub(super) const HEADER_BYTES: usize = 8;
/// Offset of the checksum in the header.
pub(super) const SUM_AT: u16 = 6;

/// The UDP ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The sender's port.
    pub from: u16,
    /// The receiver's port.
    pub to: u16,
}

/// The UDP checksums that a reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// Checksums over the whole packet.
    Whole,
    /// Checksums over the whole packet or over the pseudo header alone. If a packet stays on one
    /// machine, the kernel sums only the pseudo header and leaves the payload to a network card,
    /// but the packet passes no card.
    PartialToo,
}

/// Reads the header of a packet, which consists of `packet` and of `beyond` bytes in `pieces`.
/// Returns the ports and the length of the payload.
#[inline]
pub(super) fn read<'p>(
    packet: &[u8],
    (beyond, pieces): (usize, impl Iterator<Item = &'p [u8]>),
    ips: &Ips,
    sums: Sums,
) -> Result<(Ports, usize), Rejected> {
    let header = packet.first_chunk::<HEADER_BYTES>().ok_or(Rejected::Length)?;
    let [f0, f1, t0, t1, b0, b1, sum @ ..] = *header;
    let bytes = u16::from_be_bytes([b0, b1]);
    // Bytes after this length are UDP options (RFC 9868), which the receiver may ignore.
    let all_bytes = usize::from(bytes);
    let counted = &packet[..all_bytes.min(packet.len())];
    if all_bytes - counted.len() > beyond {
        return Err(Rejected::Length);
    }
    let payload_bytes = all_bytes.checked_sub(HEADER_BYTES).ok_or(Rejected::Length)?;
    let pseudo = pseudo(ips, bytes);
    let is_right = match (sum, ips) {
        ([0, 0], Ips::V4 { .. }) => true,
        ([0, 0], Ips::V6 { .. }) => false,
        // The partial checksum is compared first, because the comparison reads no payload.
        _ if sums == Sums::PartialToo && sum == pseudo.folded() => true,
        _ => {
            let (mut sum, mut summed) = (pseudo.add(counted), counted.len());
            for piece in pieces {
                let piece = &piece[..piece.len().min(all_bytes - summed)];
                (sum, summed) = (sum.add_behind(summed, piece), summed + piece.len());
            }
            sum.is_right()
        }
    };
    if !is_right && !is(Fault::ChecksumNotCompared) {
        return Err(Rejected::Checksum);
    }
    let ports = Ports { from: u16::from_be_bytes([f0, f1]), to: u16::from_be_bytes([t0, t1]) };
    Ok((ports, payload_bytes))
}

/// Writes the header of a packet that consists of `packet` and `beyond` further bytes, whose sum is
/// `rest`. If `rest` is `None`, the checksum covers only the pseudo header.
#[inline]
pub(super) fn write(
    packet: &mut [u8],
    (beyond, rest): (usize, Option<Sum>),
    ips: &Ips,
    ports: Ports,
) -> Option<()> {
    let bytes = u16::try_from(packet.len() + beyond).ok()?;
    let header = packet.first_chunk_mut::<HEADER_BYTES>()?;
    header[..2].copy_from_slice(&ports.from.to_be_bytes());
    header[2..4].copy_from_slice(&ports.to.to_be_bytes());
    header[4..6].copy_from_slice(&bytes.to_be_bytes());
    header[6..].copy_from_slice(&[0; 2]);
    let pseudo = pseudo(ips, bytes);
    let sum = match rest {
        // The kernel or the card adds the other bytes, and then inverts the sum.
        None => pseudo.folded(),
        // Zero means: no checksum. All ones are written instead, which also are zero in the sum.
        Some(rest) => Some(pseudo.add(packet).with(rest).checksum())
            .filter(|it| *it != [0; 2] || is(Fault::ZeroSumWritten))
            .unwrap_or([0xff; 2]),
    };
    packet[6..8].copy_from_slice(&sum);
    Some(())
}

#[inline]
fn pseudo(ips: &Ips, bytes: u16) -> Sum {
    let sum = match ips {
        Ips::V4 { from, to } => Sum::default().add(&from.octets()).add(&to.octets()),
        Ips::V6 { from, to } => Sum::default().add(&from.octets()).add(&to.octets()),
    };
    let [b0, b1] = bytes.to_be_bytes();
    sum.add(&[0, UDP, b0, b1])
}
