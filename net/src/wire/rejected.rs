//! The reasons why a frame is rejected.
//!
//! Where: the readers of all headers return a reason; the statistics count each reason.
//! Invariant: the index of a reason in `Rejected::ALL` is its discriminant.
//! Source: RFC 1122, sections 3.2.1 and 4.1.3.

/// The reason why a frame is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The frame ends within a header.
    Short,
    /// An Ethernet address is a group address or zero.
    Group,
    /// The frame has a VLAN tag.
    Tagged,
    /// The frame carries neither IPv4 nor IPv6.
    NotIp,
    /// The IPv4 header has options.
    Options,
    /// The checksum of the IPv4 header is wrong.
    HeaderChecksum,
    /// The packet is a fragment over IPv4.
    Fragment,
    /// An IPv6 extension header, such as a fragment's, comes before the UDP header.
    Extension,
    /// The packet does not carry UDP.
    NotUdp,
    /// A header gives a length that is larger than the packet, or smaller than the header.
    Length,
    /// The UDP checksum is wrong, or is missing over IPv6.
    Checksum,
    /// The sender's address does not belong to one other machine, so that no answer is possible.
    Sender,
}

impl Rejected {
    /// All reasons; the index of a reason is its discriminant.
    pub const ALL: [Rejected; 12] = [
        Rejected::Short,
        Rejected::Group,
        Rejected::Tagged,
        Rejected::NotIp,
        Rejected::Options,
        Rejected::HeaderChecksum,
        Rejected::Fragment,
        Rejected::Extension,
        Rejected::NotUdp,
        Rejected::Length,
        Rejected::Checksum,
        Rejected::Sender,
    ];
}
