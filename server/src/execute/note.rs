//! Notes requests for watchers, for the counts by prefix, and for the samples.
//!
//! Where: called for each request; a call costs one comparison if nothing is noted.
//! Invariant: a request that must wait leaves no note. Noting changes no item, and does not count
//! as a use of an item.
//! Source: memcached 1.6.45's calls of `LOGGER_LOG`.

use arrayvec::ArrayVec;
use net::monotonic_ns;
use protocol::meta::Flags;
use protocol::show::Show;
use protocol::text::event::Item;
use protocol::text::list::PrefixCounts;
use protocol::text::operator::Streams;
use protocol::{KEY_BYTES_MAX, Request};
use store::{PrefetchedHash, Put, PutResult, StoreError, Verb};

use super::{Context, get};
use crate::shared::sampled::{Kind, SAMPLED};
use crate::shared::watch::{DETAIL, Mark};
use columns::out::Out;

/// Each lookup is noted if any of these bits is set.
pub(super) const LOOKUPS: Streams = Streams(Streams::FETCHERS.0 | DETAIL.0 | SAMPLED.0);

/// Each request that is not a lookup is noted if any of these bits is set.
pub(super) const OTHERS: Streams = Streams(Streams::FETCHERS.0 | SAMPLED.0);

/// Returns the exptime of the key's item; 0 if the item never expires or does not exist.
fn exptime(context: &mut Context, key: &[u8]) -> u32 {
    context.peek(key).map_or(0, |found| found.exptime)
}

fn item(context: &mut Context, stream: Streams, key: &[u8], bytes: u32, what: Item<'_>) {
    let Context { shared, counters, noted, .. } = context;
    noted.item((&shared.watch, counters), stream, (key, bytes), what);
}

/// Like `get::find`, but also notes the result.
#[cold]
#[inline(never)]
pub(super) fn find<S: Show>(
    context: &mut Context,
    hash: Option<PrefetchedHash>,
    show: S,
    out: &mut Out,
) -> bool {
    let key: ArrayVec<u8, KEY_BYTES_MAX> = show.key().iter().copied().take(KEY_BYTES_MAX).collect();
    let hits = context.counters.get_hits.get();
    let begun = begin(context.noted.watched);
    let is_answered = get::find(context, hash, show, out);
    let took_ns = elapsed_ns(begun);
    if is_answered {
        out.settle(Some(&context.store));
        let kind = if S::COUNTS_FOR_PREFIX { Kind::Get } else { Kind::MetaGet };
        sample(context, (kind, Some(&key)), took_ns);
        fetched(context, &key);
        if S::COUNTS_FOR_PREFIX {
            let found = context.counters.get_hits.get() - hits;
            count_get_for_prefix(context, &key, found);
        }
    }
    is_answered
}

/// Counts a request for the prefix of `key`, if prefixes are counted.
#[inline]
pub(super) fn count_for_prefix(
    context: &Context,
    key: &[u8],
    change: impl FnOnce(&mut PrefixCounts),
) {
    if context.noted.watched.intersects(DETAIL) {
        context.shared.prefixes.count(key, |counts| change(&mut counts.asked));
    }
}

/// If prefixes are counted, counts a lookup of `key` and its `hits` for the key's prefix.
#[inline]
pub(super) fn count_get_for_prefix(context: &Context, key: &[u8], hits: u64) {
    count_for_prefix(context, key, |counts| {
        counts.gets += 1;
        counts.hits += hits;
    });
}

/// Returns when a sampled request begins, in nanoseconds; `None` if the request is not sampled.
#[inline]
pub(super) fn begin(watched: Streams) -> Option<u64> {
    watched.intersects(SAMPLED).then(monotonic_ns)
}

#[inline]
pub(super) fn elapsed_ns(begun: Option<u64>) -> Option<u64> {
    begun.map(|begun| monotonic_ns().saturating_sub(begun))
}

#[inline]
pub(super) fn sample(context: &mut Context, of: (Kind, Option<&[u8]>), took_ns: Option<u64>) {
    if let Some(ns) = took_ns {
        take_sample(context, of, ns);
    }
}

#[cold]
fn take_sample(context: &mut Context, (kind, key): (Kind, Option<&[u8]>), ns: u64) {
    let (weight, goes_on) = context.sampler.take();
    let number = context.sampler.number();
    if !goes_on {
        context.noted.watched = context.noted.watched.without(SAMPLED);
    }
    let bytes = key.and_then(|key| context.value_bytes(key));
    let Some(samples) = context.shared.samples.get(context.column) else { return };
    samples.add(|samples| {
        samples.took(kind, ns, weight);
        if let Some(key) = key {
            samples.hot.asked(key, (weight, number));
        }
        if let (Some(key), Some(bytes)) = (key, bytes) {
            samples.hot.seen(key, bytes);
        }
    });
}

/// If lookups are watched, notes the lookup of a request that stores or deletes. A request whose
/// value is incomplete makes no lookup. Returns the position before the note.
pub(super) fn looks_up(context: &mut Context, request: &Request<'_>) -> Mark {
    let (mark, mut place) = (context.noted.mark(), None);
    let is_whole = match request {
        Request::Store(store) => store.terminated,
        Request::Meta(meta) => meta.terminated,
        _ => true,
    };
    if is_whole && context.noted.watched.intersects(Streams::FETCHERS) {
        let key = match request {
            Request::Meta(meta) => Flags::parse(meta).ok().map(|flags| flags.key(meta, &mut place)),
            _ => Kind::of(request).1,
        };
        key.into_iter().for_each(|key| looked_up(context, key));
    }
    mark
}

/// Records a large value even if its request is not sampled, because large values are rare.
pub(super) fn large(context: &Context, request: &Request<'_>, bytes: u32) {
    if let (_, Some(key)) = Kind::of(request)
        && let Some(samples) = context.shared.samples.get(context.column)
    {
        samples.add(|samples| samples.hot.seen(key, bytes));
    }
}

/// Notes that the item of `key` was looked up, if lookups are watched.
#[inline]
pub(super) fn fetched(context: &mut Context, key: &[u8]) {
    if context.noted.watched.intersects(Streams::FETCHERS) {
        looked_up(context, key);
    }
}

#[cold]
fn looked_up(context: &mut Context, key: &[u8]) {
    let bytes = context.value_bytes(key);
    let what = Item::Get { found: bytes.is_some(), descriptor: context.noted.descriptor };
    item(context, Streams::FETCHERS, key, bytes.unwrap_or(0), what);
}

/// If stores are watched, notes the result of storing a value of `bytes` bytes, or the refusal of a
/// value before its arrival. If `counts` is true, also counts a set for the key's prefix.
#[inline]
pub(super) fn stored(
    context: &mut Context,
    (put, bytes): (&Put<'_>, u64),
    stored: Result<PutResult, StoreError>,
    counts: bool,
) {
    if context.noted.watched.intersects(Streams::MUTATIONS.with(DETAIL)) {
        note_stored(context, (put, bytes), stored, counts);
    }
}

#[cold]
#[inline(never)]
fn note_stored(
    context: &mut Context,
    (put, bytes): (&Put<'_>, u64),
    stored: Result<PutResult, StoreError>,
    counts: bool,
) {
    let status = match stored {
        Ok(PutResult::Stored { .. }) => "stored",
        Ok(PutResult::NotStored) => "not_stored",
        Ok(PutResult::Exists) => "exists",
        Ok(PutResult::NotFound) => "not_found",
        Err(refused) if context.waits(refused) => return,
        Err(StoreError::TooLarge) => "too_large",
        Err(StoreError::NoMemory | StoreError::Later) => "no_memory",
    };
    if counts {
        count_for_prefix(context, put.key, |counts| counts.sets += 1);
    }
    if !context.noted.watched.intersects(Streams::MUTATIONS) {
        return;
    }
    let command = match put.verb {
        Verb::Set => "set",
        Verb::Add => "add",
        Verb::Replace => "replace",
        Verb::Append | Verb::AppendVivify => "append",
        Verb::Prepend | Verb::PrependVivify => "prepend",
        Verb::Cas => "cas",
    };
    // Like memcached, reports a refused value with length 0 and exptime 0, and an append with the
    // length and exptime of the whole value.
    let (bytes, exptime) = match stored {
        Err(_) => (0, 0),
        Ok(PutResult::Stored { value_bytes, .. }) if put.verb.extends() => {
            (value_bytes, exptime(context, put.key))
        }
        _ => (u32::try_from(bytes).unwrap_or(u32::MAX), put.exptime),
    };
    let ttl = exptime.saturating_sub(context.clock.now);
    let descriptor = context.noted.descriptor;
    let what = Item::Store { status, command, ttl, descriptor };
    item(context, Streams::MUTATIONS, put.key, bytes, what);
}

/// If deletions are watched, returns the length of the key's value for the note; otherwise 0.
#[inline]
pub(super) fn bytes_to_delete(context: &mut Context, key: &[u8]) -> u32 {
    match context.noted.watched.intersects(Streams::DELETIONS) {
        true => context.value_bytes(key).unwrap_or(0),
        false => 0,
    }
}

/// Notes that the item of `key` was deleted, if deletions are watched.
#[inline]
pub(super) fn deleted(context: &mut Context, key: &[u8], bytes: u32, command: &str) {
    if context.noted.watched.intersects(Streams::DELETIONS) {
        item(context, Streams::DELETIONS, key, bytes, Item::Deleted { command });
    }
}

/// Notes the items that the store has evicted in this loop.
#[cold]
pub(super) fn evictions(context: &mut Context) {
    let now = context.clock.now;
    let (evicted, lost) = context.store.take_evictions();
    let watched = context.noted.watched;
    let (is_told, is_counted) =
        (watched.intersects(Streams::EVICTIONS), watched.intersects(DETAIL));
    if is_told {
        context.counters.log_worker_dropped.add(lost);
    }
    for gone in evicted {
        if is_counted {
            context.shared.prefixes.count(&gone.key, |counts| counts.evictions += 1);
        }
        if !is_told {
            continue;
        }
        let ttl = match gone.exptime {
            0 => -1,
            exptime => i64::from(exptime) - i64::from(now),
        };
        let what = Item::Eviction { fetched: gone.fetched, ttl, idle_seconds: gone.idle_seconds };
        item(context, Streams::EVICTIONS, &gone.key, gone.value_bytes, what);
    }
}
