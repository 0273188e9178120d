//! A column's hold on the store: every operation goes through one of these, one per thread.
//!
//! Where: called by the server's executor for each request. What is asked about a key stands in
//! `read`, `put`, `delta` and `meta`.
//! Invariant: whatever may pass a quiescent point takes `&mut Column`, and what was looked up
//! borrows it: so no reference into the log crosses one (see `handle`, where the same holds inside
//! an operation).

use crate::Store;
use crate::cas::Uniques;
use crate::flush::FlushWalk;
use crate::handle::{Handle, Kept};
use crate::policy::room::REWRITTEN_BYTES_MAX;
use crate::room::Room;
use std::sync::Arc;

/// One thread's hold on the store. `Send`, not to be shared.
#[derive(Debug)]
pub struct Column {
    pub(crate) handle: Handle,
    pub(crate) room: Room,
    pub(crate) uniques: Uniques,
    pub(crate) flush_walk: FlushWalk,
    /// The short value that the last operation found.
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

    /// Sets the clock, in seconds since the store was made (plus its start offset). Never goes
    /// back.
    pub fn set_now(&mut self, now: u32) {
        if self.handle.set_now(now) {
            // Items that have expired since may make room.
            self.room.full_appends = 0;
            self.handle.view().flush_due();
        }
    }

    /// `flush_all`: everything stored up to and including second `oldest_live` is gone once that
    /// second is reached (memcached's `settings.oldest_live`); `None` = everything stored so far,
    /// now. Replaces a flush still pending.
    pub fn flush(&mut self, oldest_live: Option<u32>) {
        self.handle.view().flush(oldest_live);
    }

    /// The column's quiescent point, once per loop: lets memory this column may have been reading
    /// be reused.
    pub fn quiesce(&mut self) {
        self.handle.pass();
    }

    /// Before the thread blocks: memory may be reused without asking this column.
    pub fn offline(&mut self) {
        self.room.park_drain(self.handle.view());
        self.handle.offline();
    }

    /// After the thread woke, before its first operation.
    pub fn online(&mut self) {
        self.handle.pass();
    }

    /// The value that a lookup of this column found; `None`: the column has passed a quiescent
    /// point since.
    #[must_use]
    pub fn kept(&self, kept: Kept) -> Option<&[u8]> {
        self.handle.view().kept(kept)
    }

    /// As `Store::wants_to_populate`.
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
