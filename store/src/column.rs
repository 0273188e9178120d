//! A column: one thread's access to the store. Every operation goes through a column.
//!
//! Where: the executor calls a column for each request; see `read`, `put`, `delta` and `meta`.
//! Invariant: no reference into the log outlives a quiescent point: a function that may pass a
//! quiescent point takes `&mut Column`, and a lookup's result borrows the column.

use crate::Store;
use crate::cas::Uniques;
use crate::flush::FlushWalk;
use crate::handle::{Handle, ValueRef};
use crate::policy::room::REWRITTEN_BYTES_MAX;
use crate::room::Room;
use std::sync::Arc;

/// One thread's access to the store. A column may move to another thread, but is never shared.
#[derive(Debug)]
pub struct Column {
    pub(crate) handle: Handle,
    pub(crate) room: Room,
    pub(crate) uniques: Uniques,
    pub(crate) flush_walk: FlushWalk,
    /// A copy of the short value that the last operation found.
    pub(crate) copied: Box<[u8; REWRITTEN_BYTES_MAX]>,
}

impl Column {
    pub(crate) fn new(store: Arc<Store>, id: usize) -> Self {
        let now = store.config.now;
        Self {
            handle: Handle::new(store, id),
            room: Room::new(id),
            uniques: Uniques::default(),
            flush_walk: FlushWalk::new(now),
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
        self.room.park_drain(self.handle.view());
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

    /// Like `Store::wants_to_populate`.
    #[inline]
    #[must_use]
    pub fn wants_to_populate(&self) -> bool {
        self.handle.store.wants_to_populate()
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        self.offline();
    }
}
