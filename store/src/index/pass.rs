//! A pass through the index: empties the slots of all dead items of some segments, at a few
//! nanoseconds per line. If many items die together, a pass is cheaper than a lookup for each item.
//!
//! Where: the harvest, when many of the items that the index names are dead.
//! Invariant: a pass misses no slot: it handles each group as a whole, under the group's lock.
//! During a pass the index may grow, which sends slots to groups that the pass has not reached yet.
//! The index does not contract, because contraction would send slots to groups that the pass has
//! left. After a pass, no slot names an item that was dead when the pass began.
//! Source: the sweep of a mark-sweep garbage collector, applied to the roots.

#![allow(unsafe_code, reason = "a table is read without a check of its bounds, slot by slot")]

use super::Index;
use super::found::{FoundSlot, Moment};
use super::locked::LockedGroup;
use super::slot::Slot;
use super::width::Address;
use super::word::{OVERFLOW_AT, SPILLED_AT, index, put_in};
use memory::sync::{AtomicU64, Ordering};

/// Lines are prefetched this number of groups before the pass reaches their group.
const AHEAD_GROUPS: u64 = 6;
const AHEAD_OVERFLOW: u64 = 3;

/// The set of dead segments: a byte for each segment is 1 if the segment is dead; the rest are 0.
#[derive(Debug)]
pub(crate) struct Marks {
    marks: Box<[u8]>,
    mask: u64,
    segment_log: u32,
}

impl Marks {
    pub(crate) fn new(segments_max: u32, segment_log: u32) -> Self {
        let count = segments_max.next_power_of_two();
        Self { marks: vec![0; count as usize].into(), mask: u64::from(count) - 1, segment_log }
    }

    pub(crate) fn set(&mut self, segment: u32, is_dead: bool) {
        if let Some(mark) = self.marks.get_mut(segment as usize) {
            *mark = is_dead.into();
        }
    }

    /// A bit for each slot that names an item in a dead segment. An empty slot is taken for a slot
    /// that names an item in segment 0.
    #[inline(always)]
    fn named(&self, line: &[AtomicU64]) -> u32 {
        line.iter().rev().fold(0, |named, word| {
            // Relaxed: slots change only under this group's lock, except that hits count uses.
            let segment = (word.load(Ordering::Relaxed) >> self.segment_log) & self.mask;
            // SAFETY: there is a byte for each number up to `mask`.
            let mark = unsafe { *self.marks.get_unchecked(index(segment)) };
            (named << 1) | u32::from(mark)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassProgress {
    /// The group with which the pass continues; `None` if the pass is complete.
    pub(crate) next: Option<u64>,
    pub(crate) lines: u64,
}

impl Index {
    /// Begins a pass, during which the index does not contract. False: no pass can begin now.
    pub(crate) fn begin_pass(&self) -> bool {
        // `step_back` reads the flag under the same lock, so no step back is under way now.
        let Ok(_moving) = self.moving.try_lock() else { return false };
        self.passing.store(true, Ordering::Relaxed);
        true
    }

    pub(crate) fn end_pass(&self) {
        // Relaxed: the groups' locks publish the emptied slots, and the flag orders nothing.
        self.passing.store(false, Ordering::Relaxed);
    }

    /// True while a pass is under way. Without the lock of `moving`, the result is a hint.
    #[inline]
    pub(crate) fn is_passing(&self) -> bool {
        self.passing.load(Ordering::Relaxed)
    }

    pub(crate) fn home_lines(&self) -> u64 {
        self.width().total_lines()
    }

    /// Continues a pass from `group`, for about `lines_max` lines. Empties each slot that names an
    /// item in a dead segment, if `is_dead`, which is called under the group's lock, returns true.
    pub(crate) fn pass<'v>(
        &'v self,
        moment: Moment<'v>,
        mut group: u64,
        lines_max: u64,
        marks: &Marks,
        mut is_dead: impl FnMut(FoundSlot<'v>) -> bool,
    ) -> PassProgress {
        let mut lines = 0;
        while lines < lines_max {
            // The number of groups is read after the previous group was unlocked, so that it
            // includes each group to which a split moved slots that the pass had not reached.
            if group >= self.width().total_groups() {
                return PassProgress { next: None, lines };
            }
            // A hash that equals a group's number belongs to that group.
            let mut locked = self.lock(moment, group);
            self.prefetch_to_pass(locked.address);
            locked.pass(marks, &mut is_dead);
            lines += locked.address.lines;
            drop(locked);
            group += 1;
        }
        PassProgress { next: Some(group), lines }
    }

    /// Prefetches a later group, which probably has as many lines as the group at `here`.
    #[inline]
    fn prefetch_to_pass(&self, here: Address) {
        let ahead = Address { group: here.group + AHEAD_GROUPS, ..here };
        (0..here.lines).for_each(|line| self.lines.prefetch(ahead.line(line)));
        let soon = index(here.group + AHEAD_OVERFLOW).min(self.groups.len() - 1);
        // Relaxed: the word only chooses a line to prefetch.
        let overflow = self.groups.word(soon).load(Ordering::Relaxed) & OVERFLOW_AT;
        if overflow != 0 {
            self.overflow.prefetch(overflow);
        }
    }
}

/// Empties the slots of dead items in a line, under the group's lock. True if a slot was emptied.
#[inline(always)]
fn empty<'v>(
    line: &'v [AtomicU64],
    marks: &Marks,
    is_dead: &mut impl FnMut(FoundSlot<'v>) -> bool,
) -> bool {
    let mut named = marks.named(line);
    let mut emptied = false;
    while named != 0 {
        let word = &line[named.trailing_zeros() as usize];
        named &= named - 1;
        let found = FoundSlot::read(word);
        if found.slot().0 != 0 && is_dead(found) {
            word.store(0, Ordering::Release); // pairs with the Acquire of `probe`
            emptied = true;
        }
    }
    emptied
}

impl<'v> LockedGroup<'v> {
    #[inline]
    fn pass(&mut self, marks: &Marks, is_dead: &mut impl FnMut(FoundSlot<'v>) -> bool) {
        let mut emptied = 0_u64;
        for line in 0..self.address.lines {
            emptied |= u64::from(empty(self.line(line), marks, is_dead)) << line;
        }
        if self.word & OVERFLOW_AT != 0 {
            self.pass_overflow(emptied, marks, is_dead);
        }
    }

    /// Empties the slots of dead items in overflow lines. Then moves slots from overflow lines to
    /// the lines of the group in which slots were emptied: `emptied` has a bit for each such line.
    #[inline(never)]
    fn pass_overflow(
        &mut self,
        emptied: u64,
        marks: &Marks,
        is_dead: &mut impl FnMut(FoundSlot<'v>) -> bool,
    ) {
        let overflow = &self.index.overflow;
        let (mut at, mut holes) = (self.word & OVERFLOW_AT, false);
        while at != 0 {
            holes |= empty(overflow.slots(at), marks, is_dead);
            at = overflow.next(at);
        }
        if holes || emptied != 0 {
            self.moving(|locked| {
                locked.take_home(emptied);
                locked.close_holes();
            });
        }
    }

    /// Moves slots from overflow lines to their home line or other line, if the line's bit is set
    /// in `emptied`. Must be called within `LockedGroup::moving`.
    fn take_home(&mut self, emptied: u64) {
        let overflow = &self.index.overflow;
        let mut at = self.word & OVERFLOW_AT;
        while at != 0 {
            for word in overflow.slots(at) {
                // Relaxed: this column holds the group's lock.
                let slot = Slot(word.load(Ordering::Relaxed));
                if slot.0 == 0 {
                    continue;
                }
                let (home, other) = (self.address.home(slot.tag()), self.address.other(slot.tag()));
                let goes = |line: u64| emptied & (1 << line) != 0 && put_in(self.line(line), slot);
                if goes(home) || goes(other) {
                    debug_assert!(self.word & (1 << (u64::from(SPILLED_AT) + home)) != 0);
                    word.store(0, Ordering::Release); // pairs with the Acquire of `probe`
                }
            }
            at = overflow.next(at);
        }
    }

    /// Fills empty slots of later overflow lines with slots of the first line. When the first line
    /// is empty, the next line becomes the first line. Must be called within `LockedGroup::moving`.
    fn close_holes(&mut self) {
        let overflow = &self.index.overflow;
        let mut first = self.word & OVERFLOW_AT;
        let last_of = |line: u64| {
            // Relaxed, here and below: this column holds the group's lock.
            overflow.slots(line).iter().rfind(|word| word.load(Ordering::Relaxed) != 0)
        };
        let mut at = first;
        while at != 0 {
            for hole in overflow.slots(at) {
                if hole.load(Ordering::Relaxed) != 0 {
                    continue;
                }
                while first != at && last_of(first).is_none() {
                    first = self.drop_first(first);
                }
                if first != at
                    && let Some(word) = last_of(first)
                {
                    // Release pairs with the Acquire of `probe`.
                    hole.store(word.load(Ordering::Relaxed), Ordering::Release);
                    word.store(0, Ordering::Release);
                }
            }
            at = overflow.next(at);
        }
        while first != 0 && last_of(first).is_none() {
            first = self.drop_first(first);
        }
    }

    /// Gives back the first overflow line, which must be empty. Returns the new first line.
    fn drop_first(&mut self, first: u64) -> u64 {
        let next = self.index.overflow.next(first);
        self.word = (self.word & !OVERFLOW_AT) | next;
        self.index.overflow.give(first);
        next
    }
}
