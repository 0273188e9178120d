//! Parses one frame into its request.
//!
//! Where: the session calls `parse` at the start of each frame.
//! Invariant: the result depends on the frame alone. A frame whose lengths do not fit its command
//! ends the connection. After any other refused frame, `parse` skips the same bytes as memcached.
//! Source: memcached 1.6.45 `try_read_command_binary`, `dispatch_bin_command`.

use super::opcode::{self, Shape};
use super::{BODY_BYTES_MAX, EXPTIME_NO_CREATE, HEADER_BYTES, Header, MAGIC_REQUEST, Tag};
use crate::KEY_BYTES_MAX;
use crate::form::{Answer, Form, GetForm};
use crate::outcome::Refusal;
use crate::request::{Args, Delete, Delta, Get, Initial, LineTokens, Request, Stats, Store};
use crate::step::{Step, Tail, with_value};
use memory::verb::Verb;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedFrame<'a> {
    /// A step that leaves the session between frames.
    Step(Step<'a>),
    /// Consume the first number of bytes, skip the second number of bytes, then give the answer.
    Swallow(usize, u32, Answer),
    /// Skip this number of bytes, give this answer, and end the connection.
    Last(usize, Answer),
}

struct Head<'a> {
    /// All bytes from the frame's first byte on.
    input: &'a [u8],
    header: Header,
    extras: &'a [u8],
    key: &'a [u8],
    tag: Tag,
    bytes: usize,
}

#[inline]
pub(crate) fn parse(input: &[u8]) -> ParsedFrame<'_> {
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else {
        return ParsedFrame::Step(Step::More);
    };
    let header = Header::from_bytes(header);
    if header.magic != MAGIC_REQUEST {
        return ParsedFrame::Step(Step::Close);
    }
    let command = opcode::find(header.opcode);
    let quiet = command.is_some_and(|command| command.quiet);
    let tag = Tag { opcode: header.opcode, quiet, opaque: header.opaque };
    let (key_bytes, extras_bytes) = (usize::from(header.key_bytes), header.extras_bytes.into());
    let bytes = HEADER_BYTES + extras_bytes + key_bytes;
    let form = Form::Binary(tag);
    if let Some(refusal) = misshapen(&header) {
        return ParsedFrame::Last(bytes, form.refused(refusal));
    }
    let Some(body) = input.get(HEADER_BYTES..bytes) else { return ParsedFrame::Step(Step::More) };
    let (extras, key) = body.split_at(extras_bytes);
    let head = Head { input, header, extras, key, tag, bytes };
    let Some(command) = command else {
        // Like memcached, skips `body_bytes` bytes after the extras and the key, although
        // `body_bytes` counts the extras and the key too.
        let unknown = form.refused(Refusal::UnknownCommand);
        return ParsedFrame::Swallow(bytes, header.body_bytes, unknown);
    };
    by_shape(&head, command.shape)
        .unwrap_or(ParsedFrame::Last(bytes, form.refused(Refusal::BadFormat)))
}

fn misshapen(header: &Header) -> Option<Refusal> {
    let body_bytes_min = u32::from(header.key_bytes) + u32::from(header.extras_bytes);
    if body_bytes_min > header.body_bytes {
        return Some(Refusal::UnknownCommand);
    }
    let long_key = usize::from(header.key_bytes) > KEY_BYTES_MAX;
    (header.body_bytes > BODY_BYTES_MAX || long_key).then_some(Refusal::BadFormat)
}

/// Reads a frame whose command has this shape; `None` if the frame's lengths do not fit the shape.
fn by_shape<'a>(head: &Head<'a>, shape: Shape) -> Option<ParsedFrame<'a>> {
    let (key, form) = (head.key, Form::Binary(head.tag));
    let (keyed, extras_bytes) = (!key.is_empty(), head.extras.len());
    // True if the body ends with the key. If a match arm does not check `ends`, the rest of the
    // body is parsed as the next frame, as in memcached.
    let ends = head.header.body_bytes as usize + HEADER_BYTES == head.bytes;
    let is_bare = !keyed && extras_bytes == 0 && ends;
    let request = match shape {
        Shape::Get { .. } if keyed && extras_bytes == 0 && ends => {
            Request::Get(Get { key, exptime: None, form: GetForm::Binary(head.tag) })
        }
        Shape::GetAndTouch { .. } | Shape::Touch if keyed => {
            let exptime = Some(seconds(number(head.extras)?));
            Request::Get(Get { key, exptime, form: GetForm::Binary(head.tag) })
        }
        Shape::Store(verb) if keyed => return store(head, verb),
        Shape::Extend(verb) if keyed && extras_bytes == 0 => {
            return Some(head.with_value(bare(head, verb)));
        }
        Shape::Delete if keyed && extras_bytes == 0 && ends => {
            Request::Delete(Delete { key, cas: head.header.cas, form })
        }
        Shape::Delta { incr } if keyed && ends => Request::Delta(delta(head, incr)?),
        Shape::Flush if !keyed && ends && extras_bytes == 0 => {
            Request::FlushAll { exptime: Some(0), form }
        }
        Shape::Flush if !keyed && ends => {
            Request::FlushAll { exptime: Some(seconds(number(head.extras)?)), form }
        }
        Shape::Noop if is_bare => Request::Noop(form),
        Shape::Version if is_bare => Request::Version(form),
        Shape::Quit if is_bare => Request::Quit(form),
        Shape::Stat if extras_bytes == 0 => {
            let args = if keyed { Args::Word(key) } else { Args::Line(LineTokens::default()) };
            Request::Stats(Stats { args, lists: false, form })
        }
        Shape::SaslList if is_bare => return Some(unknown(head, 0)),
        Shape::Sasl if keyed && extras_bytes == 0 => {
            return Some(unknown(head, head.value_bytes()));
        }
        _ => return None,
    };
    Some(ParsedFrame::Step(Step::Request(request, head.bytes)))
}

impl<'a> Head<'a> {
    fn value_bytes(&self) -> u32 {
        self.header.body_bytes
            - (u32::from(self.header.key_bytes) + u32::from(self.header.extras_bytes))
    }

    fn with_value(&self, store: Store<'a>) -> ParsedFrame<'a> {
        let (request, value_bytes) = (Request::Store(store), self.value_bytes());
        let step = with_value(self.input, request, self.bytes, value_bytes, Tail::Nothing);
        ParsedFrame::Step(step)
    }
}

/// Skips a value of `value_bytes` bytes, and refuses a SASL command as unknown, because the server
/// has no SASL.
fn unknown<'a>(head: &Head<'_>, value_bytes: u32) -> ParsedFrame<'a> {
    let unknown = Form::Binary(head.tag).refused(Refusal::UnknownCommand);
    ParsedFrame::Swallow(head.bytes, value_bytes, unknown)
}

fn store<'a>(head: &Head<'a>, verb: Verb) -> Option<ParsedFrame<'a>> {
    let (client_flags, exptime) = head.extras.split_at_checked(4)?;
    let (client_flags, exptime) = (number(client_flags)?, number(exptime)?);
    let store = Store { client_flags, exptime: seconds(exptime), ..bare(head, verb) };
    Some(head.with_value(store))
}

fn bare<'a>(head: &Head<'a>, verb: Verb) -> Store<'a> {
    Store {
        verb,
        key: head.key,
        client_flags: 0,
        exptime: 0,
        cas: head.header.cas,
        form: Form::Binary(head.tag),
        value: &[],
        terminated: true,
    }
}

fn delta<'a>(head: &Head<'a>, incr: bool) -> Option<Delta<'a>> {
    let (amount, rest) = head.extras.split_first_chunk::<8>()?;
    let (initial, exptime) = rest.split_first_chunk::<8>()?;
    let exptime = number(exptime)?;
    let initial = Initial { value: u64::from_be_bytes(*initial), exptime: seconds(exptime) };
    Some(Delta {
        incr,
        key: head.key,
        delta: u64::from_be_bytes(*amount),
        cas: head.header.cas,
        initial: (exptime != EXPTIME_NO_CREATE).then_some(initial),
        form: Form::Binary(head.tag),
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_be_bytes)
}

fn seconds(exptime: u32) -> i64 {
    exptime.into()
}
