//! Records of the items that a column has evicted, kept for clients that watch evictions.
//!
//! Where: evictions add records while a client watches; each loop, the server takes all records.
//! Invariant: at most `most` records are kept; further evictions are only counted.

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

impl Evictions {
    /// From now on, keeps at most `most` records between two calls of `take`.
    pub(crate) fn begin(&self, most: usize) {
        self.most.set(most);
        self.kept.take();
        self.lost.set(0);
    }

    /// The records kept since the last call, and the number of evictions without a record.
    pub(crate) fn take(&self) -> (Vec<EvictionRecord>, u64) {
        (mem::take(&mut *self.kept.borrow_mut()), self.lost.take())
    }

    /// Notes the eviction of an item in second `now`, if a client watches.
    #[inline]
    pub(crate) fn note(&self, now: u32, slot: Slot, item: &Item<'_>) {
        if self.most.get() > 0 {
            self.keep(now, slot, item);
        }
    }

    #[cold]
    fn keep(&self, now: u32, slot: Slot, item: &Item<'_>) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= self.most.get() {
            self.lost.set(self.lost.get() + 1);
            return;
        }
        kept.push(EvictionRecord {
            key: item.key().into(),
            fetched: slot.has(FETCHED),
            exptime: item.exptime(),
            idle_seconds: item.accessed().seconds_before(now),
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
