//! NbQ-CLOCK: a drain spares (does not evict) an item that was used since the last drain met it.
//!
//! Where: see `policy`. Invariant: each time an item is spared, its counter falls by one.
//! Source: the KV-Cache paper, section 4.2.3.

use super::{DrainedItem, GhostScope, Policy, Queue, Share};

pub(super) struct NbqClock;

impl Policy for NbqClock {
    const REMEMBERED: GhostScope = GhostScope::None;

    fn admit(_remembered: bool) -> Queue {
        Queue::Main
    }

    fn victim(_share: Share, _probation_bytes: u64, _main_bytes: u64) -> Queue {
        Queue::Main
    }

    fn bar(_item: DrainedItem) -> u8 {
        1
    }

    fn spared_cnt(item: DrainedItem) -> u8 {
        item.cnt - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Pressure, Verdict};

    fn judge(cnt: u8, pressure: Pressure) -> Verdict {
        NbqClock::judge(
            DrainedItem { queue: Queue::Main, cnt, bytes: 100, mean_bytes: 0 },
            pressure,
        )
    }

    #[test]
    fn a_used_item_is_spared_as_often_as_it_was_used() {
        let mut cnt = 3;
        for left in [2, 1, 0] {
            assert_eq!(judge(cnt, Pressure::default()), Verdict::Spare(left));
            cnt = left;
        }
        assert_eq!(judge(cnt, Pressure::default()), Verdict::Evict);
    }

    #[test]
    fn debt_raises_the_bar_until_something_goes() {
        let debt = Pressure { in_debt: true, stuck: false };
        assert_eq!(judge(2, debt), Verdict::Evict);
        assert_eq!(judge(3, debt), Verdict::Spare(2));
        assert_eq!(judge(3, Pressure { stuck: true, ..debt }), Verdict::Evict);
    }
}
