//! `mg`, `md`, `me`, and how meta replies are put together.
//!
//! Where: called by `execute`; `put` and `arithmetic` answer `ms` and `ma` with the same parts.
//! Invariant: flags are answered in the order they were given; `Z`, `X` and `W` follow.
//! Source: memcached 1.6.45 `process_mget_cmd`, `process_mdelete_cmd`, `process_meta_command`.

mod told;

use protocol::meta::{Flags, Looks};
use protocol::{Args, KEY_BYTES_MAX, Meta, MetaVerb, Refusal, base64, reply};
use store::{Appended, Deleted, Head, Looked, MetaDelete, MetaGet, MetaStep, Prefetched, Wants};

use super::{After, Context, append_frames, append_value, framed, refuse};
use crate::clock::Clock;
use crate::out::Out;
use crate::shared::Counters;
pub(super) use told::{Asked, append_key, append_opaque, append_ttl};
use told::{Locked, append_head};

/// The slab class `me` names. There are none here; memcached numbers them from 1.
const SLAB_CLASS: &str = " cls=1 size=";

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
    let Some(looks) = Looks::of(request) else { return get_by_flags(context, request, out) };
    let hash = hash.unwrap_or_else(|| context.store.hashed(request.key));
    let now = context.clock.now;
    let looked = context.store.get_into(request.key, hash, &mut out.buf, |buf, head| {
        match append_head(now, (request.flags, request.key), looks.value, head, buf) {
            None => Wants::CallOff,
            Some(()) if looks.value => Wants::Value,
            Some(()) => Wants::NoValue,
        }
    });
    match end(&context.counters, looked, (request, looks), out) {
        true => After::Continue,
        false => get_by_flags(context, request, out),
    }
}

/// `mg` with flag `v` alone.
#[inline(never)]
pub(super) fn get_value(
    context: &mut Context,
    key: &[u8],
    hash: Option<Prefetched>,
    out: &mut Out,
) -> After {
    let (hash, now) = (hash.unwrap_or_else(|| context.store.hashed(key)), context.clock.now);
    let (flags, looks) = (Args { text: b"v", count: 1 }, Looks { value: true, quiet: false });
    let around = |head: &Head<'_>| match head.is_plain() {
        true => reply::meta_value_words(head.value_bytes()).map(framed),
        false => None,
    };
    let looked = context.store.get_around(key, hash, &mut out.buf, around, |buf, head| {
        match append_head(now, (flags, key), true, head, buf) {
            None => Wants::CallOff,
            Some(()) => Wants::Value,
        }
    });
    if let Looked::Hit(Appended::Around) = looked {
        context.counters.get_cmds.add(1);
        context.counters.get_hits.add(1);
        return After::Continue;
    }
    let request = Meta { verb: MetaVerb::Get, key, flags, value: &[], terminated: true };
    match end(&context.counters, looked, (&request, looks), out) {
        true => After::Continue,
        false => get_by_flags(context, &request, out),
    }
}

/// Appends what follows a value's head, or a miss, and counts it. False: the lookup was called off.
fn end(
    counters: &Counters,
    looked: Looked<'_>,
    (request, looks): (&Meta<'_>, Looks),
    out: &mut Out,
) -> bool {
    match looked {
        Looked::Left => return false,
        Looked::Miss => {
            counters.get_misses.add(1);
            if !looks.quiet {
                append_miss(b"EN", (request.flags, request.key, false), out);
            }
        }
        Looked::Hit(appended) => {
            counters.get_hits.add(1);
            append_frames(out, appended);
            if looks.value {
                out.buf.extend_from_slice(b"\r\n");
            }
        }
    }
    counters.get_cmds.add(1);
    true
}

/// `mg` under the lock: it changes the item, or asks for what only the lock tells.
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
    let (counters, may_wait) = (&context.counters, context.may_wait);
    let found = match context.store.meta_get(&wanted) {
        Err(_) if may_wait => return After::Wait,
        found => found.unwrap_or(None),
    };
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
            let told = Locked { hit: &found, flags: &flags, clock: &context.clock };
            // All is told under the lock.
            let asked = (request.flags, key);
            let _ = append_head(context.clock.now, asked, value, &told, &mut out.buf);
            if value {
                append_value(out, found.hit.value, b"\r\n");
            }
        }
        None => {
            counters.get_cmds.add(1);
            counters.get_misses.add(1);
            if failed {
                return refuse(out, Refusal::OpaqueTooLong);
            } else if !flags.quiet {
                append_miss(b"EN", (request.flags, key, flags.binary), out);
            }
        }
    }
    After::Continue
}

/// The flags that change the item, in their order; behind an opaque that is too long only that it
/// is made.
fn steps(request: &Meta<'_>, flags: &Flags, clock: &Clock) -> ([MetaStep; 3], usize) {
    let mut steps = [MetaStep::Touch(0); 3];
    let mut count = 0;
    if flags.exptime.is_none() && flags.vivify.is_none() && flags.recache.is_none() {
        return (steps, count);
    }
    let mut given_up = false;
    for token in request.flags.tokens() {
        let step = match token[0] {
            // The item is made before any flag is looked at; what stood before the opaque counts.
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

/// A code, and the flags that need no item: all flags, the key, and whether it came in base64.
pub(super) fn append_miss(
    code: &[u8; 2],
    (flags, key, binary): (Args<'_>, &[u8], bool),
    out: &mut Out,
) {
    out.buf.extend_from_slice(code);
    for token in flags.tokens() {
        match token[0] {
            b'O' => append_opaque(&mut out.buf, token),
            b'k' => append_key(&mut out.buf, key, binary),
            _ => {}
        }
    }
    out.buf.extend_from_slice(b"\r\n");
}

/// `md`.
pub(super) fn delete(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    let flags = match Flags::parse(request) {
        Ok(flags) if flags.opaque_too_long => {
            return refuse(out, Refusal::OpaqueTooLong);
        }
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
    let code = match context.store.meta_delete(&wanted) {
        Ok(Deleted::Deleted) => {
            if !flags.stale {
                counters.delete_hits.add(1);
            }
            if flags.quiet {
                return After::Continue;
            }
            b"HD"
        }
        Ok(Deleted::NotFound) => {
            counters.delete_misses.add(1);
            b"NF"
        }
        Ok(Deleted::Exists) => {
            counters.delete_misses.add(1);
            b"EX"
        }
        Err(refused) if context.waits(refused) => return After::Wait,
        Err(_) => return refuse(out, Refusal::NoMemoryDelta),
    };
    append_miss(code, (request.flags, key, flags.binary), out);
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
    let Ok(Some(found)) = context.store.meta_get(&wanted) else {
        append_miss(b"EN", (Args::default(), key, false), out);
        return After::Continue;
    };
    out.buf.extend_from_slice(b"ME ");
    if found.key_binary {
        base64::encode(key, &mut out.buf);
    } else {
        out.buf.extend_from_slice(key);
    }
    out.buf.extend_from_slice(b" exp=");
    append_seconds(out, found.exptime, context.clock.now);
    append_number(out, b" la=", found.idle_seconds);
    append_number(out, b" cas=", found.hit.cas);
    out.buf.extend_from_slice(if found.fetched { b" fetch=yes" } else { b" fetch=no" });
    append_number(out, SLAB_CLASS.as_bytes(), found.item_bytes);
    out.buf.extend_from_slice(b"\r\n");
    After::Continue
}

/// Where flag `letter` stands among the flags; flags that are absent stand before all.
pub(super) fn order(request: &Meta<'_>, letter: u8) -> Option<usize> {
    request.flags.tokens().position(|token| token[0] == letter)
}

fn append_number(out: &mut Out, before: &[u8], number: impl itoa::Integer) {
    out.buf.extend_from_slice(before);
    reply::number(&mut out.buf, number);
}

/// The time left with a sign, in 32 bits as in memcached: what is over 68 years away is negative.
fn append_seconds(out: &mut Out, exptime: u32, now: u32) {
    let left = if exptime == 0 { -1 } else { exptime.wrapping_sub(now).cast_signed() };
    reply::number(&mut out.buf, left);
}
