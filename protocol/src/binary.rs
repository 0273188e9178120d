//! The binary protocol: frames, each with a header of 24 bytes and a body.
//!
//! Where: the session calls `parse`; `Form` and `Show` call `write`; clients use `frame`.
//! Invariant: lengths are checked before any bytes are read as a key or a value.
//! Source: memcached 1.6.45 `protocol_binary.h`, `proto_bin.c`.
//!
//! ```text
//!   byte 0      1        2          4        5         6          8       12       16    24
//!        magic | opcode | key len:2 | extras | data type | status:2 | body:4 | opaque:4 | cas:8
//!        then extras, key and value, whose lengths add up to `body`. Numbers are big-endian. A
//!        request has the virtual bucket, which is ignored, in place of the status.
//! ```

pub mod frame;
pub mod opcode;
pub(crate) mod parse;
pub(crate) mod quick;
pub mod write;

/// The first byte of a request.
pub const MAGIC_REQUEST: u8 = 0x80;
/// The first byte of an answer.
pub const MAGIC_REPLY: u8 = 0x81;
/// Size of a frame's header.
pub const HEADER_BYTES: usize = 24;
/// An increment or decrement with this exptime creates no item on a miss.
pub const EXPTIME_NO_CREATE: u32 = u32::MAX;
/// Maximum length of a body. A frame whose header states a longer body ends the connection.
pub const BODY_BYTES_MAX: u32 = 1 << 30;

/// The fields of a binary request's header that the answer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The opcode as sent. A command and its quiet form have different opcodes.
    pub opcode: u8,
    /// True if a miss of a lookup, or a success of another command, gets no answer (`q`).
    pub quiet: bool,
    /// The opaque: 32 bits that the client chooses and the answer repeats.
    pub opaque: u32,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `MAGIC_REQUEST` or `MAGIC_REPLY`.
    pub magic: u8,
    /// The command.
    pub opcode: u8,
    /// Length of the key.
    pub key_bytes: u16,
    /// Length of the extras.
    pub extras_bytes: u8,
    /// The data type: 0 in an answer, ignored in a request.
    pub data_type: u8,
    /// An answer's status, or a request's virtual bucket.
    pub status: u16,
    /// Length of extras, key and value together.
    pub body_bytes: u32,
    /// The opaque: 32 bits that the client chooses and the answer repeats.
    pub opaque: u32,
    /// The CAS unique.
    pub cas: u64,
}

impl Header {
    /// Reads a header.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| (u32::from(u16_at(at)) << 16) | u32::from(u16_at(at + 2));
        Header {
            magic: bytes[0],
            opcode: bytes[1],
            key_bytes: u16_at(2),
            extras_bytes: bytes[4],
            data_type: bytes[5],
            status: u16_at(6),
            body_bytes: u32_at(8),
            opaque: u32_at(12),
            cas: (u64::from(u32_at(16)) << 32) | u64::from(u32_at(20)),
        }
    }

    /// Returns the header's bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = bytes.chunks_exact_mut(size_of::<u64>()).zip(self.to_words());
        words.for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Returns the header's bytes in words; the lowest byte of a word is its first.
    #[inline]
    #[must_use]
    pub fn to_words(self) -> [u64; HEADER_BYTES / size_of::<u64>()] {
        let [k0, k1] = self.key_bytes.to_be_bytes();
        let [s0, s1] = self.status.to_be_bytes();
        let start = [self.magic, self.opcode, k0, k1, self.extras_bytes, self.data_type, s0, s1];
        let body = u64::from(self.body_bytes.to_be().to_le());
        let opaque = u64::from(self.opaque.to_be().to_le());
        [u64::from_le_bytes(start), body | (opaque << 32), self.cas.to_be().to_le()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_stands_on_the_wire_as_drawn() {
        let header = Header {
            magic: MAGIC_REPLY,
            opcode: 0x0c,
            key_bytes: 0x0102,
            extras_bytes: 4,
            data_type: 5,
            status: 0x0607,
            body_bytes: 0x0809_0a0b,
            opaque: 0x0c0d_0e0f,
            cas: 0x1011_1213_1415_1617,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..6], [0x81, 0x0c, 1, 2, 4, 5]);
        assert!((6..24).all(|at| usize::from(bytes[at]) == at), "{bytes:x?}");
        assert_eq!(Header::from_bytes(&bytes), header);
    }
}
