//! incr, decr and `ma`.
//!
//! Where: called by `execute`.
//! Invariant: a hit and a miss are counted once each, a number made on a miss as neither.
//! Source: memcached 1.6.45 `process_arithmetic_cmd`, `process_marithmetic_cmd`, `do_add_delta`.

use protocol::meta::Flags;
use protocol::{Meta, Refusal, reply};
use store::{Counted, Delta, Vivify};

use super::meta::{Asked, append_key, append_miss, append_opaque, append_ttl, order};
use super::{After, Context, refuse};
use crate::out::Out;

/// A number as it stands now.
pub(super) struct Number {
    pub(super) value: u64,
    pub(super) cas: u64,
    exptime: u32,
    vivified: bool,
}

/// Does the arithmetic and counts it. `None`: it must wait.
pub(super) fn count(context: &mut Context, delta: &Delta<'_>) -> Option<Result<Number, Refusal>> {
    let counted = context.store.delta(delta);
    let counters = &context.counters;
    Some(match counted {
        Ok(Counted::Counted { value, cas, exptime, vivified }) => {
            match (vivified, delta.incr) {
                (true, _) => {}
                (false, true) => counters.incr_hits.add(1),
                (false, false) => counters.decr_hits.add(1),
            }
            Ok(Number { value, cas, exptime, vivified })
        }
        Ok(Counted::NotFound) => {
            if delta.incr {
                counters.incr_misses.add(1)
            } else {
                counters.decr_misses.add(1)
            }
            Err(Refusal::NotFound)
        }
        Ok(Counted::Exists) => Err(Refusal::Exists),
        Ok(Counted::NonNumeric) => Err(Refusal::NonNumeric),
        Err(refused) if context.waits(refused) => return None,
        Err(_) if delta.vivify.is_some() => Err(Refusal::NoMemoryVivify),
        Err(_) => Err(Refusal::NoMemoryDelta),
    })
}

/// `ma`.
pub(super) fn execute(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> After {
    let flags = match Flags::parse(request) {
        Ok(flags) => flags,
        Err(refusal) => return refuse(out, refusal),
    };
    let incr = match flags.mode {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        Some(_) => return refuse(out, Refusal::ModeArithmetic),
    };
    let mut place = None;
    let key = flags.key(request, &mut place);
    let delta = Delta { key, incr, ..delta_of(context, request, &flags) };
    let Some(number) = count(context, &delta) else { return After::Wait };
    let missed = matches!(number, Err(Refusal::NotFound | Refusal::Exists));
    if flags.opaque_too_long && (missed || number.is_ok()) {
        // memcached too has done the arithmetic by then.
        return refuse(out, Refusal::OpaqueTooLong);
    }
    let asked = (request, &flags, key);
    match &number {
        Ok(number) => append_number(context, asked, number, out),
        Err(Refusal::NotFound) => append_miss(b"NF", (request.flags, key, flags.binary), out),
        Err(Refusal::Exists) => append_miss(b"EX", (request.flags, key, flags.binary), out),
        Err(refusal) => return refuse(out, *refusal),
    }
    After::Continue
}

/// The arithmetic asked for; the key and the direction are the caller's.
fn delta_of(context: &Context, request: &Meta<'_>, flags: &Flags) -> Delta<'static> {
    let realtime = |exptime| context.clock.realtime(exptime);
    // memcached comes no further than an opaque that is too long.
    let given_up = |letter| flags.opaque_too_long && order(request, letter) > order(request, b'O');
    let exptime = flags.exptime.filter(|_| !given_up(b'T')).map(realtime);
    let vivify = flags.vivify.map(|first| {
        let first = if given_up(b'N') { None } else { Some(realtime(first)) };
        // The item just made gets whichever of `N` and `T` stands last.
        let touched = first.is_none() || order(request, b'T') > order(request, b'N');
        let last = exptime.filter(|_| touched).or(first);
        Vivify { initial: flags.initial, exptime: last.unwrap_or(0) }
    });
    Delta {
        key: &[],
        incr: true,
        delta: flags.delta,
        cas: flags.cas.unwrap_or(0),
        cas_in: flags.cas_in,
        vivify,
        exptime,
    }
}

fn append_number(context: &Context, asked: Asked<'_>, number: &Number, out: &mut Out) {
    let (request, flags, key) = asked;
    if flags.quiet {
        return;
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number.value);
    if flags.value {
        out.buf.extend_from_slice(b"VA ");
        reply::number(&mut out.buf, digits.len());
    } else {
        out.buf.extend_from_slice(b"HD");
    }
    let mut exptime = number.exptime;
    for token in request.flags.tokens() {
        match token[0] {
            b'c' => {
                out.buf.extend_from_slice(b" c");
                reply::number(&mut out.buf, number.cas);
            }
            b't' => append_ttl(&mut out.buf, exptime, context.clock.now),
            b'T' => exptime = context.clock.realtime(flags.exptime.unwrap_or(0)),
            b'N' if number.vivified => {
                exptime = context.clock.realtime(flags.vivify.unwrap_or(0));
            }
            b'O' => append_opaque(&mut out.buf, token),
            b'k' => append_key(&mut out.buf, key, flags.binary),
            _ => {}
        }
    }
    out.buf.extend_from_slice(b"\r\n");
    if flags.value {
        out.buf.extend_from_slice(digits.as_bytes());
        out.buf.extend_from_slice(b"\r\n");
    }
}
