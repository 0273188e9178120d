//! Visits all slots, group by group, in an order that growth and contraction do not change.
//!
//! Where: a dump of all items, or the walk in `aging`, visits a few groups at a time, between
//! requests.
//! Invariant: slots are visited in the order of their keys' hashes with all bits reversed. A group
//! has the hashes whose lowest bits are the group's number: after the reversal these hashes are
//! contiguous, in the group and, after a split, in each new group. So a visit that has reached a
//! place has met every slot before the place and no slot after it, even if the index has grown or
//! contracted meanwhile.

use super::Index;
use super::found::{FoundSlot, Moment};
use super::locked::LockedGroup;
use super::slot::Slot;
use super::word::OVERFLOW_AT;
use memory::sync::{AtomicU64, Ordering};

/// A place in the order of visits: a hash with all bits reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

impl Place {
    pub(crate) fn of(hash: u64) -> Self {
        Self(hash.reverse_bits())
    }

    /// The fraction of all places that come before this place, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "about")]
    pub(crate) fn part(self) -> f64 {
        self.0 as f64 / u64::MAX as f64
    }
}

impl Index {
    pub(crate) fn lock_at<'v>(&'v self, moment: Moment<'v>, place: Place) -> LockedGroup<'v> {
        self.lock(moment, place.0.reverse_bits())
    }

    /// Loads the lines of the group at `place` into the cache, and calls `near` with each slot of
    /// these lines, so that `near` can prefetch the slot's item. The group is not locked.
    pub(crate) fn prefetch_at(&self, place: Place, mut near: impl FnMut(Slot)) {
        let address = self.width().address(place.0.reverse_bits());
        for line in 0..address.lines {
            // Relaxed: the slots only choose items to prefetch.
            let words = self.lines.line(address.line(line)).iter();
            let slots = words.map(|word| Slot(word.load(Ordering::Relaxed)));
            slots.filter(|slot| slot.0 != 0).for_each(&mut near);
        }
    }
}

impl<'v> LockedGroup<'v> {
    pub(crate) fn first_place(&self) -> Place {
        Place::of(self.address.group)
    }

    /// The place after the group's last hash; `None` if no place comes after this group.
    pub(crate) fn next_place(&self) -> Option<Place> {
        let hashes = 1_u64.checked_shl(u64::BITS - self.address.groups_log)?;
        self.first_place().0.checked_add(hashes).map(Place)
    }

    pub(crate) fn visit(&self, mut show: impl FnMut(FoundSlot<'v>)) {
        let mut show_line = |line: &'v [AtomicU64]| {
            let found = line.iter().map(FoundSlot::read);
            found.filter(|found| found.slot().0 != 0).for_each(&mut show);
        };
        (0..self.address.lines).for_each(|line| show_line(self.line(line)));
        let mut at = self.word & OVERFLOW_AT;
        while at != 0 {
            show_line(self.index.overflow.slots(at));
            at = self.index.overflow.next(at);
        }
    }
}
