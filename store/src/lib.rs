//! key -> item. (stub of the interface, being filled)
mod column;
mod verbs;
pub use column::Column;
pub use verbs::{
    Body, Counted, Deleted, Delta, Hit, MetaDelete, MetaGet, MetaHit, MetaStep, Put, Refused,
    Stored, Value, Verb, Vivify,
};
use std::sync::Arc;

/// What a store is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bounds items, index and all per-item state.
    pub memory_bytes: usize,
    /// memcached's `-I`.
    pub item_bytes_max: usize,
    /// Number of `Column`s that will be taken.
    pub columns: usize,
    /// False: errors instead of eviction (`-M`).
    pub evict: bool,
    /// False: no CAS uniques (`-C`).
    pub cas: bool,
    /// The clock at the start, in seconds.
    pub now: u32,
}

/// The one shared store.
#[derive(Debug)]
pub struct Store {}

/// Why a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The system gave no memory.
    #[error("cannot reserve {0} bytes of address space: {1}")]
    Map(usize, std::io::Error),
}

impl Store {
    /// Reserves the memory.
    ///
    /// # Errors
    /// The system refuses the address space.
    pub fn new(_config: &Config) -> Result<Arc<Store>, MakeError> {
        Ok(Arc::new(Store {}))
    }

    /// Takes the next column; at most `Config::columns` live at a time.
    #[must_use]
    pub fn column(self: &Arc<Self>) -> Column {
        Column {}
    }

    /// Sums over all columns; consistent to within what they do meanwhile.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
}

/// The store's own counters. All but the first block only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items linked now.
    pub curr_items: u64,
    /// Bytes of linked items: key, value, overhead in the log and in frames.
    pub bytes: u64,
    /// Bytes the index takes now.
    pub hash_bytes: u64,
    /// log2 of the index's slots, rounded down.
    pub hash_power_level: u32,
    /// Items ever linked.
    pub total_items: u64,
    /// Live items dropped to make room.
    pub evictions: u64,
    /// Of these, never fetched.
    pub evicted_unfetched: u64,
    /// Items found expired or flushed and dropped when room was made.
    pub reclaimed: u64,
    /// Expired items never fetched.
    pub expired_unfetched: u64,
    /// Expired items dropped by the background walk.
    pub crawler_reclaimed: u64,
    /// Items looked at by the background walk.
    pub crawler_items_checked: u64,
    /// Lookups that found an expired item.
    pub get_expired: u64,
    /// Lookups that found a flushed item.
    pub get_flushed: u64,
    /// cas that matched.
    pub cas_hits: u64,
    /// cas that differed.
    pub cas_badval: u64,
    /// cas on a miss.
    pub cas_misses: u64,
}

/// A value on its way in: frames fill up as bytes arrive. Dropping it gives them back.
#[derive(Debug)]
pub struct Draft {}

impl Draft {
    /// Free space to receive into next, at most what the value still lacks; empty when it is full.
    ///
    /// # Errors
    /// `Refused::NoMemory`: the value cannot be finished; drop the draft and swallow the rest.
    pub fn space(&mut self, _column: &mut Column) -> Result<&mut [u8], Refused> {
        Err(Refused::NoMemory)
    }

    /// `bytes` of `space` have been written.
    pub fn filled(&mut self, _bytes: usize) {}

    /// Bytes of the value not yet received.
    #[must_use]
    pub fn missing_bytes(&self) -> usize {
        0
    }
}

/// A large value's body, pinned: `Send`, cheap to clone, readable by any thread until dropped.
#[derive(Debug)]
pub struct Pinned {}

impl Pinned {
    /// Its bytes, in order, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::empty()
    }

    /// Sum of the pieces.
    #[must_use]
    pub fn bytes(&self) -> usize {
        0
    }
}
