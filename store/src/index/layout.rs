//! Lays out a group again: chooses each slot's line, so that most slots are in their home line.
//!
//! Where: on a copy of the group, in a step of growth or contraction and after one removal in 64.
//! Invariant: after a layout each slot is in one line, or in the list of slots that found no room.
//! A slot that is in its home line moves to its other line only to make room for another slot.
//! Source: bucketized cuckoo hashing (Dietzfelbinger and Weidling, 2007), with one displacement.
//!
//! Plane n consists of line n of each group (see `width`). When a group splits in two halves, lines
//! do not move: line n of the lower half is in plane 2n, as counted before the split, and line n of
//! the upper half is in plane 2n + 1. So a layout numbers lines by their plane before the split.

use super::slot::Slot;
use super::width::Homes;
use memory::sync::{AtomicU64, Ordering};

const PLANES: usize = 16;
const SLOTS: usize = 8;

/// A layout in progress: of one group or, if `HALVES`, of the two groups into which a group splits.
pub(super) struct Layout<const HALVES: bool> {
    homes: Homes,
    /// Number of lines of the group or, if `HALVES`, of each half.
    lines_each: u64,
    lines: [[u64; SLOTS]; PLANES],
    /// A byte for each plane, with a bit for each empty slot.
    free: [u8; PLANES],
    /// A byte for each plane, with a bit for each slot that `write` must store.
    changed: [u8; PLANES],
    /// A bit for each plane, set if the plane is the home of a slot that is in another plane.
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

    /// Copies a plane's slots. Slots whose home is another plane go to their half's list in `rest`.
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
            // Relaxed: without the group's lock only hits store slots; a lost hit does no harm.
            let slot = line[at].load(Ordering::Relaxed);
            let half = if HALVES && slot != 0 { half_of(Slot(slot)) } else { 0 };
            if self::plane::<HALVES>(half, homes.home(Slot(slot).tag())) == plane {
                // An empty slot comes here if this plane is the home of tag 0.
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

    /// Puts each slot in `rest` into its home line, or else into its other line, or else into its
    /// home line in place of a slot that moves to its own other line. Other slots stay in `rest`.
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

    /// Stores the changed slots of a plane to `line`. The groups' versions must be odd.
    pub(super) fn write(&self, plane: usize, line: &[AtomicU64; SLOTS]) {
        let mut changed = self.changed[plane];
        while changed != 0 {
            let at = changed.trailing_zeros() as usize;
            // Release pairs with the Acquire of `probe`.
            line[at].store(self.lines[plane][at], Ordering::Release);
            changed &= changed - 1;
        }
    }

    /// A bit for each line of a half, set if the line is the home line of a slot in another line.
    pub(super) fn spilled(&self, half: u64) -> u64 {
        let away = |line: u64| (self.spilled >> plane::<HALVES>(half, line)) & 1;
        (0..self.lines_each).fold(0, |bits, line| bits | (away(line) << line))
    }
}

#[inline(always)]
fn plane<const HALVES: bool>(half: u64, line: u64) -> usize {
    super::word::index(if HALVES { 2 * line + half } else { line })
}
