//! Writes a short form of the line before a value.
//!
//! Where: while a large value arrives, the connection keeps the short line, not the client's line.
//! Invariant: a `Session` reads the same request from the short line as from the client's line.
//! Source: memcached's `protocol.txt`.

use crate::command::{COMMANDS, MetaVerb, Shape};
use crate::digits::number;
use crate::form::Form;
use crate::meta::OPAQUE_BYTES_MAX;
use crate::request::{Meta, Request, Store};
use memory::verb::Verb;

/// Longest line that `short_head` writes for a text request.
pub const HEAD_BYTES_MAX: usize = 1 << 10;

impl Request<'_> {
    /// Appends a short form of `header`, the bytes before this storage command's value. A binary
    /// header is short already and is copied. The flags of an `ms` must have been parsed without
    /// error: then cutting a flag to `OPAQUE_BYTES_MAX` bytes keeps the flag's meaning.
    pub fn short_head(&self, header: &[u8], value_bytes: u32, out: &mut Vec<u8>) {
        match self {
            Request::Store(store) => match store.form {
                Form::Binary(_) => out.extend_from_slice(header),
                Form::Text { .. } => store_head(store, value_bytes, out),
            },
            Request::Meta(meta) => meta_head(meta, value_bytes, out),
            _ => {}
        }
    }
}

fn store_head(store: &Store<'_>, value_bytes: u32, out: &mut Vec<u8>) {
    name(Shape::Store(store.verb), out);
    word(out, store.key);
    for part in [i64::from(store.client_flags), store.exptime, value_bytes.into()] {
        out.push(b' ');
        number(out, part);
    }
    if store.verb == Verb::Cas {
        out.push(b' ');
        number(out, store.cas);
    }
    if store.form == (Form::Text { noreply: true }) {
        out.extend_from_slice(b" noreply");
    }
    out.extend_from_slice(b"\r\n");
}

fn meta_head(meta: &Meta<'_>, value_bytes: u32, out: &mut Vec<u8>) {
    name(Shape::Meta(MetaVerb::Set), out);
    word(out, meta.key);
    out.push(b' ');
    number(out, value_bytes);
    for token in meta.flags.tokens() {
        word(out, &token[..token.len().min(OPAQUE_BYTES_MAX)]);
    }
    out.extend_from_slice(b"\r\n");
}

fn name(shape: Shape, out: &mut Vec<u8>) {
    if let Some(command) = COMMANDS.iter().find(|command| command.shape == shape) {
        out.extend_from_slice(command.name.as_bytes());
    }
}

fn word(out: &mut Vec<u8>, word: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(word);
}
