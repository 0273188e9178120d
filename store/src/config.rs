//! The settings of a store.
//!
//! Where: a program makes a store from a `Config` and, if it needs more, a `Start`.
//! Invariant: the settings never change; `limit` has the present limit of the memory.

use crate::policy::Eviction;
use memory::arena::Arena;
use memory::nodes::Nodes;
use std::sync::Arc;

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
