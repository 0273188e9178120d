//! Growth of the index, one line a step, so that nothing ever stops the world.
//!
//! Where: a column that links an item while the lines are full steps once.
//! Invariant: one step at a time; while a group's slots move its version is odd, and readers who
//! missed in between look again. A slot is in one place whenever the version is even.
//! Source: linear hashing (Litwin, 1980), by groups that grow from 8 to 15 lines before they split.

use super::slot::{Slot, tag};
use super::{
    Address, Index, LINES_MAX, LINES_MIN, LOCK, ODD, OVERFLOW_AT, OVERFLOW_SLOTS, SPILLED_AT,
    VERSION, Width, index,
};
use memory::sync::{AtomicU64, Ordering, fence};

/// Items per home slot, in percent, from which on the index grows.
const LOAD_PERCENT_MAX: u64 = 105;
/// Overflow lines a step may need beyond those it frees: all of 16 lines' slots at home in one.
const STEP_LINES_MAX: usize = 18;
/// A new group's word, and its part of the ghost.
const GROUP_BYTES: usize = 8 + super::ghost::WORDS * 8;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One line more.
    Grown,
    /// Nothing to do, or another column is at it.
    NotNow,
    /// It must be granted memory first.
    NeedsMemory,
}

impl Index {
    /// Has it more items than its lines should hold?
    #[inline]
    pub(crate) fn wants_to_grow(&self) -> bool {
        let items = u64::try_from(self.items.load(Ordering::Relaxed)).unwrap_or(0); // a sum
        items * 100 > self.home_slots() * LOAD_PERCENT_MAX
    }

    /// Adds a line. `hash_of` gives the hash of the key of a linked item, read under the group's
    /// lock.
    pub(crate) fn step(&self, hash_of: impl FnMut(Slot) -> u64) -> Step {
        let Ok(mut moving) = self.moving.try_lock() else { return Step::NotNow };
        let width = self.width();
        let room = index(width.total_lines() + 1) * 8 <= self.lines.len()
            && index(width.total_groups()) < self.groups.len();
        if !room {
            return Step::NotNow;
        }
        if self.bytes() + STEP_LINES_MAX * 64 + GROUP_BYTES > self.granted_bytes() {
            return Step::NeedsMemory;
        }
        let Some(word) = self.lock_group(index(width.stepped)) else { return Step::NotNow };
        let mut group = Group { index: self, at: index(width.stepped), word };
        group.begin_moving();
        let from =
            Address { group: width.stepped, groups_log: width.groups_log, lines: width.lines };
        moving.clear();
        group.take_all(from, &mut moving);
        match width.lines {
            LINES_MAX => self.split(width, group, &moving, hash_of),
            _ => self.widen(width, group, &moving),
        }
        Step::Grown
    }

    /// The next group gets a line more.
    fn widen(&self, width: Width, mut group: Group<'_>, slots: &[u64]) {
        let to =
            Address { group: width.stepped, groups_log: width.groups_log, lines: width.lines + 1 };
        slots.iter().for_each(|slot| group.put(to, Slot(*slot)));
        self.publish(width);
        group.end_moving();
    }

    /// The next group, with 16 lines to be, becomes two of 8.
    fn split(
        &self,
        width: Width,
        mut group: Group<'_>,
        slots: &[u64],
        mut hash_of: impl FnMut(Slot) -> u64,
    ) {
        let groups_log = width.groups_log + 1;
        let half = |group| Address { group, groups_log, lines: LINES_MIN };
        let (low, high) = (half(width.stepped), half(width.stepped + (1 << width.groups_log)));
        let mut upper = Group { index: self, at: high.group(), word: 0 };
        // Nobody is sent here before the new width is published.
        upper.begin_moving();
        for slot in slots.iter().map(|slot| Slot(*slot)) {
            let hash = hash_of(slot);
            debug_assert_eq!(slot.tag(), tag(hash), "a slot's tag is its key's");
            match (hash >> width.groups_log) & 1 {
                0 => group.put(low, slot),
                _ => upper.put(high, slot),
            }
        }
        self.ghost.copy(group.at, upper.at);
        self.publish(width);
        upper.end_moving();
        group.end_moving();
    }

    fn publish(&self, mut width: Width) {
        width.stepped += 1;
        if width.stepped == 1 << width.groups_log {
            width.stepped = 0;
            width.lines += 1;
            if width.lines > LINES_MAX {
                width.lines = LINES_MIN;
                width.groups_log += 1;
            }
        }
        // Release pairs with the Acquire in `Index::width`.
        self.width.store(width.pack(), Ordering::Release);
    }
}

/// A group under the lock while its slots move.
struct Group<'i> {
    index: &'i Index,
    at: usize,
    word: u64,
}

impl Group<'_> {
    fn begin_moving(&mut self) {
        self.bump_version();
        // Relaxed: ordered by the fence.
        self.index.groups.word(self.at).store(self.word | LOCK, Ordering::Relaxed);
        fence(Ordering::Release); // pairs with the Acquire fence of a validating reader
    }

    /// Also unlocks.
    fn end_moving(mut self) {
        self.bump_version();
        debug_assert_eq!(self.word & ODD, 0);
        // Release pairs with the Acquire of the next lock, and of readers.
        self.index.groups.word(self.at).store(self.word, Ordering::Release);
    }

    fn bump_version(&mut self) {
        self.word = (self.word & !(VERSION | LOCK)) | (self.word.wrapping_add(ODD) & VERSION);
    }

    /// Empties all lines, home and overflow, into `slots`, and gives the overflow lines back.
    fn take_all(&mut self, from: Address, slots: &mut Vec<u64>) {
        let mut empty = |line: &[AtomicU64]| {
            for word in line {
                // Relaxed: the versions order it; the swap takes along what a hit just counted.
                match word.swap(0, Ordering::Relaxed) {
                    0 => {}
                    slot => slots.push(slot),
                }
            }
        };
        (0..from.lines).for_each(|home| empty(self.index.lines.line(from.line(home))));
        let mut at = self.word & OVERFLOW_AT;
        while at != 0 {
            let line = self.index.overflow.line(index(at));
            empty(&line[..OVERFLOW_SLOTS]);
            let next = line[OVERFLOW_SLOTS].load(Ordering::Relaxed); // changed only under this lock
            self.index.give_overflow(at);
            at = next;
        }
        self.word &= VERSION;
    }

    /// Puts a slot where it belongs at `to`.
    fn put(&mut self, to: Address, slot: Slot) {
        let home = to.home(slot.tag());
        if super::put_in(self.index.lines.line(to.line(home)), slot) {
            return;
        }
        self.word |= 1 << (u64::from(SPILLED_AT) + home);
        let first = self.word & OVERFLOW_AT;
        // The first overflow line has room, or a new one becomes the first.
        if first != 0
            && super::put_in(&self.index.overflow.line(index(first))[..OVERFLOW_SLOTS], slot)
        {
            return;
        }
        // Even beyond what is granted, if others took what was left meanwhile: the slot must not be
        // lost.
        let taken = self.index.take_overflow(true);
        debug_assert!(
            taken.is_some(),
            "address space for an overflow line to every two home lines"
        );
        let Some(at) = taken else { return };
        let line = self.index.overflow.line(index(at));
        // Relaxed: published by the Release that unlocks.
        line[OVERFLOW_SLOTS].store(first, Ordering::Relaxed);
        line[0].store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
        self.word = (self.word & !OVERFLOW_AT) | at;
    }
}
