//! Planned faults: UDP messages that are dropped, duplicated or reordered.
//!
//! Where: applied to each reply over UDP before the reply is sent.
//! Invariant: a message's fault depends only on its number, and is counted. A thread holds back at
//! most one message at a time.

use crate::words::values::{number, or};
use std::sync::atomic::{AtomicU64, Ordering};

/// Periods of faults: one message in `drop_every` is dropped, and so on; 0 means never. If several
/// faults are due for a message, the field declared first applies.
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
    /// UDP: send one reply in N after the reply that follows it
    #[arg(long = "reorder", value_name = "N", default_value = "never")]
    #[arg(value_parser = or("never", 0, number(1..=u64::MAX)))]
    pub reorder_every: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Drop,
    Duplicate,
    Reorder,
}

impl Faults {
    /// Returns the fault of a message. The first message has number 0.
    pub(super) fn fault_of(&self, number: u64) -> Fault {
        let is_one = |every: u64, of: u64| every > 0 && number % every == of % every;
        // The offsets 0, 1 and 2 differ, so that equal periods choose different messages.
        if is_one(self.drop_every, 0) {
            Fault::Drop
        } else if is_one(self.duplicate_every, 1) {
            Fault::Duplicate
        } else if is_one(self.reorder_every, 2) {
            Fault::Reorder
        } else {
            Fault::None
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct MessageCounter(AtomicU64);

impl MessageCounter {
    /// Relaxed: numbers only have to be unique.
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
        let count = |fault| (0..1000).filter(|&number| faults.fault_of(number) == fault).count();
        assert_eq!([Fault::Drop, Fault::Duplicate, Fault::Reorder].map(count), [100, 100, 200]);
        assert!((0..1000).all(|number| Faults::default().fault_of(number) == Fault::None));
    }
}
