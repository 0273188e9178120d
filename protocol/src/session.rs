//! One connection's parser: a stream of bytes, cut anywhere, into requests.
//!
//! Where: the connection calls `next` on what it has received until it yields `More`.
//! Invariant: every step either consumes bytes, or yields something to do, or asks for more; bytes
//! once consumed are not needed again. Given `LINE_BYTES_MAX` bytes or more, `next` never asks for
//! more (only `Body` waits for as many as it names).
//! Source: memcached 1.6.45 `try_read_command_ascii`, `process_get_command`, `conn_swallow`.

use crate::request::Request;

/// A retrieval line longer than this is answered key by key as it arrives; no other line may be.
pub const LINE_BYTES_MAX: usize = 16384;

/// A line that is no `get` or `gets` and has no end after so many bytes closes the connection.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// Which protocols a connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speak {
    /// Told from the first byte. So far that is the text protocol or a closed connection.
    Auto,
    /// Text only.
    Ascii,
}

/// What came of looking at the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Nothing complete: call again with these bytes and more behind them.
    More,
    /// A complete request (a value included), and how many bytes it consumed.
    Request(Request<'a>, usize),
    /// A storage command whose value is not all here. Nothing is consumed. Either wait for
    /// `header_bytes + value_bytes + 2` bytes and call `next` again, which then yields the whole
    /// request; or take the value elsewhere: consume `header_bytes`, then `value_bytes`, then the
    /// two bytes of the line end; or refuse it by `Session::swallow`.
    Body {
        /// `Store` or `Meta` with an empty value.
        request: Request<'a>,
        /// Length of the command line with its line end.
        header_bytes: usize,
        /// Length of the value without its line end.
        value_bytes: u32,
    },
    /// So many bytes are consumed and need no answer.
    Skip(usize),
    /// Close the connection at once; send nothing of your own.
    Close,
}

/// A connection's parser state.
#[derive(Clone, Debug)]
pub struct Session {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Line,
}

impl Session {
    /// A connection's start.
    #[must_use]
    pub fn new(_speak: Speak) -> Session {
        Session { state: State::Line }
    }

    /// Looks at `input`: everything received and not yet consumed.
    pub fn next<'a>(&mut self, _input: &'a [u8]) -> Step<'a> {
        match self.state {
            State::Line => Step::More,
        }
    }

    /// Refuses a `Body`: after its `header_bytes` are consumed by the caller, the next
    /// `value_bytes + 2` bytes are skipped, then `reply` is yielded as a `Request::Refused`.
    pub fn swallow(&mut self, _value_bytes: u32, _reply: &'static str) {}
}
