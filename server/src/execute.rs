//! Requests into store calls and replies.
//!
//! Where: between a connection's `Session` and its `Out`.
//! Invariant: one request, one reply, in order; no allocation. What memcached counts is counted
//! here once, unless the store counts it itself.
//! Source: memcached 1.6.45 `process_command_ascii` and what it calls.

mod arithmetic;
mod flush;
mod meta;
mod operator;
mod put;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use protocol::{Delta, Get, Meta, MetaVerb, Request, Session, Speak, Step, answer, reply};
use store::{Body, Column, Draft, Value};

use crate::clock::Clock;
use crate::out::Out;
use crate::settings::MEMCACHED_VERSION;
use crate::shared::{Counters, Shared};
use crate::stats;
use put::Arrived;

/// Higher levels of `verbosity` are taken for this one.
const VERBOSITY_MAX: u32 = 2;

/// What executing needs: one per column.
#[derive(Debug)]
pub struct Context {
    /// The column's hold on the store.
    pub store: Column,
    /// The column's own counters.
    pub counters: Arc<Counters>,
    /// What all columns share.
    pub shared: Arc<Shared>,
    /// Set by the column's loop once per turn.
    pub clock: Clock,
}

/// What the connection does after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Goes on.
    Continue,
    /// Sends what is ready before it goes on (`mn`).
    Flush,
    /// Sends what is ready, then closes (`quit`).
    Close,
}

/// Carries out `request` and appends its reply to `out`.
#[inline]
pub fn execute(context: &mut Context, request: &Request<'_>, out: &mut Out) -> After {
    match request {
        Request::Get(request) => get(context, request, out),
        Request::Store(request) => {
            let value = Arrived::here(request.value, request.terminated);
            put::store(context, request, value, out);
        }
        Request::Delete { key, noreply } => delete(context, key, *noreply, out),
        Request::Delta(request) => delta(context, request, out),
        Request::Meta(request) => return execute_meta(context, request, out),
        other => return execute_rare(context, other, out),
    }
    After::Continue
}

fn execute_meta(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    match request.verb {
        MetaVerb::Get => meta::get(context, request, out),
        MetaVerb::Set => {
            let value = Arrived::here(request.value, request.terminated);
            put::meta_store(context, request, value, out);
        }
        MetaVerb::Delete => meta::delete(context, request, out),
        MetaVerb::Arithmetic => arithmetic::execute(context, request, out),
        MetaVerb::Debug => meta::debug(context, request, out),
    }
    After::Continue
}

#[cold]
fn execute_rare(context: &mut Context, request: &Request<'_>, out: &mut Out) -> After {
    match *request {
        Request::Touch { key, exptime, noreply } => touch(context, key, exptime, noreply, out),
        Request::FlushAll { exptime, noreply } => flush::all(context, exptime, noreply, out),
        Request::Verbosity { level, noreply } => {
            context.shared.set_verbosity(level.min(VERBOSITY_MAX));
            say(out, answer::OK, noreply);
        }
        Request::Stats(args) => {
            stats::write(&context.shared, context.clock.now, args.text, &mut out.buf);
        }
        Request::Watch(args) => operator::watch(args, out),
        Request::Operator { operator, args, noreply } => {
            say(out, operator::answer(operator, args), noreply);
        }
        Request::Version => {
            for part in ["VERSION ", MEMCACHED_VERSION, "\r\n"] {
                out.buf.extend_from_slice(part.as_bytes());
            }
        }
        Request::Answer(answer) => say(out, answer, false),
        Request::MetaNoop => {
            say(out, answer::MN, false);
            return After::Flush;
        }
        Request::Quit => return After::Close,
        Request::Get(_)
        | Request::Store(_)
        | Request::Delete { .. }
        | Request::Delta(_)
        | Request::Meta(_) => return execute(context, request, out),
    }
    After::Continue
}

/// Asked for a `Step::Body` that is not kept in the connection's buffer: may its value come?
///
/// # Errors
/// The reply, to be given to `Session::swallow`; empty when the client wants none.
pub fn begin(
    context: &mut Context,
    request: &Request<'_>,
    value_bytes: u32,
) -> Result<(), &'static str> {
    match request {
        Request::Store(request) => put::begin(context, request, value_bytes),
        Request::Meta(request) => put::meta_begin(context, request, value_bytes),
        _ => Ok(()),
    }
}

/// Carries out the storage command of `header` (its whole line, kept by the connection) with a
/// value that has arrived in `draft`, followed by `line_end`.
pub fn execute_with_draft(
    context: &mut Context,
    header: &[u8],
    draft: Draft,
    line_end: [u8; 2],
    out: &mut Out,
) -> After {
    // The line was a storage command's when it came, and is read the same way again.
    if let Step::Body { request, value_bytes, .. } = Session::new(Speak::Ascii).next(header) {
        let terminated = line_end == *b"\r\n";
        let value = Arrived { body: Body::Draft(draft), bytes: value_bytes, terminated };
        match request {
            Request::Store(request) => put::store(context, &request, value, out),
            Request::Meta(request) => put::meta_store(context, &request, value, out),
            _ => {}
        }
    }
    After::Continue
}

/// The value of `header`'s storage command found no room on its way in: what the client is told
/// when the rest of it has been skipped. A refused set leaves no old value behind.
pub fn give_up(context: &mut Context, header: &[u8]) -> &'static str {
    match Session::new(Speak::Ascii).next(header) {
        Step::Body { request: Request::Store(request), .. } => put::give_up(context, &request),
        Step::Body { request: Request::Meta(request), .. } => put::meta_give_up(context, &request),
        _ => answer::NO_MEMORY,
    }
}

#[inline]
fn get(context: &mut Context, get: &Get<'_>, out: &mut Out) {
    let counters = &context.counters;
    let hit = match get.exptime {
        None => {
            counters.get_cmds.add(1);
            let hit = context.store.get(get.key);
            if hit.is_some() {
                counters.get_hits.add(1)
            } else {
                counters.get_misses.add(1)
            }
            hit
        }
        Some(exptime) => {
            counters.touch_cmds.add(1);
            let exptime = context.clock.realtime(exptime);
            let hit = context.store.get_and_touch(get.key, exptime);
            if hit.is_some() {
                counters.touch_hits.add(1)
            } else {
                counters.touch_misses.add(1)
            }
            hit
        }
    };
    if let Some(hit) = hit {
        let cas = get.cas.then_some(hit.cas);
        reply::value_line(&mut out.buf, get.key, hit.client_flags, hit.value_bytes, cas);
        append_value(out, hit.value, if get.last { b"\r\nEND\r\n" } else { b"\r\n" });
    } else if get.last {
        out.buf.extend_from_slice(answer::END.as_bytes());
    }
}

/// Appends a value, its line end, and what may follow that.
#[inline]
fn append_value(out: &mut Out, value: Value<'_>, end: &[u8]) {
    let tail = match value {
        Value::Log(bytes) => bytes,
        Value::Frames(pinned, tail) => {
            out.pin(pinned);
            tail
        }
    };
    out.buf.extend_from_slice(tail);
    out.buf.extend_from_slice(end);
}

fn delete(context: &mut Context, key: &[u8], noreply: bool, out: &mut Out) {
    if context.store.delete(key) {
        context.counters.delete_hits.add(1);
        say(out, answer::DELETED, noreply);
    } else {
        context.counters.delete_misses.add(1);
        say(out, answer::NOT_FOUND, noreply);
    }
}

fn touch(context: &mut Context, key: &[u8], exptime: i32, noreply: bool, out: &mut Out) {
    context.counters.touch_cmds.add(1);
    if context.store.touch(key, context.clock.realtime(exptime)) {
        context.counters.touch_hits.add(1);
        say(out, answer::TOUCHED, noreply);
    } else {
        context.counters.touch_misses.add(1);
        say(out, answer::NOT_FOUND, noreply);
    }
}

fn delta(context: &mut Context, delta: &Delta<'_>, out: &mut Out) {
    let request = store::Delta {
        key: delta.key,
        incr: delta.incr,
        delta: delta.delta,
        cas: 0,
        cas_in: None,
        vivify: None,
        exptime: None,
    };
    match arithmetic::count(context, &request) {
        Ok(counted) => {
            if !delta.noreply {
                reply::number(&mut out.buf, counted.value);
                out.buf.extend_from_slice(b"\r\n");
            }
        }
        Err(arithmetic::Failed::NotFound) => say(out, answer::NOT_FOUND, delta.noreply),
        Err(arithmetic::Failed::Exists) => say(out, answer::EXISTS, delta.noreply),
        Err(arithmetic::Failed::Answer(answer)) => say(out, answer, delta.noreply),
    }
}

/// Appends `answer` unless the client wants none.
#[inline]
fn say(out: &mut Out, answer: &'static str, noreply: bool) {
    if !noreply {
        out.buf.extend_from_slice(answer.as_bytes());
    }
}
