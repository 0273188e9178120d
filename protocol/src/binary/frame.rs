//! Reads the frames that a server sends to a client.
//!
//! Where: a load generator reads the answers of the binary protocol here.
//! Invariant: `decode` never panics, waits for no more bytes than a frame's header states, and
//! refuses a body over `BODY_BYTES_MAX`.
//! Source: memcached 1.6.45 `protocol_binary.h`.

pub use crate::decoded::Decoded;

use super::{BODY_BYTES_MAX, HEADER_BYTES, Header, MAGIC_REPLY};

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The extras: client flags in the answer to a lookup that found an item; otherwise empty.
    pub extras: &'a [u8],
    /// The key if the answer shows the key; in an answer to `stat`, a statistic's name.
    pub key: &'a [u8],
    /// The value, or an error's text.
    pub value: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the answer at the start of `input`.
    #[must_use]
    pub fn decode(input: &'a [u8]) -> Decoded<Frame<'a>> {
        let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Decoded::More };
        let header = Header::from_bytes(header);
        let (key_bytes, extras_bytes) = (header.key_bytes.into(), header.extras_bytes.into());
        let body_bytes = header.body_bytes as usize;
        let broken = header.magic != MAGIC_REPLY || header.body_bytes > BODY_BYTES_MAX;
        if broken || key_bytes + extras_bytes > body_bytes {
            return Decoded::Broken;
        }
        let Some(body) = input.get(HEADER_BYTES..HEADER_BYTES + body_bytes) else {
            return Decoded::More;
        };
        let (extras, rest) = body.split_at(extras_bytes);
        let (key, value) = rest.split_at(key_bytes);
        Decoded::Whole(Frame { header, extras, key, value }, HEADER_BYTES + body_bytes)
    }
}
