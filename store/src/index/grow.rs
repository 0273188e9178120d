//! Growth and contraction of the index, by one line in each step, so that no step takes long.
//!
//! Where: a column that links or unlinks an item takes a step if the index wants to grow or shrink.
//! Invariant: only one column takes a step at a time. While a group's slots move, the group's
//! version is odd, and a reader that does not find its key searches again. Whenever the version is
//! even, each slot is in exactly one place.
//! Source: linear hashing (Litwin, 1980); a bucket is a group, which grows from 8 to 15 lines.

use super::found::{Loc, Moment};
use super::layout::Layout;
use super::overflow::SLOTS;
use super::slot::{Slot, tag};
use super::width::{Address, Homes, LINES_MAX, LINES_MIN, Width};
use super::word::{LOCK, ODD, OVERFLOW_AT, SPILLED_AT, VERSION, bump_version, index, put_in};
use super::{Index, LOAD_PERCENT_BACK, LOAD_PERCENT_MIN};
use memory::plant::{self, Fault};
use memory::quiescence::Quiescence;
use memory::sync::{Ordering, fence};
use memory::words::Words;

/// Maximum number of overflow lines that a step adds, reached if all slots share a home line.
const STEP_LINES_MAX: usize = 18;
/// Bytes of a group besides its lines: one word with its lock and version, and the words of the
/// ghost, which remember evicted keys.
pub(super) const GROUP_BYTES: usize = 8 + super::ghost::WORDS * 8;
/// Lines that a step back reads are prefetched this number of steps before that step.
const AHEAD_STEPS: u64 = 8;
/// If the lines take at least this number of bytes, huge pages are requested for all of the lines'
/// address space. In a smaller index, a partly used huge page would be a large share of the memory
/// in use, so a huge page is requested only once all its lines are in use; the kernel then merges
/// the small pages.
const HUGE_AHEAD_FROM_BYTES: usize = 16 << 20;
const HUGE_BYTES: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The index has one line more or, after a step back, one line less.
    Done,
    /// No step can be taken now.
    NotNow,
    /// The index must be granted memory first.
    NeedsMemory,
}

/// The state under the lock of `Index::moving`: buffers for the slots that a step moves, and the
/// progress of returning memory to the system.
#[derive(Debug)]
pub(super) struct MoveState {
    rest: [Vec<u64>; 2],
    /// The overflow lines from which the slots in `rest` came.
    chain: Vec<u64>,
    /// The largest width of the index after it last gave memory back to the system.
    pub(super) widest: Width,
    /// After the index shrank: an epoch of the store, and the index's width when the epoch began.
    /// Once all columns have passed the epoch, no column reads lines beyond that width.
    left: Option<(u64, Width)>,
    /// Bytes of lines for which huge pages were requested. `None`: huge pages are not wanted.
    pub(super) huge_bytes: Option<usize>,
}

impl MoveState {
    pub(super) fn new(width: Width) -> Self {
        Self {
            rest: [Vec::new(), Vec::new()],
            chain: Vec::new(),
            widest: width,
            left: None,
            huge_bytes: None,
        }
    }

    pub(super) fn ask_for_huge(&mut self, lines: &Words, width: Width) {
        let Some(asked_bytes) = self.huge_bytes else { return };
        let bytes = huge_bytes(index(width.total_lines()) * 64);
        if bytes > asked_bytes {
            lines.want_huge(bytes);
            self.huge_bytes = Some(bytes);
        }
    }

    /// Lays out the slots of `groups` again: in the first `lines_each` lines of the first group or,
    /// if `HALVES`, of each of the two groups. One group at the address `planes` would have all
    /// lines of `groups`.
    pub(super) fn lay_out<const HALVES: bool>(
        &mut self,
        groups: &mut [&mut Group<'_>],
        planes: Address,
        lines_each: u64,
        mut half_of: impl FnMut(Slot) -> u64,
    ) {
        let Some(index) = groups.first().map(|group| group.index) else { return };
        self.rest.iter_mut().for_each(Vec::clear);
        let mut layout = Layout::<HALVES>::new(lines_each);
        let lines = (0..planes.lines).map(|plane| index.lines.line(planes.line(plane)));
        for (plane, line) in lines.clone().enumerate() {
            layout.read(plane, line, &mut half_of, &mut self.rest);
        }
        for group in groups.iter_mut() {
            let mut at = group.word & OVERFLOW_AT;
            while at != 0 {
                for word in index.overflow.slots(at) {
                    let slot = Slot(word.load(Ordering::Relaxed)); // the group is locked
                    if slot.0 != 0 {
                        let half = HALVES && half_of(slot) != 0;
                        self.rest[usize::from(half)].push(slot.0);
                    }
                }
                self.chain.push(at);
                at = index.overflow.next(at);
            }
            group.word &= VERSION;
        }
        let halves = if HALVES { 2 } else { 1 };
        for (half, group) in (0..halves).zip(groups) {
            let rest = &mut self.rest[usize::from(half != 0)];
            layout.place(half, rest);
            group.word |= layout.spilled(half) << SPILLED_AT;
            group.word |= overflow(index, rest, &mut self.chain);
        }
        for (plane, line) in lines.enumerate() {
            layout.write(plane, line);
        }
        for at in self.chain.drain(..) {
            // Relaxed: the Release in `Overflow::give` publishes the zeros to the next `take`.
            index.overflow.slots(at).iter().for_each(|word| word.store(0, Ordering::Relaxed));
            index.overflow.give(at);
        }
    }
}

fn huge_bytes(line_bytes: usize) -> usize {
    if line_bytes < HUGE_AHEAD_FROM_BYTES {
        line_bytes / HUGE_BYTES * HUGE_BYTES
    } else {
        usize::MAX
    }
}

/// Puts `slots` into the lines of `chain`, and the rest into new lines. Returns the first line.
fn overflow(index: &Index, slots: &[u64], chain: &mut Vec<u64>) -> u64 {
    let mut first = 0;
    for slots in slots.chunks(SLOTS) {
        // Takes a new line even beyond the granted memory, since no slot may be lost.
        let taken = chain.pop().or_else(|| index.take_overflow(true));
        debug_assert!(taken.is_some(), "a few lines are kept for this");
        let Some(at) = taken else { break };
        let slots = slots.iter().copied().chain(std::iter::repeat(0));
        for (word, slot) in index.overflow.slots(at).iter().zip(slots) {
            word.store(slot, Ordering::Release); // pairs with the Acquire of `probe`
        }
        index.overflow.set_next(at, first);
        first = at;
    }
    first
}

impl Index {
    #[inline]
    pub(crate) fn wants_to_grow(&self) -> bool {
        // Relaxed: the sum and the bound may be slightly out of date.
        self.items.load(Ordering::Relaxed) > self.width.most_items.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn wants_to_shrink(&self) -> bool {
        // Relaxed: the sum and the bound may be slightly out of date.
        self.items.load(Ordering::Relaxed) < self.width.fewest_items.load(Ordering::Relaxed)
    }

    /// Adds a line. `hash_of`, called under the group's lock, returns the hash of an item's key.
    pub(crate) fn step<'v>(
        &self,
        moment: Moment<'v>,
        mut hash_of: impl FnMut(Loc<'v>) -> u64,
    ) -> Step {
        let Ok(mut moving) = self.moving.try_lock() else { return Step::NotNow };
        let width = self.width();
        if !self.may_be_wider(width) || !self.has_room() {
            return Step::NotNow;
        }
        if self.bytes() + STEP_LINES_MAX * 64 + GROUP_BYTES > self.granted_bytes() {
            return Step::NeedsMemory;
        }
        let Some(mut group) = self.begin_moving(width.stepped) else { return Step::NotNow };
        let planes =
            Address { group: width.stepped, groups_log: width.groups_log, lines: width.lines + 1 };
        moving.left = None;
        if width.lines < LINES_MAX {
            moving.lay_out::<false>(&mut [&mut group], planes, planes.lines, |_| 0);
            self.publish(width.wider(), LOAD_PERCENT_MIN);
            group.end_moving();
        } else {
            let bit = width.groups_log;
            // A column that computed its address in a wider index may still hold this group's lock.
            let Some(mut upper) = self.begin_moving(width.stepped + (1 << bit)) else {
                group.end_moving();
                return Step::NotNow;
            };
            let hash_of = |slot| hash_of(Loc::of(slot, moment));
            self.split([&mut group, &mut upper], planes, &mut moving, hash_of);
            self.publish(width.wider(), LOAD_PERCENT_MIN);
            upper.end_moving();
            group.end_moving();
        }
        if width.wider().total_lines() > moving.widest.total_lines() {
            moving.widest = width.wider();
            moving.ask_for_huge(&self.lines, width.wider());
        }
        Step::Done
    }

    /// True if there is address space for one more line.
    pub(super) fn may_be_wider(&self, width: Width) -> bool {
        index(width.total_lines() + 1) * 8 <= self.lines.len()
            && index(width.total_groups()) < self.groups.len()
    }

    /// Splits a group that would get 16 lines into two groups of 8 lines.
    fn split(
        &self,
        [group, upper]: [&mut Group<'_>; 2],
        planes: Address,
        moving: &mut MoveState,
        mut hash_of: impl FnMut(Slot) -> u64,
    ) {
        debug_assert_eq!(upper.word & OVERFLOW_AT, 0, "a new group has no overflow lines yet");
        self.ghost.copy(group.at, upper.at);
        let half_of = |slot: Slot| {
            let hash = hash_of(slot);
            debug_assert_eq!(slot.tag(), tag(hash), "a slot's tag is its key's");
            (hash >> planes.groups_log) & 1
        };
        moving.lay_out::<true>(&mut [group, upper], planes, LINES_MIN, half_of);
    }

    /// Prefetches lines for later steps back: the lines that `fold` will read `AHEAD_STEPS` steps
    /// from now, and the lines to which `fold` will move slots half this number of steps from now.
    pub(crate) fn prefetch_to_step_back(&self) {
        let width = self.width();
        let ahead = |steps: u64| {
            // `None` if that step is in the next round over the groups: then nothing is prefetched.
            let group = width.stepped.checked_sub(steps)?;
            let merges = width.lines == LINES_MAX;
            Some((Address { group, groups_log: width.groups_log, lines: width.lines + 1 }, merges))
        };
        if let Some((planes, merges)) = ahead(AHEAD_STEPS) {
            self.groups.prefetch(planes.group() / 8);
            let first = if merges { 0 } else { planes.lines - 1 };
            (first..planes.lines).for_each(|line| self.lines.prefetch(planes.line(line)));
        }
        if let Some((planes, false)) = ahead(AHEAD_STEPS / 2) {
            // Relaxed, here and below: if the value is old, useless lines are prefetched.
            let word = self.groups.word(planes.group()).load(Ordering::Relaxed);
            let last = planes.lines - 1;
            if must_lay_out(word, last) {
                (0..last).for_each(|line| self.lines.prefetch(planes.line(line)));
                return;
            }
            let homes = Homes::of(last);
            for word in self.lines.line(planes.line(last)) {
                let slot = Slot(word.load(Ordering::Relaxed));
                if slot.0 != 0 {
                    self.lines.prefetch(planes.line(homes.home(slot.tag())));
                }
            }
        }
    }

    /// Removes the line that the last step added.
    #[inline(never)]
    pub(crate) fn step_back(&self) -> Step {
        let Ok(mut moving) = self.moving.try_lock() else { return Step::NotNow };
        let width = self.width();
        let passing = self.is_passing() && !plant::is(Fault::ContractedInPass);
        let is_least = width.pack() == self.least.load(Ordering::Relaxed);
        if is_least || passing || !self.has_room() {
            return Step::NotNow;
        }
        let back = width.narrower();
        let Some(mut group) = self.begin_moving(back.stepped) else { return Step::NotNow };
        let planes =
            Address { group: back.stepped, groups_log: back.groups_log, lines: back.lines + 1 };
        if back.lines < LINES_MAX {
            if !group.fold(planes) {
                moving.lay_out::<false>(&mut [&mut group], planes, back.lines, |_| 0);
            }
            self.publish(back, LOAD_PERCENT_BACK);
        } else {
            let upper = back.stepped + (1 << back.groups_log);
            let Some(mut upper) = self.begin_moving(upper) else {
                group.end_moving();
                return Step::NotNow;
            };
            moving.lay_out::<false>(&mut [&mut group, &mut upper], planes, back.lines, |_| 0);
            self.ghost.merge(group.at, upper.at);
            self.publish(back, LOAD_PERCENT_BACK);
            upper.end_moving();
        }
        group.end_moving();
        Step::Done
    }

    pub(crate) fn has_to_spare(&self, lump: usize) -> bool {
        self.used(self.width(), lump) + 2 * lump <= self.granted_bytes()
    }

    /// Bytes that the index uses once the memory beyond `width` is returned to the system. Only
    /// whole huge pages are returned: the kernel would refill a page that is returned in part.
    fn used(&self, width: Width, lump: usize) -> usize {
        let lines = index(width.total_lines()) * 64;
        let now = index(self.width().total_lines()) * 64;
        self.bytes().saturating_sub(now) + lines.next_multiple_of(2 * lump)
    }

    /// Returns the memory beyond the index's width to the system. Returns true if the index can do
    /// without `lump` bytes of its granted memory. In this case `take` is called, and if `take`
    /// returns true, these bytes are no longer granted to the index.
    pub(crate) fn give_back(
        &self,
        lump: usize,
        quiescence: &Quiescence,
        take: impl FnOnce() -> bool,
    ) -> bool {
        let Ok(mut moving) = self.moving.try_lock() else { return false };
        let width = self.width();
        if moving.widest.total_lines() > width.total_lines() {
            let Some((epoch, left)) = moving.left else {
                moving.left = Some((quiescence.retire(), width));
                return false;
            };
            if !quiescence.passed(epoch) && !plant::is(Fault::GivenBackAtOnce) {
                return false;
            }
            // The index has not grown since `left` was set, as `step` would have cleared `left`.
            let widest = moving.widest;
            let lines = [left, widest].map(|width| index(width.total_lines()) * 64);
            let groups = [left, widest].map(|width| index(width.total_groups()));
            self.lines.give_back_rest(lines[0].next_multiple_of(2 * lump), lines[1]);
            self.groups.give_back_rest(groups[0] * 8, groups[1] * 8);
            self.ghost.give_back_rest(groups[0], groups[1]);
            (moving.widest, moving.left) = (left, None);
        }
        let spares = self.used(moving.widest, lump) + 2 * lump <= self.granted_bytes();
        // The lock of `moving` is still held, so no other column takes the same bytes.
        if spares && take() {
            self.granted.fetch_sub(lump, Ordering::Relaxed); // a limit, which orders nothing
        }
        spares
    }

    /// Locks a group if its lock is free, and makes its version odd, so that its slots may move.
    fn begin_moving(&self, group: u64) -> Option<Group<'_>> {
        let word = self.lock_group(index(group))?;
        let group = Group { index: self, at: index(group), word: bump_version(word) };
        // Relaxed: the fence below orders this store.
        self.groups.word(group.at).store(group.word | LOCK, Ordering::Relaxed);
        fence(Ordering::Release);
        Some(group)
    }
}

/// True if a slot whose home line is the group's last line may be in another line.
fn must_lay_out(word: u64, last: u64) -> bool {
    word & ((1 << (u64::from(SPILLED_AT) + last)) | OVERFLOW_AT) != 0
}

pub(super) struct Group<'i> {
    pub(super) index: &'i Index,
    pub(super) at: usize,
    pub(super) word: u64,
}

impl Group<'_> {
    /// Moves the slots of the group's last line to the group's other lines. Returns false if the
    /// group must be laid out again, because a slot of the last line found no room, or a slot whose
    /// home line is the last line may be in another line. Each slot is still in exactly one place.
    fn fold(&mut self, planes: Address) -> bool {
        let last = planes.lines - 1;
        if must_lay_out(self.word, last) {
            return false;
        }
        let (homes, lines) = (Homes::of(last), &self.index.lines);
        for word in lines.line(planes.line(last)) {
            // Relaxed: without this group's lock only hits store slots.
            let slot = Slot(word.load(Ordering::Relaxed));
            if slot.0 == 0 {
                continue;
            }
            let home = homes.home(slot.tag());
            if !put_in(lines.line(planes.line(home)), slot) {
                if !put_in(lines.line(planes.line(homes.other(slot.tag()))), slot) {
                    return false;
                }
                self.word |= 1 << (u64::from(SPILLED_AT) + home);
            }
            word.store(0, Ordering::Release); // pairs with the Acquire of `probe`
        }
        true
    }

    fn end_moving(self) {
        let word = bump_version(self.word);
        debug_assert_eq!(word & ODD, 0);
        // Release pairs with the Acquire of `lock_group` and `find_validated`.
        self.index.groups.word(self.at).store(word, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_asked_for_under_whole_ones_and_then_ahead() {
        let megabytes = |lines: usize| huge_bytes(lines << 20) >> 20;
        assert_eq!([0, 1, 2, 3, 4, 15].map(megabytes), [0, 0, 2, 2, 4, 14]);
        assert_eq!(huge_bytes(16 << 20), usize::MAX);
    }
}
