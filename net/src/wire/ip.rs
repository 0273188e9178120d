//! The fields that the IPv4 header and the IPv6 header have in common.
//!
//! Where: read and written by `ipv4` and `ipv6`; `udp` sums the addresses.
//! Invariant: both addresses are of one version.
//! Source: RFC 791, section 3.1; RFC 8200, section 3.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) const UDP: u8 = 17;
/// The hop limit (TTL) of packets that are written.
pub(super) const HOPS: u8 = 64;

/// The IP addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ips {
    /// IPv4.
    V4 {
        /// The sender's address.
        from: Ipv4Addr,
        /// The receiver's address.
        to: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// The sender's address.
        from: Ipv6Addr,
        /// The receiver's address.
        to: Ipv6Addr,
    },
}
