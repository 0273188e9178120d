//! What the store counts, per column, and the sums.
//!
//! Where: beside every operation; read by `stats`.
//! Invariant: a column's counters have one writer, so they need no atomic addition.

use crate::policy::Queue;
use memory::sync::{AtomicU64, Ordering};

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: one writer; readers want a recent value, not an order.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// For gauges, whose sum over all columns is what counts.
    #[inline]
    pub(crate) fn sub(&self, less: u64) {
        self.add(less.wrapping_neg());
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // see `add`
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
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

        /// The store's own counters, summed over its columns. All but the first seven and
        /// the last two only ever grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Bytes the index takes now.
            pub hash_bytes: u64,
            /// log2 of the index's slots, rounded down.
            pub hash_power_level: u32,
            /// What probation ought to have of all live bytes now.
            pub probation_percent: u64,
            $($(#[$doc])* pub $name: u64,)+
        }
    };
}

/// A mean over the latest evictions is of these at most, and half of these at least.
const LATE_EVICTIONS: u64 = 1 << 14;

impl Counters {
    /// An item of so many bytes is linked in `queue`.
    #[inline]
    pub(crate) fn link(&self, queue: Queue, bytes: u64) {
        self.bytes.add(bytes);
        if queue == Queue::Probation {
            self.probation_bytes.add(bytes);
        }
    }

    /// An item of so many bytes in `queue`, `log_bytes` of them in the log, is linked no more.
    #[inline]
    pub(crate) fn unlink(&self, queue: Queue, bytes: u64, log_bytes: u32) {
        self.bytes.sub(bytes);
        self.dead_bytes.add(log_bytes.into());
        if queue == Queue::Probation {
            self.probation_bytes.sub(bytes);
        }
    }

    pub(crate) fn items_now(&self) -> u64 {
        self.curr_items.get()
    }

    pub(crate) fn bytes_now(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn probation_bytes_now(&self) -> u64 {
        self.probation_bytes.get()
    }

    /// An item was evicted whose segment was opened so many seconds ago.
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
    /// Seconds since the segments of items evicted of late were opened, on average: since the items
    /// were stored or last spared. 0: nothing was evicted.
    #[must_use]
    pub fn eviction_age(&self) -> u64 {
        self.late_eviction_seconds / self.late_evictions.max(1)
    }
}

counters! {
    /// Items linked now.
    curr_items,
    /// Bytes of linked items: key, value, overhead, in the log and in frames.
    bytes,
    /// Of these, in the probation queue.
    probation_bytes,
    /// Bytes in the log that no item owns any more: a column's are those it has unlinked, and what
    /// is voided or retired is the log's to count.
    dead_bytes,
    /// Items ever linked.
    total_items,
    /// Live items dropped to make room.
    evictions,
    /// Of these, never fetched.
    evicted_unfetched,
    /// Items stored over old ones of their shape, in place.
    rewritten,
    /// Keys stored that the ghost remembered.
    ghost_hits,
    /// Expired items whose memory was used again.
    reclaimed,
    /// Expired items never fetched.
    expired_unfetched,
    /// Expired items dropped by the background walk.
    crawler_reclaimed,
    /// Items looked at by the background walk.
    crawler_items_checked,
    /// Lookups that found an expired item.
    get_expired,
    /// Lookups that found a flushed item.
    get_flushed,
    /// cas that matched.
    cas_hits,
    /// cas that differed.
    cas_badval,
    /// cas on a miss.
    cas_misses,
    /// Bytes moved by compaction.
    compacted_bytes,
    /// Bytes of items spared when room was made.
    spared_bytes,
    /// Segments compacted.
    compacted_segments,
    /// Segments drained for room.
    drained_segments,
    /// Segments looked at to find one to compact or drain.
    segment_looks,
    /// Evictions that `eviction_age` is the mean of.
    late_evictions,
    /// The sum of their ages.
    late_eviction_seconds,
}
