//! Executes set, add, replace, append, prepend and cas in either protocol, and `ms`.
//!
//! Where: called by `execute`, with the value in the receive buffer or in a draft.
//! Invariant: a command that memcached refuses before the value arrives is refused here without a
//! look at the value. A refused set deletes the old value.
//! Source: memcached 1.6.45 `process_update_cmd_start`, `process_mset_cmd_start`,
//! `complete_nread_ascii`, `_finalize_mset`, `process_bin_update`, `complete_update_bin`.

use protocol::meta::Flags;
use protocol::meta::write::RequestFields;
use protocol::{Meta, Outcome, Refusal, Store};
use store::{Body, PrefetchedHash, Put, PutResult, StoreError, Verb};

use super::refused::refuse;
use super::{Context, note};
use columns::executor::NextStep;
use columns::out::Out;

/// Checks that the store has room for the value of `request`.
pub(super) fn begin(
    context: &mut Context,
    request: &Store<'_>,
    value_bytes: u64,
) -> Result<(), Refusal> {
    let put = put_of(context, request);
    let admitted = context.store.admit(&put, value_bytes);
    admitted.map_err(|refused| {
        note::stored(context, (&put, value_bytes), Err(refused), false);
        if request.verb == Verb::Set {
            forget(context, &put, refused);
        }
        count_refused(context, refused)
    })
}

/// Deletes the key's old item after the store has refused `put`, unless the store has deleted it.
/// The store deletes it after a plain set, except after `Later`.
#[cold]
fn forget(context: &mut Context, put: &Put<'_>, refused: StoreError) {
    if put.verb != Verb::Set || refused == StoreError::Later {
        context.store.delete(put.key);
    }
}

/// Refuses `request` although its value was admitted, because the store has no room left.
pub(super) fn give_up(context: &mut Context, request: &Store<'_>) -> Refusal {
    let put = put_of(context, request);
    note::stored(context, (&put, 0), Err(StoreError::NoMemory), true);
    if request.verb == Verb::Set {
        context.store.delete(request.key);
    }
    count_refused(context, StoreError::NoMemory)
}

#[inline(always)]
pub(super) fn store(
    context: &mut Context,
    request: &Store<'_>,
    hash: Option<PrefetchedHash>,
    body: Body<'_>,
    out: &mut Out,
) -> NextStep {
    if !request.terminated {
        let refusal = refuse_chunk(context, request, &body);
        note::count_for_prefix(context, request.key, |counts| counts.sets += 1);
        request.form.refuse(refusal, &mut out.buf);
        return NextStep::Continue;
    }
    let put = put_of(context, request);
    let hash = hash.unwrap_or_else(|| context.store.hashed(put.key));
    let value_bytes = body.value_bytes();
    let stored = context.store.put_hashed(&put, hash, body);
    note::stored(context, (&put, value_bytes), stored, true);
    match stored {
        Ok(stored) => {
            context.counters.set_cmds.add(1);
            request.form.write_outcome(outcome_of(stored), &mut out.buf);
        }
        Err(refused) if context.waits(refused) => return NextStep::Wait,
        Err(refused) => {
            // A binary set with a CAS unique deletes the old item, too.
            if request.verb == Verb::Set {
                forget(context, &put, refused);
            }
            request.form.refuse(count_refused(context, refused), &mut out.buf);
        }
    }
    NextStep::Continue
}

/// Refuses a value without a line end, with the store's reason if the store refuses it too. The
/// store admitted a draft before its value arrived.
#[cold]
fn refuse_chunk(context: &mut Context, request: &Store<'_>, body: &Body<'_>) -> Refusal {
    if matches!(body, Body::Bytes(_))
        && let Err(refusal) = begin(context, request, body.value_bytes())
    {
        return refusal;
    }
    context.counters.set_cmds.add(1);
    Refusal::BadChunk
}

fn outcome_of(stored: PutResult) -> Outcome {
    match stored {
        PutResult::Stored { cas, .. } => Outcome::Stored(cas),
        PutResult::NotStored => Outcome::Refused(Refusal::NotStored),
        PutResult::Exists => Outcome::Refused(Refusal::Exists),
        PutResult::NotFound => Outcome::Refused(Refusal::NotFound),
    }
}

fn put_of<'k>(context: &Context, request: &Store<'k>) -> Put<'k> {
    // In the binary protocol, a set, add or replace with a CAS unique is a cas. With `-C` (no
    // uniques) the verb stays, and the given unique is ignored.
    let cas = if request.cas != 0 && context.shared.settings.cas { request.cas } else { 0 };
    let verb = match request.verb {
        verb if cas != 0 && !verb.extends() => Verb::Cas,
        verb => verb,
    };
    Put {
        verb,
        key: request.key,
        key_binary: false,
        client_flags: request.client_flags,
        exptime: context.clock.realtime(request.exptime),
        cas,
        cas_in: None,
        stale: false,
    }
}

#[cold]
fn count_refused(context: &Context, refused: StoreError) -> Refusal {
    match refused {
        StoreError::TooLarge => {
            context.counters.store_too_large.add(1);
            Refusal::TooLarge
        }
        // A request that is refused because of `Later` has waited for too long.
        StoreError::NoMemory | StoreError::Later => {
            context.counters.store_no_memory.add(1);
            Refusal::NoMemory
        }
    }
}

/// Checks the flags of `request`, and then that the store has room for the value.
pub(super) fn meta_begin(
    context: &mut Context,
    request: &Meta<'_>,
    value_bytes: u64,
) -> Result<(), Refusal> {
    let flags = Flags::parse(request)?;
    let mut place = None;
    let key = flags.key(request, &mut place);
    let put = meta_put_of(context, &flags, key)?;
    meta_admit(context, &put, &flags, value_bytes)
}

fn meta_admit(
    context: &mut Context,
    put: &Put<'_>,
    flags: &Flags,
    value_bytes: u64,
) -> Result<(), Refusal> {
    if let Err(refused) = context.store.admit(put, value_bytes) {
        note::stored(context, (put, value_bytes), Err(refused), false);
        return Err(meta_refused(context, put, refused));
    }
    if flags.opaque_too_long {
        context.counters.set_cmds.add(1);
        return Err(Refusal::OpaqueTooLong);
    }
    Ok(())
}

pub(super) fn meta_give_up(context: &mut Context, request: &Meta<'_>) -> Refusal {
    if let Ok(flags) = Flags::parse(request) {
        let mut place = None;
        let key = flags.key(request, &mut place);
        if let Ok(put) = meta_put_of(context, &flags, key) {
            note::stored(context, (&put, 0), Err(StoreError::NoMemory), false);
        }
        context.store.delete(key);
    }
    count_refused(context, StoreError::NoMemory)
}

/// Counts a refusal, and deletes the old item in every mode of `ms`.
fn meta_refused(context: &mut Context, put: &Put<'_>, refused: StoreError) -> Refusal {
    forget(context, put, refused);
    count_refused(context, refused)
}

pub(super) fn meta_store(
    context: &mut Context,
    request: &Meta<'_>,
    body: Body<'_>,
    out: &mut Out,
) -> NextStep {
    match meta_stored(context, request, body, out) {
        Ok(after) => after,
        Err(refusal) => refuse(request, refusal, out),
    }
}

fn meta_stored(
    context: &mut Context,
    request: &Meta<'_>,
    body: Body<'_>,
    out: &mut Out,
) -> Result<NextStep, Refusal> {
    let flags = Flags::parse(request)?;
    let mut place = None;
    let key = flags.key(request, &mut place);
    let put = meta_put_of(context, &flags, key)?;
    if !request.terminated || flags.opaque_too_long {
        if matches!(body, Body::Bytes(_)) {
            meta_admit(context, &put, &flags, body.value_bytes())?;
        }
        context.counters.set_cmds.add(1);
        return Err(Refusal::BadChunk);
    }
    let value_bytes = body.value_bytes();
    let stored = context.store.put(&put, body);
    note::stored(context, (&put, value_bytes), stored, false);
    let stored = match stored {
        Ok(stored) => stored,
        Err(refused) if context.waits(refused) => return Ok(NextStep::Wait),
        Err(refused) => return Err(meta_refused(context, &put, refused)),
    };
    context.counters.set_cmds.add(1);
    let value_bytes = match stored {
        PutResult::Stored { value_bytes, .. } => value_bytes,
        _ => u32::try_from(value_bytes).unwrap_or(u32::MAX),
    };
    let fields = RequestFields::new(request, &flags, key);
    fields.say(outcome_of(stored), Some(value_bytes), &mut out.buf);
    Ok(NextStep::Continue)
}

fn meta_put_of<'k>(context: &Context, flags: &Flags, key: &'k [u8]) -> Result<Put<'k>, Refusal> {
    let verb = flags.store_verb()?;
    let exptime = flags.vivify.filter(|_| verb.vivifies()).or(flags.exptime);
    Ok(Put {
        verb,
        key,
        key_binary: flags.binary,
        client_flags: flags.client_flags,
        exptime: context.clock.realtime(exptime.unwrap_or(0)),
        cas: flags.cas.filter(|_| context.shared.settings.cas).unwrap_or(0),
        // `E0` requests a unique chosen by the store; only `ms` interprets `E0` like this.
        cas_in: flags.cas_in.filter(|&cas| cas != 0),
        stale: flags.stale && verb == Verb::Cas,
    })
}
