//! A group locked for one hash. All changes of slots, except growth and passes, are made here.
//!
//! Where: every verb that changes a key's item, and every eviction, locks a group briefly.
//! Invariant: a key has one slot; a slot moves only while the version is odd; in an overflow chain
//! only the first line has empty slots.
//! Source: the KV-Cache paper, section 4.2.2 (bucket locks).

use super::Index;
use super::found::{FoundSlot, Loc, SlotRef};
use super::grow::Group;
use super::probe::probe;
use super::slot::{self, Slot, tag};
use super::width::Address;
use super::word::{LOCK, OVERFLOW_AT, SPILLED, SPILLED_AT, bump_version, put_in};
use crate::policy::Queue;
use memory::plant::{self, Fault};
use memory::sync::{AtomicU64, Ordering, fence};

/// A removal lays its group out again if none of these bits is set in the key's hash, which is true
/// of one removal in 64, unless all slots are in their home line. These layouts keep about as many
/// slots in their home line as the layouts of growth do.
const TIDY_BITS: u64 = 63 << 35;

/// The error that no memory is left for an overflow line.
#[derive(Debug)]
pub(crate) struct Full;

pub(crate) struct LockedGroup<'i> {
    pub(super) index: &'i Index,
    pub(super) hash: u64,
    pub(super) address: Address,
    pub(super) home: u64,
    /// The group's word without the lock's bit. `drop` stores this word, which unlocks the group.
    pub(super) word: u64,
}

impl<'i> LockedGroup<'i> {
    #[inline(always)]
    pub(crate) fn find(&self, mut is_it: impl FnMut(Loc<'i>) -> bool) -> Option<FoundSlot<'i>> {
        let mut found = probe(self.line(self.home), tag(self.hash), &mut is_it);
        if found.is_none() && self.word & self.spilled_bit() != 0 {
            found = self.find_elsewhere(is_it);
        }
        found
    }

    #[inline(never)]
    fn find_elsewhere(&self, mut is_it: impl FnMut(Loc<'i>) -> bool) -> Option<FoundSlot<'i>> {
        let tag = tag(self.hash);
        probe(self.line(self.address.other(tag)), tag, &mut is_it)
            .or_else(|| self.index.find_overflow(self.word, tag, &mut is_it, || true))
    }

    /// The slot that was found before the group was locked, if the slot still names the same item.
    /// Then no other slot names the item, and this slot is in the group of the item's key, which is
    /// this group. So the lock keeps the slot in place.
    #[inline(always)]
    pub(crate) fn revalidate(&self, found: &FoundSlot<'i>) -> Option<FoundSlot<'i>> {
        let now = FoundSlot::read(found.at().0);
        now.slot().names_item_of(found.slot()).then_some(now)
    }

    #[inline(never)]
    pub(crate) fn find_loc(&self, loc: u64) -> Option<FoundSlot<'i>> {
        self.find(|at| at.offset() == loc)
    }

    /// Changes a slot in place. A hit may count a use in the slot meanwhile, because it needs no
    /// lock: then `change` is called again, so that the use is not lost.
    pub(crate) fn update(&self, at: SlotRef<'_>, mut change: impl FnMut(Slot) -> Slot) {
        let change = |old: u64| Some(change(Slot(old)).0);
        // Release pairs with the Acquire of `probe`: a reader that sees the slot sees the item.
        // Acquire pairs with the Release stores that put the slot there.
        let updated = at.0.fetch_update(Ordering::Release, Ordering::Acquire, change);
        debug_assert!(updated.is_ok(), "change never refuses");
    }

    /// Marks the slot as busy, calls `write`, and stores the slot that `change` returns. `write`
    /// must store to the item by atomics, since readers may read the item's bytes meanwhile.
    #[inline(always)]
    pub(crate) fn rewrite(
        &self,
        at: SlotRef<'_>,
        change: impl FnOnce(Slot) -> Slot,
        write: impl FnOnce(),
    ) {
        // Relaxed: the fence orders this store, which the load in `FoundSlot::is_unchanged` reads.
        // Uses counted before are kept; while the slot is busy, hits count no uses.
        let bit = if plant::is(Fault::BusyNotSet) { 0 } else { slot::BUSY };
        let busy = Slot(at.0.fetch_or(bit, Ordering::Relaxed) | slot::BUSY);
        fence(Ordering::Release); // pairs with the Acquire fence in `FoundSlot::is_unchanged`
        write();
        // Release pairs with the Acquire of `probe`: a reader of the new version sees its bytes.
        at.0.store(change(busy).0, Ordering::Release);
    }

    pub(crate) fn set(&self, at: SlotRef<'_>, slot: Slot) {
        at.0.store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
    }

    pub(crate) fn insert(&mut self, slot: Slot) -> Result<(), Full> {
        if put_in(self.line(self.home), slot) {
            return Ok(());
        }
        let placed = put_in(self.line(self.address.other(slot.tag())), slot)
            || self.displace(slot)
            || self.push_overflow(slot);
        if !placed {
            return Err(Full);
        }
        if !plant::is(Fault::SpillNotNoted) {
            self.word |= self.spilled_bit();
        }
        Ok(())
    }

    /// Puts a slot into its home line, and moves another slot from the home line to that slot's
    /// other line to make room. Returns false if no slot of the home line can move.
    fn displace(&mut self, slot: Slot) -> bool {
        for word in self.line(self.home) {
            // Relaxed, here and below: slots change only under this lock, except that a hit counts
            // a use without the lock. If such a use gets lost, no harm is done.
            let there = Slot(word.load(Ordering::Relaxed));
            if self.address.home(there.tag()) != self.home {
                continue;
            }
            let other = self.line(self.address.other(there.tag()));
            if let Some(empty) = other.iter().find(|word| word.load(Ordering::Relaxed) == 0) {
                self.moving(|_| {
                    // Release pairs with the Acquire of `probe`.
                    empty.store(there.0, Ordering::Release);
                    word.store(slot.0, Ordering::Release);
                });
                return true;
            }
        }
        false
    }

    /// Puts a slot into the first overflow line, or into a new first line. False: no line is left.
    fn push_overflow(&mut self, slot: Slot) -> bool {
        let overflow = &self.index.overflow;
        let first = self.word & OVERFLOW_AT;
        if first != 0 && put_in(overflow.slots(first), slot) {
            return true;
        }
        let Some(at) = self.index.take_overflow(false) else { return false };
        overflow.set_next(at, first);
        overflow.slots(at)[0].store(slot.0, Ordering::Release); // pairs with the Acquire of `probe`
        self.word = (self.word & !OVERFLOW_AT) | at;
        true
    }

    /// Empties a slot. If a slot of an overflow line may move to the emptied place, moves it. If
    /// only one removal in four did so, the index would take half a byte more per item under steady
    /// insertions and removals.
    #[inline]
    pub(crate) fn remove(&mut self, at: SlotRef<'_>) {
        at.0.store(0, Ordering::Release); // pairs with the Acquire of `probe`
        if self.word & SPILLED == 0 {
            return;
        }
        if self.word & OVERFLOW_AT != 0 {
            self.fill(at);
        }
        if self.tidies() {
            self.tidy();
        }
    }

    fn tidies(&self) -> bool {
        self.hash & TIDY_BITS == 0
    }

    /// Moves a slot of an overflow line to the place of an emptied slot, and then a slot of the
    /// first overflow line to the gap in that overflow line.
    #[inline(never)]
    fn fill(&mut self, empty: SlotRef<'_>) {
        let hole = match self.line_of(empty) {
            None => empty.0,
            Some(line) => {
                let Some(word) = self.overflown_to(line) else { return };
                word
            }
        };
        let overflow = &self.index.overflow;
        let first = self.word & OVERFLOW_AT;
        self.moving(|locked| {
            // Relaxed, here and below: this column holds the group's lock.
            let moved = hole.load(Ordering::Relaxed);
            if moved != 0 {
                empty.0.store(moved, Ordering::Release); // pairs with the Acquire of `probe`
                hole.store(0, Ordering::Release);
            }
            let taken = |word: &&AtomicU64| word.load(Ordering::Relaxed) != 0;
            let mut last = overflow.slots(first).iter().filter(taken);
            if let Some(word) = last.next()
                && !overflow.slots(first).iter().any(|word| std::ptr::eq(word, hole))
            {
                hole.store(word.load(Ordering::Relaxed), Ordering::Release);
                word.store(0, Ordering::Release);
            }
            if overflow.slots(first).iter().all(|word| word.load(Ordering::Relaxed) == 0) {
                let next = if plant::is(Fault::ChainCut) { 0 } else { overflow.next(first) };
                locked.word = (locked.word & !OVERFLOW_AT) | next;
                overflow.give(first);
            }
        });
    }

    /// The number of the group's line that has `at`; `None` if an overflow line has `at`.
    pub(super) fn line_of(&self, at: SlotRef<'_>) -> Option<u64> {
        let lines = [self.home, self.address.other(tag(self.hash))];
        let is_in =
            |line: &u64| self.line(*line).as_ptr_range().contains(&std::ptr::from_ref(at.0));
        lines.into_iter().find(is_in)
    }

    /// A slot of an overflow line that may move to `line`, preferably one with home `line`.
    fn overflown_to(&self, line: u64) -> Option<&'i AtomicU64> {
        let overflow = &self.index.overflow;
        let mut second = None;
        let mut at = self.word & OVERFLOW_AT;
        while at != 0 {
            for word in overflow.slots(at) {
                let slot = Slot(word.load(Ordering::Relaxed)); // the group is locked
                if slot.0 == 0 {
                    continue;
                }
                if self.address.home(slot.tag()) == line {
                    return Some(word);
                }
                if self.address.other(slot.tag()) == line {
                    second = Some(word);
                }
            }
            at = overflow.next(at);
        }
        second
    }

    #[inline(never)]
    fn tidy(&mut self) {
        if !self.index.has_room() {
            return;
        }
        let Ok(mut rest) = self.index.moving.try_lock() else { return };
        let address = self.address;
        self.moving(|locked| {
            let mut group = Group { index: locked.index, at: address.group(), word: locked.word };
            rest.lay_out::<false>(&mut [&mut group], address, address.lines, |_| 0);
            locked.word = group.word;
        });
    }

    pub(crate) fn remember(&self, from: Queue) {
        self.index.ghost.push(self.address.group(), self.hash, from);
    }

    /// If the ghost remembers the key, forgets the key and returns the queue that the key left.
    pub(crate) fn recall(&self) -> Option<Queue> {
        self.index.ghost.take(self.address.group(), self.hash)
    }

    /// Runs `moves`, which moves slots, while the group's version is odd.
    pub(super) fn moving(&mut self, moves: impl FnOnce(&mut Self)) {
        if plant::is(Fault::VersionStaysEven) {
            return moves(self);
        }
        self.word = bump_version(self.word);
        let group = self.index.groups.word(self.address.group());
        // Relaxed: the fence orders this store, and pairs with the Acquire fence of
        // `is_same_version`. A reader that has seen a moved slot sees this version or a later one.
        group.store(self.word | LOCK, Ordering::Relaxed);
        fence(Ordering::Release);
        moves(self);
        self.word = bump_version(self.word);
    }

    pub(super) fn line(&self, line: u64) -> &'i [AtomicU64; 8] {
        self.index.lines.line(self.address.line(line))
    }

    fn spilled_bit(&self) -> u64 {
        1 << (u64::from(SPILLED_AT) + self.home)
    }
}

impl Drop for LockedGroup<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire of `lock_group` and of `find_validated`: a column that
        // takes the lock next, or reads the even version, sees all changes to the slots.
        self.index.groups.word(self.address.group()).store(self.word, Ordering::Release);
    }
}
