//! The background walk through one segment: what has expired or was flushed is unlinked, and the
//! rest stays where it is.
//!
//! Where: a segment that the calendar says is due, or one of before a flush; in slices.
//! Invariant: whether an item is dead is decided under its group's lock, where a touch has either
//! happened or will find nothing. Items that live on are not looked up: a record's own exptime
//! tells, and at worst it is one of an item that went before.
//! Source: memcached's LRU crawler (1.6.45), by segments; batches as in AMAC (Kocberber et al.,
//! VLDB 2015).

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use crate::Store;
use crate::column::Local;
use crate::index::slot::FETCHED;
use crate::item::{self, Item, Record};
use crate::publish::{Fate, item_bytes};
use crate::room::Drain;
use memory::segments::State;

/// Items whose lines of the index are brought near together.
const BATCH: usize = 32;
/// A segment is walked again when this part of its bytes will have expired.
const DEAD_PART: u32 = 8;
/// Exptimes ahead are counted by the power of two of the seconds until then.
const SPANS: usize = 32;

/// What a walk goes by, and what it has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep {
    /// Every item should be dead.
    all: bool,
    /// Nothing linked expires before.
    from: u32,
    /// Bytes of records that expire later, by how much later.
    ahead: [u32; SPANS],
}

impl Sweep {
    /// A record of so many bytes expires `seconds` from now.
    fn note(&mut self, seconds: u32, bytes: u32) {
        self.ahead[seconds.max(1).ilog2() as usize] += bytes;
    }

    /// In how many seconds a part of the segment's bytes worth another walk will have expired, or
    /// all that ever will.
    fn rest(&self, segment_bytes: u32) -> Option<u32> {
        let (mut bytes, mut last) = (0, None);
        for (span, more) in self.ahead.iter().enumerate().filter(|(_, more)| **more > 0) {
            bytes += more;
            last = Some(2_u32.saturating_pow(u32::try_from(span).unwrap_or(0) + 1));
            if bytes >= segment_bytes / DEAD_PART {
                break;
            }
        }
        last
    }
}

/// What was unlinked together.
#[derive(Default)]
struct Gone {
    items: u32,
    /// In the log.
    extent: u32,
    /// In all.
    bytes: u64,
    expired: u64,
    unfetched: u64,
}

impl Local {
    /// Claims a segment that is due; what is due and cannot be claimed now is a second later.
    pub(crate) fn claim_due(&self, store: &Store) -> Option<(u32, Sweep)> {
        let segment = store.log.due(self.now)?;
        let sweep = self.claim_to_sweep(store, segment);
        if sweep.is_none() {
            store.log.note_due(segment, self.now + 1);
        }
        Some((segment, sweep?))
    }

    /// Claims a segment for a walk, which finds the earliest exptime anew.
    pub(crate) fn claim_to_sweep(&self, store: &Store, segment: u32) -> Option<Sweep> {
        let there = store.log.segment(segment);
        if !there.drainable() || !there.change(State::Sealed, State::Draining) {
            return None;
        }
        there.set_walked(self.now);
        // What the walk finds says when it is due again.
        store.log.note_due(segment, u32::MAX);
        let all = there.max_exp() <= self.now || there.epoch() != store.log.epoch();
        Some(Sweep { all, from: there.reset_min_exp(), ahead: [0; SPANS] })
    }

    /// Walks on for about `budget` bytes. Returns how many it did.
    pub(crate) fn sweep_slice(&mut self, store: &Store, mut drain: Drain, budget: u32) -> u32 {
        let region = &store.memory().region;
        let (start, end) = (region.start(drain.segment), store.log.segment(drain.segment).end());
        let (first, mut looked) = (drain.at, 0);
        let (mut batch, mut count) = ([(0, 0); BATCH], 0);
        while drain.at < end && drain.at - first < budget {
            let loc = start + u64::from(drain.at);
            // SAFETY: the segment was drainable when it was claimed, so records cover it up to
            // `end`, and `at` steps from one to the next.
            let item = match unsafe { item::record(region, loc, store.layout) } {
                Record::Void(extent) => {
                    drain.at += extent;
                    continue;
                }
                Record::Item(item) => item,
            };
            looked += 1;
            drain.at += item.extent();
            if !self.may_be_dead(store, &mut drain, &item) {
                continue;
            }
            let hash = store.hash.hash(item.key());
            store.index.prefetch(hash);
            batch[count] = (hash, loc);
            count += 1;
            if count == BATCH {
                self.unlink_all(store, &mut drain, &batch);
                count = 0;
            }
        }
        self.unlink_all(store, &mut drain, &batch[..count]);
        self.counters(store).crawler_items_checked.add(looked);
        let done = drain.at - first;
        match drain.at < end {
            true => self.drain = Some(drain),
            false => self.finish(store, drain),
        }
        done.max(1)
    }

    /// Is it worth a look at its slot? What lives on is noted.
    fn may_be_dead(&self, store: &Store, drain: &mut Drain, item: &Item<'_>) -> bool {
        if drain.sweep.all {
            return true;
        }
        match item.exptime() {
            0 => false,
            exptime if exptime > self.now => {
                self.note_life(store, drain, item, exptime);
                false
            }
            exptime => exptime >= drain.sweep.from,
        }
    }

    fn note_life(&self, store: &Store, drain: &mut Drain, item: &Item<'_>, exptime: u32) {
        store.log.segment(drain.segment).lower_min_exp(exptime);
        drain.sweep.note(exptime.saturating_sub(self.now), item.extent());
    }

    /// Unlinks those that are dead, by hash and location.
    fn unlink_all(&mut self, store: &Store, drain: &mut Drain, batch: &[(u64, u64)]) {
        let mut gone = Gone::default();
        for (hash, loc) in batch {
            let mut locked = store.index.lock(*hash);
            let Some(at) = locked.find_loc(*loc) else { continue };
            let item = store.item(*loc);
            match self.fate(store, &item, *loc) {
                Fate::Live => {
                    if item.exptime() != 0 {
                        self.note_life(store, drain, &item, item.exptime());
                    }
                    continue;
                }
                Fate::Expired => {
                    gone.expired += 1;
                    gone.unfetched += u64::from(!at.slot().has(FETCHED));
                }
                Fate::Flushed => {}
            }
            locked.remove(at);
            drop(locked);
            if let Some(frame) = item.first_frame() {
                store.memory().release(frame);
            }
            gone.items += 1;
            gone.extent += item.extent();
            gone.bytes += item_bytes(item.shape());
        }
        self.count_gone(store, drain, &gone);
    }

    fn count_gone(&mut self, store: &Store, drain: &mut Drain, gone: &Gone) {
        if gone.items == 0 {
            return;
        }
        self.items -= i64::from(gone.items);
        let counters = self.counters(store);
        counters.curr_items.sub(gone.items.into());
        counters.unlink(store.log.queue_of(drain.segment), gone.bytes);
        counters.expired_unfetched.add(gone.unfetched);
        counters.crawler_reclaimed.add(gone.expired);
        counters.reclaimed.add(u64::from(gone.items) - gone.expired);
        store.log.unlink(store.memory().region.start(drain.segment), gone.extent);
        self.freed(drain, gone.bytes);
    }

    /// The walk is through: the segment is as any other again, and due when that pays.
    pub(crate) fn swept(&mut self, store: &Store, drain: &Drain) {
        let segment_bytes = store.memory().region.segment_bytes();
        store.log.segment(drain.segment).set_state(State::Sealed);
        if let Some(seconds) = drain.sweep.rest(segment_bytes) {
            store.log.note_due(drain.segment, self.now.saturating_add(seconds));
        }
        store.log.retire_if_dead(drain.segment);
    }
}
