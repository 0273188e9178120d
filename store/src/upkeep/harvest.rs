//! The harvest claims segments in which items have expired or were flushed, and unlinks these
//! items: by one pass through the index for many segments, or by a walk through each segment.
//!
//! Where: called by background work, and by appends that make room before they evict items.
//! Invariant: a gathered segment is claimed, so only the harvest works on the segment. If all items
//! of a segment are dead, the segment is retired once no slot names any of them. Each dead item is
//! checked again under its group's lock: a touch comes before the check or finds no item.
//! Source: a walk takes time for each dead item, and a pass for each line of the index, like
//! reference counting and mark-sweep (Bacon, Cheng and Rajan, OOPSLA 2004).

use crate::column::handle::View;
use crate::engine::find::Fate;
use crate::engine::link::ReapedCounts;
use crate::index::FoundSlot;
use crate::index::pass::Marks;
use crate::upkeep::sweep::{Sweep, is_dead};
use memory::plant::{self, Fault};
use memory::segments::State;
use memory::sync::{AtomicU32, Mutex, Ordering};

/// Maximum number of segments that the harvest has claimed at a time.
const GATHERED_MAX: u32 = 4096;
/// Maximum number of segments that one slice of work claims or retires.
const SLICE_SEGMENTS: u32 = 64;
/// Number of lines that a pass visits in the time in which a walk unlinks one item, as measured by
/// `bench store -- expiry`.
const ITEM_LINES: u64 = 6;
/// Number of bytes of records that a walk reads in the time in which a pass visits one line.
const LINE_BYTES: u32 = 8;

#[derive(Debug)]
pub(crate) struct Harvest {
    gathered: Mutex<Claims>,
    waiting: AtomicU32,
}

#[derive(Debug)]
struct Claims {
    dead: Vec<u32>,
    /// Segments to be walked, because some of their items are live or have frames to be given back.
    mixed: Vec<u32>,
    /// Segments whose live items must be moved, because a pass has found live items in the segment
    /// or has marked the segment as uncounted.
    alive: Vec<u32>,
    marks: Marks,
    dead_bytes: u64,
    /// The latest second in which a segment was claimed.
    now: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gathering,
    Passing(u64),
    /// The pass is complete: no slot names a dead item of a segment in `dead`.
    Retiring,
}

impl Harvest {
    pub(crate) fn new(segments_max: u32, segment_log: u32) -> Self {
        let most = segments_max.min(GATHERED_MAX) as usize;
        let list = || Vec::with_capacity(most);
        let gathered = Claims {
            dead: list(),
            mixed: list(),
            alive: list(),
            marks: Marks::new(segments_max, segment_log),
            dead_bytes: 0,
            now: 0,
            stage: Stage::Gathering,
        };
        Self { gathered: Mutex::new(gathered), waiting: AtomicU32::new(0) }
    }

    pub(crate) fn bytes(&self, segments: u32) -> usize {
        segments.next_power_of_two() as usize + 3 * segments.min(GATHERED_MAX) as usize * 4
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0 // a hint
    }

    /// The claimed segments, for the audit; `None` if another column has the lock.
    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn claimed(&self) -> Option<Vec<u32>> {
        let gathered = self.gathered.try_lock().ok()?;
        let Claims { dead, mixed, alive, .. } = &*gathered;
        // A segment in which a pass found live items is in both `alive` and `dead`.
        let alive = alive.iter().filter(|segment| !dead.contains(segment));
        Some(dead.iter().chain(mixed).chain(alive).copied().collect())
    }

    /// Claims due segments, continues a pass, or retires segments. Returns how much of `budget` was
    /// used; 0 if there is nothing to do, or if another column has the lock.
    pub(crate) fn work(&self, view: View<'_>, budget: u32) -> u32 {
        if !view.index.is_passing() && !view.log.calendar.may_be_due(view.handle.now) {
            return 0;
        }
        let Ok(mut gathered) = self.gathered.try_lock() else { return 0 };
        let work = match gathered.stage {
            Stage::Gathering => gathered.gather_due(view),
            Stage::Passing(group) => gathered.pass_slice(view, group, budget),
            Stage::Retiring => gathered.retire_slice(view),
        };
        self.note_waiting(view, &gathered);
        work
    }

    /// Checks segments `first..end`, and claims those of earlier epochs. Returns both counts.
    pub(crate) fn gather_flushed(&self, view: View<'_>, first: u32, end: u32) -> (u32, u32) {
        let Ok(mut gathered) = self.gathered.try_lock() else { return (0, 0) };
        let gathered = &mut *gathered;
        let (mut looked, mut claimed, epoch) = (0, 0, view.log.epoch());
        while first + looked < end
            && claimed < SLICE_SEGMENTS
            && gathered.stage == Stage::Gathering
            && gathered.count() < GATHERED_MAX as usize
        {
            let there = view.log.segment(first + looked);
            let is_it = there.is(State::Sealed) && there.epoch() != epoch;
            claimed += u32::from(is_it && gathered.gather(view, first + looked));
            looked += 1;
        }
        if first + looked == end || gathered.count() == GATHERED_MAX as usize {
            gathered.begin_pass(view);
        }
        self.note_waiting(view, gathered);
        (looked, claimed)
    }

    /// Takes a claimed segment, and a walk that unlinks its dead items. Without a walk, its live
    /// items must be moved out. Returns `None` if no segment waits or another column has the lock.
    pub(crate) fn next(&self, view: View<'_>) -> Option<(u32, Option<Sweep>)> {
        if self.is_empty() {
            return None;
        }
        let mut gathered = self.gathered.try_lock().ok()?;
        if gathered.stage != Stage::Gathering {
            return None;
        }
        let next = gathered.pop(view);
        self.note_waiting(view, &gathered);
        next
    }

    fn note_waiting(&self, view: View<'_>, gathered: &Claims) {
        let waiting = match gathered.stage {
            Stage::Gathering => u32::try_from(gathered.count()).unwrap_or(u32::MAX),
            Stage::Passing(_) | Stage::Retiring => 0,
        };
        if self.waiting.swap(waiting, Ordering::Relaxed) == 0 && waiting > 0 {
            view.log.note_change(); // the count itself is a hint
        }
    }
}

impl Claims {
    fn count(&self) -> usize {
        self.dead.len() + self.mixed.len() + self.alive.len()
    }

    fn pop(&mut self, view: View<'_>) -> Option<(u32, Option<Sweep>)> {
        if let Some(segment) = self.alive.pop() {
            return Some((segment, None));
        }
        let walked = |segment| Some((segment, Some(Sweep::begin(view, segment))));
        if let Some(segment) = self.mixed.pop() {
            return walked(segment);
        }
        let segment = self.dead.pop()?;
        let bytes = u64::from(view.log.segment(segment).live());
        // Items unlinked meanwhile make `bytes` too low, so the sum is reset with the last segment.
        self.dead_bytes =
            if self.dead.is_empty() { 0 } else { self.dead_bytes.saturating_sub(bytes) };
        self.marks.set(segment, false);
        walked(segment)
    }

    /// Claims due segments. When no segment is due any more, may begin a pass.
    fn gather_due(&mut self, view: View<'_>) -> u32 {
        for _ in 0..SLICE_SEGMENTS {
            let due = || view.log.due(view.handle.now);
            let Some(segment) = (self.count() < GATHERED_MAX as usize).then(due).flatten() else {
                return u32::from(self.begin_pass(view));
            };
            if !self.gather(view, segment) {
                view.log.note_due(segment, view.handle.now + 1);
            }
        }
        SLICE_SEGMENTS
    }

    fn gather(&mut self, view: View<'_>, segment: u32) -> bool {
        let there = view.log.segment(segment);
        if !there.drainable() || !there.change(State::Sealed, State::Draining) {
            return false;
        }
        // The column that ends the claim notes when the segment is due again.
        view.log.note_due(segment, u32::MAX);
        self.now = self.now.max(view.handle.now);
        if there.is_uncounted() {
            self.alive.push(segment);
        } else if is_dead(view, there, view.handle.now) && !there.has_frames() {
            self.dead.push(segment);
            self.dead_bytes += u64::from(there.live());
            self.marks.set(segment, true);
        } else {
            self.mixed.push(segment);
        }
        true
    }

    /// Begins a pass if a pass is cheaper than a walk through each dead segment.
    fn begin_pass(&mut self, view: View<'_>) -> bool {
        let items = self.dead_bytes / u64::from(view.mean_item_bytes().max(1));
        let pays = items * ITEM_LINES >= view.index.home_lines() && !self.dead.is_empty();
        let begins = pays && view.index.begin_pass();
        if begins {
            self.stage = Stage::Passing(0);
            view.log.note_change();
        }
        begins
    }

    fn pass_slice(&mut self, view: View<'_>, group: u64, budget: u32) -> u32 {
        let Claims { marks, alive, .. } = self;
        let (mut gone, now) = (ReapedCounts::default(), self.now);
        let is_dead = |found: FoundSlot<'_>| {
            let slot = found.slot();
            let there = view.log.segment_of(slot.loc());
            // Usually the segment's latest exptime has passed, but a touch may have made it later.
            let fate = match there.max_exp() <= now {
                true => Fate::Expired,
                false if there.epoch() != view.log.epoch() => Fate::Flushed,
                false => view.fate(&view.item(found.loc()), slot.loc()),
            };
            gone.note(fate, slot);
            let segment = view.memory().region.segment_of(slot.loc());
            if fate == Fate::Live && !alive.contains(&segment) {
                alive.push(segment);
            }
            fate != Fate::Live
        };
        let lines_max = u64::from(budget / LINE_BYTES).max(1);
        let passed = view.index.pass(view.moment(), group, lines_max, marks, is_dead);
        self.stage = passed.next.map_or(Stage::Retiring, Stage::Passing);
        view.counters().crawler_items_checked.add(gone.count(view).into());
        u32::try_from(passed.lines).unwrap_or(u32::MAX).saturating_mul(LINE_BYTES).max(1)
    }

    /// Retires the segments that a pass has emptied. Marks segments with live items as uncounted.
    fn retire_slice(&mut self, view: View<'_>) -> u32 {
        for _ in 0..SLICE_SEGMENTS {
            let Some(segment) = self.dead.pop() else {
                self.dead_bytes = 0;
                self.stage = Stage::Gathering;
                view.index.end_pass();
                break;
            };
            self.marks.set(segment, false);
            let there = view.log.segment(segment);
            if self.alive.contains(&segment) {
                if !plant::is(Fault::PassForgotten) {
                    there.set_uncounted();
                }
            } else {
                let bytes = there.unlink_all();
                let queue = view.log.queue_of(segment);
                view.counters().unlink(queue, bytes.into(), bytes);
                view.log.retire(segment);
            }
        }
        SLICE_SEGMENTS
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_memory_told_is_that_of_three_lists_and_a_byte_for_each_segment() {
        for (segments, marks) in [(1, 1), (100, 128), (4096, 4096), (5000, 8192)] {
            let harvest = Harvest::new(segments, 16);
            let gathered = harvest.gathered.lock().unwrap();
            let lists = [&gathered.dead, &gathered.mixed, &gathered.alive];
            let listed: usize = lists.iter().map(|list| list.capacity()).sum();
            assert_eq!(harvest.bytes(segments), marks + listed * size_of::<u32>(), "{segments}");
        }
    }
}
