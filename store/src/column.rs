//! A column: one thread's access to the store. Every operation goes through a column.
//!
//! Where: the executor calls a column for each request; see `get`, `put`, `delta` and `meta`.
//! Invariant: no reference into the log outlives a quiescent point: a function that may pass a
//! quiescent point takes `&mut Column`, and a lookup's result borrows the column.

pub(crate) mod handle;

use crate::column::handle::{Handle, ValueRef};
use crate::engine::cas::Uniques;
use crate::index::hash::PrefetchedHash;
use crate::policy::room::REWRITTEN_BYTES_MAX;
use crate::room::limit::OutOfBounds;
use crate::room::{Chores, Room};
use crate::shared::Shared;
use crate::stats::evictions::EvictionRecord;
use crate::upkeep::Look;
use crate::upkeep::flush::FlushWalk;
use std::sync::Arc;

const LINE_BYTES: u64 = 64;

/// One thread's access to the store. A column may move to another thread, but is never shared.
#[derive(Debug)]
pub struct Column {
    pub(crate) handle: Handle,
    pub(crate) room: Room,
    pub(crate) uniques: Uniques,
    pub(crate) flush_walk: FlushWalk,
    pub(crate) vain_look: Option<Look>,
    pub(crate) looks: bool,
    /// A copy of the short value that the last operation found.
    pub(crate) copied: Box<[u8; REWRITTEN_BYTES_MAX]>,
}

impl Column {
    pub(crate) fn new(shared: Arc<Shared>, chores: Arc<Chores>, id: usize) -> Self {
        let now = shared.config.now;
        Self {
            handle: Handle::new(shared, id),
            room: Room::new(chores, id),
            uniques: Uniques::default(),
            flush_walk: FlushWalk::new(now),
            vain_look: None,
            looks: false,
            copied: Box::new([0; REWRITTEN_BYTES_MAX]),
        }
    }

    /// Sets the column's clock, in seconds. The clock starts at `Config::now` and never goes back.
    pub fn set_now(&mut self, now: u32) {
        if self.handle.set_now(now) {
            // Appends try to make room again, because more items may have expired.
            self.room.full_appends = 0;
            self.handle.view().flush_due();
        }
    }

    /// Executes `flush_all`. When the clock reaches second `oldest_live` (memcached's
    /// `settings.oldest_live`), all items stored until the end of that second are removed. `None`
    /// removes all items at once. The new flush replaces a pending flush.
    pub fn flush(&mut self, oldest_live: Option<u32>) {
        self.handle.view().flush(oldest_live);
    }

    /// Passes a quiescent point: memory that the column has read may be reused. Call once per loop.
    pub fn quiesce(&mut self) {
        self.handle.pass();
    }

    /// Must be called before the thread blocks: the reuse of memory would wait for this column.
    pub fn offline(&mut self) {
        if let Some(drain) = self.room.drain.take() {
            self.room.park(self.handle.view(), drain);
        }
        self.handle.offline();
    }

    /// Must be called after the thread has woken up, before the column's first operation.
    pub fn online(&mut self) {
        self.handle.pass();
    }

    /// The value that a lookup returned; `None` if a quiescent point was passed since the lookup.
    #[must_use]
    pub fn kept(&self, kept: ValueRef) -> Option<&[u8]> {
        self.handle.view().kept(kept)
    }

    /// The hash of `key`.
    #[inline]
    #[must_use]
    pub fn hashed(&self, key: &[u8]) -> PrefetchedHash {
        PrefetchedHash(self.handle.shared.hash.hash(key))
    }

    /// Returns the hash of `key` and prefetches the key's line of the index. For a batch, call this
    /// function for all keys, and then `prefetch_item` with each hash.
    #[inline]
    #[must_use]
    pub fn prefetch(&self, key: &[u8]) -> PrefetchedHash {
        let hash = self.hashed(key);
        self.handle.shared.index.prefetch(hash.0);
        hash
    }

    /// Prefetches the item that a lookup of the key will read.
    #[inline]
    pub fn prefetch_item(&self, key: PrefetchedHash) {
        let view = self.handle.view();
        let region = &view.shared.memory().region;
        if let Some(found) = view.shared.index.likely(view.moment(), key.0) {
            let loc = found.slot().loc();
            (0..3).for_each(|line| region.prefetch(loc + line * LINE_BYTES));
        }
    }

    /// From now on, records at most `most` evictions between two calls of `take_evictions`.
    pub fn note_evictions(&mut self, most: usize) {
        self.handle.evictions.begin(most);
    }

    /// Takes the records kept since the last call, and the number of evictions without a record.
    pub fn take_evictions(&mut self) -> (Vec<EvictionRecord>, u64) {
        self.handle.evictions.take()
    }

    /// Like `Store::memory_bytes`.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.handle.shared.memory_bytes()
    }

    /// Sets the memory limit. The store may use the memory of a higher limit at once. After a lower
    /// limit, columns move or evict items in slices until the store is within the limit; if the
    /// store has no eviction policy, memory becomes free only by deletes and expiry.
    ///
    /// # Errors
    /// `OutOfBounds`: `memory_bytes` is not one of `Store::limits`, and the limit stays as it was.
    pub fn limit_memory(&mut self, memory_bytes: usize) -> Result<(), OutOfBounds> {
        let Self { handle, room, .. } = self;
        handle.shared.set_limit(memory_bytes)?;
        room.adjust(handle.view());
        Ok(())
    }

    /// Like `Store::wants_to_populate`.
    #[inline]
    #[must_use]
    pub fn wants_to_populate(&self) -> bool {
        self.handle.shared.wants_to_populate()
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        self.offline();
    }
}
