//! S3-FIFO: a small queue for new items, a large queue for items used since, and a ghost.
//!
//! Where: see `policy`. Invariant: the probation queue is drained while it holds more than its
//! share, so that items that are never used again pass through only a tenth of the memory.
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use super::{DrainedItem, GhostScope, Policy, Queue, Share};

/// A drain moves an item with this number of uses or more from probation to the main queue.
const PROMOTED_FROM: u8 = 2;

pub(super) struct S3Fifo;

impl Policy for S3Fifo {
    const REMEMBERED: GhostScope = GhostScope::Probation;
    const SHARE: Share = Share(0.1);

    fn admit(remembered: bool) -> Queue {
        if remembered { Queue::Main } else { Queue::Probation }
    }

    fn victim(share: Share, probation_bytes: u64, main_bytes: u64) -> Queue {
        share.victim(probation_bytes, main_bytes)
    }

    fn bar(item: DrainedItem) -> u8 {
        match item.queue {
            Queue::Probation => PROMOTED_FROM,
            Queue::Main => 1,
        }
    }

    fn spared_cnt(item: DrainedItem) -> u8 {
        match item.queue {
            Queue::Probation => 0,
            Queue::Main => item.cnt - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Pressure, Verdict};

    fn judge(queue: Queue, cnt: u8, pressure: Pressure) -> Verdict {
        S3Fifo::judge(DrainedItem { queue, cnt, bytes: 100, mean_bytes: 0 }, pressure)
    }

    const CALM: Pressure = Pressure { in_debt: false, stuck: false };

    #[test]
    fn probation_promotes_what_was_used_twice_and_remembers_the_rest() {
        for cnt in 0..=1 {
            assert_eq!(judge(Queue::Probation, cnt, CALM), Verdict::Evict);
        }
        for cnt in 2..=3 {
            assert_eq!(judge(Queue::Probation, cnt, CALM), Verdict::Spare(0));
        }
    }

    #[test]
    fn main_spares_as_often_as_it_was_used_and_forgets() {
        for cnt in 1..=3 {
            assert_eq!(judge(Queue::Main, cnt, CALM), Verdict::Spare(cnt - 1));
        }
        assert_eq!(judge(Queue::Main, 0, CALM), Verdict::Evict);
    }

    #[test]
    fn debt_raises_the_bar_until_something_goes() {
        let debt = Pressure { in_debt: true, stuck: false };
        for queue in [Queue::Probation, Queue::Main] {
            assert_eq!(judge(queue, 2, debt), Verdict::Evict);
            assert!(matches!(judge(queue, 3, debt), Verdict::Spare(_)));
            assert_eq!(judge(queue, 3, Pressure { stuck: true, ..debt }), Verdict::Evict);
        }
    }

    #[test]
    fn probation_is_the_victim_from_its_share_on() {
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, 100, 900), Queue::Main);
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, 110, 890), Queue::Probation);
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, 0, 1), Queue::Main);
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, 1, 0), Queue::Probation);
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, 0, 0), Queue::Probation);
        assert_eq!(S3Fifo::victim(S3Fifo::SHARE, u64::MAX, u64::MAX), Queue::Probation);
    }

    #[test]
    fn who_is_remembered_enters_the_main_queue() {
        assert_eq!(S3Fifo::admit(true), Queue::Main);
        assert_eq!(S3Fifo::admit(false), Queue::Probation);
    }
}
