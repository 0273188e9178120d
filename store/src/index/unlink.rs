//! Empties the slots of many items that expire together, at a low cost per item.
//!
//! Where: the walk through a segment whose items have expired.
//! Invariant: a slot is emptied under its group's lock. Slots in overflow lines are not found here.
//! Source: a shorter form of `LockedGroup::find_loc`.

use super::Index;
use super::found::Loc;
use super::probe::probe;
use super::slot::{Slot, tag};
use super::width::Address;
use super::word::OVERFLOW_AT;
use memory::sync::{AtomicU64, Ordering};

pub(crate) enum UnlinkResult {
    /// The item's slot, which is now empty.
    Gone(Slot),
    /// The item is not dead.
    Kept,
    /// The item's two lines lack the slot, the width has changed, or the group's lock is not free.
    Elsewhere,
}

impl Index {
    /// Empties the slot of the item at `loc` if `is_dead` returns true. `is_dead` is called under
    /// the group's lock. Searches the item's home line and other line, but no overflow lines.
    #[inline]
    pub(crate) fn unlink_near(
        &self,
        hash: u64,
        loc: u64,
        is_dead: impl FnOnce() -> bool,
    ) -> UnlinkResult {
        let (width, tag) = (self.width(), tag(hash));
        let address = width.address(hash);
        let Some(word) = self.lock_group(address.group()) else { return UnlinkResult::Elsewhere };
        let mut is_it = |at: Loc<'_>| at.offset() == loc;
        let mut unlinked = UnlinkResult::Elsewhere;
        if self.width() == width
            && let Some(found) = probe(self.line(address, address.home(tag)), tag, &mut is_it)
                .or_else(|| probe(self.line(address, address.other(tag)), tag, &mut is_it))
        {
            unlinked = UnlinkResult::Kept;
            if is_dead() {
                found.at().0.store(0, Ordering::Release); // pairs with the Acquire of `probe`
                unlinked = UnlinkResult::Gone(found.slot());
            }
        }
        // Release pairs with the Acquire of `lock_group` and of `find_validated`.
        self.groups.word(address.group()).store(word, Ordering::Release);
        unlinked
    }

    #[inline]
    fn line(&self, address: Address, line: u64) -> &[AtomicU64; 8] {
        self.lines.line(address.line(line))
    }

    /// Prefetches the line that `unlink_near` searches first.
    #[inline]
    pub(crate) fn prefetch_to_unlink(&self, hash: u64) {
        let (address, tag) = (self.width().address(hash), tag(hash));
        self.groups.prefetch(address.group() / 8);
        self.lines.prefetch(address.line(address.home(tag)));
    }

    /// If the key's home line has no slot of the item at `loc`, prefetches the key's other line and
    /// the group's first overflow line. Before, `prefetch_to_unlink` must have prefetched the home
    /// line.
    #[inline]
    pub(crate) fn prefetch_elsewhere(&self, hash: u64, loc: u64) {
        let (address, tag) = (self.width().address(hash), tag(hash));
        let mut is_it = |at: Loc<'_>| at.offset() == loc;
        if probe(self.line(address, address.home(tag)), tag, &mut is_it).is_some() {
            return;
        }
        self.lines.prefetch(address.line(address.other(tag)));
        let overflow = self.groups.word(address.group()).load(Ordering::Relaxed) & OVERFLOW_AT;
        if overflow != 0 {
            self.overflow.prefetch(overflow);
        }
    }
}
