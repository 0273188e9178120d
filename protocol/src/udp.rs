//! The eight bytes before what a memcached UDP datagram carries.
//!
//! ```text
//! 0        2         4      6          8
//! | id     | number  | of   | reserved | a request, or a part of its answer
//! ```
//!
//! Where: between a datagram and the protocol's bytes; a load generator writes and reads it.
//! Invariant: `read` gives back what `bytes` wrote, and refuses a number that is not below its
//! total. All fields are big-endian, as memcached sends them.
//! Source: memcached's `protocol.txt`, "UDP protocol"; `try_read_udp`, `build_udp_header` (1.6.45).
//! It sends each value of a multiget as an answer of its own, all with the same id and numbered
//! anew; and where a quiet request has no answer, an empty datagram, number 0 of 0.

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// Most bytes memcached puts into a datagram it sends, header included (`UDP_MAX_PAYLOAD_SIZE`).
pub const ANSWER_BYTES_MAX: usize = 1400;

/// Most bytes one request may have: it must fit one datagram over IPv4, header included.
pub const REQUEST_BYTES_MAX: usize = 65_507;

/// Which request a datagram belongs to, and which part of it this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The client's choice; the answer has the same.
    pub id: u16,
    /// This datagram's place, from 0.
    pub number: u16,
    /// How many there are.
    pub total: u16,
}

impl Header {
    /// A request's: requests are one datagram.
    #[must_use]
    pub fn request(id: u16) -> Header {
        Header { id, number: 0, total: 1 }
    }

    /// As on the wire.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let ([a, b], [c, d]) = (self.id.to_be_bytes(), self.number.to_be_bytes());
        let [e, f] = self.total.to_be_bytes();
        [a, b, c, d, e, f, 0, 0]
    }

    /// Splits a datagram into its header and what it carries; none if it is too short or says that
    /// it is a part which the whole does not have.
    #[inline]
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (&[a, b, c, d, e, f, _, _], rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let field = |high, low| u16::from_be_bytes([high, low]);
        let header = Header { id: field(a, b), number: field(c, d), total: field(e, f) };
        (header.number < header.total).then_some((header, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_lies_are_refused() {
        for (id, number, total) in [(0, 0, 1), (0xabcd, 2, 3), (u16::MAX, 65_534, u16::MAX)] {
            let header = Header { id, number, total };
            let datagram = [&header.bytes()[..], b"END\r\n"].concat();
            assert_eq!(Header::read(&datagram), Some((header, &b"END\r\n"[..])));
        }
        assert_eq!(Header::request(0x0102).bytes(), [1, 2, 0, 0, 0, 1, 0, 0]);
        for lie in [&[0; 7][..], &[0; 8], &[0, 0, 0, 1, 0, 1, 0, 0]] {
            assert_eq!(Header::read(lie), None);
        }
    }
}
