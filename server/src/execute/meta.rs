//! Executes `mg`, `md` and `me`. (`put` executes `ms`, and `arithmetic` executes `ma`.)
//!
//! Where: called by `execute` and, if one `mg` is the whole input of a connection, by `turn`.
//! Invariant: an `mg` that changes nothing takes the item's lock only if its answer needs
//! properties that other columns may change during a lookup without the lock.
//! Source: memcached 1.6.45 `process_mget_cmd`, `process_mdelete_cmd`, `process_meta_command`.

use protocol::meta::write::{self, GetValue, RequestFields};
use protocol::meta::{Change, Flags, LookupFlags};
use protocol::show::Show;
use protocol::{Meta, Outcome, Refusal};
use store::{DeleteResult, MetaDelete, MetaGet, MetaStep, PrefetchedHash};

use super::found::LockedItem;
use super::get::{append_value, look_up};
use super::refused::refuse;
use super::{Context, note};
use crate::clock::Clock;
use crate::shared::sampled::Kind;
use columns::executor::NextStep;
use columns::out::Out;

#[inline(always)]
pub(super) fn get(
    context: &mut Context,
    request: &Meta<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    if request.is_of_value() {
        return get_value(context, request.key, hash, out);
    }
    get_by_looks(context, request, hash, out)
}

/// Executes `mg` with any flags.
#[inline(never)]
fn get_by_looks(
    context: &mut Context,
    request: &Meta<'_>,
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    let Some(LookupFlags { value, quiet }) = LookupFlags::parse(request) else {
        return get_by_flags(context, request, out);
    };
    let fields = RequestFields { flags: request.flags, key: request.key, key_binary: false, quiet };
    match look_up(context, hash, write::Get { request: fields, value, now: context.clock.now }, out)
    {
        true => NextStep::Continue,
        false => get_by_flags(context, request, out),
    }
}

#[inline(always)]
pub(super) fn get_value(
    context: &mut Context,
    key: &[u8],
    hash: Option<PrefetchedHash>,
    out: &mut Out,
) -> NextStep {
    let show = GetValue { key, now: context.clock.now };
    match look_up(context, hash, show, out) {
        true => NextStep::Continue,
        false => get_by_flags(context, &Meta::value_of(key), out),
    }
}

/// Executes an `mg` under the item's lock. The `mg` changes the item, or its answer needs the lock.
#[cold]
#[inline(never)]
fn get_by_flags(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    out.settle(Some(&context.store));
    let begun = note::begin(context.noted.watched);
    let after = get_locked(context, request, out);
    if after != NextStep::Wait {
        note::sample(context, (Kind::MetaGet, Some(request.key)), note::elapsed_ns(begun));
    }
    after
}

fn get_locked(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    let flags = match Flags::parse(request) {
        Ok(flags) => flags,
        Err(refusal) => return refuse(request, refusal, out),
    };
    let mut place = None;
    let key = flags.key(request, &mut place);
    let (mut steps, mut count) = ([MetaStep::Touch(0); 3], 0);
    for (step, change) in steps.iter_mut().zip(flags.changes(request)) {
        *step = step_of(change, &context.clock);
        count += 1;
    }
    // If the opaque is too long, memcached executes the flags before the opaque, then fails.
    let failed = flags.opaque_too_long;
    let wanted = MetaGet {
        key,
        // memcached does not record the flag `b` for an item that it creates on a miss.
        key_binary: false,
        cas_in: flags.cas_in,
        bump: !(flags.no_bump || failed && flags.locked),
        win: !failed,
        steps: &steps[..count],
    };
    let (counters, may_wait, now) = (&context.counters, context.may_wait, context.clock.now);
    let found = match context.store.meta_get(&wanted) {
        Err(_) if may_wait => return NextStep::Wait,
        found => found.unwrap_or(None),
    };
    let fields = RequestFields::new(request, &flags, key);
    match found {
        Some(_) if failed => return refuse(request, Refusal::OpaqueTooLong, out),
        Some(found) => {
            if flags.exptime.is_some() {
                counters.touch_hits.add(1);
            } else {
                counters.get_hits.add(1);
            }
            // If the flag `C` gives the item's current unique, the client already has the value.
            let value = flags.value && flags.cas != Some(found.hit.cas);
            let show = write::Get { request: fields, value, now };
            let locked = LockedItem { hit: &found, flags: &flags, clock: &context.clock };
            if show.head(&locked, &mut out.buf) == Some(true) {
                append_value(out, found.hit.value);
            }
            show.end(&mut out.buf);
        }
        None => {
            counters.get_misses.add(1);
            if failed {
                return refuse(request, Refusal::OpaqueTooLong, out);
            }
            write::Get { request: fields, value: false, now }.miss(&mut out.buf);
        }
    }
    note::fetched(context, key);
    NextStep::Continue
}

fn step_of(change: Change, clock: &Clock) -> MetaStep {
    match change {
        Change::Touch(exptime) => MetaStep::Touch(clock.realtime(exptime)),
        Change::Vivify(exptime) => MetaStep::Vivify(clock.realtime(exptime)),
        Change::Recache(exptime) => MetaStep::Recache(clock.realtime(exptime)),
    }
}

pub(super) fn delete(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    let flags = match Flags::parse(request) {
        Ok(flags) if flags.opaque_too_long => return refuse(request, Refusal::OpaqueTooLong, out),
        Ok(flags) => flags,
        Err(refusal) => return refuse(request, refusal, out),
    };
    let mut place = None;
    let key = flags.key(request, &mut place);
    let wanted = MetaDelete {
        key,
        cas: flags.cas,
        cas_in: flags.cas_in,
        stale: flags.stale,
        exptime: flags.exptime.map(|exptime| context.clock.realtime(exptime)),
        remove_value: flags.remove_value,
        client_flags: flags.client_flags,
    };
    let bytes = note::bytes_to_delete(context, key);
    let deleted = context.store.meta_delete(&wanted);
    if let Ok(DeleteResult::Deleted) = deleted
        && !flags.stale
    {
        note::deleted(context, key, bytes, "md");
    }
    let counters = &context.counters;
    let outcome = match deleted {
        Ok(DeleteResult::Deleted) => {
            if !flags.stale {
                counters.delete_hits.add(1);
            }
            Outcome::Deleted
        }
        Ok(DeleteResult::NotFound) => {
            counters.delete_misses.add(1);
            Outcome::Refused(Refusal::NotFound)
        }
        Ok(DeleteResult::Exists) => {
            counters.delete_misses.add(1);
            Outcome::Refused(Refusal::Exists)
        }
        Err(refused) if context.waits(refused) => return NextStep::Wait,
        Err(_) => Outcome::Refused(Refusal::NoMemoryDelta),
    };
    RequestFields::new(request, &flags, key).say(outcome, None, &mut out.buf);
    NextStep::Continue
}

pub(super) fn debug(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    let mut place = None;
    let key = match request.debug_key(&mut place) {
        Ok(key) => key,
        Err(refusal) => return refuse(request, refusal, out),
    };
    let wanted =
        MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] };
    context.counters.meta_cmds.add(1);
    let found = context.store.meta_get(&wanted).unwrap_or(None);
    let (flags, clock) = (&Flags::default(), &context.clock);
    let locked = found.as_ref().map(|hit| LockedItem { hit, flags, clock });
    let item_bytes = found.as_ref().map_or(0, |hit| hit.item_bytes);
    write::debug(key, locked.as_ref(), item_bytes, clock.now, &mut out.buf);
    NextStep::Continue
}
