//! The real store in this process, used like the store of a server with one column.
//!
//! Where: `stream` uses this store, and so do simulations of `live:NAME`.
//! Invariant: the store's memory, index included, is bounded like the server's by `-m`, and the
//! store itself chooses the size of its segments. The store's clock has the time of the requests
//! and never goes back. The store's hash is random, so misses differ a little from run to run.

use crate::cache::Cache;
use crate::sizes::{Items, Size};
use crate::stream::{Operation, Request};
use std::sync::Arc;
use store::policy::Eviction;
use store::{Body, Column, Config, MakeError, Put, PutResult, Store, StoreError, Verb};

/// Minimum memory of a store.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Maximum bytes of an item, like the server's `-I 1m`.
const ITEM_BYTES_MAX: usize = 1 << 20;
/// Bytes in a key for the key's number; a number of more than 32 bits takes twice as many.
const NUMBER_BYTES: usize = 4;
/// Number of requests between quiescent points, and between slices of background work.
const BATCH_REQUESTS: u64 = 64;
const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of slices of background work at a new second, enough to finish the work.
const TURNS_MAX: u32 = 1 << 10;
/// Number of attempts after which a request that finds no room is given up.
const ASKS_MAX: u32 = 1 << 10;

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The key had an item.
    Hit,
    /// The key had no item.
    Miss,
    /// The item is stored.
    Stored,
    /// Not stored, because `Add` found an item, or `Replace` or `Append` found none.
    NotStored,
    /// Not stored: the item is larger than the store accepts. The key's old item is deleted.
    Refused,
}

/// A store, whose clock has the times of the requests.
#[derive(Debug)]
pub struct LiveStore {
    store: Arc<Store>,
    column: Column,
    key: Vec<u8>,
    value: Vec<u8>,
    requests: u64,
    refused: u64,
    now_s: u32,
}

impl LiveStore {
    /// Makes an empty store of `memory_bytes`, 1 MiB to 1 TiB; its memory use grows as it fills.
    pub fn new(memory_bytes: u64, policy: Eviction) -> Result<Self, MakeError> {
        let now_s = 1;
        let store = Store::new(&Config {
            memory_bytes: usize::try_from(memory_bytes).unwrap_or(usize::MAX),
            item_bytes_max: ITEM_BYTES_MAX,
            columns: 1,
            eviction: Some(policy),
            cas: true,
            now: now_s,
        })?;
        let column = store.column();
        let value = vec![b'v'; ITEM_BYTES_MAX];
        Ok(LiveStore { store, column, key: Vec::new(), value, requests: 0, refused: 0, now_s })
    }

    /// The store, for its statistics and its own estimate of the hit ratios at other sizes.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Number of items that the store refused as too large, in sets and in fetches that missed.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sets the store's clock to the request's time, and executes the request.
    pub fn execute(&mut self, request: &Request) -> Answer {
        self.turn(request.at_ns);
        self.name(request.key, request.size);
        match request.operation {
            Operation::Get | Operation::Fetch => {
                if self.column.get(&self.key).is_some() {
                    return Answer::Hit;
                }
                if request.operation == Operation::Fetch {
                    let _refused = self.set(request);
                }
                Answer::Miss
            }
            Operation::Set | Operation::Add | Operation::Replace | Operation::Append => {
                match self.set(request) {
                    Ok(PutResult::Stored { .. }) => Answer::Stored,
                    Ok(_) => Answer::NotStored,
                    Err(_) => Answer::Refused,
                }
            }
            Operation::Delete if self.column.delete(&self.key) => Answer::Hit,
            Operation::Delete => Answer::Miss,
        }
    }

    fn turn(&mut self, at_ns: u64) {
        self.requests += 1;
        let now_s = u32::try_from(at_ns / SECOND_NS).unwrap_or(u32::MAX - 1) + 1;
        if now_s > self.now_s {
            self.now_s = now_s;
            self.column.set_now(now_s);
            for _ in 0..TURNS_MAX {
                self.column.quiesce();
                if !self.column.maintain() {
                    break;
                }
            }
        } else if self.requests.is_multiple_of(BATCH_REQUESTS) {
            self.column.quiesce();
            self.column.maintain();
        }
    }

    fn name(&mut self, number: u64, size: Size) {
        let is_short = number <= u64::from(u32::MAX);
        let number_bytes = if is_short { NUMBER_BYTES } else { 2 * NUMBER_BYTES };
        self.key.clear();
        self.key.extend_from_slice(&number.to_le_bytes()[..number_bytes]);
        // Different numbers below 2^62 give different keys: a 4-byte number is padded with `kkkk`,
        // and no 8-byte number below 2^62 ends in `kkkk`.
        self.key.resize((size.key as usize).max(number_bytes), b'k');
    }

    fn set(&mut self, request: &Request) -> Result<PutResult, StoreError> {
        let stored = self.put(request);
        self.refused += u64::from(stored.is_err());
        stored
    }

    fn put(&mut self, request: &Request) -> Result<PutResult, StoreError> {
        let verb = match request.operation {
            Operation::Add => Verb::Add,
            Operation::Replace => Verb::Replace,
            Operation::Append => Verb::Append,
            _ => Verb::Set,
        };
        let mut put = Put::new(verb, &self.key);
        if request.ttl_s > 0 {
            put.exptime = self.now_s.saturating_add(request.ttl_s);
        }
        let value_bytes = request.size.value;
        let bytes = &self.value[..(value_bytes as usize).min(self.value.len())];
        self.column.admit(&put, value_bytes.into())?;
        if bytes.len() <= self.column.log_value_bytes_max() {
            return retry(&mut self.column, |column| column.put(&put, Body::Bytes(bytes)));
        }
        let mut draft = self.column.draft(value_bytes);
        while draft.missing_bytes() > 0 {
            retry(&mut self.column, |column| draft.space(column).map(|_| ()))?;
            let space = draft.space(&mut self.column)?;
            let filled = space.len().min(bytes.len());
            space[..filled].copy_from_slice(&bytes[..filled]);
            draft.filled(filled);
        }
        retry(&mut self.column, |column| column.put(&put, Body::Draft(&mut draft)))
    }
}

/// Repeats a request until the store has room, with a quiescent point between attempts.
fn retry<R>(
    column: &mut Column,
    mut ask: impl FnMut(&mut Column) -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    let mut done = ask(column);
    for _ in 0..ASKS_MAX {
        if !matches!(done, Err(StoreError::Later)) {
            break;
        }
        column.quiesce();
        done = ask(column);
    }
    done
}

/// A live store for requests that have only a key. `items` has the sizes of the items.
#[derive(Debug)]
pub struct KeyedStore<'w> {
    live: LiveStore,
    items: &'w Items,
}

impl<'w> KeyedStore<'w> {
    /// Makes a store like `LiveStore::new`; `items` has the sizes of the items.
    pub fn new(memory_bytes: u64, policy: Eviction, items: &'w Items) -> Result<Self, MakeError> {
        Ok(KeyedStore { live: LiveStore::new(memory_bytes, policy)?, items })
    }
}

impl Cache for KeyedStore<'_> {
    fn request(&mut self, key: u32, rewrites: bool) -> bool {
        let operation = Operation::Fetch;
        let size = self.items.size(key);
        let request = Request { key: key.into(), size, ttl_s: 0, operation, at_ns: 0 };
        let hit = self.live.execute(&request) == Answer::Hit;
        if hit && rewrites {
            let _refused = self.live.set(&request);
        }
        hit
    }

    fn live_bytes(&self) -> u64 {
        self.live.store.stats().bytes
    }
}

#[cfg(test)]
mod tests;
