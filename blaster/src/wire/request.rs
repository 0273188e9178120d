//! A request to be encoded: its verb and keys, its tag, and where its parts are once it is written.
//!
//! ```text
//! bits of a tag   31..16 request's number on its connection   15 multiget   14..0 index of the key
//! ```
//!
//! Where: `drive` makes requests; `Writer` and the protocols write them.
//! Invariant: a tag identifies one key of one request under way on a connection.

use crate::workload::Verb;

/// A request's number on its connection, and the index of a key in the request. A server repeats a
/// request's tag in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    const OF_SEVERAL: u32 = 1 << 15;

    /// Returns the tag of key `index` of request `number`; `several` is true for a multiget.
    #[inline]
    pub(crate) fn new(number: u16, index: usize, several: bool) -> Tag {
        let index = u32::try_from(index).unwrap_or(0) & (Tag::OF_SEVERAL - 1);
        let several = if several { Tag::OF_SEVERAL } else { 0 };
        Tag(u32::from(number) << 16 | several | index)
    }

    /// The request's number.
    #[inline]
    pub(crate) fn number(self) -> u16 {
        let [high, low, _, _] = self.0.to_be_bytes();
        u16::from_be_bytes([high, low])
    }

    /// The index of the key in its request.
    #[inline]
    pub(crate) fn index(self) -> usize {
        (self.0 & (Tag::OF_SEVERAL - 1)) as usize
    }

    /// True if the tag belongs to a key of a multiget. The multiget ends with a separate piece.
    #[inline]
    pub(crate) fn is_of_several(self) -> bool {
        self.0 & Tag::OF_SEVERAL != 0
    }
}

/// A request to one server, or the part of a multiget that goes to one server.
#[derive(Clone, Copy, Debug)]
pub struct WireRequest<'a> {
    /// The verb of the request.
    pub verb: Verb,
    /// The keys: a get has up to `KEYS_MAX` keys, any other request has one.
    pub keys: &'a [u64],
    /// Length of the value to write, in bytes.
    pub value_bytes: u32,
    /// Seconds until the item expires; 0 means never.
    pub exptime_s: u32,
    /// The request's number on the connection.
    pub number: u16,
}

/// Positions in the bytes that are written for a request of one key, or for one key of a multiget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions {
    pub(super) key_end: usize,
    pub(super) tag: TagPosition,
    /// The start of the value. If there is no value, the end of the request.
    pub(super) value_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagPosition {
    Absent,
    /// Four bytes in network byte order, at this position.
    Word(usize),
    /// Decimal digits, from the first position to before the second position.
    Digits(usize, usize),
}
