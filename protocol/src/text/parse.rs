//! Parses one whole command line into its request.
//!
//! Where: the session calls `parse` for every line that its short cuts do not handle.
//! Invariant: the result depends on one whole line alone, not on any state.
//! Source: memcached 1.6.45 `process_request`, `process_command_ascii`, `process_update_cmd_start`
//! and similar functions, as far as they look only at the line.

use super::tokens::{Tokens, content_end};
use crate::KEY_BYTES_MAX;
use crate::command::{self, MetaVerb, Operator, Shape};
use crate::form::{Answer, Form};
use crate::number;
use crate::outcome::Refusal;
use crate::request::{Args, Delete, Delta, Meta, Request, Stats, Store};
use memory::verb::Verb;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParsedLine<'a> {
    /// A request that has no value.
    Request(Request<'a>),
    /// A request with a value of this length, which follows the line.
    Value(Request<'a>, u32),
    /// Skip a value of this length, which follows the line, then give this answer.
    Swallow(u32, Answer),
    /// A retrieval whose keys begin at offset `keys_at` of the line. No key is too long.
    Keys { cas: bool, exptime: Option<i64>, keys_at: usize },
    /// The line begins an HTTP request, not a command: the connection closes.
    Close,
}

const LINE_BYTES_MIN: usize = 4;

/// Refuses a line. The client gets the refusal even with `noreply`.
fn refused<'a>(refusal: Refusal) -> ParsedLine<'a> {
    ParsedLine::Request(Request::Answer(Form::LINE.refused(refusal)))
}

/// Refuses a request. The client gets the refusal unless `form` has `noreply`.
fn refused_to<'a>(form: Form, refusal: Refusal) -> ParsedLine<'a> {
    ParsedLine::Request(Request::Answer(form.refused(refusal)))
}

fn form(tokens: &Tokens<'_>) -> Form {
    Form::Text { noreply: tokens.noreply() }
}

/// Parses `line`, which ends in its first `\n`.
pub(crate) fn parse(line: &[u8]) -> ParsedLine<'_> {
    if line.len() < LINE_BYTES_MIN {
        return refused(Refusal::BadFormat);
    }
    let content = &line[..content_end(line)];
    let name = match memchr::memchr(b' ', content) {
        Some(end) => &content[..end],
        None => content,
    };
    match command::find(name) {
        Some(shape) if !shape.after_spaces() => by_shape(shape, line),
        _ => by_first_token(line),
    }
}

fn by_shape(shape: Shape, line: &[u8]) -> ParsedLine<'_> {
    match shape {
        Shape::Get { cas } => get(&Tokens::cut(line), line, cas),
        Shape::GetAndTouch { cas } => get_and_touch(&Tokens::cut(line), line, cas),
        Shape::Store(verb) => store(&Tokens::cut(line), verb),
        Shape::Delete => delete(&Tokens::cut(line)),
        Shape::Delta { incr } => delta(&Tokens::cut(line), incr),
        Shape::Touch => touch(&Tokens::cut(line)),
        Shape::Meta(verb) => meta(line, verb),
        Shape::MetaNoop => ParsedLine::Request(Request::Noop(Form::LINE)),
        Shape::Quit => ParsedLine::Request(Request::Quit(Form::LINE)),
        Shape::Version => ParsedLine::Request(Request::Version(Form::LINE)),
        Shape::Stats => {
            let args = Args::Line(Tokens::cut(line).args_from(1));
            ParsedLine::Request(Request::Stats(Stats { args, lists: true, form: Form::LINE }))
        }
        Shape::Watch => {
            let args = Args::Line(Tokens::cut(line).args_from(1));
            ParsedLine::Request(Request::Operator {
                command: Operator::Watch,
                args,
                form: Form::LINE,
            })
        }
        Shape::FlushAll => flush_all(&Tokens::cut(line)),
        Shape::Verbosity => verbosity(&Tokens::cut(line)),
        Shape::Operator(command) => {
            let tokens = Tokens::cut(line);
            let (args, form) = (Args::Line(tokens.args_from(1)), form(&tokens));
            ParsedLine::Request(Request::Operator { command, args, form })
        }
    }
}

/// Parses a line whose command memcached finds by the first token. Refuses any other line.
fn by_first_token(line: &[u8]) -> ParsedLine<'_> {
    let tokens = Tokens::cut(line);
    let shape = tokens.get(0).and_then(command::find).filter(|shape| shape.after_spaces());
    if let Some(shape) = shape {
        return by_shape(shape, line);
    }
    if tokens.count() > 1 && tokens.last().is_some_and(|last| last.starts_with(b"HTTP/")) {
        return ParsedLine::Close;
    }
    refused_to(form(&tokens), Refusal::UnknownCommand)
}

fn get<'a>(tokens: &Tokens<'a>, line: &'a [u8], cas: bool) -> ParsedLine<'a> {
    let Some(keys_at) = tokens.start(1) else { return refused(Refusal::BadFormat) };
    keys(line, keys_at, cas, None, form(tokens))
}

fn get_and_touch<'a>(tokens: &Tokens<'a>, line: &'a [u8], cas: bool) -> ParsedLine<'a> {
    let (Some(exptime), Some(keys_at)) = (tokens.get(1), tokens.start(2)) else {
        return refused(Refusal::BadFormat);
    };
    match number::strict_i32(exptime) {
        Some(exptime) => keys(line, keys_at, cas, Some(exptime.into()), Form::LINE),
        None => refused(Refusal::BadExptime),
    }
}

fn keys(
    line: &[u8],
    keys_at: usize,
    cas: bool,
    exptime: Option<i64>,
    form: Form,
) -> ParsedLine<'_> {
    let text = &line[keys_at..content_end(line)];
    let mut start = 0;
    for end in memchr::memchr_iter(b' ', text).chain([text.len()]) {
        if end - start > KEY_BYTES_MAX {
            // Like in memcached, `noreply` suppresses only the refusal of the first key.
            let form = if start == 0 { form } else { Form::LINE };
            return refused_to(form, Refusal::KeyTooLong);
        }
        start = end + 1;
    }
    ParsedLine::Keys { cas, exptime, keys_at }
}

/// Reads a value's length; `None` if memcached refuses the length whatever its item limit is.
fn value_bytes(token: Option<&[u8]>) -> Option<u32> {
    let bytes = number::strict_i32(token?)?;
    u32::try_from(bytes).ok().filter(|_| bytes <= i32::MAX - 2)
}

fn store<'a>(tokens: &Tokens<'a>, verb: Verb) -> ParsedLine<'a> {
    let (Some(key), Some(value_bytes)) = (tokens.get(1), value_bytes(tokens.get(4))) else {
        return refused(Refusal::BadFormat);
    };
    let form = form(tokens);
    let refused = ParsedLine::Swallow(value_bytes, form.refused(Refusal::BadFormat));
    let client_flags = tokens.text_from(2).and_then(number::loose_u32);
    let exptime = tokens.text_from(3).and_then(number::loose_i32);
    let cas = match verb {
        Verb::Cas => tokens.get(5).and_then(number::strict_u64),
        _ => Some(0),
    };
    let (Some(client_flags), Some(exptime), Some(cas)) = (client_flags, exptime, cas) else {
        return refused;
    };
    if key.len() > KEY_BYTES_MAX {
        return refused;
    }
    let (exptime, value) = (exptime.into(), &[]);
    let store = Store { verb, key, client_flags, exptime, cas, form, value, terminated: true };
    ParsedLine::Value(Request::Store(store), value_bytes)
}

fn delete<'a>(tokens: &Tokens<'a>) -> ParsedLine<'a> {
    let Some(key) = tokens.get(1) else { return refused(Refusal::BadFormat) };
    let form = form(tokens);
    if key.len() > KEY_BYTES_MAX {
        return refused_to(form, Refusal::BadFormat);
    }
    ParsedLine::Request(Request::Delete(Delete { key, cas: 0, form }))
}

fn delta<'a>(tokens: &Tokens<'a>, incr: bool) -> ParsedLine<'a> {
    let (Some(key), Some(delta)) = (tokens.get(1), tokens.get(2)) else {
        return refused(Refusal::BadFormat);
    };
    let form = form(tokens);
    if key.len() > KEY_BYTES_MAX {
        return refused_to(form, Refusal::BadFormat);
    }
    match number::strict_u64(delta) {
        Some(delta) => {
            let delta = Delta { incr, key, delta, cas: 0, initial: None, form };
            ParsedLine::Request(Request::Delta(delta))
        }
        None => refused_to(form, Refusal::BadDelta),
    }
}

fn touch<'a>(tokens: &Tokens<'a>) -> ParsedLine<'a> {
    let (Some(key), Some(exptime)) = (tokens.get(1), tokens.get(2)) else {
        return refused(Refusal::BadFormat);
    };
    let form = form(tokens);
    if key.len() > KEY_BYTES_MAX {
        return refused_to(form, Refusal::BadFormat);
    }
    match number::strict_i32(exptime) {
        Some(exptime) => ParsedLine::Request(Request::Touch { key, exptime: exptime.into(), form }),
        None => refused_to(form, Refusal::BadExptime),
    }
}

fn meta(line: &[u8], verb: MetaVerb) -> ParsedLine<'_> {
    let first_flag = if verb == MetaVerb::Set { 3 } else { 2 };
    // The flags of `me` are checked like flags of `mg`, although `me` reads only its first flag.
    let tokens = Tokens::cut_meta(line, first_flag);
    let Some(key) = tokens.get(1) else { return refused(Refusal::BadFormat) };
    let flags = tokens.args_from(first_flag);
    let meta = Request::Meta(Meta { verb, key, flags, value: &[], terminated: true });
    match verb {
        MetaVerb::Set => match value_bytes(tokens.get(2)) {
            Some(value_bytes) => ParsedLine::Value(meta, value_bytes),
            None => refused(Refusal::BadFormat),
        },
        MetaVerb::Debug if key.len() > KEY_BYTES_MAX => refused(Refusal::BadFormat),
        _ => ParsedLine::Request(meta),
    }
}

fn flush_all<'a>(tokens: &Tokens<'a>) -> ParsedLine<'a> {
    let noreply = tokens.noreply();
    let given = tokens.count() != 1 + usize::from(noreply);
    let exptime = if given { tokens.get(1).and_then(number::strict_i32) } else { Some(0) };
    let (exptime, form) = (exptime.map(i64::from), Form::Text { noreply });
    ParsedLine::Request(Request::FlushAll { exptime, form })
}

fn verbosity<'a>(tokens: &Tokens<'a>) -> ParsedLine<'a> {
    match tokens.get(1).and_then(number::strict_u32) {
        Some(level) => ParsedLine::Request(Request::Verbosity { level, form: form(tokens) }),
        None => refused_to(form(tokens), Refusal::BadFormat),
    }
}
