//! Flushes: what was stored before one is gone, at once or from a given second on.
//!
//! Where: every lookup asks whether what it has found was flushed; flush_all; the clock's tick.
//! Invariant: one word says all of it, and each change of it is one step: the epoch, what is
//! pending, and whether there may still be something of an earlier epoch. A segment's epoch is the
//! word's when it is opened, and nothing is added to a segment of an earlier one.
//! Source: memcached's `process_flush_all_command` (1.6.45).
//!
//! ```text
//!   word, u64:  epoch:32 | flush at:31 | sweeping:1
//!               flush at: 0 when nothing is flushed that might be seen; a second that no clock
//!               reaches stands for later ones
//! ```

use crate::Store;
use crate::column::Column;
use crate::handle::View;
use memory::plant::{self, Fault};
use memory::segments::State;
use memory::sync::{AtomicU64, Ordering};

/// Segments looked at in one slice for one of before a flush.
const LOOKS_MAX: u32 = 4096;
const SWEEPING: u64 = 1;
const AT_AT: u32 = 1;
const AT_MAX: u32 = u32::MAX >> AT_AT;
const AT: u64 = (AT_MAX as u64) << AT_AT;
const EPOCH_AT: u32 = 32;

/// The word.
#[derive(Debug, Default)]
pub(crate) struct Flush(AtomicU64);

impl Flush {
    #[inline]
    fn word(&self) -> u64 {
        self.0.load(Ordering::Acquire) // pairs with the Release in `change`
    }

    /// The epoch of what is stored now.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        epoch(self.word())
    }

    /// Might anything that is linked be flushed?
    #[inline]
    fn may_hide(&self) -> bool {
        self.word() & (AT | SWEEPING) != 0
    }

    /// Is something of an earlier epoch to be looked for?
    fn is_sweeping(&self) -> bool {
        self.word() & SWEEPING != 0
    }

    /// Changes the word where `change` says so. False: it did not.
    fn change(&self, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        if plant::is(Fault::FlushInTwoSteps) {
            return change(self.word()).map(|word| self.0.store(word, Ordering::Release)).is_some();
        }
        // Release pairs with the Acquire in `word`: who sees the epoch sees what was stored before.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

/// How far a column has looked for segments of before a flush.
#[derive(Debug)]
pub(crate) struct FlushWalk {
    /// The second that the walk began in.
    second: u32,
    /// The next segment to look at.
    next: u32,
}

impl View<'_> {
    /// Was the item at `loc` flushed?
    #[inline]
    pub(crate) fn is_flushed(self, loc: u64) -> bool {
        self.log.flush.may_hide() && self.is_flushed_by(loc)
    }

    #[cold]
    fn is_flushed_by(self, loc: u64) -> bool {
        let word = self.log.flush.word();
        let at = flush_at(word);
        // In the very second everything stored until now is gone (memcached's `oldest_live`).
        if at != 0 && self.handle.now >= at + u32::from(plant::is(Fault::FlushOneLate)) {
            return true;
        }
        word & SWEEPING != 0 && self.log.segment_of(loc).epoch() != epoch(word)
    }

    /// At the clock's tick: a delayed flush whose second is over has taken all that was stored
    /// until then. The first column that comes to it does it, and the others find it done: what has
    /// been stored since is not taken.
    pub(crate) fn flush_due(self) {
        let is_due = |word: u64| flush_at(word) != 0 && self.handle.now > flush_at(word);
        if self.log.flush.change(|word| is_due(word).then(|| flushed(word))) {
            self.flushed();
        }
    }
}

impl Column {
    /// `flush_all`: everything stored up to and including second `oldest_live` is gone once that
    /// second is reached (memcached's `settings.oldest_live`); `None` = everything stored so far,
    /// now. Replaces a flush still pending.
    pub fn flush(&mut self, oldest_live: Option<u32>) {
        let view = self.handle.view();
        let flush = &view.log.flush;
        let at = |at: u32| {
            let at = u64::from(at.min(AT_MAX)) << AT_AT;
            flush.change(|word| Some((word & !AT) | at))
        };
        match oldest_live {
            // A time before the store's first second flushes nothing, but calls a pending flush
            // off.
            Some(0) => _ = at(0),
            Some(second) if second >= view.handle.now => _ = at(second),
            _ => {
                flush.change(|word| Some(flushed(word)));
                view.flushed();
            }
        }
    }
}

impl FlushWalk {
    /// A walk that has been through in second `now`.
    pub(crate) fn new(now: u32) -> Self {
        Self { second: now, next: u32::MAX }
    }

    /// Looks for segments of before a flush, in the background. True: there is more to do.
    pub(crate) fn walk(&mut self, view: View<'_>) -> bool {
        if !view.log.flush.is_sweeping() {
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
        let (looked, claimed) = view.harvest.gather_flushed(view, first, end);
        // When these are gone, none may be left.
        self.next = if claimed > 0 { 0 } else { first + looked };
        if self.next == count {
            view.end_sweep();
        }
        self.next < count && looked > 0
    }
}

impl Store {
    /// The epoch is another: what is open is of the one before.
    fn flushed(&self) {
        self.log.seal_all();
        self.mrc.flushed();
    }

    /// Once nothing of an earlier epoch is left, lookups need not compare.
    fn end_sweep(&self) {
        let swept = self.log.flush.word();
        let segments = &self.memory().segments;
        let earlier = |segment: u32| {
            let there = segments.get(segment);
            let holds =
                there.is(State::Open) || there.is(State::Sealed) || there.is(State::Draining);
            holds && there.epoch() != epoch(swept)
        };
        if !(0..segments.count()).any(earlier) {
            // A flush meanwhile has changed the epoch: what it took is looked for anew.
            let is_same = |word: u64| epoch(word) == epoch(swept);
            self.log.flush.change(|word| is_same(word).then_some(word & !SWEEPING));
        }
    }
}

/// The word once everything until now is flushed; a flush that was pending is done with it.
fn flushed(word: u64) -> u64 {
    (u64::from(epoch(word).wrapping_add(1)) << EPOCH_AT) | SWEEPING
}

fn epoch(word: u64) -> u32 {
    (word >> EPOCH_AT) as u32
}

fn flush_at(word: u64) -> u32 {
    ((word & AT) >> AT_AT) as u32
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::Config;
    use std::sync::atomic::AtomicU32;

    const ROUNDS: u32 = 40_000;

    /// Two columns do it at once, in each round.
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
            |store, round| assert_eq!(store.log.flush.epoch(), 2 * (round + 1)),
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
                let word = store.log.flush.word();
                // One that came late has put it off anew, until its own clock was there.
                assert!((round + 1..=2 * (round + 1)).contains(&epoch(word)), "{word:x}");
                assert_eq!(flush_at(word), 0, "done");
            },
        );
    }

    #[test]
    fn epochs_come_round() {
        let last = (u64::from(u32::MAX) << EPOCH_AT) | (7 << AT_AT);
        assert_eq!((epoch(last), flush_at(last)), (u32::MAX, 7));
        assert_eq!((epoch(flushed(last)), flush_at(flushed(last))), (0, 0));
        assert_eq!(flushed(last) & SWEEPING, SWEEPING);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use loom::{sync::Arc, thread};

    /// One flushes at once, the other puts a flush off: both are done.
    #[test]
    fn two_changes_at_once_are_both_made() {
        loom::model(|| {
            let flush = Arc::new(Flush::default());
            let other = {
                let flush = Arc::clone(&flush);
                thread::spawn(move || flush.change(|word| Some(word | (7 << AT_AT))))
            };
            assert!(flush.change(|word| Some(flushed(word) | (word & AT))));
            assert!(other.join().expect("changes"));
            assert_eq!((flush.epoch(), flush_at(flush.word())), (1, 7));
        });
    }
}
