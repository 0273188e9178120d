//! The store: a map from keys to items. A read takes no lock; a write locks a group of the index.
//!
//! Where: the server calls the store, which does no I/O and knows no protocol.
//! Invariant: `Store::memory_bytes` limits the memory of items, index and all per-item state
//! together. No operation scans, grows or frees more than a bounded amount of memory.
//! A request meets the modules in this order: `column` (a thread's access), `verbs` (the requests),
//! `engine` (finds, writes and links items), `index` and `item`, `log` (places for items), `room`
//! (space for places) and `policy` (the choice of victims). `upkeep` works between requests, and
//! `stats` counts. All columns refer to `shared`.
//! Source: the KV-Cache paper, sections 4.2.2 and 4.2.3 (lock-free lookups, NbQ-CLOCK).

mod column;
mod config;
mod engine;
mod error;
mod index;
mod item;
mod log;
pub mod policy;
mod room;
mod shared;
mod stats;
mod upkeep;
mod verbs;

pub use column::Column;
pub use column::handle::ValueRef;
pub use config::{Config, Start};
pub use engine::draft::{Draft, SPACES_MAX};
pub use error::StoreError;
pub use index::hash::{HASH_NAME, PrefetchedHash};
pub use memory::frames::{Pinned, PinnedPieces};
pub use room::limit::OutOfBounds;
pub use stats::Stats;
#[cfg(shuttle)]
pub use stats::evicted::set_eviction_hook;
pub use stats::evictions::EvictionRecord;
pub use stats::usage::Usage;
pub use verbs::dump::{DumpEntry, DumpPlace};
pub use verbs::get::Head;
pub use verbs::{
    AppendedPart, Body, DeleteResult, Delta, DeltaResult, HeadResult, Hit, LookupResult,
    MetaDelete, MetaGet, MetaHit, MetaStep, Put, PutResult, Value, Verb, Vivify,
};

use memory::sync::{AtomicUsize, Ordering};
use room::Chores;
use shared::Shared;
use std::ops::Deref;
use std::{io, sync::Arc};

/// Percentage of a full store's memory that items take; open and free segments take the rest.
const ITEMS_PERCENT: u64 = 97;

/// The store, which all columns share.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    chores: Arc<Chores>,
    columns_taken: AtomicUsize,
}

impl Deref for Store {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// The reason why a store cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The system gave no memory, or the size is out of range.
    #[error("cannot reserve {0} bytes of address space: {1}")]
    Map(usize, io::Error),
}

impl Store {
    /// Makes a store, and reserves its memory.
    ///
    /// # Errors
    /// The size is below 1 MiB or above 1 TiB, or the system refuses the address space.
    pub fn new(config: &Config) -> Result<Arc<Store>, MakeError> {
        Self::with_start(config, Start::default())
    }

    /// Like `new`, but with the settings of `start`.
    ///
    /// # Errors
    /// Like `new`.
    pub fn with_start(config: &Config, start: Start) -> Result<Arc<Store>, MakeError> {
        let failed = |error| MakeError::Map(config.memory_bytes, error);
        let shared = Arc::new(Shared::new(config, &start).map_err(failed)?);
        let chores = Arc::new(Chores::new(&shared));
        Ok(Arc::new(Store { shared, chores, columns_taken: AtomicUsize::new(0) }))
    }

    /// True if the store asks the system for huge pages for its segments.
    #[must_use]
    pub fn wants_huge_pages(&self) -> bool {
        self.memory().region.wants_huge()
    }

    /// Asks the system to take memory for log and frames from the columns' NUMA nodes. Must be
    /// called before the columns start. If there is only one node, this call does nothing.
    ///
    /// # Errors
    /// The system does not know the nodes, or does not allow the call. Then each page of memory is
    /// taken from the node of the column that first uses the page.
    pub fn place_memory(&self) -> io::Result<()> {
        self.memory().prefer_nodes()
    }

    /// True if background work removes expired items; true for a new store.
    #[must_use]
    pub fn expires_unasked(&self) -> bool {
        // Relaxed, here and in `set_expires_unasked`: no other data depends on the switch.
        self.chores.expires_unasked.load(Ordering::Relaxed)
    }

    /// Switches the removal of expired items by background work on or off. Returns the old setting.
    pub fn set_expires_unasked(&self, on: bool) -> bool {
        let was = self.chores.expires_unasked.swap(on, Ordering::Relaxed);
        self.log.note_change();
        was
    }

    /// Returns the next column.
    ///
    /// # Panics
    /// All `Config::columns` columns exist already; no two columns may have the same number.
    #[must_use]
    pub fn column(&self) -> Column {
        let id = self.columns_taken.fetch_add(1, Ordering::Relaxed); // uniqueness needs no order
        assert!(id < self.counters.len(), "more columns taken than configured");
        Column::new(Arc::clone(&self.shared), Arc::clone(&self.chores), id)
    }

    /// Estimates the misses per lookup of an LRU with each of the memory sizes in `memory_bytes`,
    /// from the latest lookups of a sample of keys. Returns `None` before the first lookup.
    #[must_use]
    pub fn miss_ratios<const N: usize>(&self, memory_bytes: [u64; N]) -> Option<[f64; N]> {
        self.mrc.miss_ratios(memory_bytes.map(|bytes| bytes / 100 * ITEMS_PERCENT))
    }

    /// Returns n if one key in n is sampled for `miss_ratios`.
    #[must_use]
    pub fn sampled_one_in(&self) -> u64 {
        self.mrc.one_in()
    }

    /// The time of the store's clock. Columns set it; 0 before the first column has set it.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.log.now()
    }

    /// True if the index grows, because it has more items than its lines should hold.
    #[must_use]
    pub fn index_is_expanding(&self) -> bool {
        self.index.wants_to_grow()
    }

    /// Bytes of all segments, including the index's, that are neither free nor retired.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let segments = &self.memory().segments;
        let idle = segments.free() + segments.limbo();
        let taken = self.memory().present().saturating_sub(idle);
        taken as usize * self.memory().region.segment_bytes() as usize
    }

    /// Bytes of the arena's chunks that may hold values; `memory_bytes` does not limit these bytes.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.memory().arena().map_or(0, |arena| arena.value_bytes())
    }

    /// Size of a segment in bytes.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.memory().region.segment_bytes().into()
    }

    /// Number of free segments.
    #[must_use]
    pub fn free_segments(&self) -> u32 {
        self.memory().segments.free()
    }

    /// For tests: lets a retired segment be reused at once, even while a reader still reads it.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn plant_early_reuse(&self) {
        self.memory().quiescence.plant_early_reuse();
    }

    /// For tests: while `on`, no retired segment is reused, as if a column hung in an operation.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    pub fn plant_stall(&self, on: bool) {
        self.memory().quiescence.plant_stall(on);
    }

    /// For tests of `plant_stall`: true if a thread has taken a segment off the free lists, to use
    /// it, populate it or give its memory back, but has not done so yet.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn has_segment_in_hand(&self) -> bool {
        self.usage_estimate().segments_free != u64::from(self.memory().segments.free())
    }
}
