//! The real store in process, by bytes: what the engine is to be compared with.
//!
//! Where: beside the engine, with one column. Invariant: memory is what `-m` would bound, index
//! included, so that the store chooses its segments itself.
//! The store's hash is random, so misses differ a little from run to run.

use crate::cache::Cache;
use crate::sizes::{Items, Size};
use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, MakeError, Put, Refused, Store, Stored, Verb};

/// The least memory a store takes.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
const ITEM_BYTES_MAX: usize = 1 << 20;
/// Bytes of a key that tell it from others.
const NUMBER_BYTES: usize = 4;
/// Requests between quiescent points, and between turns of background work.
const BATCH_REQUESTS: u64 = 64;

/// A request is given up after so many shares of work that made no room for it.
const ASKS_MAX: u32 = 1 << 10;

/// A store and what is to be put in it.
pub struct Live<'w> {
    store: Arc<Store>,
    column: Column,
    items: &'w Items,
    key: Vec<u8>,
    value: Vec<u8>,
    requests: u64,
}

impl<'w> Live<'w> {
    /// An empty one of `memory_bytes`.
    ///
    /// # Errors
    /// The store cannot be made.
    pub fn new(memory_bytes: u64, policy: Eviction, items: &'w Items) -> Result<Self, MakeError> {
        let store = Store::new(&Config {
            memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
            item_bytes_max: ITEM_BYTES_MAX,
            columns: 1,
            eviction: Some(policy),
            cas: true,
            now: 1,
        })?;
        let column = store.column();
        let value = vec![b'v'; ITEM_BYTES_MAX];
        Ok(Live { store, column, items, key: Vec::new(), value, requests: 0 })
    }

    /// Puts the key's bytes in `self.key`.
    fn name(&mut self, key: u32) -> Size {
        let size = self.items.size(key);
        self.key.clear();
        self.key.extend_from_slice(&key.to_le_bytes());
        self.key.resize((size.key as usize).max(NUMBER_BYTES), b'k');
        size
    }

    /// Stores a value under `self.key`.
    fn set(&mut self, size: Size) -> Result<Stored, Refused> {
        let put = Put::new(Verb::Set, &self.key);
        let bytes = &self.value[..(size.value as usize).min(self.value.len())];
        if bytes.len() <= self.column.log_value_bytes_max() {
            return at_last(&mut self.column, |column| column.put(&put, Body::Bytes(bytes)));
        }
        let mut draft = self.column.draft(size.value);
        while draft.missing_bytes() > 0 {
            at_last(&mut self.column, |column| draft.space(column).map(|_| ()))?;
            let space = draft.space(&mut self.column)?;
            let filled = space.len().min(bytes.len());
            space[..filled].copy_from_slice(&bytes[..filled]);
            draft.filled(filled);
        }
        at_last(&mut self.column, |column| column.put(&put, Body::Draft(&mut draft)))
    }
}

/// Asks until there is room, a quiescent point in between: there is no other column to wait for.
fn at_last<R>(
    column: &mut Column,
    mut ask: impl FnMut(&mut Column) -> Result<R, Refused>,
) -> Result<R, Refused> {
    let mut done = ask(column);
    for _ in 0..ASKS_MAX {
        if !matches!(done, Err(Refused::Later)) {
            break;
        }
        column.quiesce();
        done = ask(column);
    }
    done
}

impl Cache for Live<'_> {
    fn request(&mut self, key: u32, rewrites: bool) -> bool {
        self.requests += 1;
        if self.requests.is_multiple_of(BATCH_REQUESTS) {
            self.column.quiesce();
            self.column.maintain();
        }
        let size = self.name(key);
        let hit = self.column.get(&self.key).is_some();
        if !hit || rewrites {
            // Refused: larger than the store takes. It stays a miss.
            let _refused = self.set(size);
        }
        hit
    }

    fn live_bytes(&self) -> u64 {
        self.store.stats().bytes
    }
}
