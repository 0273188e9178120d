//! Rules for making room: how much work an append does, and which items are moved or evicted.
//!
//! Where: the store's `room`, `log` and `rewrite` use the rules, and so does the simulator's model.
//! Invariant: like `policy`, this module has no memory and no clock; the caller passes all counts.

use super::{Pressure, Queue};

/// Minimum budget of a slice of work, in bytes of records.
pub const SLICE_BYTES_MIN: u32 = if cfg!(shuttle) { 256 } else { 2 << 10 };
/// Maximum budget of a slice of work, in bytes of records.
pub const SLICE_BYTES_MAX: u32 = if cfg!(shuttle) { 2 << 10 } else { 32 << 10 };
/// A segment is worth compacting if at least this percentage of it is dead. This number equals
/// `DEAD_PERCENT_MAX`, so some segment qualifies whenever compaction comes before eviction.
pub const COMPACT_DEAD_PERCENT_MIN: u64 = 3;
/// Maximum bytes of a value that may be rewritten in place while other columns read it.
pub const REWRITTEN_BYTES_MAX: usize = if cfg!(shuttle) { 128 } else { 1 << 10 };
/// Number of times that an item is rewritten in place; after that, a new version is appended.
pub const VERSION_MAX: u8 = 7;

/// Bytes of work that an append does for each of its bytes. If few segments are free, up to
/// `PAY_FACTOR_MORE` bytes are added.
const PAY_FACTOR: u32 = 2;
const PAY_FACTOR_MORE: u32 = 10;
/// Compaction comes before eviction while more than this percentage of all bytes is dead.
const DEAD_PERCENT_MAX: u64 = 3;
/// `worth` measures the dead part of a segment in units of 1 / `WORTH_PARTS` of the segment.
const WORTH_PARTS: u64 = 1 << 10;
/// A debt above 1 / `DEBT_PART` of all memory puts a policy under pressure to evict.
const DEBT_PART: u64 = 16;
/// Each freed byte pays the debt of `DEBT_PAID` spared bytes, which drains moved, not evicted.
const DEBT_PAID: u64 = 3;

/// Number of free segments that only drains may take. At most `drains` drains run at a time.
#[inline]
#[must_use]
pub fn keep(drains: u32) -> u32 {
    drains + 1
}

/// Appends work to make room while fewer segments than this are free. `drains`: see `keep`.
#[inline]
#[must_use]
pub fn high(drains: u32) -> u32 {
    2 * drains + 3
}

/// Bytes of work for each byte of an append, while `free` segments are free, fewer than `high`.
#[inline]
#[must_use]
pub fn pay_factor(free: u32, high: u32) -> u32 {
    PAY_FACTOR + PAY_FACTOR_MORE * (high - free) / high
}

/// True if enough of `all_bytes` is dead for compaction to come before eviction.
#[inline]
#[must_use]
pub fn is_too_dead(dead_bytes: u64, all_bytes: u64) -> bool {
    dead_bytes * 100 > all_bytes * DEAD_PERCENT_MAX
}

/// The worth of a segment's compaction; 0 if too little of the segment is dead. `age` is the number
/// of segments opened in the same queue since the segment's items were stored.
///
/// The cost-benefit formula (Rosenblum and Ousterhout, 1992) is `(1 - u) * age / (1 + u)`, where
/// `u` is the live part. Age counts because old items are unlikely to be overwritten soon, so the
/// room gained lasts. Here `1 - u` is cubed: without the cube, 1.5 times as many bytes are moved if
/// all keys are overwritten equally often (`bench store -- overwrite --hot-percent`).
#[must_use]
pub fn worth(dead_bytes: u64, segment_bytes: u64, age: u64) -> u64 {
    if dead_bytes * 100 < segment_bytes * COMPACT_DEAD_PERCENT_MIN {
        return 0;
    }
    let dead = dead_bytes * WORTH_PARTS / segment_bytes;
    dead.pow(3).saturating_mul(age + 1) / (2 * WORTH_PARTS - dead)
}

/// A search for the segment whose compaction is worth most; among equals, the first one wins.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionChoice {
    best: Option<u32>,
    worth: u64,
}

impl CompactionChoice {
    /// Adds a segment to the search. `worth` is the result of the function `worth`.
    #[inline]
    pub fn look(&mut self, segment: u32, worth: u64) {
        if worth > self.worth {
            *self = CompactionChoice { best: Some(segment), worth };
        }
    }

    /// The segment most worth compacting, if any segment is worth compacting.
    #[inline]
    #[must_use]
    pub fn best(&self) -> Option<u32> {
        self.best
    }
}

/// Both queues in the order to try: the second queue is used if `victim` has no sealed segment.
#[must_use]
pub fn either(victim: Queue) -> [Queue; 2] {
    match victim {
        Queue::Probation => [Queue::Probation, Queue::Main],
        Queue::Main => [Queue::Main, Queue::Probation],
    }
}

/// Hits on items in the youngest `window_percent` of a queue's `segments` segments do not count.
/// Returns the order of the oldest such segment. `birth` is the order of the last opened segment.
#[inline]
#[must_use]
pub fn young_from(birth: u64, segments: u32, window_percent: u32) -> u64 {
    let window = u64::from(segments) * u64::from(window_percent) / 100;
    (birth + 1).saturating_sub(window)
}

/// The debt: bytes that drains have spared, minus `DEBT_PAID` times the bytes that they have freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Debt {
    bytes: u64,
    is_stuck: bool,
}

impl Debt {
    /// The pressure in a store of `all_bytes` of memory.
    #[inline]
    #[must_use]
    pub fn pressure(&self, all_bytes: u64) -> Pressure {
        Pressure { in_debt: self.bytes > all_bytes / DEBT_PART, stuck: self.is_stuck }
    }

    /// Notes that an item was spared, that is, moved instead of evicted.
    #[inline]
    pub fn spared(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Notes that an item of `bytes` bytes was freed.
    #[inline]
    pub fn freed(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(DEBT_PAID * bytes);
        self.is_stuck = false;
    }

    /// Notes that a whole drain freed nothing.
    #[inline]
    pub fn in_vain(&mut self) {
        self.is_stuck = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_most_dead_and_oldest_is_compacted_first() {
        assert_eq!(worth(2, 100, 9), 0, "too little");
        assert!(worth(50, 100, 0) > worth(40, 100, 0));
        assert!(worth(40, 100, 1) > worth(40, 100, 0));
        assert!(worth(100, 100, 0) > 0);
        let mut deadest = CompactionChoice::default();
        assert_eq!(deadest.best(), None);
        deadest.look(1, 0);
        assert_eq!(deadest.best(), None, "worth nothing");
        [(2, 5), (3, 7), (4, 7), (5, 6)].iter().for_each(|(one, worth)| deadest.look(*one, *worth));
        assert_eq!(deadest.best(), Some(3));
        assert!(is_too_dead(31, 1000) && !is_too_dead(30, 1000));
    }

    #[test]
    fn appends_pay_more_the_fewer_segments_are_free() {
        assert_eq!((high(1), keep(1)), (5, 2));
        assert_eq!([5, 4, 1, 0].map(|free| pay_factor(free, 5)), [2, 4, 10, 12]);
    }

    #[test]
    fn debt_grows_by_what_is_spared_and_is_paid_threefold() {
        let mut debt = Debt::default();
        let of = |debt: &Debt| (debt.pressure(1600).in_debt, debt.pressure(1600).stuck);
        debt.spared(100);
        assert_eq!(of(&debt), (false, false));
        debt.spared(1);
        debt.in_vain();
        assert_eq!(of(&debt), (true, true));
        debt.freed(1);
        assert_eq!(of(&debt), (false, false));
        debt.freed(1000);
        debt.spared(101);
        assert_eq!(of(&debt), (true, false), "nothing is paid ahead");
    }

    #[test]
    fn the_youngest_part_of_a_queue_is_young() {
        assert_eq!(young_from(99, 40, 15), 94, "six of forty");
        assert_eq!(young_from(0, 1, 15), 1, "none of one");
        assert_eq!(young_from(3, 100, 15), 0, "all there ever were");
    }
}
