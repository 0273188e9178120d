//! A walk through a claimed segment, in slices, and what comes of the segment.
//!
//! Where: making room and background work go on with their column's walk; a column that sleeps
//! parks it.
//! Invariant: records cover a drainable segment up to its end, and the walk steps from one to the
//! next; each walk holds one of the store's tokens, and gives it back when it ends.
//! Source: the paper's section 4.2.3.

#![allow(unsafe_code, reason = "walks segments in the mapping")]

use super::Drained;
use crate::Store;
use crate::column::Local;
use crate::item::{self, Record};
use crate::sweep::Sweep;
use memory::plant::{self, Fault};
use memory::sync::{Ordering, fence};

/// What a walk through a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Move all live items together: no item is lost.
    Compact,
    /// Spare or evict, as the policy says.
    Evict,
    /// Drop the dead, leave the others where they are.
    Sweep,
    /// Copy values whose frames lie scattered from this segment on, leave the others.
    Repack(u32),
}

/// A walk through a claimed segment.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) segment: u32,
    pub(crate) at: u32,
    pub(super) aim: Aim,
    pub(super) token: u32,
    pub(super) freed_bytes: u64,
    /// The mean of all items when it began; 0 where nobody asks.
    pub(super) mean_bytes: u32,
    pub(crate) sweep: Sweep,
}

impl Drain {
    pub(crate) fn token(&self) -> usize {
        self.token as usize
    }
}

impl Local {
    /// Walks on through the claimed segment for about `budget` bytes. Returns how many it did.
    pub(crate) fn slice(&mut self, store: &Store, budget: u32) -> u32 {
        let Some(mut drain) = self.drain.take() else { return 0 };
        if drain.aim == Aim::Sweep {
            return self.sweep_slice(store, drain, budget);
        }
        let memory = store.memory();
        let end = memory.segments.get(drain.segment).end();
        let mut done = 0;
        while done < budget {
            if drain.at >= if plant::is(Fault::RetiredHalfway) { end / 2 } else { end } {
                self.finish(store, drain);
                return done.max(1);
            }
            let loc = memory.region.start(drain.segment) + u64::from(drain.at);
            // SAFETY: the segment was drainable when it was claimed, so records cover it up to
            // `end`, and `at` steps from one to the next.
            let extent = match unsafe { item::record(&memory.region, loc, store.layout) } {
                Record::Void(extent) => extent,
                Record::Item(item) => {
                    let before = drain.freed_bytes;
                    if self.drain_item(store, &mut drain, &item, loc) == Drained::NoRoom {
                        self.stop(store, &drain);
                        return done;
                    }
                    // An item's frames count as well, or far more would be evicted than was needed.
                    let freed = drain.freed_bytes - before;
                    done = done.saturating_add(u32::try_from(freed).unwrap_or(budget));
                    item.extent()
                }
            };
            drain.at += extent;
            done = done.saturating_add(extent);
        }
        self.drain = Some(drain);
        done
    }

    /// The walk is through.
    pub(crate) fn finish(&mut self, store: &Store, drain: Drain) {
        match drain.aim {
            Aim::Sweep => self.swept(store, &drain),
            Aim::Repack(_) => store.log.unclaim(drain.segment, store.log.first_due(drain.segment)),
            Aim::Compact | Aim::Evict => {
                if drain.aim == Aim::Compact {
                    store.log.inherit(drain.token as usize, drain.segment);
                } else if drain.freed_bytes == 0 {
                    self.debt.in_vain();
                }
                // Its live bytes may still fall: who unlinked an item counts it a moment later.
                store.log.retire(drain.segment);
            }
        }
        store.give_token(drain.token);
        self.settle_index(store);
    }

    /// The walk cannot go on: the segment is as any other again.
    fn stop(&self, store: &Store, drain: &Drain) {
        if drain.aim == Aim::Sweep {
            drain.sweep.give_up(store.log.segment(drain.segment));
        }
        store.log.unclaim(drain.segment, store.log.first_due(drain.segment));
        if !plant::is(Fault::TokenKept) {
            store.give_token(drain.token);
        }
    }

    /// Gives an eviction up where it stands.
    pub(crate) fn stop_evicting(&mut self, store: &Store) {
        if let Some(drain) = self.drain.take_if(|drain| drain.aim == Aim::Evict) {
            self.stop(store, &drain);
        }
    }

    /// As `stop_evicting`, where frames brought together make up for what it would free.
    pub(crate) fn stop_for_repack(&mut self, store: &Store) {
        let evicts = self.drain.as_ref().is_some_and(|drain| drain.aim == Aim::Evict);
        if evicts && self.scattered(store).is_some() {
            self.stop_evicting(store);
        }
    }

    /// A column that sleeps leaves its walk to whoever needs room next, and the token with it.
    pub(crate) fn park_drain(&mut self, store: &Store) {
        let Some(drain) = self.drain.take() else { return };
        match store.parked.try_lock() {
            Ok(mut parked) => parked.push(drain),
            Err(_) => self.stop(store, &drain),
        }
    }

    /// Goes on with a walk that somebody left.
    pub(crate) fn take_parked(&mut self, store: &Store) -> bool {
        // Relaxed: a hint; each parked walk has a token.
        if self.drain.is_none()
            && store.tokens.load(Ordering::Relaxed) != 0
            && let Ok(mut parked) = store.parked.try_lock()
        {
            self.drain = parked.pop();
        }
        self.drain.is_some()
    }

    /// Begins a background walk through the segment that `claim` gives. False: there is none, or
    /// too much else is under way.
    pub(crate) fn sweep(
        &mut self,
        store: &Store,
        claim: impl FnOnce(&Self) -> Option<(u32, Aim, Sweep)>,
    ) -> bool {
        let Some(token) = store.take_token() else { return false };
        let Some((segment, aim, sweep)) = claim(self) else {
            store.give_token(token);
            return false;
        };
        self.drain =
            Some(Drain { segment, at: 0, aim, token, freed_bytes: 0, mean_bytes: 0, sweep });
        true
    }
}

impl Store {
    /// One of the few rights to drain.
    pub(super) fn take_token(&self) -> Option<u32> {
        let free = |taken: u64| {
            let token = (!taken).trailing_zeros();
            (token < self.tokens_max()).then(|| taken | (1 << token))
        };
        // Acquire pairs with the Release in `give_token`: what the last holder left in its output
        // is seen.
        let old = self.tokens.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok()?;
        Some((!old).trailing_zeros())
    }

    pub(super) fn give_token(&self, token: u32) {
        fence(Ordering::SeqCst); // pairs with the one in `limit_memory`
        if token >= self.tokens_max() {
            self.log.seal_outs(token as usize);
        }
        self.tokens.fetch_and(!(1 << token), Ordering::Release); // pairs with `take_token`
    }
}
