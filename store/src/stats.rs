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
use memory::sync::Counter;

/// The value of a statistic to show after a `stats reset`; `earlier` is the value at the reset. A
/// `count` shows the increase since the reset; a `gauge` shows the present value.
macro_rules! since {
    (count, $now:expr, $earlier:expr) => {
        $now.wrapping_sub($earlier)
    };
    (gauge, $now:expr, $earlier:expr) => {
        $now
    };
}

/// Makes, for each row, a counter of each column, a sum in `Stats`, and a rule for `stats reset`.
macro_rules! counters {
    ($($(#[$doc:meta])* $kind:ident $name:ident,)+) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        impl Counters {
            pub(crate) fn add_to(&self, stats: &mut Stats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.get());)+
            }
        }

        /// The sums of all columns' counters, and numbers that describe the index.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Bytes that the index takes now.
            pub hash_bytes: u64,
            /// Bytes of the index's overflow lines. Keys that collide need many overflow lines.
            pub hash_overflow_bytes: u64,
            /// Binary logarithm of the index's number of slots, rounded down.
            pub hash_power_level: u32,
            /// The present target share of the probation queue in all live bytes, in percent.
            pub probation_percent: u64,
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Stats {
            /// Returns the increase of each count since `earlier`, and all gauges as they are now.
            #[must_use]
            pub fn since(&self, earlier: &Stats) -> Stats {
                Stats { $($name: since!($kind, self.$name, earlier.$name),)+ ..*self }
            }
        }
    };
}

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

impl Stats {
    /// Mean age of recently evicted items at their eviction, in seconds. The age counts from the
    /// opening of the segment in which the item was stored, or to which it was last moved instead
    /// of being evicted. 0 if no item was evicted.
    #[must_use]
    pub fn eviction_age(&self) -> u64 {
        self.late_eviction_seconds / self.late_evictions.max(1)
    }
}

counters! {
    /// Items linked now.
    gauge curr_items,
    /// Bytes of linked items in the log and in frames: keys, values and overhead.
    gauge bytes,
    /// Bytes of linked items in the probation queue.
    gauge probation_bytes,
    /// Bytes of the log that items unlinked by this column take. In `Stats`: all dead bytes of the
    /// log, that is, with voids and without retired segments.
    gauge dead_bytes,
    /// Items that requests have stored, in new or in old places.
    count total_items,
    /// Live items dropped to make room.
    count evictions,
    /// Evicted items that were never fetched.
    count evicted_unfetched,
    /// Evicted items that were used again since they were stored or last spared by a drain.
    count evicted_active,
    /// Evicted items with an exptime.
    count evicted_nonzero,
    /// Items written in place over an old item of the same shape.
    count rewritten,
    /// Items stored under keys that the ghost remembered as evicted.
    count ghost_hits,
    /// Expired or flushed items whose memory or key is used again.
    count reclaimed,
    /// Never-fetched items dropped as expired by background work, or as dead to make room.
    count expired_unfetched,
    /// Expired items dropped by the background walk.
    count crawler_reclaimed,
    /// Items that the background walk has examined.
    count crawler_items_checked,
    /// Lookups that found an expired item.
    count get_expired,
    /// Lookups that found a flushed item.
    count get_flushed,
    /// `cas` requests whose CAS unique matched.
    count cas_hits,
    /// `cas` requests whose CAS unique differed.
    count cas_badval,
    /// `cas` requests whose key had no item.
    count cas_misses,
    /// Bytes copied into values that lie in the arena.
    count arena_copied_bytes,
    /// Bytes of values that were kept in the arena where they were received.
    count arena_kept_bytes,
    /// Values stored outside the arena because it had too few free chunks.
    count arena_full,
    /// Bytes moved by compaction.
    count compacted_bytes,
    /// Bytes of items that drains moved instead of evicting them.
    count spared_bytes,
    /// Segments compacted.
    count compacted_segments,
    /// Segments drained to make room.
    count drained_segments,
    /// Segments that were examined to find one to compact or drain.
    count segment_looks,
    /// Number of recent evictions that `eviction_age` averages.
    gauge late_evictions,
    /// Sum of the ages, in seconds, of the items counted in `late_evictions`.
    gauge late_eviction_seconds,
}
