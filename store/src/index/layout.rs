//! Lays a group out again: chooses each slot's line, so that most slots are at home.
//!
//! Where: in a step of growth or contraction, and after one removal in 64, on a copy of the group.
//! Invariant: after a layout each slot is in one line or in the list of slots without a place. A
//! slot at home stays there, unless it makes room by moving to its other line.
//! Source: bucketized cuckoo hashing (Dietzfelbinger and Weidling, 2007), with one displacement.
//!
//! Each line of a group is in a different plane (see `width`), and a step keeps the group's planes,
//! so the layout works on planes. If a group is split in two, the even planes are the lines of the
//! lower half, and the odd planes are the lines of the upper half.

use super::slot::Slot;
use super::width::Homes;
use memory::sync::{AtomicU64, Ordering};

const PLANES: usize = 16;
const SLOTS: usize = 8;

/// A layout in progress: of one group or, with `HALVES`, of the two groups that a split makes.
pub(super) struct Layout<const HALVES: bool> {
    homes: Homes,
    /// Number of lines of the group or, with `HALVES`, of each half.
    lines_each: u64,
    lines: [[u64; SLOTS]; PLANES],
    /// A bit for each empty slot of each plane.
    free: [u8; PLANES],
    /// A bit for each slot of each plane that has changed since it was read.
    changed: [u8; PLANES],
    /// A bit for each plane that is the home of a slot in another plane.
    spilled: u64,
}

impl<const HALVES: bool> Layout<HALVES> {
    pub(super) fn new(lines_each: u64) -> Self {
        Self {
            homes: Homes::of(lines_each),
            lines_each,
            lines: [[0; SLOTS]; PLANES],
            free: [0; PLANES],
            changed: [0; PLANES],
            spilled: 0,
        }
    }

    #[inline(always)]
    fn home(&self, half: u64, slot: u64) -> usize {
        plane::<HALVES>(half, self.homes.home(Slot(slot).tag()))
    }

    #[inline(always)]
    fn other(&self, half: u64, slot: u64) -> usize {
        plane::<HALVES>(half, self.homes.other(Slot(slot).tag()))
    }

    /// Reads the slots of a plane. Slots with another home line go to their half's list in `rest`.
    pub(super) fn read(
        &mut self,
        plane: usize,
        line: &[AtomicU64; SLOTS],
        half_of: &mut impl FnMut(Slot) -> u64,
        rest: &mut [Vec<u64>; 2],
    ) {
        let homes = self.homes;
        let mut kept = [0; SLOTS];
        let mut free = 0_u8;
        let mut changed = 0_u8;
        for at in 0..SLOTS {
            // Relaxed: only hits, whose uses may get lost, store slots without this group's lock.
            let slot = line[at].load(Ordering::Relaxed);
            let half = if HALVES && slot != 0 { half_of(Slot(slot)) } else { 0 };
            if self::plane::<HALVES>(half, homes.home(Slot(slot).tag())) == plane {
                // An empty slot has tag 0, whose home may be this plane.
                kept[at] = slot;
                free |= u8::from(slot == 0) << at;
            } else if slot == 0 {
                free |= 1 << at;
            } else {
                changed |= 1 << at;
                rest[usize::from(half != 0)].push(slot);
            }
        }
        self.lines[plane] = kept;
        self.free[plane] = free | changed;
        self.changed[plane] = changed;
    }

    /// Finds places for the slots in `rest`: at home, in their other line, or at home after another
    /// slot there has moved to its own other line. Slots without a place stay in `rest`.
    pub(super) fn place(&mut self, half: u64, rest: &mut Vec<u64>) {
        rest.retain(|slot| !self.put(self.home(half, *slot), *slot));
        rest.retain(|slot| !self.put_away(half, *slot));
    }

    #[inline(always)]
    fn put(&mut self, plane: usize, slot: u64) -> bool {
        let plane = plane % PLANES;
        let free = self.free[plane];
        if free == 0 {
            return false;
        }
        let at = free.trailing_zeros();
        self.free[plane] = free & (free - 1);
        self.changed[plane] |= 1 << at;
        self.lines[plane][at as usize % SLOTS] = slot;
        true
    }

    fn put_away(&mut self, half: u64, slot: u64) -> bool {
        let at_home = self.home(half, slot) % PLANES;
        self.spilled |= 1 << at_home;
        if self.put(self.other(half, slot), slot) {
            return true;
        }
        if self.free == [0; PLANES] {
            return false;
        }
        for at in 0..SLOTS {
            let there = self.lines[at_home][at];
            if self.home(half, there) == at_home && self.put(self.other(half, there), there) {
                self.lines[at_home][at] = slot;
                self.changed[at_home] |= 1 << at;
                return true;
            }
        }
        false
    }

    /// Writes the slots of a plane that have changed. The groups' versions must be odd.
    pub(super) fn write(&self, plane: usize, line: &[AtomicU64; SLOTS]) {
        let mut changed = self.changed[plane];
        while changed != 0 {
            let at = changed.trailing_zeros() as usize;
            // Release pairs with the Acquire of `probe`.
            line[at].store(self.lines[plane][at], Ordering::Release);
            changed &= changed - 1;
        }
    }

    /// A bit for each line of a half that is the home of a slot in another line.
    pub(super) fn spilled(&self, half: u64) -> u64 {
        let away = |line: u64| (self.spilled >> plane::<HALVES>(half, line)) & 1;
        (0..self.lines_each).fold(0, |bits, line| bits | (away(line) << line))
    }
}

#[inline(always)]
fn plane<const HALVES: bool>(half: u64, line: u64) -> usize {
    super::index(if HALVES { 2 * line + half } else { line })
}
