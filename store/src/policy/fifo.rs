//! First in, first out: the baseline for any other policy.
//!
//! Where: see `policy`.
//! Invariant: a drain evicts every live item.

use super::{CNT_MAX, DrainedItem, GhostScope, Policy, Queue, Share};

pub(super) struct Fifo;

impl Policy for Fifo {
    const REMEMBERED: GhostScope = GhostScope::None;

    fn admit(_remembered: bool) -> Queue {
        Queue::Main
    }

    fn victim(_share: Share, _probation_bytes: u64, _main_bytes: u64) -> Queue {
        Queue::Main
    }

    fn bar(_item: DrainedItem) -> u8 {
        CNT_MAX + 1
    }

    fn spared_cnt(_item: DrainedItem) -> u8 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Pressure, Verdict};

    #[test]
    fn what_was_used_goes_too() {
        let item = DrainedItem { queue: Queue::Main, cnt: 3, bytes: 100, mean_bytes: 0 };
        for in_debt in [false, true] {
            assert_eq!(Fifo::judge(item, Pressure { in_debt, stuck: false }), Verdict::Evict);
        }
    }
}
