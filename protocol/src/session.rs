//! Turns the bytes of one connection, which may arrive in any pieces, into requests.
//!
//! Where: the connection calls `next` on the received bytes until `next` yields `More`.
//! Invariant: every step except `More`, `Body` and `Close` consumes bytes, unless `swallow` was
//! called with 0 bytes. Consumed bytes are not needed again. Given `LINE_BYTES_MAX` bytes or more,
//! `next` never yields `More`.
//! Source: memcached 1.6.45 `try_read_command_negotiate`, `conn_swallow`.

mod text;

use crate::binary::parse::{ParsedFrame, parse as parse_frame};
use crate::binary::quick as quick_frame;
use crate::binary::{HEADER_BYTES, Header, MAGIC_REQUEST, Tag};
use crate::form::{Answer, Form};
use crate::outcome::Refusal;
use crate::request::{Get, Meta, Request};
use crate::step::{Step, Tail, TailRead, set_value};
use crate::text::quick;

/// Maximum number of spaces before `get` or `gets` in a line that is longer than others may be.
const SPACES_MAX: usize = 100;

const RESP_ARRAY: u8 = b'*';

/// The protocols that a connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolMode {
    /// The first byte decides: 0x80 begins the binary protocol, any other byte the text protocol.
    Auto,
    /// Text only.
    Ascii,
    /// Binary only.
    Binary,
}

/// The names of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeNames {
    /// The mode.
    pub mode: ProtocolMode,
    /// The mode's name in `-B`, and in `-l proto[NAME]:ADDRESS`.
    pub name: &'static str,
    /// The mode's further name in `-l`, and its name in memcached's documentation of `-l`.
    pub listen_name: &'static str,
    /// The mode's name in `stats settings`.
    pub stat: &'static str,
}

impl ProtocolMode {
    /// All modes and their names.
    pub const NAMES: [ModeNames; 3] = {
        const fn row(mode: ProtocolMode, names: [&'static str; 3]) -> ModeNames {
            let [name, listen_name, stat] = names;
            ModeNames { mode, name, listen_name, stat }
        }
        [
            row(ProtocolMode::Auto, ["auto", "negotiating", "auto-negotiate"]),
            row(ProtocolMode::Ascii, ["ascii", "ascii", "ascii"]),
            row(ProtocolMode::Binary, ["binary", "binary", "binary"]),
        ]
    };
}

/// A connection's parser state.
#[derive(Clone, Debug)]
pub struct Session {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client has sent nothing.
    Start,
    Line,
    /// Within a retrieval line, before a key. `found` is true if the line already yielded a key.
    Keys {
        cas: bool,
        exptime: Option<i64>,
        found: bool,
    },
    /// Within a refused value of which `bytes` bytes are left, or within the tail after it. `next`
    /// yields `answer` after the tail.
    Value {
        bytes: u64,
        tail: Tail,
        answer: Answer,
    },
    /// Within a refused line. `next` yields `refusal` after the line's end.
    Rest {
        refusal: Refusal,
    },
    Frame,
    /// Within a frame that ends the connection.
    Last {
        bytes: usize,
        answer: Answer,
    },
}

impl Session {
    /// Makes the state at the start of a connection.
    #[must_use]
    pub fn new(mode: ProtocolMode) -> Session {
        let state = match mode {
            ProtocolMode::Auto => State::Start,
            ProtocolMode::Ascii => State::Line,
            ProtocolMode::Binary => State::Frame,
        };
        Session { state }
    }

    /// Makes the state at the start of a UDP message. `message`, its whole or its first part, must
    /// not be empty, because in `ProtocolMode::Auto` the first byte decides the protocol.
    #[must_use]
    pub fn of_message(mode: ProtocolMode, message: &[u8]) -> Session {
        Session::new(match mode {
            ProtocolMode::Auto if message.first() == Some(&MAGIC_REQUEST) => ProtocolMode::Binary,
            ProtocolMode::Auto => ProtocolMode::Ascii,
            fixed => fixed,
        })
    }

    /// Returns the answer that refuses the connection or its next request.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> Answer {
        let form = match self.state {
            // memcached tells every client in text that there are too many connections.
            _ if refusal == Refusal::TooManyConnections => Form::LINE,
            State::Value { answer, .. } | State::Last { answer, .. } => answer.form,
            State::Frame => Form::Binary(Tag { opcode: 0, quiet: false, opaque: 0 }),
            State::Start | State::Line | State::Keys { .. } | State::Rest { .. } => Form::LINE,
        };
        form.refused(refusal)
    }

    /// False if a request has been consumed only in part.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        matches!(self.state, State::Start | State::Line | State::Frame)
    }

    /// Returns the next step. `input` is all bytes that are received and not yet consumed.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match self.state {
            State::Line => self.line(input),
            State::Frame => self.frame(input),
            State::Keys { cas, exptime, found } => self.key(input, cas, exptime, found),
            _ => self.rare(input),
        }
    }

    /// Returns the retrieval that `next` would yield; `None` if the caller must call `next`.
    #[inline(always)]
    pub fn next_get<'a>(&mut self, input: &'a [u8]) -> Option<(Get<'a>, usize)> {
        match self.state {
            State::Line => quick::get(input),
            State::Frame => quick_frame::get(input),
            State::Keys { cas, exptime, .. } => self.plain_key(input, cas, exptime),
            _ => None,
        }
    }

    /// Returns the request if all of `input` is one `get`, one `mg` with only the flag `v`, one
    /// `set` with its value, or one binary GET. `next` would yield the same request.
    #[inline(always)]
    #[must_use]
    pub fn single_request<'a>(&self, input: &'a [u8]) -> Option<Request<'a>> {
        match self.state {
            State::Line => quick::only_get(input)
                .map(Request::Get)
                .or_else(|| Some(Request::Meta(Meta::value_of(quick::only_meta_get(input)?))))
                .or_else(|| quick::only_set(input).map(Request::Store)),
            State::Frame => quick_frame::only_get(input).map(Request::Get),
            _ => None,
        }
    }

    /// Returns the step that `next` would return, if `input` begins with a request in the form that
    /// clients mostly send. Finds no `get`, which `single_request` and `next_get` read.
    #[must_use]
    pub fn quick_step<'a>(&self, input: &'a [u8]) -> Option<Step<'a>> {
        match self.state {
            State::Line => quick::step(input),
            State::Frame => match parse_frame(input) {
                ParsedFrame::Step(step) => Some(step),
                _ => None,
            },
            _ => None,
        }
    }

    /// True if `next` yields an answer even without more input.
    #[inline]
    #[must_use]
    pub fn owes_answer(&self) -> bool {
        matches!(self.state, State::Value { bytes: 0, tail: Tail::Nothing, .. })
    }

    /// Refuses a `Body`, of whose value `missing_bytes` bytes are not consumed. The caller consumes
    /// the header; `next` then skips the rest of the value and the tail, and yields `answer` as a
    /// `Request::Answer`.
    pub fn swallow(&mut self, missing_bytes: u64, tail: Tail, answer: Answer) {
        self.state = State::Value { bytes: missing_bytes, tail, answer };
    }

    fn next_request(answer: Answer) -> State {
        match answer.form {
            Form::Text { .. } => State::Line,
            Form::Binary(_) => State::Frame,
        }
    }

    #[cold]
    fn rare<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match self.state {
            State::Value { bytes, tail, answer } => self.value(input, bytes, tail, answer),
            _ if input.is_empty() => Step::More,
            State::Start if input[0] == MAGIC_REQUEST => {
                self.state = State::Frame;
                self.frame(input)
            }
            // No memcached command begins with `*`. The refusal is an error in RESP.
            State::Start if input[0] == RESP_ARRAY => {
                let answer = Form::LINE.refused(Refusal::Resp);
                Step::Request(Request::LastAnswer(answer), input.len())
            }
            State::Rest { refusal } => match memchr::memchr(b'\n', input) {
                Some(end) => {
                    self.state = State::Line;
                    Step::Request(Request::Answer(Form::LINE.refused(refusal)), end + 1)
                }
                None => Step::Skip(input.len()),
            },
            State::Last { bytes, answer } if bytes <= input.len() => {
                Step::Request(Request::LastAnswer(answer), bytes)
            }
            State::Last { bytes, answer } => {
                self.state = State::Last { bytes: bytes - input.len(), answer };
                Step::Skip(input.len())
            }
            State::Start | State::Line | State::Keys { .. } | State::Frame => {
                self.state = State::Line;
                self.line(input)
            }
        }
    }

    fn value<'a>(&mut self, input: &'a [u8], bytes: u64, tail: Tail, answer: Answer) -> Step<'a> {
        let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(input.len());
        let bytes = bytes - here as u64;
        match tail.read(&input[here..]) {
            TailRead::Whole(end) | TailRead::Wrong(end) if bytes == 0 => {
                self.state = Session::next_request(answer);
                Step::Request(Request::Answer(answer), here + end.len())
            }
            _ if here == 0 => Step::More,
            _ => {
                self.state = State::Value { bytes, tail, answer };
                Step::Skip(here)
            }
        }
    }

    #[inline]
    fn frame<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match quick_frame::get(input) {
            Some((get, bytes)) => Step::Request(Request::Get(get), bytes),
            None => self.any_frame(input),
        }
    }

    #[inline(never)]
    fn any_frame<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match parse_frame(input) {
            ParsedFrame::Step(step) => step,
            ParsedFrame::Swallow(bytes, 0, answer) => Step::Request(Request::Answer(answer), bytes),
            ParsedFrame::Swallow(bytes, more, answer) => {
                self.swallow(more.into(), Tail::Nothing, answer);
                Step::Skip(bytes)
            }
            ParsedFrame::Last(bytes, answer) if bytes <= input.len() => {
                Step::Request(Request::LastAnswer(answer), bytes)
            }
            ParsedFrame::Last(bytes, answer) => {
                self.state = State::Last { bytes: bytes - HEADER_BYTES, answer };
                Step::Skip(HEADER_BYTES)
            }
        }
    }
}

/// Reads a storage command again whose header and tail were kept without its value. Returns the
/// request with an empty value, and the value's length. `None` if `header` is no such header.
#[must_use]
pub fn stored<'a>(header: &'a [u8], tail: &[u8]) -> Option<(Request<'a>, u32)> {
    match Session::new(ProtocolMode::Auto).next(header) {
        Step::Body { mut request, value_bytes, tail: kind, .. } => {
            set_value(&mut request, &[], kind.read(tail));
            Some((request, value_bytes))
        }
        _ => None,
    }
}

/// Returns the answer that refuses a whole `message`, in the form of its first request.
#[must_use]
pub fn refusal_of(message: &[u8], refusal: Refusal) -> Answer {
    let form = match message.first_chunk::<HEADER_BYTES>().map(Header::from_bytes) {
        Some(Header { magic: MAGIC_REQUEST, opcode, opaque, .. }) => {
            Form::Binary(Tag { opcode, quiet: false, opaque })
        }
        _ => Form::LINE,
    };
    form.refused(refusal)
}
