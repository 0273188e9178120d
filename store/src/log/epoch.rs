//! The flush word: determines which items a flush has removed, or will remove in a given second.
//!
//! Where: every lookup checks the found item against this word; an opened segment gets its epoch.
//! Invariant: one word holds the epoch, the pending flush, and a bit that is set while segments of
//! an earlier epoch may be left. Each change of the word is atomic. A segment has the epoch in
//! which it was opened, and takes no item in a later epoch.
//! Source: memcached's `settings.oldest_live` (1.6.45).
//!
//! ```text
//!   word, u64:  epoch:32 | flush at:31 | sweeping:1
//!               flush at: 0 when no flush is pending; the largest value, which no clock reaches,
//!               stands for all later seconds
//! ```

use memory::plant::{self, Fault};
use memory::sync::{AtomicU64, Ordering};

const SWEEPING: u64 = 1;
const AT_AT: u32 = 1;
const AT_MAX: u32 = u32::MAX >> AT_AT;
const AT: u64 = (AT_MAX as u64) << AT_AT;
const EPOCH_AT: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlushWord(u64);

impl FlushWord {
    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> EPOCH_AT) as u32
    }

    /// The second in which a pending flush removes all items stored until then; 0 if no flush is
    /// pending.
    pub(crate) fn at(self) -> u32 {
        ((self.0 & AT) >> AT_AT) as u32
    }

    /// True if there may be a segment of an earlier epoch.
    pub(crate) fn is_sweeping(self) -> bool {
        self.0 & SWEEPING != 0
    }

    /// The word with a flush pending in second `at`, or without a pending flush if `at` is 0.
    pub(crate) fn with_at(self, at: u32) -> Self {
        Self((self.0 & !AT) | (u64::from(at.min(AT_MAX)) << AT_AT))
    }

    /// The word after a flush of all items stored until now, with no flush pending.
    pub(crate) fn next(self) -> Self {
        Self((u64::from(self.epoch().wrapping_add(1)) << EPOCH_AT) | SWEEPING)
    }

    /// The word once no segment of an earlier epoch is left.
    pub(crate) fn swept(self) -> Self {
        Self(self.0 & !SWEEPING)
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicFlushWord(AtomicU64);

impl AtomicFlushWord {
    #[inline]
    pub(crate) fn now(&self) -> FlushWord {
        FlushWord(self.0.load(Ordering::Acquire)) // pairs with the Release in `change`
    }

    #[inline]
    pub(crate) fn may_hide(&self) -> bool {
        self.now().0 & (AT | SWEEPING) != 0
    }

    /// Sets the word to the result of `change`. False: `change` returned `None`.
    pub(crate) fn change(&self, mut change: impl FnMut(FlushWord) -> Option<FlushWord>) -> bool {
        let mut change = |word| change(FlushWord(word)).map(|word| word.0);
        if plant::is(Fault::FlushInTwoSteps) {
            let changed = change(self.now().0);
            return changed.map(|word| self.0.store(word, Ordering::Release)).is_some();
        }
        // Release pairs with the Acquire in `now`: a reader of the epoch sees all earlier stores.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn epochs_come_round() {
        let last = FlushWord(u64::from(u32::MAX) << EPOCH_AT).with_at(7);
        assert_eq!((last.epoch(), last.at(), last.is_sweeping()), (u32::MAX, 7, false));
        let first = last.next();
        assert_eq!((first.epoch(), first.at(), first.is_sweeping()), (0, 0, true));
        assert_eq!(first.swept(), FlushWord(0));
        assert_eq!(last.with_at(u32::MAX).at(), AT_MAX);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use loom::{sync::Arc, thread};

    #[test]
    fn two_changes_at_once_are_both_made() {
        loom::model(|| {
            let flush = Arc::new(AtomicFlushWord::default());
            let other = {
                let flush = Arc::clone(&flush);
                thread::spawn(move || flush.change(|word| Some(word.with_at(7))))
            };
            assert!(flush.change(|word| Some(word.next().with_at(word.at()))));
            assert!(other.join().expect("changes"));
            assert_eq!((flush.now().epoch(), flush.now().at()), (1, 7));
        });
    }
}
