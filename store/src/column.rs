//! A column: one thread's access to the store. Every operation goes through a column.
//!
//! Where: called by the server's executor for each request. The operations on a key are in `read`,
//! `put`, `delta` and `meta`.
//! Invariant: a function that may pass a quiescent point takes `&mut Column`, and a lookup's result
//! borrows the column: no reference into the log crosses a quiescent point (`handle` ensures the
//! same within an operation).

use crate::Store;
use crate::cas::Uniques;
use crate::flush::FlushWalk;
use crate::handle::{Handle, Kept};
use crate::policy::room::REWRITTEN_BYTES_MAX;
use crate::room::Room;
use std::sync::Arc;

/// One thread's access to the store. Another thread may take it over, but none may share it.
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

    /// Sets the column's clock to `now`, in seconds; the clock starts at `Config::now`. A second
    /// that is earlier than the clock's is ignored.
    pub fn set_now(&mut self, now: u32) {
        if self.handle.set_now(now) {
            // Items that have expired since may make room.
            self.room.full_appends = 0;
            self.handle.view().flush_due();
        }
    }

    /// Executes `flush_all`: once the clock reaches second `oldest_live` (memcached's
    /// `settings.oldest_live`), all items stored up to and including that second are gone. `None`
    /// removes all items stored until now, at once. Replaces a flush that is still pending.
    pub fn flush(&mut self, oldest_live: Option<u32>) {
        self.handle.view().flush(oldest_live);
    }

    /// Passes a quiescent point: memory that the column has read may be reused. Called once a loop.
    pub fn quiesce(&mut self) {
        self.handle.pass();
    }

    /// To be called before the thread blocks: memory is then reused without waiting for the column.
    pub fn offline(&mut self) {
        self.room.park_drain(self.handle.view());
        self.handle.offline();
    }

    /// To be called after the thread has woken up, before its first operation.
    pub fn online(&mut self) {
        self.handle.pass();
    }

    /// The value that a lookup of this column found. `None`: the column has passed a quiescent
    /// point since that lookup.
    #[must_use]
    pub fn kept(&self, kept: Kept) -> Option<&[u8]> {
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
