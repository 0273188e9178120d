//! The limit of the store's memory, which may change at any time, and numbers that depend on it.
//!
//! Where: `cache_memlimit` sets the limit; appends and idle columns then adjust the memory in use.
//! Invariant: no request waits for a change of the limit. The next append may use the memory of a
//! higher limit. After a lower limit, free segments are given back first; then columns compact and
//! drain segments, in slices, until the limit is met or no segment can be emptied.
//! Source: memcached 1.6.45 `do_slabs_adjust_mem_limit`; memcached's page mover frees the memory.

use crate::config::Config;
use crate::policy::room;
use crate::shared::Shared;
use memory::sync::{AtomicU32, AtomicUsize, Mutex, Ordering, fence};

/// There is one drain token for this number of segments, or for twice this number if there are two
/// queues. Each queue has as many appenders as there are tokens.
const SEGMENTS_PER_TOKEN: u32 = if cfg!(shuttle) { 8 } else { 32 };
/// Maximum number of drain tokens: each token is a bit of one 64-bit word. Each drain, compaction
/// or sweep of a segment holds a token until it ends.
const TOKENS_MAX: u32 = 64;
/// Values that are being received may take 1 / `IN_FLIGHT_PART` of the memory in total, or the
/// bytes of two of the largest items if that is more; but never more than half of the memory.
const IN_FLIGHT_PART: usize = 4;
/// Minimum number of segments for items; with fewer, no policy can tell which items to evict.
const SEGMENTS_MIN: u32 = 16;
const INDEX_BYTES_PER_ITEM: u64 = 11;
/// The memory limit is at least `ITEM_PART_MIN` times the size of the largest item.
const ITEM_PART_MIN: usize = 2;

#[derive(Debug)]
pub(crate) struct Limit {
    memory_bytes: AtomicUsize,
    /// Number of drain tokens, and also the number of appenders of each queue.
    tokens: AtomicU32,
    pub(crate) tokens_most: u32,
    segments_per_token: u32,
    /// The second in which a column last found that no segment can be emptied.
    pub(crate) stuck: AtomicU32,
    pub(crate) repack_at: AtomicU32,
    /// Number of values copied since repacking last began at the first segment.
    pub(crate) repacked: AtomicU32,
    /// The result of `lacking` after the last pass of repacking that copied no value; `u32::MAX` if
    /// there was no such pass under the present limit.
    pub(crate) in_vain: AtomicU32,
    /// Held while the limit changes. A thread takes this lock only if it holds no other lock.
    changing: Mutex<()>,
}

/// The new limit is too low for the items, or is above the reserved address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the memory limit must be at least 16 segments and twice the largest item, and at most 16 \
     times the limit at the start"
)]
pub struct OutOfBounds;

impl Limit {
    pub(crate) fn new(config: &Config, has_probation: bool, segments: u32) -> Self {
        let columns = u32::try_from(config.columns.max(1)).unwrap_or(u32::MAX);
        let limit = Self {
            memory_bytes: AtomicUsize::new(config.memory_bytes),
            tokens: AtomicU32::new(1),
            tokens_most: columns.min(TOKENS_MAX),
            // If `has_probation` is true, there are two queues, each with its own open segments.
            segments_per_token: SEGMENTS_PER_TOKEN * if has_probation { 2 } else { 1 },
            stuck: AtomicU32::new(0),
            repack_at: AtomicU32::new(u32::MAX / 2),
            repacked: AtomicU32::new(1),
            in_vain: AtomicU32::new(u32::MAX),
            changing: Mutex::new(()),
        };
        limit.set_tokens(segments);
        limit
    }

    fn set_tokens(&self, segments: u32) {
        let tokens = (segments / self.segments_per_token).clamp(1, self.tokens_most);
        self.tokens.store(tokens, Ordering::Relaxed); // a hint
    }
}

impl Shared {
    /// Present limit, in bytes, of the memory of items, index and all per-item state together.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.limit.memory_bytes.load(Ordering::Relaxed)
    }

    /// The limits that `Column::limit_memory` accepts, in bytes.
    #[must_use]
    pub fn limits(&self) -> std::ops::RangeInclusive<usize> {
        let segment_bytes = self.memory().region.segment_bytes() as usize;
        let least = SEGMENTS_MIN as usize * segment_bytes;
        let most = self.memory().segments.count_max() as usize * segment_bytes;
        least.max(ITEM_PART_MIN * self.config.item_bytes_max)..=most
    }

    #[inline]
    pub(crate) fn tokens_max(&self) -> u32 {
        self.limit.tokens.load(Ordering::Relaxed)
    }

    /// Number of free segments that only drains may take.
    #[inline]
    pub(crate) fn keep(&self) -> u32 {
        room::keep(self.tokens_max())
    }

    /// While fewer segments than this number are free, every append does work to make room.
    #[inline]
    pub(crate) fn high(&self) -> u32 {
        room::high(self.tokens_max())
    }

    pub(crate) fn in_flight_bytes_max(&self) -> usize {
        let memory_bytes = self.memory_bytes();
        let some = (memory_bytes / IN_FLIGHT_PART).max(2 * self.config.item_bytes_max);
        some.min(memory_bytes / 2)
    }

    /// Number of segments to empty because more segments are in use than the limit allows. Items
    /// keep `SEGMENTS_MIN` segments even if the index alone exceeds the limit.
    pub(crate) fn excess(&self) -> u32 {
        let excess = self.memory().excess();
        if excess == 0 {
            return 0;
        }
        // Before any item is evicted, the index gives back the memory that it does not need.
        let needs = self.sum(|counters| &counters.curr_items).saturating_mul(INDEX_BYTES_PER_ITEM);
        let needs = usize::try_from(needs).unwrap_or(usize::MAX);
        let gives = match self.index_gives() {
            true => self.memory().segments_of(self.index.granted_bytes().saturating_sub(needs)),
            false => 0,
        };
        let excess = excess.saturating_sub(gives);
        let of_index = self.memory().segments_of(self.index.granted_bytes());
        excess.min(self.memory().present().saturating_sub(of_index + SEGMENTS_MIN))
    }

    /// Number of segments to empty to meet the limit, besides free segments and retired segments.
    pub(crate) fn lacking(&self) -> u32 {
        let segments = &self.memory().segments;
        match self.excess() {
            0 => 0,
            excess => (excess + self.keep() + 1).saturating_sub(segments.free() + segments.limbo()),
        }
    }

    /// True if the index is getting smaller, or has a segment's memory to give back.
    pub(crate) fn index_gives(&self) -> bool {
        let segment_bytes = self.memory().region.segment_bytes() as usize;
        self.index.wants_to_shrink() || self.index.has_to_spare(segment_bytes)
    }

    /// Sets the limit, and seals the open segments. The caller then adjusts the memory in use.
    ///
    /// # Errors
    /// `memory_bytes` is not one of `limits`, and the limit stays as it was.
    pub(crate) fn set_limit(&self, memory_bytes: usize) -> Result<(), OutOfBounds> {
        let (memory, limit) = (self.memory(), &self.limit);
        let segments = memory.segments_of(memory_bytes);
        let too_few =
            segments < SEGMENTS_MIN || self.config.item_bytes_max > memory_bytes / ITEM_PART_MIN;
        if too_few || segments > memory.segments.count_max() {
            return Err(OutOfBounds);
        }
        let _alone = limit.changing.lock();
        memory.allow(segments).map_err(|_| OutOfBounds)?;
        // Relaxed, here and below: no other data depends on the limit and its numbers.
        limit.memory_bytes.store(memory_bytes, Ordering::Relaxed);
        if memory_bytes < self.config.memory_bytes {
            let segment_bytes = memory.region.segment_bytes() as usize;
            self.index.forget_start(Shared::lines_least(segment_bytes));
        }
        limit.set_tokens(segments);
        limit.stuck.store(0, Ordering::Relaxed);
        limit.in_vain.store(u32::MAX, Ordering::Relaxed);
        // `seal_all` seals all open segments, so that drains find those of appenders beyond the new
        // number. A column that gave its token back before this fence left segments that `seal_all`
        // sees; a column that does so later sees the new number, and seals its segments itself.
        fence(Ordering::SeqCst); // pairs with the fence in `give_token`
        self.log.seal_all();
        self.log.note_change();
        Ok(())
    }
}
