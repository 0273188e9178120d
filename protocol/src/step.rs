//! The steps in which a session consumes its input.
//!
//! Where: the parsers return steps to the connection, which carries them out.
//! Invariant: a request is yielded with its whole value, or as a `Body` with an empty value.
//! Source: memcached 1.6.45 `conn_nread`, `conn_swallow`.

use crate::request::Request;
use crate::text::LINE_END_BYTES;

/// The next step, which the beginning of the input determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An incomplete request: call again with the same bytes and more after them.
    More,
    /// A complete request (value included), and the number of bytes that it consumed.
    Request(Request<'a>, usize),
    /// A storage command whose value has not arrived in full. Nothing is consumed. The caller waits
    /// for the value and the tail and calls `next` again; or consumes these bytes itself, and reads
    /// the request by `stored` once they have arrived; or refuses the command by
    /// `Session::swallow`.
    Body {
        /// A `Store` or `Meta` with an empty value.
        request: Request<'a>,
        /// Number of bytes before the value.
        header_bytes: usize,
        /// Length of the value.
        value_bytes: u32,
        /// The kind of bytes that follow the value.
        tail: Tail,
    },
    /// This number of bytes is consumed and gets no answer.
    Skip(usize),
    /// Close the connection at once, without a reply.
    Close,
}

/// The end of a storage command, after its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The command ends with its value (binary).
    Nothing,
    /// A line end (text).
    LineEnd,
}

impl Tail {
    /// Length of the tail.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Tail::Nothing => 0,
            Tail::LineEnd => LINE_END_BYTES,
        }
    }

    /// Returns the tail, at the start of `input`. `None` until the whole tail has arrived.
    #[inline]
    #[must_use]
    pub fn read(self, input: &[u8]) -> Option<&[u8]> {
        input.get(..self.bytes() as usize)
    }
}

#[inline]
pub(crate) fn with_value<'a>(
    input: &'a [u8],
    mut request: Request<'a>,
    header_bytes: usize,
    value_bytes: u32,
    tail: Tail,
) -> Step<'a> {
    let value = &input[header_bytes..];
    let split = value.split_at_checked(value_bytes as usize);
    let split = split.and_then(|(value, rest)| Some((value, tail.read(rest)?)));
    let Some((value, end)) = split else {
        return Step::Body { request, header_bytes, value_bytes, tail };
    };
    set_value(&mut request, value, end);
    Step::Request(request, header_bytes + value.len() + end.len())
}

/// Completes a storage command by its value and by what follows the value.
#[inline]
pub(crate) fn set_value<'a>(request: &mut Request<'a>, value: &'a [u8], tail: &[u8]) {
    let terminated = tail.is_empty() || tail == b"\r\n";
    match request {
        Request::Store(store) => (store.value, store.terminated) = (value, terminated),
        Request::Meta(meta) => (meta.value, meta.terminated) = (value, terminated),
        _ => {}
    }
}
