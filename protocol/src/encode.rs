//! The client's half: requests into bytes.
//!
//! Where: a load generator writes what a `Session` would read; the tests go both ways with it.
//! Invariant: a `Session` reads back exactly what was encoded.
//! Source: memcached's `protocol.txt`.

use crate::binary;
use crate::command::{COMMANDS, Command, Shape};
use crate::form::{Form, GetForm};
use crate::meta::OPAQUE_BYTES_MAX;
use crate::operator::Operator;
use crate::reply::number;
use crate::request::{Delete, Delta, Get, Meta, MetaVerb, Request, Store};

/// A line of `Request::encode_head` is no longer than this.
pub const HEAD_BYTES_MAX: usize = 1 << 10;

/// Appends a whole retrieval line.
pub fn get_line<'k>(
    keys: impl IntoIterator<Item = &'k [u8]>,
    cas: bool,
    exptime: Option<i64>,
    out: &mut Vec<u8>,
) {
    match exptime {
        None => name(|shape| shape == Shape::Get { cas }, out),
        Some(exptime) => {
            name(|shape| shape == Shape::GetAndTouch { cas }, out);
            out.push(b' ');
            number(out, exptime);
        }
    }
    for key in keys {
        word(out, key);
    }
    out.extend_from_slice(b"\r\n");
}

impl Request<'_> {
    /// Appends the line that stands before the value of a storage command in text, for a value of
    /// so many bytes, as short as it can be said: who waits for the value keeps no more than that,
    /// whatever a client has written. The flags of an `ms` have been parsed without error; no such
    /// flag says more than an opaque may. Any other request becomes nothing.
    pub fn encode_head(&self, value_bytes: u32, out: &mut Vec<u8>) {
        match self {
            Request::Store(store) => store_head(store, value_bytes, out),
            Request::Meta(meta) => {
                meta_head(meta, value_bytes, out);
                for token in meta.flags.tokens() {
                    word(out, &token[..token.len().min(OPAQUE_BYTES_MAX)]);
                }
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
    }

    /// Appends the request's bytes. A text `Get` becomes a line of its own; an answer is nothing a
    /// client says, and becomes nothing.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(tag) = self.tag() {
            return binary::frame::request(self, tag, out);
        }
        match *self {
            Request::Get(Get { key, exptime, form }) => {
                let cas = matches!(form, GetForm::Text { cas: true, .. });
                return get_line([key], cas, exptime, out);
            }
            Request::Store(ref store) => return self::store(store, out),
            Request::Meta(ref meta) => return self::meta(meta, out),
            Request::Answer(_) | Request::LastAnswer(_) => return,
            Request::Delete(Delete { key, form, .. }) => {
                name(|shape| shape == Shape::Delete, out);
                word(out, key);
                no_reply(form, out);
            }
            Request::Delta(Delta { incr, key, delta, form, .. }) => {
                name(|shape| shape == Shape::Delta { incr }, out);
                word(out, key);
                out.push(b' ');
                number(out, delta);
                no_reply(form, out);
            }
            Request::Touch { key, exptime, form } => {
                name(|shape| shape == Shape::Touch, out);
                word(out, key);
                out.push(b' ');
                number(out, exptime);
                no_reply(form, out);
            }
            Request::FlushAll { exptime, form } => {
                name(|shape| shape == Shape::FlushAll, out);
                out.push(b' ');
                number(out, exptime.unwrap_or(0));
                no_reply(form, out);
            }
            Request::Verbosity { level, form } => {
                name(|shape| shape == Shape::Verbosity, out);
                out.push(b' ');
                number(out, level);
                no_reply(form, out);
            }
            Request::Stats { args, .. } => {
                name(|shape| shape == Shape::Stats, out);
                args.tokens().for_each(|token| word(out, token));
            }
            Request::LimitMemory { megabytes, form } => {
                name(|shape| shape == Shape::Operator(Operator::CacheMemlimit), out);
                out.push(b' ');
                number(out, megabytes);
                no_reply(form, out);
            }
            Request::Noop(_) => name(|shape| shape == Shape::MetaNoop, out),
            Request::Version(_) => name(|shape| shape == Shape::Version, out),
            Request::Quit(_) => name(|shape| shape == Shape::Quit, out),
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn store(store: &Store<'_>, out: &mut Vec<u8>) {
    store_head(store, store.value.len(), out);
    out.extend_from_slice(store.value);
    out.extend_from_slice(b"\r\n");
}

fn store_head(store: &Store<'_>, value_bytes: impl itoa::Integer, out: &mut Vec<u8>) {
    name(|shape| shape == Shape::Store(store.verb), out);
    word(out, store.key);
    out.push(b' ');
    number(out, store.client_flags);
    out.push(b' ');
    number(out, store.exptime);
    out.push(b' ');
    number(out, value_bytes);
    if store.verb == crate::request::StoreVerb::Cas {
        out.push(b' ');
        number(out, store.cas);
    }
    no_reply(store.form, out);
    out.extend_from_slice(b"\r\n");
}

fn meta(meta: &Meta<'_>, out: &mut Vec<u8>) {
    meta_head(meta, meta.value.len(), out);
    for token in meta.flags.tokens() {
        word(out, token);
    }
    out.extend_from_slice(b"\r\n");
    if meta.verb == MetaVerb::Set {
        out.extend_from_slice(meta.value);
        out.extend_from_slice(b"\r\n");
    }
}

/// All but the flags, and the line's end.
fn meta_head(meta: &Meta<'_>, value_bytes: impl itoa::Integer, out: &mut Vec<u8>) {
    name(|shape| shape == Shape::Meta(meta.verb), out);
    word(out, meta.key);
    if meta.verb == MetaVerb::Set {
        out.push(b' ');
        number(out, value_bytes);
    }
}

/// Appends the name of the command of that shape: the table is the only list of names.
fn name(is: impl Fn(Shape) -> bool, out: &mut Vec<u8>) {
    if let Some(Command { name, .. }) = COMMANDS.iter().find(|command| is(command.shape)) {
        out.extend_from_slice(name.as_bytes());
    }
}

fn word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}

fn no_reply(form: Form, out: &mut Vec<u8>) {
    if form == (Form::Text { noreply: true }) {
        out.extend_from_slice(b" noreply");
    }
}
