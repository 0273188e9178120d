//! Planned faults: which messages over UDP are dropped, duplicated or swapped.
//!
//! Where: before a reply over UDP is sent.
//! Invariant: a reply's fate depends on its number alone, and each fault is counted; at most one
//! message is held back at a time.

use crate::flags::{number, or};
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages from one fault to the next, from the first: one in `drop_every` is dropped, and so on.
/// 0: never.
/// A message to which two would happen has the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Faults {
    /// UDP: drop one reply in N
    #[arg(long = "drop", value_name = "N", default_value = "never")]
    #[arg(value_parser = or("never", 0, number(1..=u64::MAX)))]
    pub drop_every: u64,
    /// UDP: send one reply in N twice
    #[arg(long = "duplicate", value_name = "N", default_value = "never")]
    #[arg(value_parser = or("never", 0, number(1..=u64::MAX)))]
    pub duplicate_every: u64,
    /// UDP: send one reply in N behind the next one
    #[arg(long = "reorder", value_name = "N", default_value = "never")]
    #[arg(value_parser = or("never", 0, number(1..=u64::MAX)))]
    pub reorder_every: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Sent,
    Dropped,
    Doubled,
    Held,
}

impl Faults {
    /// The fate of message `number`, counted from 0.
    pub(super) fn fate(&self, number: u64) -> Fate {
        let is_one = |every: u64, of: u64| every > 0 && number % every == of % every;
        // Offsets keep equal periods from hitting the same messages.
        if is_one(self.drop_every, 0) {
            Fate::Dropped
        } else if is_one(self.duplicate_every, 1) {
            Fate::Doubled
        } else if is_one(self.reorder_every, 2) {
            Fate::Held
        } else {
            Fate::Sent
        }
    }
}

/// Numbers messages over all threads.
#[derive(Debug, Default)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    /// The next number. Relaxed: it only matters that none is given twice.
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_messages_has_each_fault() {
        let faults = Faults { drop_every: 10, duplicate_every: 10, reorder_every: 5 };
        let count = |fate| (0..1000).filter(|&number| faults.fate(number) == fate).count();
        assert_eq!([Fate::Dropped, Fate::Doubled, Fate::Held].map(count), [100, 100, 200]);
        assert!((0..1000).all(|number| Faults::default().fate(number) == Fate::Sent));
    }
}
