//! Flushes: a flush removes all items stored earlier, at once or when a given second comes.
//!
//! Where: `flush_all` begins a new epoch or requests a delayed flush, which begins one later. Each
//! lookup checks that its item was not flushed. Background work claims segments of earlier epochs.
//! Invariant: no lookup returns an item of an earlier epoch, even if background work has not
//! removed it.
//! Source: memcached's `process_flush_all_command` (1.6.45).

use crate::column::handle::View;
use crate::shared::Shared;
use crate::upkeep::harvest::Harvest;
use memory::plant::{self, Fault};
use memory::segments::State;

const LOOKS_MAX: u32 = 4096;

/// The progress of a column's search for segments of earlier epochs, through all segments.
#[derive(Debug)]
pub(crate) struct FlushWalk {
    second: u32,
    next: u32,
}

impl View<'_> {
    #[inline]
    pub(crate) fn is_flushed(self, loc: u64) -> bool {
        self.log.flush.may_hide() && self.is_flushed_by(loc)
    }

    #[cold]
    fn is_flushed_by(self, loc: u64) -> bool {
        let flushed = self.log.flush.now();
        // From second `at` on, all items are hidden, until `flush_due` begins a new epoch.
        let reached = self.handle.now >= flushed.at() + u32::from(plant::is(Fault::FlushOneLate));
        (flushed.at() != 0 && reached)
            || (flushed.is_sweeping() && self.log.segment_of(loc).epoch() != flushed.epoch())
    }

    /// Carries out a delayed flush after the flush's second. Each column calls this function when
    /// its clock ticks, but only the first call flushes: items stored after that call stay.
    pub(crate) fn flush_due(self) {
        let now = self.handle.now;
        if self.log.flush.change(|word| (1..now).contains(&word.at()).then(|| word.next())) {
            self.flushed();
        }
    }

    pub(crate) fn flush(self, oldest_live: Option<u32>) {
        match oldest_live {
            // Second 0 cancels a pending flush, and flushes nothing.
            Some(second) if second == 0 || second >= self.handle.now => {
                self.log.flush.change(|word| Some(word.with_at(second)));
            }
            _ => {
                self.log.flush.change(|word| Some(word.next()));
                self.flushed();
            }
        }
    }
}

impl FlushWalk {
    /// Makes a walk that is complete. The next walk begins when the clock has passed second `now`.
    pub(crate) fn new(now: u32) -> Self {
        Self { second: now, next: u32::MAX }
    }

    /// Lets the harvest claim some segments of earlier epochs. Returns true if the walk must go on.
    pub(crate) fn walk(&mut self, view: View<'_>, harvest: &Harvest) -> bool {
        if !view.log.flush.now().is_sweeping() {
            return false;
        }
        let count = view.memory().segments.count();
        if self.second != view.handle.now {
            (self.second, self.next) = (view.handle.now, 0);
        }
        let first = self.next;
        if first >= count {
            return false;
        }
        let end = count.min(first.saturating_add(LOOKS_MAX));
        let (looked, claimed) = harvest.gather_flushed(view, first, end);
        // Claimed segments still have items, so the walk starts again until nothing is claimed.
        self.next = if claimed > 0 { 0 } else { first + looked };
        if self.next == count {
            view.end_sweep();
        }
        self.next < count && looked > 0
    }
}

impl Shared {
    /// The second in which a pending flush takes effect; 0 if no flush is pending.
    #[must_use]
    pub fn flush_pending(&self) -> u32 {
        self.log.flush.now().at()
    }

    /// Seals the open segments. Must be called after the epoch has changed.
    fn flushed(&self) {
        self.log.seal_all();
        self.mrc.flushed();
        self.log.note_change();
    }

    /// Lets lookups stop comparing epochs if no segment of an earlier epoch is left.
    fn end_sweep(&self) {
        let swept = self.log.flush.now();
        let segments = &self.memory().segments;
        let earlier = |segment: u32| {
            let there = segments.get(segment);
            let holds =
                there.is(State::Open) || there.is(State::Sealed) || there.is(State::Draining);
            holds && there.epoch() != swept.epoch()
        };
        if !(0..segments.count()).any(earlier) {
            // If another flush has begun a newer epoch, lookups must go on comparing epochs.
            let is_same = |epoch| epoch == swept.epoch();
            self.log.flush.change(|word| is_same(word.epoch()).then(|| word.swept()));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use crate::{Config, Store};
    use std::sync::atomic::{AtomicU32, Ordering};

    const ROUNDS: u32 = 40_000;

    fn at_once(work: impl Fn(&mut crate::Column, u32) + Sync, check: impl Fn(&Store, u32) + Sync) {
        let config = Config {
            memory_bytes: 1 << 20,
            item_bytes_max: 1 << 10,
            columns: 2,
            eviction: None,
            cas: true,
            now: 1,
        };
        let store = Store::new(&config).expect("address space");
        let came = AtomicU32::new(0);
        let meet = |times: u32| {
            came.fetch_add(1, Ordering::SeqCst);
            let mut rounds = 0;
            while came.load(Ordering::SeqCst) < 2 * times {
                memory::sync::wait_a_little(&mut rounds);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut column = store.column();
                    for round in 0..ROUNDS {
                        meet(3 * round + 1);
                        work(&mut column, round);
                        meet(3 * round + 2);
                        check(&store, round);
                        meet(3 * round + 3);
                    }
                });
            }
        });
    }

    #[test]
    fn two_flushes_at_once_are_two() {
        at_once(
            |column, _| column.flush(None),
            |store, round| assert_eq!(store.log.epoch(), 2 * (round + 1)),
        );
    }

    #[test]
    fn a_flush_that_two_columns_find_due_is_one() {
        at_once(
            |column, round| {
                column.flush(Some(10 * round + 5));
                column.set_now(10 * round + 4);
                column.set_now(10 * round + 6);
            },
            |store, round| {
                let word = store.log.flush.now();
                // The columns may request the flush one after the other: it may be done twice.
                assert!((round + 1..=2 * (round + 1)).contains(&word.epoch()), "{word:?}");
                assert_eq!(word.at(), 0, "done");
            },
        );
    }
}
