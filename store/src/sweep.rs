//! The background walk through one segment: what has expired or was flushed is unlinked, and the
//! rest stays where it is.
//!
//! Where: a segment that the calendar says is due, or one of before a flush, where there are too
//! few to pass through the index for them; in slices.
//! Invariant: whether an item is dead is decided under its group's lock, where a touch has either
//! happened or will find nothing. Items that live on are not looked up: a record's own exptime
//! tells, and at worst it is one of an item that went before.
//! Source: memcached's LRU crawler (1.6.45), by segments; batches as in AMAC (Kocberber et al.,
//! VLDB 2015).

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use crate::Store;
use crate::column::Local;
use crate::harvest::is_dead;
use crate::index::slot::FETCHED;
use crate::index::unlink::Unlinked;
use crate::item::{self, Item, Record};
use crate::publish::Fate;
use crate::room::Drain;
use memory::segments::{Segment, State};

/// Items whose lines of the index are brought near together.
const BATCH: usize = 32;
/// How far ahead records are brought near.
const RECORDS_AHEAD_BYTES: u64 = 1 << 10;
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
    /// The latest exptime of these.
    last: u32,
}

impl Sweep {
    /// A record of so many bytes expires later.
    fn note(&mut self, now: u32, exptime: u32, bytes: u32) {
        let seconds = exptime.saturating_sub(now).max(1);
        self.ahead[seconds.ilog2() as usize] += bytes;
        self.last = self.last.max(exptime);
    }

    /// The walk ends before it is through: the earliest exptime, which it was to find, is what it
    /// was.
    pub(crate) fn give_up(&self, there: &Segment) {
        there.lower_min_exp(self.from);
    }

    /// The second in which a part of the segment's bytes worth another walk will have expired, or
    /// all that ever will. `None`: nothing will.
    fn due(&self, now: u32, segment_bytes: u32) -> Option<u32> {
        let mut bytes = 0;
        let mut spans = self.ahead.iter().zip(1..);
        let enough = spans.find(|(more, _)| {
            bytes += **more;
            bytes >= segment_bytes / DEAD_PART
        });
        let by = |(_, power)| now.saturating_add(2_u32.saturating_pow(power));
        (self.last != 0).then(|| enough.map_or(self.last, by).min(self.last))
    }
}

/// An item of which the index is to be asked.
type Asked<'r> = (u64, u64, Item<'r>);

/// What was unlinked in a slice.
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
    /// Claims a segment for a walk, which finds the earliest exptime anew.
    pub(crate) fn claim_to_sweep(&self, store: &Store, segment: u32) -> Option<Sweep> {
        let there = store.log.segment(segment);
        if !there.drainable() || !there.change(State::Sealed, State::Draining) {
            return None;
        }
        // What the walk finds says when it is due again.
        store.log.note_due(segment, u32::MAX);
        Some(self.begin_sweep(store, segment))
    }

    /// A walk through a claimed segment begins.
    pub(crate) fn begin_sweep(&self, store: &Store, segment: u32) -> Sweep {
        let there = store.log.segment(segment);
        there.set_walked(self.now);
        let all = is_dead(store, there, self.now);
        Sweep { all, from: there.reset_min_exp(), ..Sweep::default() }
    }

    /// Walks on for about `budget` bytes. Returns how many it did.
    pub(crate) fn sweep_slice(&mut self, store: &Store, mut drain: Drain, budget: u32) -> u32 {
        let region = &store.memory().region;
        let (start, end) = (region.start(drain.segment), store.log.segment(drain.segment).end());
        let (first, mut looked) = (drain.at, 0);
        let (mut batch, mut count): ([Option<Asked<'_>>; BATCH], _) = ([None; BATCH], 0);
        let mut gone = Gone::default();
        while drain.at < end && drain.at - first < budget {
            let loc = start + u64::from(drain.at);
            region.prefetch(loc + RECORDS_AHEAD_BYTES);
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
            store.index.prefetch_to_unlink(hash);
            // The one whose lines were asked for longest ago gives way.
            let before = batch[count % BATCH].replace((hash, loc, item));
            if let Some((hash, loc, _)) = &batch[(count + BATCH / 2) % BATCH] {
                store.index.prefetch_elsewhere(*hash, *loc);
            }
            count += 1;
            if let Some(asked) = before {
                self.unlink(store, &mut drain, &asked, &mut gone);
            }
        }
        for at in 0..BATCH {
            if let Some(asked) = &batch[(count + at) % BATCH] {
                self.unlink(store, &mut drain, asked, &mut gone);
            }
        }
        self.count_gone(store, &mut drain, &gone);
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

    /// It lives on until `exptime`; 0: for ever.
    fn note_life(&self, store: &Store, drain: &mut Drain, item: &Item<'_>, exptime: u32) {
        if exptime == 0 {
            return;
        }
        store.log.segment(drain.segment).lower_min_exp(exptime);
        drain.sweep.note(self.now, exptime, item.extent());
    }

    /// Unlinks an item if it is dead.
    #[inline]
    fn unlink(&mut self, store: &Store, drain: &mut Drain, asked: &Asked<'_>, gone: &mut Gone) {
        let (hash, loc, item) = asked;
        let mut fate = Fate::Live;
        let is_dead = || {
            fate = self.fate(store, item, *loc);
            fate != Fate::Live
        };
        let slot = match store.index.unlink_near(*hash, *loc, is_dead) {
            Unlinked::Gone(slot) => slot,
            Unlinked::Kept => return self.note_life(store, drain, item, item.exptime()),
            Unlinked::Elsewhere => {
                let mut locked = store.index.lock(*hash);
                let Some(at) = locked.find_loc(*loc) else { return };
                fate = self.fate(store, item, *loc);
                if fate == Fate::Live {
                    return self.note_life(store, drain, item, item.exptime());
                }
                let slot = at.slot();
                locked.remove(at);
                slot
            }
        };
        if fate == Fate::Expired {
            gone.expired += 1;
            gone.unfetched += u64::from(!slot.has(FETCHED));
        }
        if let Some(frame) = item.first_frame() {
            store.memory().release(frame);
        }
        let (value_bytes, log_bytes) = item.value_bytes();
        gone.items += 1;
        gone.extent += item.extent();
        gone.bytes += u64::from(item.extent()) + u64::from(value_bytes - log_bytes);
    }

    fn count_gone(&mut self, store: &Store, drain: &mut Drain, gone: &Gone) {
        if gone.items == 0 {
            return;
        }
        self.items -= i64::from(gone.items);
        let counters = self.counters(store);
        counters.curr_items.sub(gone.items.into());
        counters.unlink(store.log.queue_of(drain.segment), gone.bytes, gone.extent);
        counters.expired_unfetched.add(gone.unfetched);
        counters.crawler_reclaimed.add(gone.expired);
        counters.reclaimed.add(u64::from(gone.items) - gone.expired);
        store.log.unlink(store.memory().region.start(drain.segment), gone.extent);
        self.freed(drain, gone.bytes);
    }

    /// The walk is through: the segment is as any other again, and due when that pays.
    pub(crate) fn swept(&mut self, store: &Store, drain: &Drain) {
        let segment_bytes = store.memory().region.segment_bytes();
        // A life cut short behind the walk may have been noted meanwhile.
        store.log.unclaim(drain.segment, drain.sweep.due(self.now, segment_bytes));
    }
}
