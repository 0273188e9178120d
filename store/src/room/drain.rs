//! A walk through a claimed segment, in slices, and the segment's next state.
//!
//! Where: making room and background work continue their column's walk; a column that sleeps parks
//! its walk.
//! Invariant: records cover a drainable segment up to its end, and the walk steps from record to
//! record; each walk holds one of the store's tokens, and gives the token back when it ends.
//! Source: the KV-Cache paper, section 4.2.3.

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use crate::Store;
use crate::handle::View;
use crate::item::{self, Record};
use crate::policy::room::Debt;
use crate::sweep::Sweep;
use memory::plant::{self, Fault};
use memory::sync::{Ordering, fence};

#[derive(Debug)]
pub(super) enum Aim {
    /// Moves all live items into fewer segments; no live item is lost.
    Compact,
    /// Spares or evicts items, as the policy decides.
    Evict,
    /// Unlinks dead items and leaves other items where they are.
    Sweep(Sweep),
    /// Copies values with frames in the segment of this number or a later one; leaves other items.
    Repack(u32),
}

/// A walk through a claimed segment.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) segment: u32,
    pub(super) at: u32,
    pub(super) aim: Aim,
    pub(super) token: u32,
    pub(super) freed_bytes: u64,
    /// The mean of all items' bytes when the walk began; 0 if the walk does not need it.
    pub(super) mean_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceEnd {
    /// Before the segment's end.
    Part,
    /// At the segment's end.
    Whole,
    /// At an item that must be moved, but for which there is no room.
    NoRoom,
}

impl Drain {
    pub(super) fn token(&self) -> usize {
        self.token as usize
    }

    /// Continues the walk for about `budget` bytes. Returns the bytes walked.
    pub(super) fn slice(
        &mut self,
        view: View<'_>,
        debt: &mut Debt,
        budget: u32,
    ) -> (u32, SliceEnd) {
        let memory = view.memory();
        let end = memory.segments.get(self.segment).end();
        if let Aim::Sweep(sweep) = &mut self.aim {
            let (done, freed_bytes) = sweep.slice(view, &mut self.at, budget);
            self.freed(debt, freed_bytes);
            return (done, if self.at < end { SliceEnd::Part } else { SliceEnd::Whole });
        }
        let mut done = 0;
        while done < budget {
            if self.at >= if plant::is(Fault::RetiredHalfway) { end / 2 } else { end } {
                return (done.max(1), SliceEnd::Whole);
            }
            let loc = memory.region.start(self.segment) + u64::from(self.at);
            // SAFETY: the segment was drainable when it was claimed, so records cover it up to
            // `end`, and `at` steps from one to the next.
            let extent = match unsafe { item::record(&memory.region, loc, view.layout) } {
                Record::Void(extent) => extent,
                Record::Item(item) => {
                    let before = self.freed_bytes;
                    if !self.drain_item(view, debt, &item, loc) {
                        return (done, SliceEnd::NoRoom);
                    }
                    // Freed frames count as work; otherwise far too much would be evicted.
                    let freed = self.freed_bytes - before;
                    done = done.saturating_add(u32::try_from(freed).unwrap_or(budget));
                    item.extent()
                }
            };
            self.at += extent;
            done = done.saturating_add(extent);
        }
        (done, SliceEnd::Part)
    }

    pub(super) fn finish(self, view: View<'_>, debt: &mut Debt) {
        match self.aim {
            Aim::Sweep(sweep) => sweep.swept(view),
            Aim::Repack(_) => view.log.unclaim(self.segment, view.log.first_due(self.segment)),
            // In the cases `Compact` and `Evict` the segment's live bytes may still fall: a column
            // counts an unlinked item a moment after unlinking it.
            Aim::Compact => {
                view.log.inherit(self.token as usize, self.segment);
                view.log.retire(self.segment);
            }
            Aim::Evict => {
                if self.freed_bytes == 0 {
                    debt.in_vain();
                }
                view.log.retire(self.segment);
            }
        }
        view.give_token(self.token);
        view.settle_index();
    }

    /// Ends a walk that cannot go on, and the claim on its segment.
    pub(super) fn stop(self, view: View<'_>) {
        if let Aim::Sweep(sweep) = &self.aim {
            sweep.give_up(view);
        }
        view.log.unclaim(self.segment, view.log.first_due(self.segment));
        if !plant::is(Fault::TokenKept) {
            view.give_token(self.token);
        }
    }

    pub(super) fn freed(&mut self, debt: &mut Debt, bytes: u64) {
        self.freed_bytes += bytes;
        debt.freed(bytes);
    }
}

impl Store {
    pub(super) fn take_token(&self) -> Option<u32> {
        let free = |taken: u64| {
            let token = (!taken).trailing_zeros();
            (token < self.tokens_max()).then(|| taken | (1 << token))
        };
        // Acquire pairs with the Release in `give_token`: the last holder's stores are visible.
        let old = self.tokens.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
        Some((!old).trailing_zeros())
    }

    pub(super) fn give_token(&self, token: u32) {
        fence(Ordering::SeqCst); // pairs with the fence in `limit_memory`
        if token >= self.tokens_max() {
            self.log.seal_outs(token as usize);
        }
        self.tokens.fetch_and(!(1 << token), Ordering::Release); // pairs with `take_token`
    }
}
