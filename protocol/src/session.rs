//! One connection's parser: a stream of bytes, cut anywhere, into requests.
//!
//! Where: the connection calls `next` on what it has received until it yields `More`.
//! Invariant: every step but `More` and `Body` consumes bytes; bytes once consumed are not needed
//! again. Given `LINE_BYTES_MAX` bytes or more, `next` never yields `More`.
//! Source: memcached 1.6.45 `try_read_command_ascii`, `process_get_command`, `conn_swallow`.

use crate::KEY_BYTES_MAX;
use crate::answer;
use crate::parse::{Parsed, parse};
use crate::quick;
use crate::request::{Get, Request};

/// A `get` or `gets` line that has no end after so many bytes is answered key by key as it
/// arrives; no other line may be so long without its end.
pub const LINE_BYTES_MAX: usize = 16384;

/// A line that is no `get` or `gets` and has no end after so many bytes closes the connection.
pub const COMMAND_BYTES_MAX: usize = 2048;

/// So many spaces may stand before the `get` of an endless line.
const SPACES_MAX: usize = 100;

/// The first byte of a binary request.
const BINARY_MAGIC: u8 = 0x80;

/// Which protocols a connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speak {
    /// Told from the first byte: that of the binary protocol, which is not spoken, closes the
    /// connection; any other is text.
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
    /// Nothing has been received.
    Start,
    /// At the start of a line.
    Line,
    /// Within a retrieval line, before a key. `found`: a key has been yielded.
    Keys { cas: bool, exptime: Option<i32>, found: bool },
    /// Within a value nobody wants, its line end included.
    Value { bytes: u64, answer: &'static str },
    /// Within a line nobody wants.
    Rest { answer: &'static str },
}

impl Session {
    /// A connection's start.
    #[must_use]
    pub fn new(speak: Speak) -> Session {
        Session { state: if speak == Speak::Auto { State::Start } else { State::Line } }
    }

    /// Looks at `input`: everything received and not yet consumed.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match self.state {
            State::Line => self.line(input),
            State::Keys { cas, exptime, found } => self.key(input, cas, exptime, found),
            _ => self.rare(input),
        }
    }

    /// Refuses a `Body`: after its `header_bytes` are consumed by the caller, the next
    /// `value_bytes + 2` bytes are skipped, then `answer` is yielded as a `Request::Answer`.
    pub fn swallow(&mut self, value_bytes: u32, answer: &'static str) {
        self.state = State::Value { bytes: u64::from(value_bytes) + 2, answer };
    }

    #[cold]
    fn rare<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if input.is_empty() {
            return Step::More;
        }
        match self.state {
            State::Start if input[0] == BINARY_MAGIC => Step::Close,
            State::Value { bytes, answer } => {
                let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(input.len());
                let bytes = bytes - here as u64;
                self.state = State::Value { bytes, answer };
                if bytes > 0 {
                    return Step::Skip(here);
                }
                self.state = State::Line;
                Step::Request(Request::Answer(answer), here)
            }
            State::Rest { answer } => match memchr::memchr(b'\n', input) {
                Some(end) => {
                    self.state = State::Line;
                    Step::Request(Request::Answer(answer), end + 1)
                }
                None => Step::Skip(input.len()),
            },
            State::Start | State::Line | State::Keys { .. } => {
                self.state = State::Line;
                self.line(input)
            }
        }
    }

    #[inline]
    fn line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match quick::request(input) {
            Some(quick::Quick::Request(request, bytes)) => Step::Request(request, bytes),
            Some(quick::Quick::Value(request, header_bytes, value_bytes)) => {
                with_value(input, request, header_bytes, value_bytes)
            }
            None => self.any_line(input),
        }
    }

    fn any_line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let Some(end) = memchr::memchr(b'\n', input) else { return self.endless(input) };
        let line_bytes = end + 1;
        match parse(&input[..line_bytes]) {
            Parsed::Request(request) => Step::Request(request, line_bytes),
            Parsed::Value(request, value_bytes) => {
                with_value(input, request, line_bytes, value_bytes)
            }
            Parsed::Swallow(value_bytes, answer) => {
                self.swallow(value_bytes, answer);
                Step::Skip(line_bytes)
            }
            Parsed::Keys { cas, exptime, keys_at } => {
                self.state = State::Keys { cas, exptime, found: false };
                Step::Skip(keys_at)
            }
            Parsed::Close => Step::Close,
        }
    }

    /// A line whose end has not come.
    fn endless<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if input.len() <= COMMAND_BYTES_MAX {
            return Step::More;
        }
        let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
        let cas = match &input[spaces..] {
            [b'g', b'e', b't', b' ', ..] => false,
            [b'g', b'e', b't', b's', b' ', ..] => true,
            _ => return Step::Close,
        };
        if spaces > SPACES_MAX {
            return Step::Close;
        }
        if input.len() < LINE_BYTES_MAX {
            return Step::More;
        }
        if spaces > 0 {
            // memcached lets it grow without end, and then it is no command.
            self.state = State::Rest { answer: answer::ERROR };
            return Step::Skip(input.len());
        }
        self.state = State::Keys { cas, exptime: None, found: false };
        Step::Skip(if cas { 5 } else { 4 })
    }

    /// The next key of a retrieval line. Lines that came whole have been checked; in one that
    /// arrives as it is answered, anything may turn up.
    fn key<'a>(
        &mut self,
        input: &'a [u8],
        cas: bool,
        exptime: Option<i32>,
        found: bool,
    ) -> Step<'a> {
        let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
        let rest = &input[spaces..];
        let Some(end) = memchr::memchr2(b' ', b'\n', rest) else {
            let key = rest.strip_suffix(b"\r").unwrap_or(rest);
            if key.len() > KEY_BYTES_MAX {
                self.state = State::Rest { answer: answer::KEY_TOO_LONG };
                return Step::Skip(input.len());
            }
            return if spaces > 0 { Step::Skip(spaces) } else { Step::More };
        };
        let ended = rest[end] == b'\n';
        let key = &rest[..end];
        let key = if ended { key.strip_suffix(b"\r").unwrap_or(key) } else { key };
        let consumed = spaces + end + 1;
        if key.len() > KEY_BYTES_MAX {
            if ended {
                self.state = State::Line;
                return Step::Request(Request::Answer(answer::KEY_TOO_LONG), consumed);
            }
            self.state = State::Rest { answer: answer::KEY_TOO_LONG };
            return Step::Skip(consumed);
        }
        if key.is_empty() {
            self.state = State::Line;
            let answer = if found { answer::END } else { answer::BAD_FORMAT };
            return Step::Request(Request::Answer(answer), consumed);
        }
        let tail = if ended { Some(0) } else { line_tail(&input[consumed..]) };
        let last = tail.is_some();
        self.state = if last { State::Line } else { State::Keys { cas, exptime, found: true } };
        let get = Request::Get(Get { key, cas, exptime, last });
        Step::Request(get, consumed + tail.unwrap_or(0))
    }
}

/// Length of what is left of a line if that is known to hold no further key.
fn line_tail(text: &[u8]) -> Option<usize> {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    match &text[spaces..] {
        [b'\n', ..] => Some(spaces + 1),
        [b'\r', b'\n', ..] => Some(spaces + 2),
        _ => None,
    }
}

/// A storage command with its value, if that is all here.
#[inline]
fn with_value<'a>(
    input: &'a [u8],
    mut request: Request<'a>,
    header_bytes: usize,
    value_bytes: u32,
) -> Step<'a> {
    let body = &input[header_bytes..];
    let split = body.split_at_checked(value_bytes as usize);
    let Some((bytes, [first, second, ..])) = split else {
        return Step::Body { request, header_bytes, value_bytes };
    };
    let ended = [*first, *second] == *b"\r\n";
    match &mut request {
        Request::Store(store) => (store.value, store.terminated) = (bytes, ended),
        Request::Meta(meta) => (meta.value, meta.terminated) = (bytes, ended),
        _ => {}
    }
    Step::Request(request, header_bytes + bytes.len() + 2)
}
