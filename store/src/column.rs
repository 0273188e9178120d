//! A column's hold on the store: every operation goes through one of these, one per thread.
//!
//! Where: called by the server's executor for each request.
//! Invariant: no reference into the log outlives the borrow of the `Column` it came from, and `quiesce`, `offline` and
//! everything that may make room take `&mut self`: so no store reference crosses a quiescent point.

use crate::Draft;
use crate::verbs::{
    Body, Counted, Deleted, Delta, Hit, MetaDelete, MetaGet, MetaHit, Put, Refused, Stored,
};

/// One thread's hold on the store. `Send`, not `Sync`.
#[derive(Debug)]
pub struct Column {}

impl Column {
    /// Sets the clock, in seconds since the store was made (plus its start offset). Never goes back.
    pub fn set_now(&mut self, _now: u32) {}

    /// The column's quiescent point, once per loop: lets memory this column may have been reading be reused.
    pub fn quiesce(&mut self) {}

    /// Before the thread blocks: memory may be reused without asking this column.
    pub fn offline(&mut self) {}

    /// After the thread woke, before its first operation.
    pub fn online(&mut self) {}

    /// A bounded slice of background work (expiry, making room ahead of need, index growth). True = more to do now.
    pub fn maintain(&mut self) -> bool {
        false
    }

    /// Looks `key` up and counts it as used.
    pub fn get(&mut self, _key: &[u8]) -> Option<Hit<'_>> {
        None
    }

    /// `get`, and sets its exptime.
    pub fn get_and_touch(&mut self, _key: &[u8], _exptime: u32) -> Option<Hit<'_>> {
        None
    }

    /// Sets its exptime; false on a miss.
    pub fn touch(&mut self, _key: &[u8], _exptime: u32) -> bool {
        false
    }

    /// Stores `body` as `put` says.
    ///
    /// # Errors
    /// `Refused` when nothing was stored for want of room or by size; an older item of the key is then gone if the
    /// verb is `Set`.
    pub fn put(&mut self, _put: &Put<'_>, _body: Body<'_>) -> Result<Stored, Refused> {
        Err(Refused::NoMemory)
    }

    /// Would a value of this size be taken? Called before its bytes have arrived, with the header's verb and key: a
    /// refused `Set` removes the key's old item.
    ///
    /// # Errors
    /// As `put`.
    pub fn admit(&mut self, _put: &Put<'_>, _value_bytes: u64) -> Result<(), Refused> {
        Ok(())
    }

    /// Values longer than this live in frames and arrive by `Draft`; shorter ones are given to `put` as bytes.
    #[must_use]
    pub fn log_value_bytes_max(&self) -> usize {
        16384
    }

    /// A place for a value of `value_bytes` to arrive in, piece by piece. Takes frames only as bytes arrive.
    #[must_use]
    pub fn draft(&mut self, _value_bytes: u32) -> Draft {
        Draft {}
    }

    /// Deletes; false on a miss.
    pub fn delete(&mut self, _key: &[u8]) -> bool {
        false
    }

    /// Arithmetic.
    ///
    /// # Errors
    /// `Refused::NoMemory` when the number grew and there was no room.
    pub fn delta(&mut self, _delta: &Delta<'_>) -> Result<Counted, Refused> {
        Ok(Counted::NotFound)
    }

    /// Meta get.
    ///
    /// # Errors
    /// `Refused::NoMemory` never: a vivify without room is a miss.
    pub fn meta_get(&mut self, _get: &MetaGet<'_>) -> Option<MetaHit<'_>> {
        None
    }

    /// Meta delete.
    ///
    /// # Errors
    /// `Refused::NoMemory` when the emptied item found no room.
    pub fn meta_delete(&mut self, _delete: &MetaDelete<'_>) -> Result<Deleted, Refused> {
        Ok(Deleted::NotFound)
    }

    /// `flush_all`: everything stored up to and including second `oldest_live` is gone once that second is reached
    /// (memcached's `settings.oldest_live`); `None` = everything stored so far, now. Replaces a flush still pending.
    pub fn flush(&mut self, _oldest_live: Option<u32>) {}
}
