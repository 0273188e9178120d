//! Items that a column has evicted, kept for clients that watch evictions.
//!
//! Where: at each eviction, if somebody watches; a server takes them once a loop.
//! Invariant: at most the requested number are kept; the rest are only counted.

use crate::column::Column;
use crate::handle::View;
use crate::index::slot::{FETCHED, Slot};
use crate::item::Item;
use std::cell::{Cell, RefCell};
use std::mem;

/// An item that was dropped to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// The key, 1 to 250 bytes.
    pub key: Box<[u8]>,
    /// True if the item was fetched since it was stored.
    pub fetched: bool,
    /// The exptime, in seconds of the store's clock; 0 = never.
    pub exptime: u32,
    /// Seconds since its last access.
    pub idle_seconds: u32,
    /// The length of its value.
    pub value_bytes: u32,
}

/// The evictions of a column that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Most evictions that are kept.
    most: Cell<usize>,
    kept: RefCell<Vec<Evicted>>,
    /// Number of evictions that were not kept.
    lost: Cell<u64>,
}

impl Column {
    /// Keeps evictions from now on, at most `most` until they are taken; 0: none.
    pub fn note_evictions(&mut self, most: usize) {
        let evictions = &self.handle.evictions;
        evictions.most.set(most);
        evictions.kept.take();
        evictions.lost.set(0);
    }

    /// The evictions since they were last taken, and the number of those that were not kept.
    pub fn take_evictions(&mut self) -> (Vec<Evicted>, u64) {
        let evictions = &self.handle.evictions;
        (mem::take(&mut *evictions.kept.borrow_mut()), evictions.lost.take())
    }
}

impl View<'_> {
    /// Notes, if somebody watches, that an item which `slot` named is evicted.
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
        kept.push(Evicted {
            key: item.key().into(),
            fetched: slot.has(FETCHED),
            exptime: item.exptime(),
            idle_seconds: item.accessed().seconds_before(self.handle.now),
            value_bytes: item.value_bytes().0,
        });
    }
}
