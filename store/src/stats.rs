//! What the store counts, per column, and the sums.
//!
//! Where: beside every operation; read by `stats`.
//! Invariant: a column's counters have one writer, so they need no atomic addition.

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

        /// The store's own counters, summed over its columns. All but the first four only ever
        /// grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Bytes the index takes now.
            pub hash_bytes: u64,
            /// log2 of the index's slots, rounded down.
            pub hash_power_level: u32,
            $($(#[$doc])* pub $name: u64,)+
        }
    };
}

counters! {
    /// Items linked now.
    curr_items,
    /// Bytes of linked items: key, value, overhead, in the log and in frames.
    bytes,
    /// Items ever linked.
    total_items,
    /// Live items dropped to make room.
    evictions,
    /// Of these, never fetched.
    evicted_unfetched,
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
    /// Segments compacted.
    compacted_segments,
    /// Segments drained for room.
    drained_segments,
}
