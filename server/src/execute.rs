//! Requests into store calls and replies.
//!
//! Where: between a connection's `Session` and its `Out`.
//! Invariant: one request, one reply, in order; no allocation. What memcached counts is counted
//! here once, unless the store counts it itself. A request that must wait has answered, counted and
//! changed nothing.
//! Source: memcached 1.6.45 `process_command_ascii`, `dispatch_bin_command` and what they call.

mod arithmetic;
mod meta;
mod operator;
mod put;
#[cfg(test)]
mod tests;
pub mod turn;

use std::sync::Arc;

use protocol::reply::Words;
use protocol::{
    Answer, Delete, Delta, Form, Get, GetForm, Meta, MetaVerb, Outcome, Refusal, Request, Session,
    Short, Speak, Step, Store, Tag, binary, reply,
};
use store::{
    Appended, Around, Body, Column, Deleted, Draft, Head, Hit, Looked, MetaDelete, Prefetched,
    Refused, Value, Vivify, Wants, Word,
};

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
    /// Requests may be told to wait for room (`After::Wait`); else they are refused where they
    /// would be. Set once per turn.
    pub may_wait: bool,
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
    /// Asks the same again a little later: the store has no room yet. Nothing was done.
    Wait,
}

impl Context {
    /// Is a request that the store refused so to wait?
    #[inline]
    fn waits(&self, refused: Refused) -> bool {
        self.may_wait && refused == Refused::Later
    }
}

/// Carries out `request` and appends its reply to `out`.
#[inline]
pub fn execute(context: &mut Context, request: &Request<'_>, out: &mut Out) -> After {
    execute_hashed(context, request, None, out)
}

/// As `execute`; the hash of the request's key may be there already.
#[inline]
pub fn execute_hashed(
    context: &mut Context,
    request: &Request<'_>,
    hash: Option<Prefetched>,
    out: &mut Out,
) -> After {
    match request {
        Request::Get(request) => get(context, request, hash, out),
        Request::Meta(request) if request.verb == MetaVerb::Get => {
            meta::get(context, request, hash, out)
        }
        other => execute_other(context, other, hash, out),
    }
}

/// All but retrievals, whose code is to have the processor's registers for itself.
#[inline(never)]
fn execute_other(
    context: &mut Context,
    request: &Request<'_>,
    hash: Option<Prefetched>,
    out: &mut Out,
) -> After {
    match request {
        Request::Store(request) => {
            let value = Arrived::here(request.value, request.terminated);
            put::store(context, request, hash, value, out)
        }
        Request::Delete(request) => {
            delete(context, request, out);
            After::Continue
        }
        Request::Delta(request) => delta(context, request, out),
        Request::Meta(request) => execute_meta(context, request, out),
        other => execute_rare(context, other, out),
    }
}

fn execute_meta(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    match request.verb {
        MetaVerb::Get => meta::get(context, request, None, out),
        MetaVerb::Set => {
            let value = Arrived::here(request.value, request.terminated);
            put::meta_store(context, request, value, out)
        }
        MetaVerb::Delete => meta::delete(context, request, out),
        MetaVerb::Arithmetic => arithmetic::execute(context, request, out),
        MetaVerb::Debug => meta::debug(context, request, out),
    }
}

#[cold]
fn execute_rare(context: &mut Context, request: &Request<'_>, out: &mut Out) -> After {
    match *request {
        Request::Touch { key, exptime, form } => {
            return touch(context, key, exptime, form, out);
        }
        Request::FlushAll { exptime, form } => {
            form.say(operator::flush_all(context, exptime), &mut out.buf);
        }
        Request::LimitMemory { megabytes, form } => {
            form.say(operator::limit_memory(context, megabytes), &mut out.buf);
        }
        Request::Verbosity { level, form } => {
            context.shared.set_verbosity(level.min(VERBOSITY_MAX));
            form.say(Outcome::Done, &mut out.buf);
        }
        Request::Stats { args, form } => {
            stats::write(&context.shared, context.clock.now, args.text, form, &mut out.buf);
        }
        Request::Version(form) => form.version(MEMCACHED_VERSION, &mut out.buf),
        Request::Answer(answer) => answer.write(&mut out.buf),
        Request::Noop(form) => {
            form.say(Outcome::Noop, &mut out.buf);
            return After::Flush;
        }
        Request::Quit(form) => {
            form.say(Outcome::Quit, &mut out.buf);
            return After::Close;
        }
        Request::LastAnswer(answer) => {
            answer.write(&mut out.buf);
            return After::Close;
        }
        Request::Get(_)
        | Request::Store(_)
        | Request::Delete(_)
        | Request::Delta(_)
        | Request::Meta(_) => return execute(context, request, out),
    }
    After::Continue
}

/// Asked for a `Step::Body` that is not kept in the connection's buffer: may its value come?
///
/// # Errors
/// The reply, to be given to `Session::swallow`.
pub fn begin(context: &mut Context, request: &Request<'_>, value_bytes: u32) -> Result<(), Answer> {
    match request {
        Request::Store(request) => put::begin(context, request, value_bytes),
        Request::Meta(request) => put::meta_begin(context, request, value_bytes)
            .map_err(|refusal| Form::LINE.refused(refusal)),
        _ => Ok(()),
    }
}

/// Carries out the storage command of `header` (all before its value, kept by the connection) with
/// a value that has arrived in `draft`, and was followed by its end or was not. Where it must wait,
/// the draft is to be given again.
pub fn execute_with_draft(
    context: &mut Context,
    header: &[u8],
    draft: &mut Draft,
    terminated: bool,
    out: &mut Out,
) -> After {
    // It was a storage command's when it came, and is read the same way again.
    if let Step::Body { request, value_bytes, .. } = Session::new(Speak::Auto).next(header) {
        let value = Arrived { body: Body::Draft(draft), bytes: value_bytes, terminated };
        match request {
            Request::Store(request) => return put::store(context, &request, None, value, out),
            Request::Meta(request) => return put::meta_store(context, &request, value, out),
            _ => {}
        }
    }
    After::Continue
}

/// The value of `header`'s storage command found no room on its way in: what the client is told
/// when the rest of it has been skipped. A refused set leaves no old value behind.
pub fn give_up(context: &mut Context, header: &[u8]) -> Answer {
    match Session::new(Speak::Auto).next(header) {
        Step::Body { request: Request::Store(request), .. } => put::give_up(context, &request),
        Step::Body { request: Request::Meta(request), .. } => put::meta_give_up(context, &request),
        _ => Form::LINE.refused(Refusal::NoMemory),
    }
}

#[inline(never)]
fn set(context: &mut Context, request: &Store<'_>, out: &mut Out) -> After {
    put::store(context, request, None, Arrived::here(request.value, request.terminated), out)
}

#[inline(always)]
fn get(context: &mut Context, get: &Get<'_>, hash: Option<Prefetched>, out: &mut Out) -> After {
    if let Some(exptime) = get.exptime {
        return get_and_touch(context, get, exptime, out);
    }
    let hash = hash.unwrap_or_else(|| context.store.hashed(get.key));
    match get.form {
        GetForm::Text { cas: false, last: true } => get_text::<true>(context, get.key, hash, out),
        GetForm::Text { cas: false, last: false } => get_text::<false>(context, get.key, hash, out),
        GetForm::Text { cas: true, last } => get_text_with_cas(context, get.key, hash, last, out),
        GetForm::Binary(tag) => get_binary(context, get, hash, tag, out),
    }
    After::Continue
}

#[inline(never)]
fn get_text<const LAST: bool>(context: &mut Context, key: &[u8], hash: Prefetched, out: &mut Out) {
    let around = |head: &Head<'_>| {
        reply::value_words(head.client_flags(), head.value_bytes(), LAST).map(framed)
    };
    let looked = context.store.get_around(key, hash, &mut out.buf, around, |buf, head| {
        reply::value_line(buf, key, head.client_flags(), head.value_bytes(), None);
        Wants::Value
    });
    if let Looked::Hit(Appended::Around) = looked {
        context.counters.get_cmds.add(1);
        context.counters.get_hits.add(1);
        return;
    }
    end_text(&context.counters, looked, LAST, out);
}

#[inline(never)]
fn get_text_with_cas(
    context: &mut Context,
    key: &[u8],
    hash: Prefetched,
    last: bool,
    out: &mut Out,
) {
    let looked = context.store.get_into(key, hash, &mut out.buf, |buf, head| {
        reply::value_line(buf, key, head.client_flags(), head.value_bytes(), Some(head.cas()));
        Wants::Value
    });
    end_text(&context.counters, looked, last, out);
}

/// Appends what follows a value's head, or a miss, and counts it.
fn end_text(counters: &Counters, looked: Looked<'_>, last: bool, out: &mut Out) {
    counters.get_cmds.add(1);
    match looked {
        Looked::Hit(appended) => {
            counters.get_hits.add(1);
            append_frames(out, appended);
            reply::value_end(&mut out.buf, last);
        }
        Looked::Miss | Looked::Left => {
            counters.get_misses.add(1);
            if last {
                Form::LINE.say(Outcome::KeysEnd, &mut out.buf);
            }
        }
    }
}

#[inline(never)]
fn get_binary(context: &mut Context, get: &Get<'_>, hash: Prefetched, tag: Tag, out: &mut Out) {
    let Context { counters, store, .. } = context;
    let key = get.key;
    let around = |head: &Head<'_>| {
        let (client_flags, cas) = (head.client_flags(), head.cas());
        let value_bytes = head.value_bytes();
        Some(framed(binary::write::got_words(tag, key.len(), client_flags, value_bytes, cas)))
    };
    let looked = store.get_around(key, hash, &mut out.buf, around, |buf, head| {
        let (client_flags, cas) = (head.client_flags(), head.cas());
        binary::write::got(buf, tag, key, client_flags, head.value_bytes(), cas);
        Wants::Value
    });
    counters.get_cmds.add(1);
    match looked {
        Looked::Hit(appended) => {
            counters.get_hits.add(1);
            append_frames(out, appended);
        }
        Looked::Miss | Looked::Left => {
            counters.get_misses.add(1);
            say_miss(get, out);
        }
    }
}

/// What a protocol puts around a value, for the store to append.
#[inline(always)]
fn framed(words: Words) -> Around {
    let word = |short: Short| Word::new(short.text(), short.bytes());
    let Words { before, key, between, behind } = words;
    Around { before: before.map(word), key, between: between.map(word), behind: word(behind) }
}

/// Splices in a value whose body is in frames.
#[inline]
fn append_frames(out: &mut Out, appended: Appended<'_>) {
    if let Appended::Frames(pinned, tail) = appended {
        out.pin(pinned);
        out.buf.extend_from_slice(tail);
    }
}

fn get_and_touch(context: &mut Context, get: &Get<'_>, exptime: i64, out: &mut Out) -> After {
    let (counters, may_wait) = (&context.counters, context.may_wait);
    let exptime = context.clock.realtime(exptime);
    let found = match context.store.get_and_touch(get.key, exptime) {
        Err(_) if may_wait => return After::Wait,
        found => found.unwrap_or(None),
    };
    counters.touch_cmds.add(1);
    let Some(hit) = found else {
        counters.touch_misses.add(1);
        say_miss(get, out);
        return After::Continue;
    };
    counters.touch_hits.add(1);
    let Hit { client_flags, value_bytes, cas, value } = hit;
    match get.form {
        GetForm::Text { cas: shows_cas, last } => {
            let cas = shows_cas.then_some(cas);
            reply::value_line(&mut out.buf, get.key, client_flags, value_bytes, cas);
            append_value(out, value, if last { b"\r\nEND\r\n" } else { b"\r\n" });
        }
        GetForm::Binary(tag) => {
            let buf = &mut out.buf;
            if binary::write::value(buf, tag, get.key, client_flags, value_bytes, cas) {
                append_value(out, value, b"");
            }
        }
    }
    After::Continue
}

#[inline]
fn say_miss(get: &Get<'_>, out: &mut Out) {
    match get.form {
        GetForm::Text { last: true, .. } => Form::LINE.say(Outcome::KeysEnd, &mut out.buf),
        GetForm::Text { last: false, .. } => {}
        GetForm::Binary(tag) => binary::write::miss(&mut out.buf, tag, get.key),
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

fn delete(context: &mut Context, delete: &Delete<'_>, out: &mut Out) {
    let deleted = match delete.cas {
        0 if context.store.delete(delete.key) => Ok(Deleted::Deleted),
        0 => Ok(Deleted::NotFound),
        cas => context.store.meta_delete(&MetaDelete {
            key: delete.key,
            cas: Some(cas),
            cas_in: None,
            stale: false,
            exptime: None,
            remove_value: false,
            client_flags: 0,
        }),
    };
    let outcome = match deleted {
        Ok(Deleted::Deleted) => {
            context.counters.delete_hits.add(1);
            Outcome::Deleted
        }
        Ok(Deleted::NotFound) => {
            context.counters.delete_misses.add(1);
            Outcome::Refused(Refusal::NotFound)
        }
        Ok(Deleted::Exists) => Outcome::Refused(Refusal::Exists),
        Err(_) => Outcome::Refused(Refusal::NoMemory),
    };
    delete.form.say(outcome, &mut out.buf);
}

fn touch(context: &mut Context, key: &[u8], exptime: i64, form: Form, out: &mut Out) -> After {
    let touched = match context.store.touch(key, context.clock.realtime(exptime)) {
        Err(_) if context.may_wait => return After::Wait,
        touched => touched.unwrap_or(false),
    };
    context.counters.touch_cmds.add(1);
    if touched {
        context.counters.touch_hits.add(1);
        form.say(Outcome::Touched, &mut out.buf);
    } else {
        context.counters.touch_misses.add(1);
        form.refuse(Refusal::NotFound, &mut out.buf);
    }
    After::Continue
}

fn delta(context: &mut Context, delta: &Delta<'_>, out: &mut Out) -> After {
    let request = store::Delta {
        key: delta.key,
        incr: delta.incr,
        delta: delta.delta,
        cas: delta.cas,
        cas_in: None,
        vivify: delta.initial.map(|initial| Vivify {
            initial: initial.value,
            exptime: context.clock.realtime(initial.exptime),
        }),
        exptime: None,
    };
    let Some(counted) = arithmetic::count(context, &request) else { return After::Wait };
    match counted {
        Ok(counted) => delta.form.number(counted.value, counted.cas, &mut out.buf),
        Err(refusal) => delta.form.refuse(refusal, &mut out.buf),
    }
    After::Continue
}

/// Appends why a meta request was not carried out, and goes on.
fn refuse(out: &mut Out, refusal: Refusal) -> After {
    Form::LINE.refuse(refusal, &mut out.buf);
    After::Continue
}
