//! The flush word: what was stored before it changed is gone, at once or from a given second on.
//!
//! Where: every lookup asks whether what it has found may be flushed; each segment that is opened
//! takes the epoch.
//! Invariant: one word says all of it, and each change of it is one step: the epoch, what is
//! pending, and whether there may still be something of an earlier epoch. A segment's epoch is the
//! word's when it is opened, and nothing is added to a segment of an earlier one.
//! Source: memcached's `settings.oldest_live` (1.6.45).
//!
//! ```text
//!   word, u64:  epoch:32 | flush at:31 | sweeping:1
//!               flush at: 0 when nothing is flushed that might be seen; a second that no clock
//!               reaches stands for later ones
//! ```

use memory::plant::{self, Fault};
use memory::sync::{AtomicU64, Ordering};

const SWEEPING: u64 = 1;
const AT_AT: u32 = 1;
const AT_MAX: u32 = u32::MAX >> AT_AT;
const AT: u64 = (AT_MAX as u64) << AT_AT;
const EPOCH_AT: u32 = 32;

/// The word, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed(u64);

impl Flushed {
    /// The epoch of what is stored now.
    pub(crate) fn epoch(self) -> u32 {
        (self.0 >> EPOCH_AT) as u32
    }

    /// The second in which all that was stored until then will be gone; 0: none.
    pub(crate) fn at(self) -> u32 {
        ((self.0 & AT) >> AT_AT) as u32
    }

    /// May there be something of an earlier epoch?
    pub(crate) fn is_sweeping(self) -> bool {
        self.0 & SWEEPING != 0
    }

    /// With all that was stored until second `at` to go then; 0: nothing.
    pub(crate) fn with_at(self, at: u32) -> Self {
        Self((self.0 & !AT) | (u64::from(at.min(AT_MAX)) << AT_AT))
    }

    /// Once everything until now is flushed; a flush that was pending is done with it.
    pub(crate) fn next(self) -> Self {
        Self((u64::from(self.epoch().wrapping_add(1)) << EPOCH_AT) | SWEEPING)
    }

    /// With nothing of an earlier epoch left.
    pub(crate) fn swept(self) -> Self {
        Self(self.0 & !SWEEPING)
    }
}

/// The word.
#[derive(Debug, Default)]
pub(crate) struct Flush(AtomicU64);

impl Flush {
    #[inline]
    pub(crate) fn now(&self) -> Flushed {
        Flushed(self.0.load(Ordering::Acquire)) // pairs with the Release in `change`
    }

    /// Might anything that is linked be flushed?
    #[inline]
    pub(crate) fn may_hide(&self) -> bool {
        self.now().0 & (AT | SWEEPING) != 0
    }

    /// Changes the word where `change` says so. False: it did not.
    pub(crate) fn change(&self, mut change: impl FnMut(Flushed) -> Option<Flushed>) -> bool {
        let mut change = |word| change(Flushed(word)).map(|word| word.0);
        if plant::is(Fault::FlushInTwoSteps) {
            let changed = change(self.now().0);
            return changed.map(|word| self.0.store(word, Ordering::Release)).is_some();
        }
        // Release pairs with the Acquire in `now`: who sees the epoch sees what was stored before.
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn epochs_come_round() {
        let last = Flushed(u64::from(u32::MAX) << EPOCH_AT).with_at(7);
        assert_eq!((last.epoch(), last.at(), last.is_sweeping()), (u32::MAX, 7, false));
        let first = last.next();
        assert_eq!((first.epoch(), first.at(), first.is_sweeping()), (0, 0, true));
        assert_eq!(first.swept(), Flushed(0));
        assert_eq!(last.with_at(u32::MAX).at(), AT_MAX);
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
                thread::spawn(move || flush.change(|word| Some(word.with_at(7))))
            };
            assert!(flush.change(|word| Some(word.next().with_at(word.at()))));
            assert!(other.join().expect("changes"));
            assert_eq!((flush.now().epoch(), flush.now().at()), (1, 7));
        });
    }
}
