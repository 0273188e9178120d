//! Expiry and flushes: what is dead goes without being touched.
//!
//! Where: an idle moment of a column's loop, and once a second.
//! Invariant: a lookup never returns a dead item, whatever the background walk has got to; the walk
//! is cut into slices, and goes through a segment when all of it has expired, or much of it may
//! have.
//! Source: memcached's LRU crawler and `process_flush_all_command` (1.6.45).
//!
//! ```text
//!   flush word, u64:  sweeping:1 | epoch:31 | flush at:32
//!                     flush at: 0 when nothing is flushed that might be seen
//! ```

use crate::Store;
use crate::column::Local;
use memory::segments::State;
use memory::sync::Ordering;

/// A slice of background work, in bytes of records.
const SLICE_BYTES: u32 = 32 << 10;
/// Segments looked at in one slice for one of before a flush.
const LOOKS_MAX: u32 = 4096;
const SWEEPING: u64 = 1 << 63;
const EPOCH_MASK: u32 = 0x7fff_ffff;

impl Local {
    /// Was the item at `loc` flushed?
    #[inline]
    pub(crate) fn is_flushed(&self, store: &Store, loc: u64) -> bool {
        // Acquire pairs with the Release in `flush`.
        let word = store.flush.load(Ordering::Acquire);
        word != 0 && self.is_flushed_by(store, word, loc)
    }

    #[cold]
    fn is_flushed_by(&self, store: &Store, word: u64, loc: u64) -> bool {
        let at = flush_at(word);
        // In the very second everything stored until now is gone (memcached's `oldest_live`).
        if at != 0 && self.now >= at {
            return true;
        }
        word & SWEEPING != 0 && store.log.segment_of(loc).epoch() != store.log.epoch()
    }

    pub(crate) fn flush(&mut self, store: &Store, oldest_live: Option<u32>) {
        match oldest_live {
            // A time before the store's first second flushes nothing, but calls a pending flush
            // off.
            Some(0) => store.change_flush(|word| word & !u64::from(u32::MAX)),
            Some(at) if at >= self.now => {
                store.change_flush(|word| (word & !u64::from(u32::MAX)) | u64::from(at));
            }
            _ => store.flush_now(),
        }
    }

    /// At the clock's tick: a delayed flush whose second is over has taken all that was stored
    /// until then.
    pub(crate) fn flush_due(&self, store: &Store) {
        let epoch = store.log.epoch();
        let word = store.flush.load(Ordering::Acquire); // pairs with the Release in `change_flush`
        let at = flush_at(word);
        if at != 0 && self.now > at {
            // One column's flush is enough: another's must not take what has been stored since.
            store.log.flush_from(epoch);
            let swept = sweeping_from(store.log.epoch());
            store.change_flush(|now| if now == word { swept } else { now });
            store.mrc.flushed();
        }
    }

    /// A slice of background work. True: there is more.
    pub(crate) fn maintain(&mut self, store: &Store) -> bool {
        self.reclaim(store);
        self.settle_index(store);
        if self.harvest(store, SLICE_BYTES) > 0 {
            return true;
        }
        let contracting = self.contract_index(store);
        let segments = &store.memory().segments;
        if self.take_parked(store) {
            // An eviction ends with the need for it: the rest of a segment may name frames worth
            // many segments.
            let has_room = segments.free() + segments.limbo() >= store.high();
            if has_room && store.lacking() == 0 {
                self.stop_evicting(store);
            }
            self.stop_for_repack(store);
            self.slice(store, SLICE_BYTES);
            return true;
        }
        if self.adjust(store) {
            return true;
        }
        if segments.free() + segments.limbo() < store.high() && self.rest == 0 {
            if self.make_room(store, SLICE_BYTES) {
                return true;
            }
            self.rest = 1;
        }
        self.walk(store) || contracting
    }

    /// Begins to walk a segment with dead items. False: there is none left.
    fn walk(&mut self, store: &Store) -> bool {
        if self.sweep(store, |local| local.next_gathered(store)) {
            return true;
        }
        // pairs with `flush_now`
        let sweeping = store.flush.load(Ordering::Acquire) & SWEEPING != 0;
        sweeping && self.walk_flushed(store)
    }

    /// Looks for segments of before a flush.
    fn walk_flushed(&mut self, store: &Store) -> bool {
        let count = store.memory().segments.count();
        if self.walk.0 != self.now {
            self.walk = (self.now, 0);
        }
        let first = self.walk.1;
        if first >= count {
            return false;
        }
        let end = count.min(first.saturating_add(LOOKS_MAX));
        let (looked, claimed) = self.gather_flushed(store, first, end);
        // When these are gone, none may be left.
        self.walk.1 = if claimed > 0 { 0 } else { first + looked };
        if self.walk.1 == count {
            store.end_sweep();
        }
        self.walk.1 < count && looked > 0
    }
}

impl Store {
    fn flush_now(&self) {
        self.log.flush();
        let swept = sweeping_from(self.log.epoch());
        self.change_flush(|_| swept);
        self.mrc.flushed();
    }

    fn change_flush(&self, change: impl Fn(u64) -> u64) {
        let change = |word| Some(change(word));
        // Release pairs with the Acquire of lookups: they see the epoch that the word tells them to
        // compare.
        let changed = self.flush.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        debug_assert!(changed.is_ok(), "change never refuses");
    }

    /// Once nothing of an earlier epoch is left, lookups need not compare.
    fn end_sweep(&self) {
        let word = self.flush.load(Ordering::Acquire); // pairs with `change_flush`
        let epoch = self.log.epoch();
        if word >> 32 != sweeping_from(epoch) >> 32 {
            return;
        }
        let segments = &self.memory().segments;
        let earlier = |segment: u32| {
            let there = segments.get(segment);
            let holds =
                there.is(State::Open) || there.is(State::Sealed) || there.is(State::Draining);
            holds && there.epoch() != epoch
        };
        if !(0..segments.count()).any(earlier) {
            let done = word & u64::from(u32::MAX);
            // AcqRel pairs with `change_flush`; a flush meanwhile has changed the epoch in the
            // word.
            let _ = self.flush.compare_exchange(word, done, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// The flush word while what was stored before `epoch` is swept.
fn sweeping_from(epoch: u32) -> u64 {
    SWEEPING | (u64::from(epoch & EPOCH_MASK) << 32)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn flush_at(word: u64) -> u32 {
    word as u32
}
