//! Executes one key of `get`, `gets`, `gat`, `gats` or their binary forms; `meta` executes `mg`.
//!
//! Where: called by `execute` and, if one request is the whole input of a connection, by `turn`.
//! Invariant: a lookup is counted once, as a hit or as a miss. The store may call the closure that
//! appends a value's head more than once, and keeps only what the last call appended.
//! Source: memcached 1.6.45 `process_get_command`, `process_bin_get_or_touch`.

use protocol::show::Show;
use protocol::{Get, shown_by};
use store::{AppendedPart, Head, HeadResult, LookupResult, PrefetchedHash, Value};

use super::found::{TouchedItem, UnlockedItem};
use super::{Context, note};
use crate::shared::requests::Counters;
use crate::shared::sampled::Kind;
use columns::executor::NextStep;
use columns::out::Out;

#[inline(always)]
pub(super) fn get(
    context: &mut Context,
    get: &Get<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    if let Some(exptime) = get.exptime {
        return shown_by!(get, show => get_and_touch(context, exptime, show, out));
    }
    shown_by!(get, show => look_up(context, hash, show, out));
    NextStep::Continue
}

/// Looks the key up without a lock, and appends the answer. If the answer needs the item's lock,
/// returns false, and neither appends nor counts anything.
#[inline(always)]
pub(super) fn look_up<S: Show>(
    context: &mut Context,
    hash: Option<PrefetchedHash>,
    show: S,
    out: &mut Out,
) -> bool {
    match context.noted.watched.intersects(note::LOOKUPS) {
        false => find(context, hash, show, out),
        true => note::find(context, hash, show, out),
    }
}

/// Like `look_up`, but notes nothing. Compiled once for each form: in two copies the compiler calls
/// the closures instead of inlining them, for 94 instructions more (`bench instructions`).
#[inline(never)]
pub(super) fn find<S: Show>(
    context: &mut Context,
    hash: Option<PrefetchedHash>,
    show: S,
    out: &mut Out,
) -> bool {
    let hash = hash.unwrap_or_else(|| context.store.hashed(show.key()));
    let template = |head: &Head<'_>| show.surround(&UnlockedItem(head));
    let looked = context.store.get_into(show.key(), hash, &mut out.buf, template, |buf, head| {
        match show.head(&UnlockedItem(head), buf) {
            Some(true) => HeadResult::Value,
            Some(false) => HeadResult::NoValue,
            None => HeadResult::CallOff,
        }
    });
    if let LookupResult::Hit(AppendedPart::FromTemplate) = looked {
        context.counters.get_hits.add(1);
        return true;
    }
    end(&context.counters, looked, show, out)
}

/// Appends the rest of the answer after a hit's head, or the whole answer to a miss. Counts the hit
/// or the miss.
fn end<S: Show>(counters: &Counters, looked: LookupResult<'_>, show: S, out: &mut Out) -> bool {
    match looked {
        LookupResult::CalledOff => return false,
        LookupResult::Miss => {
            counters.get_misses.add(1);
            show.miss(&mut out.buf);
        }
        LookupResult::Hit(appended) => {
            counters.get_hits.add(1);
            match appended {
                AppendedPart::FromTemplate | AppendedPart::Whole => {}
                AppendedPart::Lasting(value, kept) => out.keep(value, kept),
                AppendedPart::Frames(pinned, tail) => {
                    append_value(out, Value::Frames(pinned, tail))
                }
            }
            show.end(&mut out.buf);
        }
    }
    true
}

fn get_and_touch<S: Show>(context: &mut Context, exptime: i64, show: S, out: &mut Out) -> NextStep {
    out.settle(Some(&context.store));
    let exptime = context.clock.realtime(exptime);
    let begun = note::begin(context.noted.watched);
    let (counters, may_wait) = (&context.counters, context.may_wait);
    let found = match context.store.get_and_touch(show.key(), exptime) {
        Err(_) if may_wait => return NextStep::Wait,
        found => found.unwrap_or(None),
    };
    let hits = found.is_some();
    if let Some(hit) = found {
        counters.touch_hits.add(1);
        if show.head(&TouchedItem(&hit), &mut out.buf) == Some(true) {
            append_value(out, hit.value);
        }
        show.end(&mut out.buf);
    } else {
        counters.touch_misses.add(1);
        show.miss(&mut out.buf);
    }
    note::sample(context, (Kind::Touch, Some(show.key())), note::elapsed_ns(begun));
    note::fetched(context, show.key());
    note::count_get_for_prefix(context, show.key(), u64::from(hits));
    NextStep::Continue
}

/// Appends a value. The part that is in frames is appended by reference.
pub(super) fn append_value(out: &mut Out, value: Value<'_>) {
    let tail = match value {
        Value::Log(bytes) => bytes,
        Value::Frames(pinned, tail) => {
            out.pin(pinned);
            tail
        }
    };
    out.buf.extend_from_slice(tail);
}
