//! The eight-byte header of a memcached UDP datagram.
//!
//! ```text
//! 0        2         4      6      8
//! | id     | number  | of   | flow | a request, or a part of its answer
//! ```
//!
//! Where: every datagram of the server and of a load generator begins with this header.
//! Invariant: `read` returns the header that `bytes` wrote, and refuses only datagrams shorter than
//! a header: the caller decides which numbers and totals are valid. All fields are big-endian.
//! Source: memcached's `protocol.txt`, "UDP protocol"; `try_read_udp`, `build_udp_header` (1.6.45).
//! memcached answers any datagram with a total of 1 and a payload, whatever its number. memcached
//! ignores the header's last two bytes, which are the flow here (KV-Cache paper, section 4.1.2).
//! memcached sends each value of a multiget as a separate answer, with the same id and numbers from
//! 0. If a quiet request gets no answer, memcached sends an empty datagram with number and total 0.

use crate::binary::MAGIC_REPLY;

/// Size of the header.
pub const HEADER_BYTES: usize = 8;

/// Longest datagram that memcached sends, header included (`UDP_MAX_PAYLOAD_SIZE`).
pub const ANSWER_BYTES_MAX: usize = 1400;

/// Longest request in one datagram over IPv4, header included.
pub const REQUEST_BYTES_MAX: usize = 65_507;

/// The header: the request's id, the datagram's place in its message, and the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The request's id, chosen by the client. The answer has the same id.
    pub id: u16,
    /// Index of this datagram in its message, from 0.
    pub number: u16,
    /// Number of datagrams in the message.
    pub total: u16,
    /// In a request, 0 stands for any column, and n for column n - 1 ([flow](crate::flow)).
    /// memcached reserves this field: clients that do not know flows send 0.
    pub flow: u16,
}

impl Header {
    /// Returns the header of a request in one datagram.
    #[inline]
    #[must_use]
    pub fn request(id: u16, flow: u16) -> Header {
        Header { id, number: 0, total: 1, flow }
    }

    /// Returns the header's bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let ([a, b], [c, d]) = (self.id.to_be_bytes(), self.number.to_be_bytes());
        let ([e, f], [g, h]) = (self.total.to_be_bytes(), self.flow.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }

    /// Splits a datagram into its header and its payload; `None` if the datagram is shorter.
    #[inline]
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<(Header, &[u8])> {
        let (&[a, b, c, d, e, f, g, h], rest) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let field = |high, low| u16::from_be_bytes([high, low]);
        let (id, number, total) = (field(a, b), field(c, d), field(e, f));
        Some((Header { id, number, total, flow: field(g, h) }, rest))
    }

    /// True if the datagram's number is below the total.
    #[inline]
    #[must_use]
    pub fn is_part(self) -> bool {
        self.number < self.total
    }
}

/// True if a message looks like a server's answer: a frame with `MAGIC_REPLY`, or text that begins
/// with a capital letter or a digit, as no command does. If servers answered such messages, two
/// servers could answer each other for ever (CVE-2024-2169).
#[inline]
#[must_use]
pub fn is_answer(message: &[u8]) -> bool {
    matches!(message.first(), Some(b'A'..=b'Z' | b'0'..=b'9' | &MAGIC_REPLY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_whatever_it_says() {
        let rows = [(0, 0, 1, 0), (0xabcd, 2, 3, 7), (9, 1, 1, 2), (0, 0, 0, 0), (1, 9, 3, 0)];
        for (id, number, total, flow) in rows {
            let header = Header { id, number, total, flow };
            let datagram = [&header.bytes()[..], b"END\r\n"].concat();
            assert_eq!(Header::read(&datagram), Some((header, &b"END\r\n"[..])));
            assert_eq!(header.is_part(), number < total);
        }
        assert_eq!(Header::request(0x0102, 0x0304).bytes(), [1, 2, 0, 0, 0, 1, 3, 4]);
        assert_eq!(Header::read(&[0; 8]), Some((Header::default(), &[][..])));
        for bytes in 0..HEADER_BYTES {
            assert_eq!(Header::read(&vec![0; bytes]), None);
        }
    }

    #[test]
    fn no_command_looks_like_an_answer() {
        for command in crate::command::COMMANDS {
            assert!(!is_answer(command.name.as_bytes()), "{}", command.name);
        }
        assert!(!is_answer(&[crate::binary::MAGIC_REQUEST]));
        let answers = [&b"END\r\n"[..], b"VALUE k 0 1", b"5\r\n", b"HD\r\n", &[MAGIC_REPLY]];
        assert!(answers.iter().all(|answer| is_answer(answer)));
    }
}
