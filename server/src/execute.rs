//! Executes requests: calls the store, and writes the result in the request's protocol.
//!
//! Where: between a connection's `Session` and its `Out`.
//! Invariant: replies have the order of their requests, and no request allocates memory. An event
//! that memcached counts is counted once, here or in the store. A request that must wait changes
//! nothing, and is neither counted nor answered before it is executed again.
//! Source: memcached 1.6.45 `process_command_ascii`, `dispatch_bin_command` and their callees.

mod arithmetic;
mod context;
mod executor;
mod found;
mod get;
mod meta;
mod note;
mod operator;
mod put;
mod refused;
#[cfg(test)]
mod tests;

use columns::executor::NextStep;
use columns::out::Out;
use protocol::{Answer, Delete, Form, Meta, MetaVerb, Outcome, Refusal, Request, Store, stored};
use store::{Body, DeleteResult, Draft, MetaDelete, PrefetchedHash};

use crate::shared::sampled::Kind;
use crate::start::settings::MEMCACHED_VERSION;
use crate::stats;
pub use context::Context;
pub(crate) use context::STEP_BYTES;

/// The highest level of `verbosity`; a higher number has the same effect.
const VERBOSITY_MAX: u32 = 2;

/// Executes `request` and appends its reply to `out`.
#[inline]
pub fn execute(context: &mut Context, request: &Request<'_>, out: &mut Out) -> NextStep {
    execute_hashed(context, request, None, out)
}

/// Like `execute`, but for a request whose key may already be hashed (`hash`).
#[inline(always)]
pub fn execute_hashed(
    context: &mut Context,
    request: &Request<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    let before = out.buf.len();
    let after = match request {
        Request::Get(request) => get::get(context, request, hash, out),
        Request::Meta(request) if request.verb == MetaVerb::Get => {
            meta::get(context, request, hash, out)
        }
        change if context.noted.watched.intersects(note::OTHERS) => {
            execute_noted(context, change, hash, out)
        }
        change => execute_change(context, change, hash, out),
    };
    context.work(1 + out.buf.len().saturating_sub(before) / STEP_BYTES);
    after
}

/// Like `execute_change`, but also notes the request for watchers and samples.
#[cold]
#[inline(never)]
fn execute_noted(
    context: &mut Context,
    request: &Request<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    out.settle(Some(&context.store));
    let mark = note::looks_up(context, request);
    let begun = note::begin(context.noted.watched);
    let after = execute_change(context, request, hash, out);
    let took_ns = note::elapsed_ns(begun);
    match after {
        NextStep::Wait => context.noted.take_back(mark),
        _ => note::sample(context, Kind::of(request), took_ns),
    }
    after
}

/// Executes a request that is not a retrieval. Storage commands, meta commands and other commands
/// have separate functions, so that the compiler allocates registers for each function separately.
/// Each copies the values to which `out` refers (`Out::settle`), because the request may let the
/// store reuse their memory.
#[inline(always)]
fn execute_change(
    context: &mut Context,
    request: &Request<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    match request {
        Request::Store(request) => execute_store(context, request, hash, out),
        Request::Meta(request) => execute_meta(context, request, out),
        other => execute_other(context, other, out),
    }
}

#[inline(never)]
fn execute_store(
    context: &mut Context,
    request: &Store<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    out.settle(Some(&context.store));
    put::store(context, request, hash, Body::Bytes(request.value), out)
}

#[inline(never)]
fn execute_meta(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    out.settle(Some(&context.store));
    match request.verb {
        MetaVerb::Get => meta::get(context, request, None, out),
        MetaVerb::Set => put::meta_store(context, request, Body::Bytes(request.value), out),
        MetaVerb::Delete => meta::delete(context, request, out),
        MetaVerb::Arithmetic => arithmetic::execute(context, request, out),
        MetaVerb::Debug => meta::debug(context, request, out),
    }
}

#[inline(never)]
fn execute_other(context: &mut Context, request: &Request<'_>, out: &mut Out) -> NextStep {
    out.settle(Some(&context.store));
    match request {
        Request::Delete(request) => {
            delete(context, request, out);
            NextStep::Continue
        }
        Request::Delta(request) => arithmetic::delta(context, request, out),
        other => execute_rare(context, other, out),
    }
}

#[cold]
fn execute_rare(context: &mut Context, request: &Request<'_>, out: &mut Out) -> NextStep {
    match *request {
        Request::Touch { key, exptime, form } => {
            return touch(context, key, exptime, form, out);
        }
        Request::FlushAll { exptime, form } => {
            form.write_outcome(operator::flush_all(context, exptime), &mut out.buf);
        }
        Request::Operator { command, args, form } => {
            return operator::obey(context, command, args, form, out);
        }
        Request::Verbosity { level, form } => {
            let outcome = match context.refuses_operators() {
                Some(refusal) => Outcome::Refused(refusal),
                None => {
                    context.shared.set_verbosity(level.min(VERBOSITY_MAX));
                    Outcome::Done
                }
            };
            form.write_outcome(outcome, &mut out.buf);
        }
        Request::Stats(request) => return stats::answer(context, &request, out),
        Request::Version(form) => form.version(MEMCACHED_VERSION, &mut out.buf),
        Request::Answer(answer) => answer.write(&mut out.buf),
        Request::Noop(form) => {
            form.write_outcome(Outcome::Noop, &mut out.buf);
            return NextStep::Flush;
        }
        Request::Quit(form) => {
            form.write_outcome(Outcome::Quit, &mut out.buf);
            return NextStep::Close;
        }
        Request::LastAnswer(answer) => {
            answer.write(&mut out.buf);
            return NextStep::Close;
        }
        Request::Get(_)
        | Request::Store(_)
        | Request::Delete(_)
        | Request::Delta(_)
        | Request::Meta(_) => return execute(context, request, out),
    }
    NextStep::Continue
}

/// Checks that a storage command is admitted, before its value is received into a `Draft`.
///
/// # Errors
/// The command is refused. The error is the reply, which the caller passes to `Session::swallow`.
fn begin(context: &mut Context, request: &Request<'_>, value_bytes: u32) -> Result<(), Answer> {
    let value_bytes = value_bytes.into();
    let begun = match request {
        Request::Store(store) => {
            let begun = put::begin(context, store, value_bytes);
            if begun.is_err() {
                note::count_for_prefix(context, store.key, |counts| counts.sets += 1);
            }
            begun
        }
        Request::Meta(meta) => put::meta_begin(context, meta, value_bytes),
        _ => Ok(()),
    };
    begun.map_err(|refusal| request.refused(refusal))
}

/// Executes the storage command in `header`, whose value has arrived in `draft`, and was followed
/// by `tail`. After `NextStep::Wait`, the caller calls again with the same draft.
fn execute_with_draft(
    context: &mut Context,
    (header, tail): (&[u8], &[u8]),
    draft: &mut Draft,
    out: &mut Out,
) -> NextStep {
    out.settle(Some(&context.store));
    // `header` was parsed as a storage command when it arrived, and parses the same way again.
    let Some((request, value_bytes)) = stored(header, tail) else { return NextStep::Continue };
    let body = Body::Draft(draft);
    let mark = note::looks_up(context, &request);
    let after = match &request {
        Request::Store(request) => put::store(context, request, None, body, out),
        Request::Meta(request) => put::meta_store(context, request, body, out),
        _ => NextStep::Continue,
    };
    match after {
        NextStep::Wait => context.noted.take_back(mark),
        _ => note::large(context, &request, value_bytes),
    }
    after
}

/// Returns the answer to the storage command in `header` if the store has no room for its value.
/// The caller skips the rest of the value, then sends the answer. A set also deletes the old value.
fn give_up(context: &mut Context, header: &[u8]) -> Answer {
    let Some((request, _)) = stored(header, &[]) else {
        return protocol::refusal_of(header, Refusal::NoMemory);
    };
    request.refused(match &request {
        Request::Store(store) => put::give_up(context, store),
        Request::Meta(meta) => put::meta_give_up(context, meta),
        _ => Refusal::NoMemory,
    })
}

fn delete(context: &mut Context, delete: &Delete<'_>, out: &mut Out) {
    let bytes = note::bytes_to_delete(context, delete.key);
    note::count_for_prefix(context, delete.key, |counts| counts.deletes += 1);
    let deleted = match delete.cas {
        0 if context.store.delete(delete.key) => Ok(DeleteResult::Deleted),
        0 => Ok(DeleteResult::NotFound),
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
        Ok(DeleteResult::Deleted) => {
            context.counters.delete_hits.add(1);
            note::deleted(context, delete.key, bytes, "delete");
            Outcome::Deleted
        }
        Ok(DeleteResult::NotFound) => {
            context.counters.delete_misses.add(1);
            Outcome::Refused(Refusal::NotFound)
        }
        Ok(DeleteResult::Exists) => Outcome::Refused(Refusal::Exists),
        Err(_) => Outcome::Refused(Refusal::NoMemory),
    };
    delete.form.write_outcome(outcome, &mut out.buf);
}

fn touch(context: &mut Context, key: &[u8], exptime: i64, form: Form, out: &mut Out) -> NextStep {
    let touched = match context.store.touch(key, context.clock.realtime(exptime)) {
        Err(_) if context.may_wait => return NextStep::Wait,
        touched => touched.unwrap_or(false),
    };
    if touched {
        context.counters.touch_hits.add(1);
        form.write_outcome(Outcome::Touched, &mut out.buf);
    } else {
        context.counters.touch_misses.add(1);
        form.refuse(Refusal::NotFound, &mut out.buf);
    }
    NextStep::Continue
}
