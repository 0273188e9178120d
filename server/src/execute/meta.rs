//! `mg`, `md` and `me`; `put` and `arithmetic` have `ms` and `ma`.
//!
//! Where: called by `execute` and, for an `mg` that is all of a connection's input, by `turn`.
//! Invariant: an `mg` that only looks takes no lock unless its answer is sure only under it.
//! Source: memcached 1.6.45 `process_mget_cmd`, `process_mdelete_cmd`, `process_meta_command`.

use protocol::meta::write::{self, Asked, GetValue};
use protocol::meta::{Flags, Looks};
use protocol::show::Show;
use protocol::{KEY_BYTES_MAX, Meta, MetaVerb, Outcome, Refusal, base64};
use store::{Deleted, MetaDelete, MetaGet, MetaStep, Prefetched};

use super::found::Locked;
use super::get::{append_value, look_up};
use super::{After, Context, refuse};
use crate::clock::Clock;
use crate::out::Out;

/// `mg`.
pub(super) fn get(
    context: &mut Context,
    request: &Meta<'_>,
    hash: Option<Prefetched>,
    out: &mut Out,
) -> After {
    if request.flags.text == b"v" && request.key.len() <= KEY_BYTES_MAX {
        return get_value(context, request.key, hash, out);
    }
    let Some(Looks { value, quiet }) = Looks::of(request) else {
        return get_by_flags(context, request, out);
    };
    let asked = Asked { flags: request.flags, key: request.key, key_binary: false, quiet };
    match look_up(context, hash, write::Get { asked, value, now: context.clock.now }, out) {
        true => After::Continue,
        false => get_by_flags(context, request, out),
    }
}

/// `mg` with flag `v` alone.
#[inline(always)]
pub(super) fn get_value(
    context: &mut Context,
    key: &[u8],
    hash: Option<Prefetched>,
    out: &mut Out,
) -> After {
    let show = GetValue { key, now: context.clock.now };
    match look_up(context, hash, show, out) {
        true => After::Continue,
        false => get_value_by_flags(context, show, out),
    }
}

#[cold]
fn get_value_by_flags(context: &mut Context, show: GetValue<'_>, out: &mut Out) -> After {
    let Asked { flags, key, .. } = show.in_full().asked;
    let request = Meta { verb: MetaVerb::Get, key, flags, value: &[], terminated: true };
    get_by_flags(context, &request, out)
}

/// `mg` under the lock: it changes the item, or asks for what is sure only under the lock.
#[inline(never)]
fn get_by_flags(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    let flags = match Flags::parse(request) {
        Ok(flags) => flags,
        Err(refusal) => return refuse(out, refusal),
    };
    let mut place = None;
    let key = flags.key(request, &mut place);
    let (steps, count) = steps(request, &flags, &context.clock);
    // memcached gives up at an opaque that is too long, having done what the flags before it ask.
    let failed = flags.opaque_too_long;
    let wanted = MetaGet {
        key,
        // memcached does not note it of an item made on a miss.
        key_binary: false,
        cas_in: flags.cas_in,
        bump: !(flags.no_bump || failed && flags.locked),
        win: !failed,
        steps: &steps[..count],
    };
    let (counters, may_wait, now) = (&context.counters, context.may_wait, context.clock.now);
    let found = match context.store.meta_get(&wanted) {
        Err(_) if may_wait => return After::Wait,
        found => found.unwrap_or(None),
    };
    let asked = Asked::new(request, &flags, key);
    match found {
        Some(_) if failed => return refuse(out, Refusal::OpaqueTooLong),
        Some(found) => {
            if flags.exptime.is_some() {
                counters.touch_cmds.add(1);
                counters.touch_hits.add(1);
            } else {
                counters.get_cmds.add(1);
                counters.get_hits.add(1);
            }
            // `C` with the item's own unique: the client has this value.
            let value = flags.value && flags.cas != Some(found.hit.cas);
            let show = write::Get { asked, value, now };
            let locked = Locked { hit: &found, flags: &flags, clock: &context.clock };
            if show.head(&locked, &mut out.buf) == Some(true) {
                append_value(out, found.hit.value);
            }
            show.end(&mut out.buf);
        }
        None => {
            counters.get_cmds.add(1);
            counters.get_misses.add(1);
            if failed {
                return refuse(out, Refusal::OpaqueTooLong);
            }
            write::Get { asked, value: false, now }.miss(&mut out.buf);
        }
    }
    After::Continue
}

/// The flags that change the item, in their order. Of those behind an opaque token that is too long
/// only `N` counts, and of `N` only that the item is made.
fn steps(request: &Meta<'_>, flags: &Flags, clock: &Clock) -> ([MetaStep; 3], usize) {
    let mut steps = [MetaStep::Touch(0); 3];
    let mut count = 0;
    if flags.exptime.is_none() && flags.vivify.is_none() && flags.recache.is_none() {
        return (steps, count);
    }
    let mut given_up = false;
    for token in request.flags.tokens() {
        let step = match token[0] {
            // memcached makes the item before it looks at any flag.
            b'N' if given_up => {
                steps.rotate_right(1);
                steps[0] = MetaStep::Vivify(0);
                count += 1;
                None
            }
            _ if given_up => None,
            b'O' => {
                given_up = flags.opaque_too_long;
                None
            }
            b'T' => flags.exptime.map(|exptime| MetaStep::Touch(clock.realtime(exptime))),
            b'N' => flags.vivify.map(|exptime| MetaStep::Vivify(clock.realtime(exptime))),
            b'R' => flags.recache.map(|exptime| MetaStep::Recache(clock.realtime(exptime))),
            _ => None,
        };
        if let (Some(step), Some(place)) = (step, steps.get_mut(count)) {
            *place = step;
            count += 1;
        }
    }
    (steps, count)
}

/// `md`.
pub(super) fn delete(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    let flags = match Flags::parse(request) {
        Ok(flags) if flags.opaque_too_long => return refuse(out, Refusal::OpaqueTooLong),
        Ok(flags) => flags,
        Err(refusal) => return refuse(out, refusal),
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
    let counters = &context.counters;
    let outcome = match context.store.meta_delete(&wanted) {
        Ok(Deleted::Deleted) => {
            if !flags.stale {
                counters.delete_hits.add(1);
            }
            Outcome::Deleted
        }
        Ok(Deleted::NotFound) => {
            counters.delete_misses.add(1);
            Outcome::Refused(Refusal::NotFound)
        }
        Ok(Deleted::Exists) => {
            counters.delete_misses.add(1);
            Outcome::Refused(Refusal::Exists)
        }
        Err(refused) if context.waits(refused) => return After::Wait,
        Err(_) => Outcome::Refused(Refusal::NoMemoryDelta),
    };
    Asked::new(request, &flags, key).say(outcome, None, &mut out.buf);
    After::Continue
}

/// `me`. As in memcached, `b` counts only if another flag follows it.
pub(super) fn debug(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    let decoded = if request.flags.count >= 2 && request.flags.token(0) == Some(b"b") {
        match base64::decode(request.key) {
            None => return refuse(out, Refusal::BadFormat),
            decoded => decoded,
        }
    } else {
        None
    };
    let key = decoded.as_ref().map_or(request.key, |decoded| decoded.key());
    let wanted =
        MetaGet { key, key_binary: false, cas_in: None, bump: false, win: false, steps: &[] };
    context.counters.meta_cmds.add(1);
    let found = context.store.meta_get(&wanted).unwrap_or(None);
    let (flags, clock) = (&Flags::default(), &context.clock);
    let locked = found.as_ref().map(|hit| Locked { hit, flags, clock });
    let item_bytes = found.as_ref().map_or(0, |hit| hit.item_bytes);
    write::debug(key, locked.as_ref(), item_bytes, clock.now, &mut out.buf);
    After::Continue
}
