//! The background walk through a segment, which unlinks expired and flushed items.
//!
//! Where: background work walks segments that the calendar lists as due. It also walks segments of
//! an earlier epoch, if there are too few of them for a pass through the index.
//! Invariant: an item is found dead only under the lock of its group, so that a touch either comes
//! before or finds no item. An item with an exptime in the future is left alone.
//! Source: memcached's LRU crawler (1.6.45), which walks lists of items; batches as in AMAC
//! (Kocberber et al., VLDB 2015).

use crate::column::handle::View;
use crate::engine::find::Fate;
use crate::engine::link::ReapedCounts;
use crate::index::unlink::UnlinkResult;
use crate::item::{Item, Record, Walk};
use memory::segments::{Segment, State};

/// Number of items whose index lines are prefetched together.
const BATCH: usize = 32;
/// Distance in bytes from the current record to the record that is prefetched.
const RECORDS_AHEAD_BYTES: u64 = 1 << 10;
/// A segment is walked again when items with 1 / `DEAD_PART` of its bytes have expired.
const DEAD_PART: u32 = 8;
/// Number of classes of the time until an item expires: one for each power of two of seconds.
const SPANS: usize = 32;

#[derive(Debug)]
pub(crate) struct Sweep {
    segment: u32,
    all: bool,
    /// The segment's earliest exptime before the walk: no linked item had an earlier exptime.
    from: u32,
    /// Bytes of items that will expire, indexed by the binary logarithm of the seconds until then.
    ahead: [u32; SPANS],
    /// The latest exptime of the items that `ahead` counts.
    last: u32,
}

/// An item to look up in the index: its key's hash, its location, and the item.
type BatchedItem<'r> = (u64, u64, Item<'r>);

#[derive(Default)]
struct SweptItems {
    items: ReapedCounts,
    /// Bytes of the items: `extent` counts bytes in the log, `bytes` also counts bytes in frames.
    extent: u32,
    bytes: u64,
}

impl Sweep {
    /// Claims a segment for a walk, which computes the segment's earliest exptime again.
    pub(crate) fn claim(view: View<'_>, segment: u32) -> Option<Self> {
        let there = view.log.segment(segment);
        if !there.drainable() || !there.change(State::Sealed, State::Draining) {
            return None;
        }
        // Takes the segment out of the calendar until the walk ends and notes the next due second.
        view.log.note_due(segment, u32::MAX);
        Some(Self::begin(view, segment))
    }

    pub(crate) fn begin(view: View<'_>, segment: u32) -> Self {
        let there = view.log.segment(segment);
        there.set_walked(view.handle.now);
        let all = is_dead(view, there, view.handle.now);
        Self { segment, all, from: there.reset_min_exp(), ahead: [0; SPANS], last: 0 }
    }

    /// Continues the walk for about `budget` bytes. Returns the bytes walked and bytes
    /// freed.
    pub(crate) fn slice(&mut self, view: View<'_>, walk: &mut Walk, budget: u32) -> (u32, u64) {
        let region = &view.memory().region;
        let (first, mut looked) = (walk.at(), 0);
        let (mut batch, mut count): ([Option<BatchedItem<'_>>; BATCH], _) = ([None; BATCH], 0);
        let mut gone = SweptItems::default();
        while walk.at() - first < budget
            && let Some((loc, record)) = walk.next(region, view.layout)
        {
            region.prefetch(loc + RECORDS_AHEAD_BYTES);
            let Record::Item(item) = record else { continue };
            looked += 1;
            if !self.may_be_dead(view, &item) {
                continue;
            }
            let hash = view.hash.hash(item.key());
            view.index.prefetch_to_unlink(hash);
            // Replaces the item that was prefetched longest ago, which is looked up below.
            let before = batch[count % BATCH].replace((hash, loc, item));
            if let Some((hash, loc, _)) = &batch[(count + BATCH / 2) % BATCH] {
                view.index.prefetch_elsewhere(*hash, *loc);
            }
            count += 1;
            if let Some(batched) = before {
                self.unlink(view, &batched, &mut gone);
            }
        }
        for next in 0..BATCH {
            if let Some(batched) = &batch[(count + next) % BATCH] {
                self.unlink(view, batched, &mut gone);
            }
        }
        self.count_gone(view, &gone);
        view.counters().crawler_items_checked.add(looked);
        ((walk.at() - first).max(1), gone.bytes)
    }

    /// True if the item may be dead, so that its slot must be found. Notes a live item's exptime.
    fn may_be_dead(&mut self, view: View<'_>, item: &Item<'_>) -> bool {
        if self.all {
            return true;
        }
        match item.exptime() {
            0 => false,
            exptime if exptime > view.handle.now => {
                self.note_life(view, item, exptime);
                false
            }
            exptime => exptime >= self.from,
        }
    }

    fn note_life(&mut self, view: View<'_>, item: &Item<'_>, exptime: u32) {
        if exptime == 0 {
            return;
        }
        view.log.segment(self.segment).lower_min_exp(exptime);
        let seconds = exptime.saturating_sub(view.handle.now).max(1);
        self.ahead[seconds.ilog2() as usize] += item.extent();
        self.last = self.last.max(exptime);
    }

    #[inline]
    fn unlink(&mut self, view: View<'_>, batched: &BatchedItem<'_>, gone: &mut SweptItems) {
        let (hash, loc, item) = batched;
        let mut fate = Fate::Live;
        let is_dead = || {
            fate = view.fate(item, *loc);
            fate != Fate::Live
        };
        let slot = match view.index.unlink_near(*hash, *loc, is_dead) {
            UnlinkResult::Gone(slot) => slot,
            UnlinkResult::Kept => return self.note_life(view, item, item.exptime()),
            UnlinkResult::Elsewhere => {
                let mut locked = view.index.lock(view.moment(), *hash);
                let Some(found) = locked.find_loc(*loc) else { return };
                fate = view.fate(item, *loc);
                if fate == Fate::Live {
                    return self.note_life(view, item, item.exptime());
                }
                locked.remove(found.at());
                found.slot()
            }
        };
        gone.items.note(fate, slot);
        if let Some(frame) = item.first_frame() {
            view.memory().release(frame);
        }
        gone.extent += item.extent();
        gone.bytes += item.all_bytes();
    }

    fn count_gone(&self, view: View<'_>, gone: &SweptItems) {
        if gone.items.count(view) > 0 {
            view.counters().unlink(view.log.queue_of(self.segment), gone.bytes, gone.extent);
            view.log.unlink(self.segment, gone.extent);
        }
    }

    /// Ends the claim on the segment after the walk, and notes when the segment is due again.
    pub(crate) fn swept(&self, view: View<'_>) {
        let segment_bytes = view.memory().region.segment_bytes();
        // `unclaim` keeps an earlier second, noted when an item's exptime was lowered.
        view.log.unclaim(self.segment, self.due(view.handle.now, segment_bytes));
    }

    /// Ends the walk early, and restores the earliest exptime that the segment had before the walk.
    pub(crate) fn give_up(&self, view: View<'_>) {
        view.log.segment(self.segment).lower_min_exp(self.from);
    }

    /// Returns the second in which another walk is worthwhile, because 1 / `DEAD_PART` of the
    /// segment, or every item with an exptime, will have expired. `None`: no item will expire.
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

/// True if all items of a segment are dead in second `now`.
pub(crate) fn is_dead(view: View<'_>, there: &Segment, now: u32) -> bool {
    there.max_exp() <= now || there.epoch() != view.log.epoch()
}
