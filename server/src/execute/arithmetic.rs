//! Executes `incr`, `decr` and `ma`.
//!
//! Where: called by `execute`.
//! Invariant: a hit or a miss is counted once; the creation of a number counts as neither.
//! Source: memcached 1.6.45 `process_arithmetic_cmd`, `process_marithmetic_cmd`, `do_add_delta`.

use protocol::meta::write::{Number, RequestFields};
use protocol::meta::{Change, Flags};
use protocol::{Delta, Meta, Outcome, Refusal};
use store::{DeltaResult, Vivify};

use super::Context;
use super::refused::refuse;
use columns::executor::NextStep;
use columns::out::Out;

pub(super) fn delta(context: &mut Context, delta: &Delta<'_>, out: &mut Out) -> NextStep {
    let wanted = store::Delta {
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
    match count(context, &wanted) {
        None => return NextStep::Wait,
        Some(Ok(counted)) => delta.form.number(counted.value.into(), counted.cas, &mut out.buf),
        Some(Err(refusal)) => delta.form.refuse(refusal, &mut out.buf),
    }
    NextStep::Continue
}

/// The result of `incr`, `decr` or `ma`.
struct NumberResult {
    value: u64,
    cas: u64,
    /// The exptime before the request changed it. 0 means that the number never expires.
    exptime: u32,
    /// True if the request created the number.
    vivified: bool,
}

/// Does the arithmetic, and counts the hit or the miss. Returns `None` if the request must wait.
fn count(context: &mut Context, delta: &store::Delta<'_>) -> Option<Result<NumberResult, Refusal>> {
    let counted = context.store.delta(delta);
    let counters = &context.counters;
    Some(match counted {
        Ok(DeltaResult::Stored { value, cas, exptime, vivified }) => {
            match (vivified, delta.incr) {
                (true, _) => {}
                (false, true) => counters.incr_hits.add(1),
                (false, false) => counters.decr_hits.add(1),
            }
            Ok(NumberResult { value, cas, exptime, vivified })
        }
        Ok(DeltaResult::NotFound) => {
            if delta.incr {
                counters.incr_misses.add(1)
            } else {
                counters.decr_misses.add(1)
            }
            Err(Refusal::NotFound)
        }
        Ok(DeltaResult::Exists) => Err(Refusal::Exists),
        Ok(DeltaResult::NonNumeric) => Err(Refusal::NonNumeric),
        Err(refused) if context.waits(refused) => return None,
        Err(_) if delta.vivify.is_some() => Err(Refusal::NoMemoryVivify),
        Err(_) => Err(Refusal::NoMemoryDelta),
    })
}

pub(super) fn execute(context: &mut Context, request: &Meta<'_>, out: &mut Out) -> NextStep {
    let flags = match Flags::parse(request) {
        Ok(flags) => flags,
        Err(refusal) => return refuse(request, refusal, out),
    };
    let incr = match flags.counts_up() {
        Ok(incr) => incr,
        Err(refusal) => return refuse(request, refusal, out),
    };
    let mut place = None;
    let key = flags.key(request, &mut place);
    let delta = delta_of(context, request, &flags, (key, incr));
    let Some(counted) = count(context, &delta) else { return NextStep::Wait };
    let missed = matches!(counted, Err(Refusal::NotFound | Refusal::Exists));
    if flags.opaque_too_long && (missed || counted.is_ok()) {
        // memcached, too, does the arithmetic before it refuses the opaque.
        return refuse(request, Refusal::OpaqueTooLong, out);
    }
    let fields = RequestFields::new(request, &flags, key);
    match counted {
        Err(refusal) => fields.say(Outcome::Refused(refusal), None, &mut out.buf),
        Ok(NumberResult { value, cas, exptime, vivified }) => {
            let realtime = |exptime| context.clock.realtime(exptime);
            let touched = flags.exptime.map(realtime);
            let vivified = flags.vivify.filter(|_| vivified).map(realtime);
            let number = Number { value, cas, exptime, touched, vivified };
            fields.number(&number, flags.value, context.clock.now, &mut out.buf);
        }
    }
    NextStep::Continue
}

fn delta_of<'k>(
    context: &Context,
    request: &Meta<'_>,
    flags: &Flags,
    (key, incr): (&'k [u8], bool),
) -> store::Delta<'k> {
    // A newly created number gets the last exptime in the request.
    let (mut exptime, mut last) = (None, 0);
    for change in flags.changes(request) {
        match change {
            Change::Touch(touched) => {
                last = context.clock.realtime(touched);
                exptime = Some(last);
            }
            Change::Vivify(vivified) => last = context.clock.realtime(vivified),
            Change::Recache(_) => {}
        }
    }
    store::Delta {
        key,
        incr,
        delta: flags.delta,
        cas: flags.cas.unwrap_or(0),
        cas_in: flags.cas_in,
        vivify: flags.vivify.map(|_| Vivify { initial: flags.initial, exptime: last }),
        exptime,
    }
}
