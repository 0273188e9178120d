//! Checks that each slot is where a lookup looks for it.
//!
//! Where: the store's audit, in tests and debug builds, while no column works.
//! Invariant: the check changes nothing, and terminates whatever faults it finds.

use super::Index;
use super::slot::{BUSY, Slot, tag};
use super::width::Address;
use super::word::{LOCK, ODD, OVERFLOW_AT, SPILLED_AT, index};
use memory::sync::{AtomicU64, Ordering};
use std::collections::BTreeSet;

struct IndexAudit<'f, H> {
    hash_of: H,
    slots: Vec<Slot>,
    overflow: BTreeSet<u64>,
    faults: &'f mut Vec<String>,
}

impl Index {
    /// Returns all slots, and appends each fault to `faults`. `hash_of` returns the hash of the key
    /// of a slot's item, or `None` if the slot names no item.
    pub(crate) fn audit(
        &self,
        hash_of: impl FnMut(Slot) -> Option<u64>,
        faults: &mut Vec<String>,
    ) -> Vec<Slot> {
        let mut met = IndexAudit { hash_of, slots: Vec::new(), overflow: BTreeSet::new(), faults };
        for group in 0..self.width().total_groups() {
            self.audit_group(group, &mut met);
        }
        self.audit_overflow(&mut met);
        let Ok(moving) = self.moving.try_lock() else { return met.slots };
        let widest = moving.widest.total_lines();
        // Acquire, here and below: pairs with the Release stores of `LockedGroup` and `grow`.
        for line in index(self.width().total_lines())..index(widest) {
            if self.lines.line(line).iter().any(|word| word.load(Ordering::Acquire) != 0) {
                met.faults.push(format!("line {line} is not in use, but has slots"));
            }
        }
        met.slots
    }

    fn audit_group<H: FnMut(Slot) -> Option<u64>>(&self, group: u64, met: &mut IndexAudit<'_, H>) {
        let address = self.width().address(group);
        let word = self.groups.word(address.group()).load(Ordering::Acquire);
        if address.group != group || word & (LOCK | ODD) != 0 {
            met.faults.push(format!(
                "group {group} is locked or has a wrong address: word {word:x}, {address:?}"
            ));
        }
        for line in 0..address.lines {
            for slot in slots(self.lines.line(address.line(line))) {
                self.audit_slot(slot, (address, word), Some(line), met);
            }
        }
        let first = word & OVERFLOW_AT;
        let mut at = first;
        while at != 0 {
            if index(at) >= self.overflow.cut() || !met.overflow.insert(at) {
                met.faults.push(format!(
                    "overflow line {at} of group {group} does not exist or occurs twice"
                ));
                return;
            }
            let mut filled = 0;
            for slot in slots(self.overflow.slots(at)) {
                filled += 1;
                self.audit_slot(slot, (address, word), None, met);
            }
            if filled == 0 || (at != first && filled < self.overflow.slots(at).len()) {
                met.faults.push(format!(
                    "overflow line {at} of group {group} has only {filled} filled slots"
                ));
            }
            at = self.overflow.next(at);
        }
    }

    fn audit_slot<H: FnMut(Slot) -> Option<u64>>(
        &self,
        slot: Slot,
        (address, word): (Address, u64),
        line: Option<u64>,
        met: &mut IndexAudit<'_, H>,
    ) {
        met.slots.push(slot);
        let (group, loc) = (address.group, slot.loc());
        if slot.has(BUSY) {
            met.faults.push(format!("the slot that points to {loc:#x} is still busy"));
        }
        let (home, other) = (address.home(slot.tag()), address.other(slot.tag()));
        let spilled = word & (1 << (u64::from(SPILLED_AT) + home)) != 0;
        let is_found = match line {
            Some(line) => line == home || (line == other && spilled),
            None => spilled,
        };
        if !is_found {
            met.faults.push(format!(
                "no lookup finds the slot that points to {loc:#x}: it is in line {line:?} of group \
                 {group}, its home line is {home}, its other line is {other}, and the group's word \
                 is {word:x}"
            ));
        }
        if let Some(hash) = (met.hash_of)(slot)
            && (tag(hash) != slot.tag() || self.width().address(hash).group != group)
        {
            let due = (self.width().address(hash).group, tag(hash));
            let there = (group, slot.tag());
            met.faults.push(format!(
                "the key at {loc:#x} has (group, tag) {due:?}, but its slot has {there:?}"
            ));
        }
    }

    fn audit_overflow<H>(&self, met: &mut IndexAudit<'_, H>) {
        let cut = self.overflow.cut();
        for at in self.overflow.free_lines().take(cut) {
            if index(at) >= cut || !met.overflow.insert(at) {
                met.faults.push(format!(
                    "overflow line {at} is listed as free, but is in use or does not exist"
                ));
                return;
            }
            if slots(self.overflow.slots(at)).next().is_some() {
                met.faults.push(format!("overflow line {at} is listed as free, but has slots"));
            }
        }
        if met.overflow.len() + 1 != cut {
            let known = met.overflow.len() + 1;
            met.faults.push(format!("of {cut} overflow lines, only {known} are free or in use"));
        }
    }
}

fn slots(line: &[AtomicU64]) -> impl Iterator<Item = Slot> {
    // Acquire pairs with the Release that put the slot there.
    line.iter().map(|word| Slot(word.load(Ordering::Acquire))).filter(|slot| slot.0 != 0)
}
