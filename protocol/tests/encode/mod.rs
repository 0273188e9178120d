//! Encodes a client's requests, and a server's text replies, as bytes.
//!
//! Where: the codec tests and the fuzz targets include this file, and decode the bytes.
//! Invariant: `Session` and `Reply::decode` return the request or reply that was encoded.
//! Source: memcached's `protocol.txt`, `protocol_binary.h` (1.6.45).

#![allow(dead_code, clippy::unwrap_used, reason = "a test calls a part, and fails by a panic")]

use std::io::Write;

use protocol::binary::{EXPTIME_NO_CREATE, Header, MAGIC_REQUEST};
use protocol::command::Operator;
use protocol::{
    COMMANDS, Delete, Delta, Form, Get, GetForm, LineTokens, Meta, MetaVerb, Reply, Request, Shape,
    Stats, Store, Tag, Verb,
};

/// The lowest exptime that is a Unix time.
const EXPTIME_PAST: i64 = 60 * 60 * 24 * 30 + 1;

/// Appends the request's bytes: a whole line for a text `Get`, no bytes for an answer.
pub(crate) fn request(request: &Request<'_>, out: &mut Vec<u8>) {
    if let Some(tag) = request.tag() {
        return frame(request, tag, out);
    }
    match *request {
        Request::Get(Get { key, exptime, form }) => {
            get_line([key], matches!(form, GetForm::Text { cas: true, .. }), exptime, out);
        }
        Request::Store(Store { verb, key, client_flags, exptime, cas, form, value, .. }) => {
            let mut numbers = vec![client_flags.into(), exptime.into(), value.len() as i128];
            numbers.extend((verb == Verb::Cas).then_some(i128::from(cas)));
            line(Shape::Store(verb), &[key], &numbers, form, out);
            block(value, out);
        }
        Request::Meta(Meta { verb, key, flags, value, .. }) => {
            let is_set = verb == MetaVerb::Set;
            let length = is_set.then(|| value.len().to_string());
            let length = length.as_ref().map(|length| length.as_bytes());
            let words: Vec<&[u8]> = [key].into_iter().chain(length).chain(flags.tokens()).collect();
            line(Shape::Meta(verb), &words, &[], Form::LINE, out);
            if is_set {
                block(value, out);
            }
        }
        Request::Answer(_) | Request::LastAnswer(_) => {}
        Request::Delete(Delete { key, form, .. }) => line(Shape::Delete, &[key], &[], form, out),
        Request::Delta(Delta { incr, key, delta, form, .. }) => {
            line(Shape::Delta { incr }, &[key], &[delta.into()], form, out);
        }
        Request::Touch { key, exptime, form } => {
            line(Shape::Touch, &[key], &[exptime.into()], form, out);
        }
        Request::FlushAll { exptime, form } => {
            line(Shape::FlushAll, &[], &[exptime.unwrap_or(0).into()], form, out);
        }
        Request::Verbosity { level, form } => {
            line(Shape::Verbosity, &[], &[level.into()], form, out);
        }
        Request::Operator { command, args, form } => {
            let shape = match command {
                Operator::Watch => Shape::Watch,
                _ => Shape::Operator(command),
            };
            let mut words: Vec<&[u8]> = args.tokens().collect();
            // Remove `noreply`, because `line` appends it.
            words.pop_if(|last| form == Form::Text { noreply: true } && *last == b"noreply");
            line(shape, &words, &[], form, out);
        }
        Request::Stats(Stats { args, form, .. }) => {
            line(Shape::Stats, &args.tokens().collect::<Vec<_>>(), &[], form, out);
        }
        Request::Noop(form) => line(Shape::MetaNoop, &[], &[], form, out),
        Request::Version(form) => line(Shape::Version, &[], &[], form, out),
        Request::Quit(form) => line(Shape::Quit, &[], &[], form, out),
    }
}

pub(crate) fn get_line<'k>(
    keys: impl IntoIterator<Item = &'k [u8]>,
    cas: bool,
    exptime: Option<i64>,
    out: &mut Vec<u8>,
) {
    let shape = exptime.map_or(Shape::Get { cas }, |_| Shape::GetAndTouch { cas });
    let exptime = exptime.map(|exptime| exptime.to_string());
    let mut words: Vec<&[u8]> = exptime.iter().map(|exptime| exptime.as_bytes()).collect();
    for key in keys {
        words.push(key);
    }
    line(shape, &words, &[], Form::LINE, out);
}

/// Appends the line of a command: name, words, numbers and, if `form` says so, `noreply`.
fn line(shape: Shape, words: &[&[u8]], numbers: &[i128], form: Form, out: &mut Vec<u8>) {
    let command = COMMANDS.iter().find(|command| command.shape == shape).unwrap();
    out.extend_from_slice(command.name.as_bytes());
    words.iter().for_each(|word| out.extend([b" ", *word].concat()));
    numbers.iter().for_each(|number| write!(out, " {number}").unwrap());
    if form == (Form::Text { noreply: true }) {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
}

fn block(value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a binary request. A request without a binary command becomes a frame with no body.
fn frame(request: &Request<'_>, tag: Tag, out: &mut Vec<u8>) {
    let (mut extras, mut key, mut value, mut cas) = (Vec::new(), &[][..], &[][..], 0);
    match *request {
        Request::Get(get) => {
            key = get.key;
            extras.extend(get.exptime.into_iter().flat_map(seconds));
        }
        Request::Store(store) => {
            (key, value, cas) = (store.key, store.value, store.cas);
            if !store.verb.extends() {
                extras.extend(store.client_flags.to_be_bytes());
                extras.extend(seconds(store.exptime));
            }
        }
        Request::Delete(delete) => (key, cas) = (delete.key, delete.cas),
        Request::Delta(delta) => {
            (key, cas) = (delta.key, delta.cas);
            extras.extend(delta.delta.to_be_bytes());
            extras.extend(delta.initial.map_or(0, |initial| initial.value).to_be_bytes());
            let exptime = delta.initial.map(|initial| seconds(initial.exptime));
            extras.extend(exptime.unwrap_or(EXPTIME_NO_CREATE.to_be_bytes()));
        }
        Request::FlushAll { exptime: Some(exptime), .. } if exptime != 0 => {
            extras.extend(seconds(exptime));
        }
        Request::Stats(Stats { args, .. }) => key = args.token(0).unwrap_or_default(),
        _ => {}
    }
    let header = Header {
        magic: MAGIC_REQUEST,
        opcode: tag.opcode,
        key_bytes: u16::try_from(key.len()).unwrap(),
        extras_bytes: u8::try_from(extras.len()).unwrap(),
        body_bytes: u32::try_from(extras.len() + key.len() + value.len()).unwrap(),
        opaque: tag.opaque,
        cas,
        ..Header::default()
    };
    out.extend_from_slice(&header.to_bytes());
    [&extras, key, value].iter().for_each(|part| out.extend_from_slice(part));
}

/// Returns the bytes of an exptime; a negative exptime becomes a Unix time long past.
fn seconds(exptime: i64) -> [u8; 4] {
    let exptime = if exptime < 0 { EXPTIME_PAST } else { exptime };
    u32::try_from(exptime).unwrap_or(u32::MAX).to_be_bytes()
}

pub(crate) fn reply(reply: &Reply<'_>, out: &mut Vec<u8>) {
    match *reply {
        Reply::Value { key, client_flags, cas, value } => {
            out.extend([b"VALUE ", key].concat());
            let cas = cas.map(|cas| format!(" {cas}")).unwrap_or_default();
            write!(out, " {client_flags} {}{cas}\r\n", value.len()).unwrap();
            out.extend_from_slice(value);
        }
        Reply::MetaValue { flags, value } => {
            write!(out, "VA {}", value.len()).unwrap();
            with_flags(flags, out);
            out.extend([b"\r\n", value].concat());
        }
        Reply::Meta { code, flags } => {
            out.extend_from_slice(&code);
            with_flags(flags, out);
        }
        Reply::Number(value) => write!(out, "{value}").unwrap(),
        Reply::Stat(name, value) => out.extend([b"STAT ", name, b" ", value].concat()),
        Reply::Version(text) => out.extend([b"VERSION ", text].concat()),
        Reply::ClientError(text) => out.extend([b"CLIENT_ERROR ", text].concat()),
        Reply::ServerError(text) => out.extend([b"SERVER_ERROR ", text].concat()),
        Reply::Line(text) => out.extend_from_slice(text),
    }
    out.extend_from_slice(b"\r\n");
}

fn with_flags(flags: LineTokens<'_>, out: &mut Vec<u8>) {
    flags.tokens().for_each(|token| out.extend([b" ", token].concat()));
}
