//! Clock2Q: a probation queue and a main queue, both CLOCKs. Hits in the youngest part of a queue
//! do not count. Keys that return after eviction change the shares of the queues.
//!
//! Where: see `policy`. Invariant: if all items have the same size, sizes change no decision.
//! Source: Clock2Q+ (2025): hits soon after an insertion come in bursts and do not predict later
//! hits, so hits in the youngest part of probation do not count. This file adds the same rule for
//! the main queue, counters of two bits, and a rule like that of GDSF: a large item needs more hits
//! than the small items that would fit in its room. The share of probation is ARC's p: the share
//! grows when a key returns that was evicted from probation, and shrinks when a key returns that
//! was evicted from the main queue. The constants were tuned with `kvblaster simulate`; small
//! changes matter little.

use super::{DrainedItem, GhostScope, Policy, Queue, Share};

/// The smallest and the largest share of the probation queue in all live bytes.
const PROBATION_LEAST: f64 = 0.05;
const PROBATION_MOST: f64 = 0.9;
/// An item that returns changes probation's share by `STEP` times the item's part of the memory.
const STEP: f64 = 0.5;

pub(super) struct Clock2Q;

impl Policy for Clock2Q {
    const REMEMBERED: GhostScope = GhostScope::Both;
    const WINDOW_PERCENT: u64 = 15;
    const SHARE: Share = Share(0.15);

    fn admit(remembered: bool) -> Queue {
        if remembered { Queue::Main } else { Queue::Probation }
    }

    fn victim(share: Share, probation_bytes: u64, main_bytes: u64) -> Queue {
        share.victim(probation_bytes, main_bytes)
    }

    fn bar(item: DrainedItem) -> u8 {
        1 + extra_hits(item)
    }

    fn spared_cnt(item: DrainedItem) -> u8 {
        match item.queue {
            Queue::Probation => u8::from(is_small(item)),
            Queue::Main => item.cnt - 1,
        }
    }

    fn rebalance(share: Share, from: Queue, item_bytes: u64, all_bytes: u64) -> Share {
        let step = STEP * item_bytes as f64 / all_bytes.max(item_bytes).max(1) as f64;
        let share = match from {
            Queue::Probation => share.0 + step,
            Queue::Main => share.0 - step,
        };
        Share(share.clamp(PROBATION_LEAST, PROBATION_MOST))
    }
}

/// Number of hits that a large item needs in addition to the one hit that every item needs.
fn extra_hits(item: DrainedItem) -> u8 {
    let (bytes, mean_bytes) = (u64::from(item.bytes), u64::from(item.mean_bytes));
    if mean_bytes == 0 {
        return 0;
    }
    u8::from(4 * bytes > 5 * mean_bytes) + u8::from(2 * bytes > 5 * mean_bytes)
}

/// True if the item is so small that it may stay in the main queue for a round without a hit.
fn is_small(item: DrainedItem) -> bool {
    2 * u64::from(item.bytes) < u64::from(item.mean_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{CNT_MAX, Pressure, Verdict};

    const CALM: Pressure = Pressure { in_debt: false, stuck: false };

    fn item(queue: Queue, cnt: u8, bytes: u32, mean_bytes: u32) -> DrainedItem {
        DrainedItem { queue, cnt, bytes, mean_bytes }
    }

    fn spared(item: DrainedItem) -> Option<u8> {
        match Clock2Q::judge(item, CALM) {
            Verdict::Spare(cnt) => Some(cnt),
            Verdict::Evict => None,
        }
    }

    #[test]
    fn one_late_hit_is_enough_where_all_are_of_a_size() {
        for mean_bytes in [0, 100] {
            assert_eq!(spared(item(Queue::Probation, 0, 100, mean_bytes)), None);
            assert_eq!(spared(item(Queue::Probation, 1, 100, mean_bytes)), Some(0));
            assert_eq!(spared(item(Queue::Main, 0, 100, mean_bytes)), None);
            assert_eq!(spared(item(Queue::Main, 3, 100, mean_bytes)), Some(2));
        }
    }

    #[test]
    fn the_larger_the_more_it_must_be_used() {
        let least = |queue, bytes| {
            (0..=CNT_MAX).find(|cnt| spared(item(queue, *cnt, bytes, 100)).is_some())
        };
        for queue in [Queue::Probation, Queue::Main] {
            assert_eq!(least(queue, 10), Some(1));
            assert_eq!(least(queue, 125), Some(1));
            assert_eq!(least(queue, 126), Some(2));
            assert_eq!(least(queue, 250), Some(2));
            assert_eq!(least(queue, u32::MAX), Some(3));
        }
    }

    #[test]
    fn the_small_enter_the_main_queue_with_a_round_on_trust() {
        assert_eq!(spared(item(Queue::Probation, 1, 49, 100)), Some(1));
        assert_eq!(spared(item(Queue::Probation, 1, 50, 100)), Some(0));
        assert_eq!(spared(item(Queue::Probation, 0, 1, 100)), None);
    }

    #[test]
    fn debt_raises_the_bar_until_something_goes() {
        let debt = Pressure { in_debt: true, stuck: false };
        for queue in [Queue::Probation, Queue::Main] {
            assert_eq!(Clock2Q::judge(item(queue, 2, 10, 100), debt), Verdict::Evict);
            assert!(matches!(Clock2Q::judge(item(queue, 3, 999, 100), debt), Verdict::Spare(_)));
            let stuck = Pressure { stuck: true, ..debt };
            assert_eq!(Clock2Q::judge(item(queue, 3, 10, 100), stuck), Verdict::Evict);
        }
    }

    #[test]
    fn the_share_follows_what_comes_back_within_bounds() {
        let moved = |from, times| {
            let step = |share, _| Clock2Q::rebalance(share, from, 10, 1000);
            (0..times).fold(Clock2Q::SHARE, step).0
        };
        assert!((moved(Queue::Probation, 2) - 0.16).abs() < 1e-9);
        assert!((moved(Queue::Main, 2) - 0.14).abs() < 1e-9);
        assert_eq!(moved(Queue::Probation, 1000), PROBATION_MOST);
        assert_eq!(moved(Queue::Main, 1000), PROBATION_LEAST);
        let alone = Clock2Q::rebalance(Clock2Q::SHARE, Queue::Probation, 10, 0);
        assert!(alone.0 <= PROBATION_MOST, "the only item");
    }
}
