//! The audit of a store: checks that items, slots, segments and counters agree.
//!
//! Where: called after each schedule that shuttle explores, and by `stats audit` of debug builds.
//! Invariant: while no column executes an operation, each reported fault is real; otherwise it may
//! be a false alarm. The audit changes nothing, and terminates in any state of the store.
//! Source: checkers of file systems (McKusick and Kowalski, "Fsck", 1986).

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use crate::Store;
use crate::index::slot::Slot;
use crate::item::{self, Item, Record};
use crate::policy::Queue;
use crate::room::Drain;
use crate::room::lines::ITEMS_LUMP;
use memory::segments::State;
use memory::sync::Ordering;
use std::collections::{BTreeMap, BTreeSet};

const FAULTS_MAX: usize = 64;

#[derive(Default)]
struct Sums {
    items: u64,
    bytes: u64,
    probation_bytes: u64,
    /// Number of value bytes in each chain of frames; the key is the chain's first frame.
    chains: BTreeMap<u32, u32>,
}

impl Store {
    /// Returns the faults found. Frames that a reader has pinned, or that a draft has, are faults.
    #[doc(hidden)]
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.memory().segments.audit(&mut faults);
        self.log.audit(&mut faults);
        let hash_of = |slot: Slot| Some(self.hash.hash(self.item_within(slot.loc())?.key()));
        let mut slots = self.index.audit(hash_of, &mut faults);
        slots.sort_by_key(|slot| slot.loc());
        let sums = self.audit_items(&slots, &mut faults);
        self.memory().audit_frames(&sums.chains, &mut faults);
        self.audit_sums(&sums, &mut faults);
        self.audit_walks(&mut faults);
        faults.truncate(FAULTS_MAX);
        faults
    }

    /// Offset at which the segment's records end; 0 if the segment is not part of the log.
    fn records_end(&self, segment: u32) -> u32 {
        let there = self.log.segment(segment);
        let end = match there.state() {
            Some(State::Open) => there.committed(),
            Some(State::Sealed | State::Draining) => there.end(),
            _ => 0,
        };
        end.min(self.memory().region.segment_bytes())
    }

    /// The record at `loc` and its extent, if the whole record lies before `records_end`.
    fn record_within(&self, loc: u64) -> Option<(Record<'_>, u32)> {
        let region = &self.memory().region;
        let segment = region.segment_of(loc);
        if segment >= self.memory().segments.count() {
            return None;
        }
        let left =
            (region.start(segment) + u64::from(self.records_end(segment))).checked_sub(loc)?;
        if left < 4 {
            return None;
        }
        // SAFETY: this column may read the segment until the column's next quiescent point. This
        // block reads only the bytes before an item's key. These bytes may have any value. The
        // mapping extends beyond the last segment, so every read stays within the mapping.
        let record = unsafe { item::record(region, loc, self.layout) };
        let extent = match &record {
            Record::Void(extent) => *extent,
            Record::Item(item) if u64::from(item.value_bytes().1) > left => return None,
            Record::Item(item) => item.extent(),
        };
        (extent > 0 && u64::from(extent) <= left).then_some((record, extent))
    }

    fn item_within(&self, loc: u64) -> Option<Item<'_>> {
        match self.record_within(loc)? {
            (Record::Item(item), _) => Some(item),
            (Record::Void(_), _) => None,
        }
    }

    /// Checks that each of `slots` names an item, that no two slots name items with the same key,
    /// and that each segment counts as live the extents of those of its items that slots name.
    fn audit_items(&self, slots: &[Slot], faults: &mut Vec<String>) -> Sums {
        let (mut sums, mut keys) = (Sums::default(), BTreeSet::new());
        let region = &self.memory().region;
        let mut at = 0;
        for segment in 0..self.memory().segments.count() {
            let first = at;
            while at < slots.len() && region.segment_of(slots[at].loc()) == segment {
                at += 1;
            }
            let state = self.log.segment(segment).state();
            match state {
                Some(State::Open | State::Sealed | State::Draining) => {
                    self.audit_segment(segment, &slots[first..at], (&mut sums, &mut keys), faults);
                }
                Some(State::Limbo) => self.add_uncounted(segment, 0, &mut sums),
                _ => {}
            }
            if at > first && self.records_end(segment) == 0 {
                let count = at - first;
                faults.push(format!(
                    "{count} slots point into {state:?} segment {segment}, which has no records"
                ));
            }
        }
        if at != slots.len() {
            let count = slots.len() - at;
            faults.push(format!("{count} slots point into segments that do not exist"));
        }
        sums
    }

    fn audit_segment<'s>(
        &'s self,
        segment: u32,
        mut slots: &[Slot],
        (sums, keys): (&mut Sums, &mut BTreeSet<&'s [u8]>),
        faults: &mut Vec<String>,
    ) {
        let (start, end) = (self.memory().region.start(segment), self.records_end(segment));
        let (mut offset, mut live) = (0, 0);
        while offset < end {
            let loc = start + u64::from(offset);
            let Some((record, extent)) = self.record_within(loc) else {
                faults.push(format!("segment {segment} has no record at byte {offset} of {end}"));
                break;
            };
            offset += extent;
            let Record::Item(item) = record else { continue };
            while let Some((slot, others)) = slots.split_first()
                && slot.loc() <= loc
            {
                slots = others;
                if slot.loc() != loc {
                    faults.push(format!("a slot points to {:#x}, where no item is", slot.loc()));
                    continue;
                }
                if !keys.insert(item.key()) {
                    let key = item.key().escape_ascii();
                    faults.push(format!("two slots hold the key {key}; one points to {loc:#x}"));
                }
                live += extent;
                self.audit_item(segment, &item, sums, faults);
            }
        }
        for slot in slots {
            faults.push(format!("a slot points to {:#x}, where no item is", slot.loc()));
        }
        let (there, state) = (self.log.segment(segment), self.log.segment(segment).state());
        // The counters still include the bytes of items that a pass has unlinked, until the segment
        // is retired or freed. A segment that the pass could not empty stays marked as uncounted.
        if state == Some(State::Draining) || there.is_uncounted() {
            self.add_uncounted(segment, live, sums);
        } else if there.live() != live {
            let counted = there.live();
            faults.push(format!(
                "{state:?} segment {segment} has {live} live bytes, but its counter is {counted}"
            ));
        }
    }

    /// Adds the bytes of the segment's unlinked items that the counters still include.
    fn add_uncounted(&self, segment: u32, live: u32, sums: &mut Sums) {
        let bytes = self.log.segment(segment).miscounted().wrapping_sub_unsigned(live);
        sums.bytes = sums.bytes.wrapping_add_signed(bytes.into());
        if self.log.queue_of(segment) == Queue::Probation {
            sums.probation_bytes = sums.probation_bytes.wrapping_add_signed(bytes.into());
        }
    }

    fn audit_item(&self, segment: u32, item: &Item<'_>, sums: &mut Sums, faults: &mut Vec<String>) {
        let key = item.key().escape_ascii();
        let there = self.log.segment(segment);
        sums.items += 1;
        let bytes = item.all_bytes();
        sums.bytes = sums.bytes.wrapping_add(bytes);
        if self.log.queue_of(segment) == Queue::Probation {
            sums.probation_bytes = sums.probation_bytes.wrapping_add(bytes);
        }
        let exptime = if item.exptime() == 0 { u32::MAX } else { item.exptime() };
        let (first, last) = (there.min_exp(), there.max_exp());
        if exptime > last || (exptime < first && !there.is(State::Draining)) {
            faults.push(format!(
                "the item {key} expires at {exptime}, but its segment {segment} has noted expiries \
                 from {first} to {last} only"
            ));
        }
        if let Some(head) = item.first_frame() {
            let (value_bytes, log_bytes) = item.value_bytes();
            if sums.chains.insert(head, value_bytes - log_bytes).is_some() {
                faults.push(format!("the item {key} shares frame {head} with another item"));
            }
            if !there.has_frames() {
                faults.push(format!(
                    "the item {key} has frames, but its segment {segment} is not marked accordingly"
                ));
            }
        }
    }

    fn audit_sums(&self, sums: &Sums, faults: &mut Vec<String>) {
        let mut stats = crate::Stats::default();
        self.counters.iter().for_each(|counters| stats.add(&crate::Stats::of(counters)));
        for (what, counted, due) in [
            ("items", stats.curr_items, sums.items),
            ("bytes", stats.bytes, sums.bytes),
            ("bytes in probation", stats.probation_bytes, sums.probation_bytes),
        ] {
            if counted != due {
                let counted = counted.cast_signed();
                faults.push(format!("the store has {due} {what}, but its counter is {counted}"));
            }
        }
        // Each online column may have linked or unlinked items that it has not reported yet.
        let online = self.memory().quiescence.online() as u64;
        let unreported = online * ITEMS_LUMP.unsigned_abs();
        let (reported, items) = (self.index.counted(), sums.items.cast_signed());
        if (reported - items).unsigned_abs() > unreported {
            faults.push(format!(
                "the store has {items} items, but columns have reported {reported} to the index"
            ));
        }
        let of_index = (0..self.memory().segments.count())
            .filter(|segment| self.log.segment(*segment).is(State::Index))
            .count();
        let granted = self.index.granted_bytes();
        if granted != of_index * self.memory().region.segment_bytes() as usize {
            faults.push(format!(
                "the index has {of_index} segments, which do not make its {granted} granted bytes"
            ));
        }
    }

    /// Checks that each draining segment belongs to the harvest, a parked drain or a drain token.
    fn audit_walks(&self, faults: &mut Vec<String>) {
        let Ok(parked) = self.chores.parked.try_lock() else { return };
        let Some(gathered) = self.chores.harvest.claimed() else { return };
        let mut walked: Vec<u32> = parked.iter().map(Drain::segment).collect();
        walked.extend(gathered);
        let claims = walked.len();
        walked.sort_unstable();
        walked.dedup();
        let draining = |segment: &u32| self.log.segment(*segment).is(State::Draining);
        if walked.len() != claims || !walked.iter().all(draining) {
            faults.push(format!(
                "{claims} segments are gathered or have parked drains, but some of them are not \
                 draining or occur twice: {walked:?}"
            ));
        }
        let all = (0..self.memory().segments.count()).filter(draining).count();
        // Relaxed: the number is only compared. Unless a drain is parked, a column holds its token.
        let tokens = self.chores.tokens.load(Ordering::Relaxed).count_ones() as usize;
        let own = tokens.wrapping_sub(parked.len());
        let online = self.memory().quiescence.online();
        if own > online || all != walked.len() + own {
            let (walked, parked) = (walked.len(), parked.len());
            faults.push(format!(
                "draining segments and drain tokens do not agree: {all} segments are draining; \
                 {walked} segments are gathered or have parked drains; {tokens} drain tokens are \
                 in use, {parked} of them by parked drains and the others by columns, of which \
                 {online} are online"
            ));
        }
    }
}
