//! A column's hold on the store: every operation goes through one of these, one per thread.
//!
//! Where: called by the server's executor for each request.
//! Invariant: no reference into the log outlives the borrow of the `Column` it came from, and
//! `quiesce`, `offline` and everything that may make room take `&mut self`: so no store reference
//! crosses a quiescent point.

use crate::policy::room::{Debt, REWRITTEN_BYTES_MAX};
use crate::room::{Drain, Full};
use crate::stats::Counters;
use crate::verbs::{
    Around, Body, Counted, Deleted, Delta, Head, Hit, Looked, MetaDelete, MetaGet, MetaHit, Put,
    Refused, Stored, Wants,
};
use crate::{Draft, Store};
use std::sync::Arc;

/// One thread's hold on the store. `Send`, not to be shared.
#[derive(Debug)]
pub struct Column {
    pub(crate) store: Arc<Store>,
    pub(crate) local: Local,
}

/// What a column keeps to itself.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) id: usize,
    pub(crate) now: u32,
    /// The minute of `now`, as items keep it, at hand for each of them: wraps after 45 days, see
    /// `idle_seconds`.
    pub(crate) minute: u16,
    /// CAS uniques taken and not handed out yet.
    pub(crate) cas: std::ops::Range<u64>,
    /// Items linked and not yet reported to the index.
    pub(crate) items: i64,
    pub(crate) drain: Option<Drain>,
    pub(crate) debt: Debt,
    /// Appends to go before room is looked for again where there was none to be made.
    pub(crate) rest: u32,
    pub(crate) full: Full,
    /// The key for which the index lacked a line when it was last to come later.
    pub(crate) lacks_line: Option<u64>,
    /// The background walk: the second it last began in, and the next segment to look at.
    pub(crate) walk: (u32, u32),
    pub(crate) random: u64,
    /// Lookups since one of a sampled key.
    pub(crate) lookups: u64,
    /// The short value that an operation found.
    pub(crate) copied: Box<[u8; REWRITTEN_BYTES_MAX]>,
}

impl Column {
    pub(crate) fn new(store: Arc<Store>, id: usize) -> Self {
        let local = Local {
            id,
            now: store.config.now,
            minute: minute_of(store.config.now),
            cas: 0..0,
            items: 0,
            drain: None,
            debt: Debt::default(),
            rest: 0,
            full: Full::default(),
            lacks_line: None,
            walk: (store.config.now, u32::MAX),
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(id as u64 + 1),
            lookups: 0,
            copied: Box::new([0; REWRITTEN_BYTES_MAX]),
        };
        store.log.set_now(local.now);
        let column = Self { store, local };
        column.local.pass(&column.store);
        column
    }

    /// Sets the clock, in seconds since the store was made (plus its start offset). Never goes
    /// back.
    pub fn set_now(&mut self, now: u32) {
        let Self { store, local } = self;
        if now > local.now {
            (local.now, local.minute) = (now, minute_of(now));
            // What has expired may be room.
            local.full = Full::default();
            store.log.set_now(now);
            local.flush_due(store);
        }
    }

    /// The column's quiescent point, once per loop: lets memory this column may have been reading
    /// be reused.
    pub fn quiesce(&mut self) {
        self.local.pass(&self.store);
    }

    /// Before the thread blocks: memory may be reused without asking this column.
    pub fn offline(&mut self) {
        self.local.report_items(&self.store);
        self.local.park_drain(&self.store);
        self.store.memory().quiescence.offline(self.local.id);
    }

    /// After the thread woke, before its first operation.
    pub fn online(&mut self) {
        self.local.pass(&self.store);
    }

    /// A bounded slice of background work (expiry, making room ahead of need, index growth). True =
    /// more to do now.
    pub fn maintain(&mut self) -> bool {
        self.local.maintain(&self.store)
    }

    /// As `Store::wants_ahead`.
    #[inline]
    #[must_use]
    pub fn wants_ahead(&self) -> bool {
        self.store.wants_ahead()
    }

    /// Looks `key` up and counts it as used.
    #[inline]
    pub fn get(&mut self, key: &[u8]) -> Option<Hit<'_>> {
        let Self { store, local } = self;
        local.get(store, key)
    }

    /// As `get`, of the key that `hash` was made from; what it has goes to the end of `out`: what
    /// `head` appends, which may be called and undone several times, and what that says is to
    /// follow. Where it calls the lookup off, that counts as none, and the caller asks otherwise.
    #[inline]
    pub fn get_into(
        &mut self,
        key: &[u8],
        hash: Prefetched,
        out: &mut Vec<u8>,
        head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> Wants,
    ) -> Looked<'_> {
        self.get_around(key, hash, out, |_| None, head)
    }

    /// As `get_into`, but where the value is short and `around` says what stands around it, the
    /// whole reply is put together at once.
    #[inline(always)]
    pub fn get_around(
        &mut self,
        key: &[u8],
        hash: Prefetched,
        out: &mut Vec<u8>,
        around: impl FnOnce(&Head<'_>) -> Option<Around>,
        head: impl FnMut(&mut Vec<u8>, &Head<'_>) -> Wants,
    ) -> Looked<'_> {
        let Self { store, local } = self;
        local.get_around(store, hash.0, key, out, around, head)
    }

    /// `get`, and sets its exptime. Where there is no room for one it is a miss.
    ///
    /// # Errors
    /// `Refused::Later` alone.
    pub fn get_and_touch(&mut self, key: &[u8], exptime: u32) -> Result<Option<Hit<'_>>, Refused> {
        let Self { store, local } = self;
        Ok(local.touch(store, key, exptime)?.map(|hit| hit.hit))
    }

    /// Sets its exptime; false on a miss, or where there is no room for one.
    ///
    /// # Errors
    /// `Refused::Later` alone.
    pub fn touch(&mut self, key: &[u8], exptime: u32) -> Result<bool, Refused> {
        let Self { store, local } = self;
        Ok(local.touch(store, key, exptime)?.is_some())
    }

    /// Stores `body` as `put` says.
    ///
    /// # Errors
    /// `Refused` when nothing was stored for want of room or by size; an older item of the key is
    /// then gone if the verb is `Set`, but for `Refused::Later`, which changes nothing.
    #[inline]
    pub fn put(&mut self, put: &Put<'_>, body: Body<'_>) -> Result<Stored, Refused> {
        let hash = self.hashed(put.key);
        self.put_hashed(put, hash, body)
    }

    /// As `put`, of the key that `hash` was made from.
    ///
    /// # Errors
    /// As `put`.
    #[inline]
    pub fn put_hashed(
        &mut self,
        put: &Put<'_>,
        hash: Prefetched,
        body: Body<'_>,
    ) -> Result<Stored, Refused> {
        let Self { store, local } = self;
        match body {
            Body::Bytes(bytes) => local.put_bytes(store, hash.0, put, bytes),
            Body::Draft(_) => local.put(store, hash.0, put, body),
        }
    }

    /// Would a value of this size be taken? Called before its bytes have arrived, with the header's
    /// verb and key: a refused `Set` removes the key's old item.
    ///
    /// # Errors
    /// `Refused::TooLarge`.
    pub fn admit(&mut self, put: &Put<'_>, value_bytes: u64) -> Result<(), Refused> {
        let Self { store, local } = self;
        local.admit(store, put, value_bytes)
    }

    /// Values longer than this live in frames and arrive by `Draft`; shorter ones are given to
    /// `put` as bytes.
    #[must_use]
    pub fn log_value_bytes_max(&self) -> usize {
        self.store.frame_bytes() as usize
    }

    /// A place for a value of `value_bytes` to arrive in, piece by piece. Takes frames only as
    /// bytes arrive.
    #[must_use]
    pub fn draft(&mut self, value_bytes: u32) -> Draft {
        Draft::new(Arc::clone(self.store.memory()), value_bytes)
    }

    /// Deletes; false on a miss.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let Self { store, local } = self;
        local.delete(store, key)
    }

    /// Arithmetic.
    ///
    /// # Errors
    /// `Refused::NoMemory` when there was no room, `Refused::Later` when there is none yet.
    pub fn delta(&mut self, delta: &Delta<'_>) -> Result<Counted, Refused> {
        let Self { store, local } = self;
        local.delta(store, delta)
    }

    /// Meta get. A vivify without room is a miss.
    ///
    /// # Errors
    /// `Refused::Later` alone.
    pub fn meta_get(&mut self, get: &MetaGet<'_>) -> Result<Option<MetaHit<'_>>, Refused> {
        let Self { store, local } = self;
        local.meta_get(store, get)
    }

    /// Meta delete.
    ///
    /// # Errors
    /// `Refused::NoMemory` when the marked or emptied item found no room, `Refused::Later` when
    /// there is none yet.
    pub fn meta_delete(&mut self, delete: &MetaDelete<'_>) -> Result<Deleted, Refused> {
        let Self { store, local } = self;
        local.meta_delete(store, delete)
    }

    /// `flush_all`: everything stored up to and including second `oldest_live` is gone once that
    /// second is reached (memcached's `settings.oldest_live`); `None` = everything stored so far,
    /// now. Replaces a flush still pending.
    pub fn flush(&mut self, oldest_live: Option<u32>) {
        let Self { store, local } = self;
        local.flush(store, oldest_live);
    }

    /// As `prefetch`, but brings nothing near.
    #[inline]
    #[must_use]
    pub fn hashed(&self, key: &[u8]) -> Prefetched {
        Prefetched(self.store.hash.hash(key))
    }

    /// Brings what a lookup of `key` reads first near, for batches. To be given to `prefetch_item`
    /// after the same has been asked for the batch's other keys.
    #[inline]
    #[must_use]
    pub fn prefetch(&self, key: &[u8]) -> Prefetched {
        let hash = self.store.hash.hash(key);
        self.store.index.prefetch(hash);
        Prefetched(hash)
    }

    /// Brings the item near that a lookup of the same key reads next.
    #[inline]
    pub fn prefetch_item(&self, key: Prefetched) {
        let region = &self.store.memory().region;
        if let Some(found) = self.store.index.likely(key.0) {
            let loc = found.slot.loc();
            region.prefetch(loc);
            region.prefetch(loc + LINE_BYTES);
            region.prefetch(loc + 2 * LINE_BYTES);
        }
    }
}

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

/// The hash of a key, whose line of the index may be on its way.
#[derive(Clone, Copy, Debug)]
pub struct Prefetched(u64);

impl Drop for Column {
    fn drop(&mut self) {
        self.offline();
    }
}

impl Local {
    /// A quiescent point.
    pub(crate) fn pass(&self, store: &Store) {
        store.memory().quiescence.pass(self.id);
    }

    pub(crate) fn counters<'s>(&self, store: &'s Store) -> &'s Counters {
        &store.counters[self.id]
    }

    /// Seconds since the minute of an access, never more than the truth: the minute's end is taken.
    pub(crate) fn idle_seconds(&self, minute: u16) -> u32 {
        let minutes = u32::from(self.minute.wrapping_sub(minute));
        (minutes * 60 + self.now % 60).saturating_sub(59)
    }

    /// Tells the index how many items came and went since the last report.
    pub(crate) fn report_items(&mut self, store: &Store) {
        if self.items != 0 {
            store.index.count(std::mem::take(&mut self.items));
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "wraps, as said above")]
fn minute_of(now: u32) -> u16 {
    (now / 60) as u16
}
