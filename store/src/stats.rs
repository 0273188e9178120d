//! The counters of each column, and their sums over all columns.
//!
//! Where: every operation changes counters, and `stats` reads the sums.
//! Invariant: only the column itself writes its counters, so they need no atomic addition.

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
#[cfg(shuttle)]
pub(crate) mod evicted;
pub(crate) mod evictions;
pub(crate) mod mrc;
#[cfg(all(test, shuttle))]
mod shared_writes;
pub(crate) mod usage;

use crate::policy::Queue;

/// The sums of all columns' counters. The last four numbers describe the index and the queues, and
/// are no column's: `Shared::stats` sets them.
pub type Stats = Sums;

/// When `late_evictions` reaches this number, both terms of the mean in `eviction_age` are halved.
const LATE_EVICTIONS: u64 = 1 << 14;

impl Counters {
    #[inline]
    pub(crate) fn link(&self, queue: Queue, bytes: u64) {
        self.bytes.add(bytes);
        if queue == Queue::Probation {
            self.probation_bytes.add(bytes);
        }
    }

    /// Counts the unlinking of an item of `bytes` bytes in `queue`, `log_bytes` of them in the log.
    #[inline]
    pub(crate) fn unlink(&self, queue: Queue, bytes: u64, log_bytes: u32) {
        self.bytes.sub(bytes);
        self.dead_bytes.add(log_bytes.into());
        if queue == Queue::Probation {
            self.probation_bytes.sub(bytes);
        }
    }

    /// Counts the eviction of an item whose segment was opened `seconds` ago.
    pub(crate) fn note_eviction_age(&self, seconds: u32) {
        if self.late_evictions.get() >= LATE_EVICTIONS {
            self.late_evictions.sub(LATE_EVICTIONS / 2);
            self.late_eviction_seconds.sub(self.late_eviction_seconds.get() / 2);
        }
        self.late_evictions.add(1);
        self.late_eviction_seconds.add(seconds.into());
    }
}

impl Sums {
    /// Mean age of recently evicted items at their eviction, in seconds. The age counts from the
    /// opening of the segment in which the item was stored, or to which it was last moved instead
    /// of being evicted. 0 if no item was evicted.
    #[must_use]
    pub fn eviction_age(&self) -> u64 {
        self.late_eviction_seconds / self.late_evictions.max(1)
    }
}

memory::counters! {
    counts:
    /// Items that requests have stored, in new or in old places.
    total_items,
    /// Live items dropped to make room.
    evictions,
    /// Evicted items that were never fetched.
    evicted_unfetched,
    /// Evicted items that were used again since they were stored or last spared by a drain.
    evicted_active,
    /// Evicted items with an exptime.
    evicted_nonzero,
    /// Items written in place over an old item of the same shape.
    rewritten,
    /// Items stored under keys that the ghost remembered as evicted.
    ghost_hits,
    /// Expired or flushed items whose memory or key is used again.
    reclaimed,
    /// Never-fetched items dropped as expired by background work, or as dead to make room.
    expired_unfetched,
    /// Expired items dropped by the background walk.
    crawler_reclaimed,
    /// Items that the background walk has examined.
    crawler_items_checked,
    /// Lookups that found an expired item.
    get_expired,
    /// Lookups that found a flushed item.
    get_flushed,
    /// `cas` requests whose CAS unique matched.
    cas_hits,
    /// `cas` requests whose CAS unique differed.
    cas_badval,
    /// `cas` requests whose key had no item.
    cas_misses,
    /// Bytes copied into values that lie in the arena.
    arena_copied_bytes,
    /// Bytes of values that were kept in the arena where they were received.
    arena_kept_bytes,
    /// Values stored outside the arena because it had too few free chunks.
    arena_full,
    /// Bytes moved by compaction.
    compacted_bytes,
    /// Bytes of items that drains moved instead of evicting them.
    spared_bytes,
    /// Segments compacted.
    compacted_segments,
    /// Segments drained to make room.
    drained_segments,
    /// Segments that were examined to find one to compact or drain.
    segment_looks;

    shared:;
    gauges:
    /// Items linked now.
    curr_items,
    /// Bytes of linked items in the log and in frames: keys, values and overhead.
    bytes,
    /// Bytes of linked items in the probation queue.
    probation_bytes,
    /// Dead bytes of the log: bytes of unlinked items, and of places that got no item.
    dead_bytes,
    /// Number of recent evictions that `eviction_age` averages.
    late_evictions,
    /// Sum of the ages, in seconds, of the items counted in `late_evictions`.
    late_eviction_seconds,
    /// Bytes that the index takes now.
    hash_bytes,
    /// Bytes of the index's overflow lines. Keys that collide need many overflow lines.
    hash_overflow_bytes,
    /// Binary logarithm of the index's number of slots, rounded down.
    hash_power_level,
    /// The present target share of the probation queue in all live bytes, in percent.
    probation_percent;
}
