//! The steps in which a session consumes its input.
//!
//! Where: the parsers return steps to the connection, which carries them out.
//! Invariant: a request is yielded with its whole value, or as a `Body` with an empty value.
//! Source: memcached 1.6.45 `conn_nread`, `conn_swallow`.

use crate::request::Request;

/// The next step, which the beginning of the input determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An incomplete request: call again with the same bytes and more after them.
    More,
    /// A complete request (value included), and the number of bytes that it consumed.
    Request(Request<'a>, usize),
    /// A storage command whose value has not arrived in full. Nothing is consumed. The caller waits
    /// for all `header_bytes + value_bytes + end_bytes` bytes and calls `next` again; or consumes
    /// these bytes itself and checks the last `end_bytes` bytes by `is_value_end`; or refuses the
    /// command by `Session::swallow`.
    Body {
        /// A `Store` or `Meta` with an empty value.
        request: Request<'a>,
        /// Number of bytes before the value.
        header_bytes: usize,
        /// Length of the value.
        value_bytes: u32,
        /// Length of the line end after the value: 2 in text, 0 in binary.
        end_bytes: u32,
    },
    /// This number of bytes is consumed and gets no answer.
    Skip(usize),
    /// Close the connection at once, without a reply.
    Close,
}

#[inline]
pub(crate) fn with_value<'a>(
    input: &'a [u8],
    mut request: Request<'a>,
    header_bytes: usize,
    value_bytes: u32,
    end_bytes: u32,
) -> Step<'a> {
    let value = &input[header_bytes..];
    let split = value.split_at_checked(value_bytes as usize);
    let split = split.and_then(|(value, rest)| Some((value, rest.get(..end_bytes as usize)?)));
    let Some((value, end)) = split else {
        return Step::Body { request, header_bytes, value_bytes, end_bytes };
    };
    let terminated = is_value_end(end);
    match &mut request {
        Request::Store(store) => (store.value, store.terminated) = (value, terminated),
        Request::Meta(meta) => (meta.value, meta.terminated) = (value, terminated),
        _ => {}
    }
    Step::Request(request, header_bytes + value.len() + end.len())
}

/// True if `end`, the `end_bytes` bytes after a value (see `Step::Body`), is a valid line end.
#[inline]
#[must_use]
pub fn is_value_end(end: &[u8]) -> bool {
    end.is_empty() || end == b"\r\n"
}
