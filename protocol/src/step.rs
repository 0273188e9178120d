//! The steps in which a session consumes its input.
//!
//! Where: the parsers return steps to the connection, which carries them out.
//! Invariant: a request is yielded with its whole value, or as a `Body` with an empty value.
//! Source: memcached 1.6.45 `conn_nread`, `conn_swallow`.

use crate::request::Request;

/// Longest tail.
pub const TAIL_BYTES_MAX: usize = LINE_END.len();

const LINE_END: &[u8; 2] = b"\r\n";

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

/// The bytes that `Tail::read` finds after a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRead<'a> {
    /// Some bytes of the tail have not arrived.
    More,
    /// The whole tail.
    Whole(&'a [u8]),
    /// These bytes are not a tail. They are consumed, and the command is refused.
    Wrong(&'a [u8]),
}

impl Tail {
    /// Reads the tail at the start of `input`, at most `TAIL_BYTES_MAX` bytes. The length of a tail
    /// is not known before the tail is read.
    #[inline]
    #[must_use]
    pub fn read(self, input: &[u8]) -> TailRead<'_> {
        match self {
            Tail::Nothing => TailRead::Whole(&[]),
            Tail::LineEnd => match input.get(..LINE_END.len()) {
                None => TailRead::More,
                Some(end) if end == LINE_END => TailRead::Whole(end),
                Some(other) => TailRead::Wrong(other),
            },
        }
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
    let split = input[header_bytes..].split_at_checked(value_bytes as usize);
    match split.map(|(value, rest)| (value, tail.read(rest))) {
        Some((value, read @ (TailRead::Whole(end) | TailRead::Wrong(end)))) => {
            set_value(&mut request, value, read);
            Step::Request(request, header_bytes + value.len() + end.len())
        }
        Some((_, TailRead::More)) | None => Step::Body { request, header_bytes, value_bytes, tail },
    }
}

/// Completes a storage command by its value and by what follows the value.
#[inline]
pub(crate) fn set_value<'a>(request: &mut Request<'a>, value: &'a [u8], tail: TailRead<'_>) {
    let terminated = !matches!(tail, TailRead::Wrong(_));
    match request {
        Request::Store(store) => (store.value, store.terminated) = (value, terminated),
        Request::Meta(meta) => (meta.value, meta.terminated) = (value, terminated),
        _ => {}
    }
}
