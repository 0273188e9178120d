//! A walk through a claimed segment, in slices, and the segment's next state.
//!
//! Where: columns continue walks when they make room and in background work. A column that sleeps
//! leaves its walk to other columns.
//! Invariant: records cover a drainable segment up to its end, and the walk steps from record to
//! record. Each walk holds one of the store's tokens until the walk ends.
//! Source: the KV-Cache paper, section 4.2.3.

use super::chores::Chores;
use crate::column::handle::View;
use crate::item::{Record, Walk};
use crate::policy::room::Debt;
use crate::upkeep::sweep::Sweep;
use memory::plant::{self, Fault};

#[derive(Debug)]
pub(super) enum Aim {
    /// Moves all live items into fewer segments; no live item is lost.
    Compact,
    /// Spares or evicts items, as the policy decides.
    Evict,
    /// Unlinks dead items and leaves other items where they are.
    Sweep(Sweep),
    /// Copies values that have frames in this segment or a later segment; leaves other items.
    Repack(u32),
}

#[derive(Debug)]
pub(crate) struct Drain {
    pub(super) walk: Walk,
    pub(super) aim: Aim,
    pub(super) token: u32,
    pub(super) freed_bytes: u64,
    /// The mean of all items' bytes when the walk began; 0 if the walk does not need it.
    pub(super) mean_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// The slice ended before the segment's end.
    Part,
    /// The slice ended at the segment's end.
    Whole,
    /// The slice ended at an item that must be moved, but for which there is no room.
    NoRoom,
}

impl Drain {
    pub(crate) fn segment(&self) -> u32 {
        self.walk.segment()
    }

    pub(super) fn token(&self) -> usize {
        self.token as usize
    }

    /// Continues the walk by about `budget` bytes of work. Returns the bytes of work done.
    pub(super) fn slice(
        &mut self,
        view: View<'_>,
        debt: &mut Debt,
        budget: u32,
    ) -> (u32, SliceEnd) {
        let region = &view.memory().region;
        if let Aim::Sweep(sweep) = &mut self.aim {
            let (done, freed_bytes) = sweep.slice(view, &mut self.walk, budget);
            self.freed(debt, freed_bytes);
            return (
                done,
                if self.walk.at() < self.walk.end() { SliceEnd::Part } else { SliceEnd::Whole },
            );
        }
        let mut done = 0;
        while done < budget {
            let at = self.walk.at();
            let is_halfway = plant::is(Fault::RetiredHalfway) && at >= self.walk.end() / 2;
            let next = self.walk.next(region, view.layout).filter(|_| !is_halfway);
            let Some((loc, record)) = next else { return (done.max(1), SliceEnd::Whole) };
            if let Record::Item(item) = &record {
                let before = self.freed_bytes;
                if !self.drain_item(view, debt, item, loc) {
                    return (done, SliceEnd::NoRoom);
                }
                // Freed frames count as work; otherwise a slice would evict far too many items.
                let freed = self.freed_bytes - before;
                done = done.saturating_add(u32::try_from(freed).unwrap_or(budget));
            }
            done = done.saturating_add(self.walk.at() - at);
        }
        (done, SliceEnd::Part)
    }

    pub(super) fn finish(self, view: View<'_>, chores: &Chores, debt: &mut Debt) {
        match self.aim {
            Aim::Sweep(sweep) => sweep.swept(view),
            Aim::Repack(_) => view.log.unclaim(self.segment(), view.log.first_due(self.segment())),
            // In the cases `Compact` and `Evict` the segment's live bytes may still fall: a column
            // counts an unlinked item a moment after unlinking it.
            Aim::Compact => {
                view.log.inherit(self.token as usize, self.segment());
                view.log.retire(self.segment());
            }
            Aim::Evict => {
                if self.freed_bytes == 0 {
                    debt.in_vain();
                }
                view.log.retire(self.segment());
            }
        }
        chores.give_token(view.shared, self.token);
        view.settle_index();
    }

    /// Ends a walk that cannot go on, and the claim on its segment.
    pub(super) fn stop(self, view: View<'_>, chores: &Chores) {
        if let Aim::Sweep(sweep) = &self.aim {
            sweep.give_up(view);
        }
        view.log.unclaim(self.segment(), view.log.first_due(self.segment()));
        if !plant::is(Fault::TokenKept) {
            chores.give_token(view.shared, self.token);
        }
    }

    pub(super) fn freed(&mut self, debt: &mut Debt, bytes: u64) {
        self.freed_bytes += bytes;
        debt.freed(bytes);
    }
}
