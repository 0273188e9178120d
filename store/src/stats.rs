//! The store's counters, per column, and their sums.
//!
//! Where: beside every operation; read by `stats`.
//! Invariant: a column's counters have one writer, so they need no atomic addition.

use crate::policy::Queue;
use memory::sync::Counter;

/// The value to show of a statistic after a `stats reset`, at which it was `earlier`: a `count`
/// begins at 0 again, a `gauge` shows the present value.
macro_rules! since {
    (count, $now:expr, $earlier:expr) => {
        $now.wrapping_sub($earlier)
    };
    (gauge, $now:expr, $earlier:expr) => {
        $now
    };
}

/// Makes of each row a column's counter, its sum over the columns and its `stats reset` rule.
macro_rules! counters {
    ($($(#[$doc:meta])* $kind:ident $name:ident,)+) => {
        /// One column's counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        impl Counters {
            pub(crate) fn add_to(&self, stats: &mut Stats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.get());)+
            }
        }

        /// The store's own counters, summed over its columns.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Bytes the index takes now.
            pub hash_bytes: u64,
            /// Bytes of the index in overflow lines: many where keys collide.
            pub hash_overflow_bytes: u64,
            /// log2 of the index's slots, rounded down.
            pub hash_power_level: u32,
            /// The part of all live bytes that probation ought to have now, in percent.
            pub probation_percent: u64,
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Stats {
            /// The increase of each count since `earlier`; everything else is as it is now.
            #[must_use]
            pub fn since(&self, earlier: &Stats) -> Stats {
                Stats { $($name: since!($kind, self.$name, earlier.$name),)+ ..*self }
            }
        }
    };
}

/// Most evictions in a mean over the latest ones; at least half as many are in it.
const LATE_EVICTIONS: u64 = 1 << 14;

impl Counters {
    /// Counts an item of `bytes` that is linked in `queue`.
    #[inline]
    pub(crate) fn link(&self, queue: Queue, bytes: u64) {
        self.bytes.add(bytes);
        if queue == Queue::Probation {
            self.probation_bytes.add(bytes);
        }
    }

    /// Counts an item of `bytes` in `queue`, `log_bytes` of them in the log, that is unlinked.
    #[inline]
    pub(crate) fn unlink(&self, queue: Queue, bytes: u64, log_bytes: u32) {
        self.bytes.sub(bytes);
        self.dead_bytes.add(log_bytes.into());
        if queue == Queue::Probation {
            self.probation_bytes.sub(bytes);
        }
    }

    /// Counts an item that is evicted and whose segment was opened `seconds` ago.
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
    /// The mean, over the latest evicted items, of the seconds since their segments were opened,
    /// that is, since the items were stored or last spared. 0: no item was evicted.
    #[must_use]
    pub fn eviction_age(&self) -> u64 {
        self.late_eviction_seconds / self.late_evictions.max(1)
    }
}

counters! {
    /// Items linked now.
    gauge curr_items,
    /// Bytes of linked items: key, value, overhead, in the log and in frames.
    gauge bytes,
    /// Bytes of linked items in the probation queue.
    gauge probation_bytes,
    /// Bytes of the log that the items took which this column has unlinked. The log counts bytes
    /// that were voided, and subtracts those of retired segments.
    gauge dead_bytes,
    /// Items ever linked.
    count total_items,
    /// Live items dropped to make room.
    count evictions,
    /// Evicted items that were never fetched.
    count evicted_unfetched,
    /// Evicted items that were used again since they were stored or last spared.
    count evicted_active,
    /// Evicted items with an exptime.
    count evicted_nonzero,
    /// Items stored over old ones of their shape, in place.
    count rewritten,
    /// Keys stored that the ghost remembered.
    count ghost_hits,
    /// Expired or flushed items whose memory is used again, or whose key.
    count reclaimed,
    /// Items never fetched that had expired when background work dropped them, or that were dead
    /// when room was made.
    count expired_unfetched,
    /// Expired items dropped by the background walk.
    count crawler_reclaimed,
    /// Items looked at by the background walk.
    count crawler_items_checked,
    /// Lookups that found an expired item.
    count get_expired,
    /// Lookups that found a flushed item.
    count get_flushed,
    /// cas that matched.
    count cas_hits,
    /// cas that differed.
    count cas_badval,
    /// cas on a miss.
    count cas_misses,
    /// Bytes copied into values that lie in the arena.
    count arena_copied_bytes,
    /// Bytes of values that were kept in the arena where they were received.
    count arena_kept_bytes,
    /// Values that lie elsewhere because the arena had too few free chunks.
    count arena_full,
    /// Bytes moved by compaction.
    count compacted_bytes,
    /// Bytes of items spared when room was made.
    count spared_bytes,
    /// Segments compacted.
    count compacted_segments,
    /// Segments drained for room.
    count drained_segments,
    /// Segments looked at to find one to compact or drain.
    count segment_looks,
    /// Evictions that `eviction_age` is the mean of.
    gauge late_evictions,
    /// The sum of their ages.
    gauge late_eviction_seconds,
}
