//! Parses lines: whole commands, and retrieval lines, whose keys are yielded as they arrive.
//!
//! Where: `Session::next` calls these functions in the states of the text protocol.
//! Invariant: a line that has arrived whole is parsed once; only the keys of a retrieval line are
//! yielded before the line's end arrives.
//! Source: memcached 1.6.45 `try_read_command_ascii`, `process_get_command`.

use super::{SPACES_MAX, Session, State};
use crate::KEY_BYTES_MAX;
use crate::form::{Answer, Form, GetForm};
use crate::outcome::{Outcome, Refusal};
use crate::request::{Get, Request};
use crate::step::{Step, Tail, with_value};
use crate::text::parse::{ParsedLine, parse};
use crate::text::{COMMAND_BYTES_MAX, LINE_BYTES_MAX, quick};

impl Session {
    #[inline]
    pub(super) fn line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if let Some((get, bytes)) = quick::get(input) {
            return Step::Request(Request::Get(get), bytes);
        }
        if let Some(step) = quick::step(input) {
            return step;
        }
        if let Some((cas, keys_at)) = quick::keys(input) {
            self.state = State::Keys { cas, exptime: None, found: false };
            return Step::Skip(keys_at);
        }
        self.any_line(input)
    }

    #[inline(never)]
    pub(crate) fn any_line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let Some(line_bytes) = line_bytes(input) else { return self.unfinished_line(input) };
        match parse(&input[..line_bytes]) {
            ParsedLine::Request(request) => Step::Request(request, line_bytes),
            ParsedLine::Value(request, value_bytes) => {
                with_value(input, request, line_bytes, value_bytes, Tail::LineEnd)
            }
            ParsedLine::Swallow(value_bytes, answer) => {
                self.swallow(value_bytes.into(), Tail::LineEnd, answer);
                Step::Skip(line_bytes)
            }
            ParsedLine::Keys { cas, exptime, keys_at } => {
                self.state = State::Keys { cas, exptime, found: false };
                Step::Skip(keys_at)
            }
            ParsedLine::Close => Step::Close,
        }
    }

    /// Handles a line that has not ended, or is too long.
    fn unfinished_line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if input.len() <= COMMAND_BYTES_MAX {
            return Step::More;
        }
        let Some((cas, spaces)) = retrieval(input) else { return Step::Close };
        if input.len() < LINE_BYTES_MAX {
            return Step::More;
        }
        if spaces > 0 {
            // If spaces precede `get`, memcached refuses the line as unknown after the line's end.
            self.state = State::Rest { refusal: Refusal::UnknownCommand };
            return Step::Skip(input.len());
        }
        self.state = State::Keys { cas, exptime: None, found: false };
        Step::Skip(if cas { 5 } else { 4 })
    }

    /// Returns the next key of a retrieval line, if one space or the line's end follows the key.
    #[inline]
    pub(super) fn plain_key<'a>(
        &mut self,
        input: &'a [u8],
        cas: bool,
        exptime: Option<i64>,
    ) -> Option<(Get<'a>, usize)> {
        let (key, bytes, last) = quick::key_of_many(input)?;
        self.state = if last { State::Line } else { State::Keys { cas, exptime, found: true } };
        let form = GetForm::Text { cas, last };
        Some((Get { key, exptime, form }, bytes))
    }

    /// Returns the next key of a retrieval line. Refuses a key that is too long.
    pub(super) fn key<'a>(
        &mut self,
        input: &'a [u8],
        cas: bool,
        exptime: Option<i64>,
        found: bool,
    ) -> Step<'a> {
        let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
        let rest = &input[spaces..];
        let Some(end) = memchr::memchr2(b' ', b'\n', rest) else {
            let key = rest.strip_suffix(b"\r").unwrap_or(rest);
            if key.len() > KEY_BYTES_MAX {
                self.state = State::Rest { refusal: Refusal::KeyTooLong };
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
                return answered(Outcome::Refused(Refusal::KeyTooLong), consumed);
            }
            self.state = State::Rest { refusal: Refusal::KeyTooLong };
            return Step::Skip(consumed);
        }
        if key.is_empty() {
            self.state = State::Line;
            let bad_format = Outcome::Refused(Refusal::BadFormat);
            return answered(if found { Outcome::KeysEnd } else { bad_format }, consumed);
        }
        let tail = if ended { Some(0) } else { line_tail(&input[consumed..]) };
        let last = tail.is_some();
        self.state = if last { State::Line } else { State::Keys { cas, exptime, found: true } };
        let get = Get { key, exptime, form: GetForm::Text { cas, last } };
        Step::Request(Request::Get(get), consumed + tail.unwrap_or(0))
    }
}

/// Returns the first line's length, its end included. `None` if the line has not ended, or if it is
/// longer than memcached's read buffer and not a retrieval line.
fn line_bytes(input: &[u8]) -> Option<usize> {
    let bytes = memchr::memchr(b'\n', input)? + 1;
    (bytes <= LINE_BYTES_MAX || retrieval(input).is_some()).then_some(bytes)
}

/// Returns true for `gets` and false for `get`, and the number of spaces before the name.
fn retrieval(input: &[u8]) -> Option<(bool, usize)> {
    let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
    let cas = match &input[spaces..] {
        [b'g', b'e', b't', b' ', ..] => false,
        [b'g', b'e', b't', b's', b' ', ..] => true,
        _ => return None,
    };
    (spaces <= SPACES_MAX).then_some((cas, spaces))
}

fn answered<'a>(outcome: Outcome, consumed: usize) -> Step<'a> {
    Step::Request(Request::Answer(Answer { form: Form::LINE, outcome }), consumed)
}

/// Returns the length of the rest of a line, if `text` shows that no further key follows.
fn line_tail(text: &[u8]) -> Option<usize> {
    let spaces = text.iter().take_while(|&&byte| byte == b' ').count();
    match &text[spaces..] {
        [b'\n', ..] => Some(spaces + 1),
        [b'\r', b'\n', ..] => Some(spaces + 2),
        _ => None,
    }
}
