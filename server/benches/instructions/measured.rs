//! Carries out the operations that are counted.
//!
//! Where: the runs under callgrind.
//! Invariant: all input of an operation is made beforehand. Callgrind counts only within
//! `measured_batches`, where every operation's outcome is checked too.

use std::hint::black_box;
use std::iter::Enumerate;
use std::slice::Chunks;
use std::sync::Arc;

use columns::batch::{self, End, Input, Inputs};
use columns::budget::{Budget, StopReason};
use columns::input;
use columns::turn::TurnState;
use hypostyle::clock::Clock;
use hypostyle::execute::Context;
use hypostyle::shared::Shared;
use hypostyle::start::settings::Settings;
use memory::short::Surround;
use protocol::binary::MAGIC_REQUEST;
use protocol::{ProtocolMode, Session};
use store::{
    AppendedPart, Body, Column, Delta, DeltaResult, Head, HeadResult, LookupResult, Put, PutResult,
    Store, Verb,
};

use crate::Options;
use crate::datagrams::{Site, TOGETHER};
use crate::measure::in_process::{
    BATCH, KEY_BYTES, Key, between_batches, column_of, fill, hit, key_of, miss, set, store_of,
};
use crate::measure::requests::{Batch, Form};
use crate::measure::{Outcome, fail};
use crate::op::Op;
use crate::packets::{self, Packets};
use testing::Random;

/// Maximum length of the reply to a miss: a binary header, the key, and a few words.
const MISS_MAX: usize = 80;
/// Number of times that each key is read beforehand, to raise its read counter to the maximum.
const WARM_READS: u32 = 3;
/// The stored bytes are this number of times the memory of an evicting store.
const TIGHT_PART: usize = 2;
/// Minimum memory of an evicting store. With less memory, segments would have the smallest size.
const TIGHT_BYTES_MIN: usize = 4 << 20;

struct Bench {
    turn: TurnState<Context>,
    keys: Vec<Key>,
    /// Empty for operations of the store alone.
    requests: Batch,
    value: Vec<u8>,
    /// `None` unless the operation goes over AF_XDP.
    packets: Option<Packets>,
}

pub(crate) fn run(op: Op, count: u32, options: &Options) -> Outcome<()> {
    let mut bench = Bench::new(op, count.next_multiple_of(BATCH), options)?;
    let Bench { turn, keys, requests, value, packets } = &mut bench;
    match (op, packets.take()) {
        (_, Some(packets)) => {
            let is_in_arena = packets.has(value.len());
            packets.site()?.run(keys.len(), requests, turn)?;
            if is_in_arena {
                packets::check_in_arena(&mut turn.executor.store, keys)?;
            }
            Ok(())
        }
        (Op::RequestGetHitUdp, _) => Site::of_socket(TOGETHER)?.run(keys.len(), requests, turn),
        (Op::RequestGetHitUdpBurst, _) => Site::of_socket(1)?.run(keys.len(), requests, turn),
        _ => measured_batches(op, &mut bench),
    }
}

impl Bench {
    fn new(op: Op, count: u32, options: &Options) -> Outcome<Bench> {
        let value_bytes = usize::try_from(options.value_bytes)?;
        // If an operation may use each key only once, a run needs one key per operation. The short
        // run stores as many keys as the long run, so that both runs start with the same store.
        let once = if op.is_once_a_key() && !op.is_of_new_keys() { 2 * options.count } else { 0 };
        let keys = options.keys.max(once.next_multiple_of(BATCH) + BATCH);
        let payload_bytes = usize::try_from(keys)? * (value_bytes + KEY_BYTES + 20);
        let memory_bytes = match (op.is_evicting(), op.zero_copy()) {
            (true, _) => (payload_bytes / TIGHT_PART).max(TIGHT_BYTES_MIN),
            (false, None) => 4 * payload_bytes + (64 << 20),
            // The arena, which holds packets and values, gets at most a quarter of this memory. A
            // value takes whole chunks of the arena, which have more bytes than the value.
            (false, Some(_)) => 12 * payload_bytes + (192 << 20),
        };
        // `incr` takes a value of digits only.
        let value = vec![if op == Op::Incr { b'0' } else { b'v' }; value_bytes];
        let packets = match op.zero_copy() {
            Some(zero_copy) => {
                let request_bytes = requests(op, &[key_of(0)], &value, options).request.len();
                Some(Packets::open(zero_copy, memory_bytes, request_bytes, options.eviction)?)
            }
            None => None,
        };
        let store = match &packets {
            Some(packets) => packets.store()?,
            None => store_of(memory_bytes, 1, Some(options.eviction))?,
        };
        let mut context = context_of(&store, memory_bytes)?;
        // Store four times the items that fit in an evicting store, so that later SETs evict items.
        let filled = match op.is_evicting() {
            true => keys.max(u32::try_from(memory_bytes / (value_bytes + KEY_BYTES) * 4)?),
            false => keys,
        };
        fill(&mut context.store, 0..filled, &value)?;
        let keys = keys_for(op, count, (filled, options.keys), &mut context.store);
        if !op.is_of_new_keys() && op != Op::GetHitFirst && !op.is_evicting() {
            for key in keys.iter().flat_map(|key| [key; WARM_READS as usize]) {
                match &packets {
                    Some(packets) if packets.has(value_bytes) => {
                        packets::check_in_arena(&mut context.store, &[*key])?;
                    }
                    _ => hit(&mut context.store, key, value_bytes)?,
                }
            }
        }
        let requests = match op.is_request() {
            true => requests(op, &keys, &value, options),
            false => Batch::default(),
        };
        let columns = (Arc::clone(&context.shared.columns), 0);
        let turn = TurnState::new(context, columns, Arc::default());
        Ok(Bench { turn, keys, requests, value, packets })
    }
}

/// Returns the key of each of `count` operations. If the operation may repeat keys, draws the keys
/// at random from the first `spread` of the `filled` stored keys.
fn keys_for(op: Op, count: u32, (filled, spread): (u32, u32), column: &mut Column) -> Vec<Key> {
    let mut random = Random::new(1);
    if op.is_of_new_keys() {
        return (filled..filled + count).map(key_of).collect();
    }
    if op.is_once_a_key() {
        return (0..count).map(key_of).collect();
    }
    if !op.is_evicting() {
        return (0..count).map(|_| key_of(random.number(spread))).collect();
    }
    // The operations overwrite only keys that were not evicted.
    let there: Vec<Key> =
        (0..filled).rev().map(key_of).filter(|key| column.get(key).is_some()).collect();
    let some = u32::try_from(there.len()).unwrap_or(u32::MAX);
    let pick = |_| usize::try_from(random.number(some)).ok().and_then(|at| there.get(at).copied());
    (0..count).filter_map(pick).collect()
}

fn requests(op: Op, keys: &[Key], value: &[u8], options: &Options) -> Batch {
    let form = Form::new(op.protocol().unwrap_or(options.protocol), options.value_bytes);
    let mut batch = Batch::default();
    for key in keys {
        if op.is_get() {
            form.get(key, value, &mut batch);
        } else {
            form.set(key, value, &mut batch);
        }
    }
    batch
}

fn context_of(store: &Arc<Store>, memory_bytes: usize) -> Outcome<Context> {
    let clock = Clock::new(1_800_000_000);
    let settings = Settings { memory_bytes, ..Settings::default() };
    let shared = Shared::new(Arc::new(settings), Arc::clone(store), clock.process_started);
    match shared.requests.first() {
        Some(counters) => {
            let counters = Arc::clone(counters);
            Ok(Context::new(column_of(store), counters, shared, clock))
        }
        None => fail("a server without a column".to_owned()),
    }
}

/// Contains all code that callgrind counts, except for datagrams.
#[inline(never)]
fn measured_batches(op: Op, bench: &mut Bench) -> Outcome<()> {
    let Bench { turn, keys, requests, value, .. } = bench;
    let column = &mut turn.executor.store;
    let value_bytes = value.len();
    let batches = keys.chunks(BATCH as usize);
    match op {
        Op::Nothing => batched(batches, column, false, |_, key| {
            black_box(key);
            Ok(())
        }),
        Op::Loop => batched(batches, column, true, |_, key| {
            black_box(key);
            Ok(())
        }),
        Op::GetHit | Op::GetHitFirst => {
            batched(batches, column, true, |column, key| hit(column, key, value_bytes))
        }
        Op::GetHitAhead => {
            for batch in batches {
                for half in batch.chunks(AHEAD) {
                    hits_ahead(column, half, value_bytes)?;
                }
                between_batches(column);
            }
            Ok(())
        }
        Op::GetInto => append_all(batches, column, &mut turn.out.buf, value_bytes),
        Op::GetMiss => batched(batches, column, true, |column, key| miss(column, key)),
        Op::SetSame | Op::SetNew | Op::SetSameEvicting | Op::SetNewEvicting => {
            batched(batches, column, true, |column, key| set(column, key, value))
        }
        Op::Incr => batched(batches, column, true, incr),
        Op::Append => batched(batches, column, true, append),
        Op::Delete => batched(batches, column, true, |column, key| match column.delete(key) {
            true => Ok(()),
            false => fail("a key that was stored is missing".to_owned()),
        }),
        Op::RequestGetHitConnections => answer_on_connections(turn, requests, keys.len()),
        Op::RequestGetHitUdp
        | Op::RequestGetHitUdpBurst
        | Op::PacketGetHit(_)
        | Op::PacketSetSame(_) => fail("datagrams are counted in `Site::run`".to_owned()),
        Op::RequestGetMiss => answer_all(turn, requests, (keys.len(), 1), None),
        Op::RequestGetHit
        | Op::RequestGetHitAhead
        | Op::RequestSetSame
        | Op::RequestSetSameAhead
        | Op::RequestSetNew
        | Op::RequestSetSameEvicting
        | Op::RequestSetNewEvicting
        | Op::RequestMetaGetHit
        | Op::RequestMetaGetHitAhead
        | Op::RequestMetaSetSame
        | Op::RequestBinaryGetHit
        | Op::RequestBinarySetSame => {
            let together = if op.is_ahead() { AHEAD } else { 1 };
            let reply_bytes = Some(requests.reply.len() / keys.len());
            answer_all(turn, requests, (keys.len(), together), reply_bytes)
        }
    }
}

/// Number of keys that are prefetched together. A column prefetches at most this number.
const AHEAD: usize = 16;

#[inline]
fn batched<'k>(
    batches: impl Iterator<Item = &'k [Key]>,
    column: &mut Column,
    rests: bool,
    mut once: impl FnMut(&mut Column, &Key) -> Outcome<()>,
) -> Outcome<()> {
    for batch in batches {
        for key in batch {
            once(column, key)?;
        }
        if rests {
            between_batches(column);
        }
    }
    Ok(())
}

fn incr(column: &mut Column, key: &Key) -> Outcome<()> {
    let one =
        Delta { key, incr: true, delta: 1, cas: 0, cas_in: None, vivify: None, exptime: None };
    match column.delta(&one) {
        Ok(DeltaResult::Stored { vivified: false, .. }) => Ok(()),
        other => fail(format!("a number was not incremented: {other:?}")),
    }
}

fn append(column: &mut Column, key: &Key) -> Outcome<()> {
    match column.put(&Put::new(Verb::Append, key), Body::Bytes(b", and on")) {
        Ok(PutResult::Stored { .. }) => Ok(()),
        other => fail(format!("a value was not appended to: {other:?}")),
    }
}

/// Looks up keys, appends the values to `out`, and reads the item's fields that `get` replies show.
fn append_all<'k>(
    batches: impl Iterator<Item = &'k [Key]>,
    column: &mut Column,
    out: &mut Vec<u8>,
    value_bytes: usize,
) -> Outcome<()> {
    for batch in batches {
        for key in batch {
            let (hash, before) = (column.hashed(key), out.len());
            let around = |head: &Head<'_>| {
                black_box((head.client_flags(), head.value_bytes()));
                Some(Surround::default())
            };
            let looked = column.get_into(key, hash, out, around, |_, _| HeadResult::Value);
            let is_whole = matches!(
                looked,
                LookupResult::Hit(AppendedPart::FromTemplate | AppendedPart::Whole)
            );
            if !is_whole || out.len() - before != value_bytes {
                return fail("a key that was stored is missing or has another value".to_owned());
            }
        }
        out.clear();
        between_batches(column);
    }
    Ok(())
}

fn hits_ahead(column: &mut Column, keys: &[Key], value_bytes: usize) -> Outcome<()> {
    let ahead: [_; AHEAD] =
        std::array::from_fn(|at| column.prefetch(keys.get(at).unwrap_or(&keys[0])));
    for key in ahead {
        column.prefetch_item(key);
    }
    keys.iter().try_for_each(|key| hit(column, key, value_bytes))
}

/// Executes all requests, `together` of them in each turn. Fails unless each reply has
/// `reply_bytes` bytes or, if `reply_bytes` is `None`, at most `MISS_MAX` bytes.
fn answer_all(
    turn: &mut TurnState<Context>,
    requests: &Batch,
    (keys, together): (usize, usize),
    reply_bytes: Option<usize>,
) -> Outcome<()> {
    let mut session = Session::new(ProtocolMode::Auto);
    let turn_bytes = requests.request.len() / keys * together;
    for (bytes, done) in requests.request.chunks(turn_bytes).zip((together..).step_by(together)) {
        let before = turn.out.buf.len();
        if input::run_only(turn, &session, bytes).is_none() {
            let mut budget = Budget::new(u32::MAX, usize::MAX);
            let (stopped, at) = input::run(turn, &mut session, (bytes, 0), &mut budget);
            if !matches!(stopped, StopReason::Hungry) || at != bytes.len() {
                return fail(format!("requests were not carried out: {stopped:?}"));
            }
        }
        let replies = turn.out.buf.len() - before;
        if reply_bytes.is_some_and(|due| due * together != replies)
            || reply_bytes.is_none() && replies > together * MISS_MAX
        {
            let replies = String::from_utf8_lossy(&turn.out.buf[before..]).into_owned();
            return fail(format!("wrong replies: {replies:?}"));
        }
        if done % BATCH as usize == 0 {
            black_box(turn.out.buf.len());
            turn.out.buf.clear();
            between_batches(&mut turn.executor.store);
        }
    }
    Ok(())
}

/// Carries out all requests, `AHEAD` at a time, as if each arrived on its own connection.
fn answer_on_connections(
    turn: &mut TurnState<Context>,
    requests: &Batch,
    keys: usize,
) -> Outcome<()> {
    let request_bytes = requests.request.len() / keys;
    let speak = match requests.request.first() {
        Some(&MAGIC_REQUEST) => ProtocolMode::Binary,
        _ => ProtocolMode::Ascii,
    };
    for (batch, done) in
        requests.request.chunks(request_bytes * AHEAD).zip((AHEAD..).step_by(AHEAD))
    {
        let numbered = batch.chunks(request_bytes).enumerate();
        let mut connections = OneRequestConnections { requests: numbered, speak, ended: 0 };
        batch::run(turn, &mut connections);
        if connections.ended != AHEAD {
            return fail("requests were not carried out".to_owned());
        }
        if done % BATCH as usize == 0 {
            if turn.out.buf.len() != requests.reply.len() / keys * BATCH as usize {
                return fail("the replies have a wrong length".to_owned());
            }
            turn.out.buf.clear();
            between_batches(&mut turn.executor.store);
        }
    }
    Ok(())
}

struct OneRequestConnections<'i> {
    requests: Enumerate<Chunks<'i, u8>>,
    speak: ProtocolMode,
    ended: usize,
}

impl<'i> Inputs<'i, Context> for OneRequestConnections<'i> {
    fn next(&mut self) -> Option<Input<'i>> {
        let (number, bytes) = self.requests.next()?;
        Some(Input { number, bytes, at: 0, session: Session::new(self.speak) })
    }

    fn begin(&mut self, _: usize, _: &mut TurnState<Context>) -> Budget {
        Budget::new(u32::MAX, usize::MAX)
    }

    fn end(&mut self, _: usize, end: End<'_>, _: &mut TurnState<Context>) {
        self.ended += usize::from(end.stopped == StopReason::Hungry);
    }
}
