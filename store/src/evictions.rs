//! Records of the items that a column has evicted, kept for clients that watch evictions.
//!
//! Where: evictions add records while a client watches; each loop, the server takes all records.
//! Invariant: at most `most` records are kept; further evictions are only counted.

use crate::column::Column;
use crate::handle::View;
use crate::index::slot::{FETCHED, Slot};
use crate::item::Item;
use std::cell::{Cell, RefCell};
use std::mem;

/// An item that was evicted to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRecord {
    /// The key, 1 to 250 bytes.
    pub key: Box<[u8]>,
    /// True if the item was fetched since it was stored.
    pub fetched: bool,
    /// The exptime, in seconds of the store's clock; 0 if the item never expires.
    pub exptime: u32,
    /// Seconds since the item's last access.
    pub idle_seconds: u32,
    /// The length of the item's value.
    pub value_bytes: u32,
}

/// The records of a column's evictions that the server has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    most: Cell<usize>,
    kept: RefCell<Vec<EvictionRecord>>,
    /// Number of evictions without a record, because `most` records were kept already.
    lost: Cell<u64>,
}

impl Column {
    /// From now on, records at most `most` evictions between two calls of `take_evictions`.
    pub fn note_evictions(&mut self, most: usize) {
        let evictions = &self.handle.evictions;
        evictions.most.set(most);
        evictions.kept.take();
        evictions.lost.set(0);
    }

    /// Takes the records kept since the last call, and the number of evictions without a record.
    pub fn take_evictions(&mut self) -> (Vec<EvictionRecord>, u64) {
        let evictions = &self.handle.evictions;
        (mem::take(&mut *evictions.kept.borrow_mut()), evictions.lost.take())
    }
}

impl View<'_> {
    #[inline]
    pub(crate) fn note_eviction(self, slot: Slot, item: &Item<'_>) {
        if self.handle.evictions.most.get() > 0 {
            self.keep_eviction(slot, item);
        }
    }

    #[cold]
    fn keep_eviction(self, slot: Slot, item: &Item<'_>) {
        let Evictions { most, kept, lost } = &self.handle.evictions;
        let mut kept = kept.borrow_mut();
        if kept.len() >= most.get() {
            lost.set(lost.get() + 1);
            return;
        }
        kept.push(EvictionRecord {
            key: item.key().into(),
            fetched: slot.has(FETCHED),
            exptime: item.exptime(),
            idle_seconds: item.accessed().seconds_before(self.handle.now),
            value_bytes: item.value_bytes().0,
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::policy::Eviction;
    use crate::{Body, Config, Put, Store, Verb};

    #[test]
    fn evictions_beyond_the_requested_number_are_counted() {
        let store = Store::new(&Config {
            memory_bytes: 8 << 20,
            item_bytes_max: 1 << 20,
            columns: 1,
            eviction: Some(Eviction::Fifo),
            cas: true,
            now: 62,
        });
        let store = store.expect("address space");
        let mut column = store.column();
        column.note_evictions(3);
        let mut key = 0_u64;
        while store.stats().evictions < 100 {
            let key_bytes = key.to_le_bytes();
            let put = Put::new(Verb::Set, &key_bytes);
            column.put(&put, Body::Bytes(&[1; 1000])).expect("room is made");
            column.quiesce();
            key += 1;
        }
        let (evicted, lost) = column.take_evictions();
        assert_eq!((evicted.len() as u64, lost), (3, store.stats().evictions - 3));
        assert_eq!(evicted[0].value_bytes, 1000);
        assert_eq!(column.take_evictions(), (Vec::new(), 0), "the same evictions again");
    }
}
