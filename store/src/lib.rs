//! The store: a map from keys to items. A read takes no lock; a write locks a group of the index.
//!
//! Where: the server calls the store, which does no I/O and knows no protocol.
//! Invariant: `Store::memory_bytes` limits the memory of items, index and all per-item state
//! together. No operation scans, grows or frees more than a bounded amount of memory.
//! Source: the KV-Cache paper, sections 4.2.2 and 4.2.3 (lock-free lookups, NbQ-CLOCK).

mod aging;
#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod calendar;
mod cas;
mod column;
mod delta;
mod digits;
mod draft;
mod dump;
mod engine;
#[cfg(shuttle)]
mod evicted;
mod evictions;
mod extend;
mod flush;
mod growth;
mod handle;
mod harvest;
mod hash;
mod index;
mod index_room;
mod item;
mod limit;
mod link;
mod log;
mod maintain;
mod meta;
mod mrc;
pub mod policy;
mod put;
mod queue;
mod read;
mod repack;
mod rewrite;
mod room;
#[cfg(all(test, shuttle))]
mod shared_writes;
mod stamp;
mod stats;
mod sweep;
mod usage;
mod verbs;

pub use column::Column;
pub use draft::{Draft, SPACES_MAX};
pub use dump::{DumpEntry, DumpPlace};
#[cfg(shuttle)]
pub use evicted::set_eviction_hook;
pub use evictions::EvictionRecord;
pub use handle::ValueRef;
pub use hash::{HASH_NAME, PrefetchedHash};
pub use limit::OutOfBounds;
pub use memory::frames::{Pinned, PinnedPieces};
pub use read::Head;
pub use stats::Stats;
pub use usage::Usage;
pub use verbs::{
    AppendedPart, Body, DeleteResult, Delta, DeltaResult, HeadResult, Hit, LookupResult,
    MetaDelete, MetaGet, MetaHit, MetaStep, Put, PutResult, ReplyTemplate, StoreError, Value, Verb,
    Vivify, Word,
};

use aging::Aging;
use growth::Growth;
use harvest::Harvest;
use hash::KeyHash;
use index::Index;
use item::Layout;
use limit::Limit;
use log::Log;
use memory::arena::Arena;
use memory::frames::Memory;
use memory::nodes::Nodes;
use memory::segments::State;
use memory::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Counter, Mutex, Ordering};
use mrc::Mrc;
use policy::{Eviction, GhostScope, Queue, Share};
use room::Drain;
use stats::Counters;
use std::{io, sync::Arc};

/// Percentage of a full store's memory that items take; open and free segments take the rest.
const ITEMS_PERCENT: u64 = 97;
/// At the start the index takes at most 1 / `INDEX_START_PART` of the memory.
const INDEX_START_PART: usize = 4;
/// A store with this many bytes of memory or more asks for huge pages for its index.
const HUGE_INDEX_FROM_BYTES: usize = 256 << 20;

/// The settings of a new store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Initial limit, in bytes, of the memory of items, index and all per-item state together.
    pub memory_bytes: usize,
    /// Maximum size of an item in bytes, counted like memcached's `-I`.
    pub item_bytes_max: usize,
    /// Maximum number of columns that `Store::column` returns.
    pub columns: usize,
    /// The eviction policy. `None` (`-M`): no item is evicted, and a full store refuses new items.
    pub eviction: Option<Eviction>,
    /// True if items have CAS uniques; false with `-C`.
    pub cas: bool,
    /// The time of the store's clock at the start, in seconds.
    pub now: u32,
}

/// Settings for the start of a store. These settings cannot be changed later.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The index starts with lines for this number of items, but with at most a quarter of the
    /// memory. The index becomes smaller than at the start only if the memory limit is lowered.
    pub items: u64,
    /// If true, the store asks the system for huge pages for all its memory, whatever its size.
    pub huge_pages: bool,
    /// The NUMA node of each column. A column prefers memory of its own node.
    pub nodes: Nodes,
    /// Arena for values of `arena_value_bytes_min` bytes or more, used while it has free chunks.
    pub arena: Option<Arc<Arena>>,
    /// Minimum length in bytes of a value that is stored in the arena; 0 means 1.
    pub arena_value_bytes_min: usize,
    /// Seed for the hash of keys, so that a program can repeat a run exactly. If `None`, the seed
    /// is random, so that no client can choose keys that collide.
    pub hash_seed: Option<u64>,
}

/// The store, which all columns share.
#[derive(Debug)]
pub struct Store {
    config: Config,
    layout: Layout,
    /// A value of at most this length is stored in the log, even if there is an arena.
    log_bytes_max: u32,
    hash: KeyHash,
    index: Index,
    log: Log,
    limit: CachePadded<Limit>,
    growth: CachePadded<Growth>,
    /// Bit `n` is 1 while a column uses the drain token `n`.
    tokens: CachePadded<AtomicU64>,
    /// Unfinished drains of columns whose threads sleep.
    parked: Mutex<Vec<Drain>>,
    harvest: Harvest,
    expires_unasked: AtomicBool,
    columns_taken: AtomicUsize,
    counters: Box<[CachePadded<Counters>]>,
    /// True if the policy puts a new item into the probation queue unless the ghost knows its key.
    has_probation: bool,
    /// Target share (0 to 1) of the probation queue in all live bytes, as the bits of an `f64`.
    share: CachePadded<AtomicU64>,
    mrc: Mrc,
    aging: Aging,
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
    pub fn with_start(config: &Config, start: Start) -> Result<Arc<Store>, MakeError> {
        let failed = |error| MakeError::Map(config.memory_bytes, error);
        let columns = config.columns.max(1);
        let (memory, index) = Self::reserve(config, &start).map_err(failed)?;
        let segment_bytes = memory.region.segment_bytes() as usize;
        let admits = |remembered| config.eviction.map(|policy| policy.admit(remembered));
        let has_probation = [false, true].map(admits).contains(&Some(Queue::Probation));
        let limit = Limit::new(config, has_probation, memory.segments.count());
        let tokens_most = limit.tokens_most;
        let window_percent = config.eviction.map_or(0, |policy| policy.window_percent());
        let window_percent = u32::try_from(window_percent).unwrap_or(100);
        if start.huge_pages {
            memory.region.want_huge();
        }
        if start.huge_pages || config.memory_bytes >= HUGE_INDEX_FROM_BYTES {
            index.want_huge();
        }
        let start_bytes = index.granted_bytes();
        let of_index = start_bytes.div_ceil(segment_bytes);
        for segment in (0..of_index).map_while(|_| memory.segments.take(0)) {
            memory.segments.get(segment).set_state(State::Index);
        }
        index.grant((of_index * segment_bytes).saturating_sub(start_bytes));
        let layout = Layout { cas: config.cas, frame_bytes: memory.frames.frame_bytes() };
        let harvest = Harvest::new(memory.segments.count_max(), segment_bytes.ilog2());
        let log = Log::new(Arc::new(memory), tokens_most, tokens_most, window_percent);
        let below_arena = u32::try_from(start.arena_value_bytes_min.saturating_sub(1));
        let log_bytes_max = match (&start.arena, below_arena) {
            (Some(_), Ok(bytes)) => bytes.min(layout.frame_bytes),
            _ => layout.frame_bytes,
        };
        Ok(Arc::new(Store {
            layout,
            log_bytes_max,
            hash: start.hash_seed.map_or_else(KeyHash::new, KeyHash::seeded),
            index,
            log: log.map_err(failed)?,
            limit: CachePadded(limit),
            growth: CachePadded(Growth::default()),
            tokens: CachePadded(AtomicU64::new(0)),
            parked: Mutex::new(Vec::with_capacity(tokens_most as usize)),
            harvest,
            expires_unasked: AtomicBool::new(true),
            columns_taken: AtomicUsize::new(0),
            counters: (0..columns).map(|_| CachePadded(Counters::default())).collect(),
            has_probation,
            share: CachePadded(AtomicU64::new(
                config.eviction.map_or(0.0, |one| one.share().0).to_bits(),
            )),
            mrc: Mrc::new(),
            aging: Aging::new(config.now),
            config: config.clone(),
        }))
    }

    /// Reserves address space, also for more memory than `config` says, so that the limit can rise.
    fn reserve(config: &Config, start: &Start) -> io::Result<(Memory, Index)> {
        let growth = memory::region::growth();
        let (bytes, columns) = (config.memory_bytes, config.columns.max(1));
        let memory = Memory::with_nodes(start.nodes.clone(), bytes, growth, columns)?
            .with_arena(start.arena.clone());
        let segment_bytes = memory.region.segment_bytes() as usize;
        let bytes_max = memory.segments.count_max() as usize * segment_bytes;
        // If address space is scarce, the index gets enough for items with at least 6 bytes of key
        // and value. Smaller items fill the index before the memory is full (`Room::make_slots`).
        let bytes_max = if growth > 1 { bytes_max } else { bytes_max / 2 };
        let lines = Index::lines_for(start.items, config.memory_bytes / INDEX_START_PART);
        let index = Index::new(
            bytes_max,
            lines.max(Self::lines_least(segment_bytes)),
            config.eviction.map_or(GhostScope::None, Eviction::remembered),
        )?;
        Ok((memory, index))
    }

    /// Minimum number of lines of the index at the start. The lines take half a segment, which
    /// leaves the other half to group words and overflow lines.
    fn lines_least(segment_bytes: usize) -> u64 {
        8 << (segment_bytes / 1024).ilog2()
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
        self.expires_unasked.load(Ordering::Relaxed)
    }

    /// Switches the removal of expired items by background work on or off. Returns the old setting.
    pub fn set_expires_unasked(&self, on: bool) -> bool {
        self.expires_unasked.swap(on, Ordering::Relaxed)
    }

    /// Returns the next column.
    ///
    /// # Panics
    /// All `Config::columns` columns exist already; no two columns may have the same number.
    #[must_use]
    pub fn column(self: &Arc<Self>) -> Column {
        let id = self.columns_taken.fetch_add(1, Ordering::Relaxed); // uniqueness needs no order
        assert!(id < self.counters.len(), "more columns taken than configured");
        Column::new(Arc::clone(self), id)
    }

    /// Sums the counters of all columns. An operation that runs meanwhile may be counted in part.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.counters.iter().for_each(|counters| counters.add_to(&mut stats));
        stats.hash_bytes = self.index.bytes() as u64;
        stats.hash_overflow_bytes = self.index.overflow_bytes() as u64;
        stats.hash_power_level = self.index.home_slots().ilog2();
        stats.dead_bytes = whole(stats.dead_bytes.wrapping_add(self.log.dead_bytes()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let percent = (self.share().0 * 100.0).round() as u64;
        stats.probation_percent = percent;
        stats
    }

    fn share(&self) -> Share {
        Share(f64::from_bits(self.share.load(Ordering::Relaxed))) // a hint
    }

    /// Changes the probation queue's target share after a SET of a key that the ghost remembers as
    /// evicted from queue `from`. If two columns call this function at once, a change may be lost.
    fn rebalance(&self, from: Queue, item_bytes: u64) {
        let Some(policy) = self.config.eviction else { return };
        let all_bytes = self.memory_bytes() as u64;
        let Share(share) = policy.rebalance(self.share(), from, item_bytes, all_bytes);
        self.share.store(share.to_bits(), Ordering::Relaxed); // a hint
    }

    /// Approximate mean bytes of a linked item, with its frames.
    fn mean_item_bytes(&self) -> u32 {
        let (probation_bytes, main_bytes) = self.live_bytes();
        let items = self.sum(|counters| &counters.curr_items).max(1);
        u32::try_from((probation_bytes + main_bytes) / items).unwrap_or(u32::MAX)
    }

    fn sum(&self, gauge: fn(&Counters) -> &Counter) -> u64 {
        let columns = self.counters.iter().map(|counters| gauge(counters).get());
        whole(columns.fold(0, u64::wrapping_add))
    }

    /// Estimates the bytes of linked items, with their frames, in the probation and the main queue.
    fn live_bytes(&self) -> (u64, u64) {
        let probation = self.sum(|counters| &counters.probation_bytes);
        (probation, self.sum(|counters| &counters.bytes).saturating_sub(probation))
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

    fn memory(&self) -> &Arc<Memory> {
        &self.log.memory
    }

    fn frame_bytes(&self) -> u32 {
        self.memory().frames.frame_bytes()
    }
}

/// Returns a gauge's sum, or 0 while the sum is below 0 because an addition was not seen yet.
fn whole(sum: u64) -> u64 {
    if sum > i64::MAX as u64 { 0 } else { sum }
}
