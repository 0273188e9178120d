//! What a session yields for the input it is given.
//!
//! Where: between the parsers, which make a step, and the connection, which takes it.
//! Invariant: a request with a value is yielded with all of the value, or as a `Body` without any.
//! Source: memcached 1.6.45 `conn_nread`, `conn_swallow`.

use crate::request::Request;

/// What the input begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A request that is not complete: call again with these bytes and more behind them.
    More,
    /// A complete request (a value included), and how many bytes it consumed.
    Request(Request<'a>, usize),
    /// A storage command whose value is not all here. Nothing is consumed. Either wait for
    /// `header_bytes + value_bytes + end_bytes` bytes and call `next` again, which then yields the
    /// whole request; or take the value elsewhere: consume `header_bytes`, then `value_bytes`, then
    /// the `end_bytes`, and ask `is_value_end` about the last; or refuse it by `Session::swallow`.
    Body {
        /// `Store` or `Meta` with an empty value.
        request: Request<'a>,
        /// Length of what stands before the value.
        header_bytes: usize,
        /// Length of the value.
        value_bytes: u32,
        /// Length of the line end behind it: 2 in text, 0 in binary.
        end_bytes: u32,
    },
    /// This many bytes are consumed and get no answer.
    Skip(usize),
    /// Close the connection at once, without a reply.
    Close,
}

/// A storage command with its value, if the value and its end have arrived.
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

/// True if `end`, which has the length that `Step::Body` tells, is what must stand behind a value.
#[inline]
#[must_use]
pub fn is_value_end(end: &[u8]) -> bool {
    end.is_empty() || end == b"\r\n"
}
