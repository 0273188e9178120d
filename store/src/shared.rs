//! The state that all columns share to read and write items: index, log, limit and counters.
//!
//! Where: every column's `Handle` refers to it. `chores` has the state that columns share to make
//! room.
//! Invariant: only atomics and the index's and the log's own locks change it. A sum over all
//! columns is an estimate while columns work.
//! Source: the KV-Cache paper, section 4.2.2.

use crate::config::{Config, Start};
use crate::index::Index;
use crate::index::hash::KeyHash;
use crate::item::Layout;
use crate::log::Log;
use crate::policy::{Eviction, GhostScope, Queue, Share};
use crate::room::growth::Growth;
use crate::room::limit::Limit;
use crate::stats::mrc::Mrc;
use crate::stats::{Counters, Stats};
use memory::frames::Memory;
use memory::segments::State;
use memory::sync::{AtomicU64, CachePadded, Counter, Ordering};
use std::{io, sync::Arc};

/// At the start the index takes at most 1 / `INDEX_START_PART` of the memory.
const INDEX_START_PART: usize = 4;
/// A store with this many bytes of memory or more asks for huge pages for its index.
const HUGE_INDEX_FROM_BYTES: usize = 256 << 20;

/// The state that columns share to read and write items. `Store` offers its public methods.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    /// A value of at most this length is stored in the log, even if there is an arena.
    pub(crate) log_bytes_max: u32,
    pub(crate) hash: KeyHash,
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) limit: CachePadded<Limit>,
    pub(crate) growth: CachePadded<Growth>,
    pub(crate) counters: Box<[Counters]>,
    /// True if the policy puts a new item into the probation queue unless the ghost knows its key.
    pub(crate) has_probation: bool,
    /// Target share (0 to 1) of the probation queue in all live bytes, as the bits of an `f64`.
    share: CachePadded<AtomicU64>,
    pub(crate) mrc: Mrc,
}

impl Shared {
    /// Reserves the memory, and takes the segments that the index has at the start.
    pub(crate) fn new(config: &Config, start: &Start) -> io::Result<Self> {
        let columns = config.columns.max(1);
        let (memory, index) = Self::reserve(config, start)?;
        let segment_bytes = memory.region.segment_bytes() as usize;
        let admits = |remembered| config.eviction.map(|policy| policy.admit(remembered));
        let has_probation = [false, true].map(admits).contains(&Some(Queue::Probation));
        let limit = Limit::new(config, has_probation, memory.segments.count());
        let tokens_most = limit.tokens_most;
        let window_percent = config.eviction.map_or(0, |policy| policy.window_percent());
        let window_percent = u32::try_from(window_percent).unwrap_or(100);
        if start.huge_pages {
            memory.region.want_huge();
        }
        if start.huge_pages || config.memory_bytes >= HUGE_INDEX_FROM_BYTES {
            index.want_huge();
        }
        let start_bytes = index.granted_bytes();
        let of_index = start_bytes.div_ceil(segment_bytes);
        for segment in (0..of_index).map_while(|_| memory.segments.take(0)) {
            memory.segments.get(segment).set_state(State::Index);
        }
        index.grant((of_index * segment_bytes).saturating_sub(start_bytes));
        let layout = Layout { cas: config.cas, frame_bytes: memory.frames.frame_bytes() };
        let log = Log::new(Arc::new(memory), tokens_most, tokens_most, window_percent)?;
        let below_arena = u32::try_from(start.arena_value_bytes_min.saturating_sub(1));
        let log_bytes_max = match (&start.arena, below_arena) {
            (Some(_), Ok(bytes)) => bytes.min(layout.frame_bytes),
            _ => layout.frame_bytes,
        };
        Ok(Self {
            layout,
            log_bytes_max,
            hash: start.hash_seed.map_or_else(KeyHash::new, KeyHash::seeded),
            index,
            log,
            limit: CachePadded(limit),
            growth: CachePadded(Growth::default()),
            counters: (0..columns).map(|_| Counters::default()).collect(),
            has_probation,
            share: CachePadded(AtomicU64::new(
                config.eviction.map_or(0.0, |one| one.share().0).to_bits(),
            )),
            mrc: Mrc::new(),
            config: config.clone(),
        })
    }

    /// Reserves address space, also for more memory than `config` says, so that the limit can rise.
    fn reserve(config: &Config, start: &Start) -> io::Result<(Memory, Index)> {
        let growth = memory::region::growth();
        let (bytes, columns) = (config.memory_bytes, config.columns.max(1));
        let memory = Memory::with_nodes(start.nodes.clone(), bytes, growth, columns)?
            .with_arena(start.arena.clone());
        let segment_bytes = memory.region.segment_bytes() as usize;
        let bytes_max = memory.segments.count_max() as usize * segment_bytes;
        // If address space is scarce, the index gets enough for items with at least 6 bytes of key
        // and value. Smaller items fill the index before the memory is full (`Room::make_slots`).
        let bytes_max = if growth > 1 { bytes_max } else { bytes_max / 2 };
        let lines = Index::lines_for(start.items, config.memory_bytes / INDEX_START_PART);
        let index = Index::new(
            bytes_max,
            lines.max(Self::lines_least(segment_bytes)),
            config.eviction.map_or(GhostScope::None, Eviction::remembered),
        )?;
        Ok((memory, index))
    }

    /// Minimum number of lines of the index at the start. The lines take half a segment, which
    /// leaves the other half to group words and overflow lines.
    pub(crate) fn lines_least(segment_bytes: usize) -> u64 {
        8 << (segment_bytes / 1024).ilog2()
    }

    /// Sums the counters of all columns. An operation that runs meanwhile may be counted in part.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        self.counters.iter().for_each(|counters| stats.add(&Stats::of(counters)));
        stats.hash_bytes = self.index.bytes() as u64;
        stats.hash_overflow_bytes = self.index.overflow_bytes() as u64;
        stats.hash_power_level = self.index.home_slots().ilog2().into();
        stats.dead_bytes = whole(stats.dead_bytes.wrapping_add(self.log.dead_bytes()));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let percent = (self.share().0 * 100.0).round() as u64;
        stats.probation_percent = percent;
        stats
    }

    pub(crate) fn share(&self) -> Share {
        Share(f64::from_bits(self.share.load(Ordering::Relaxed))) // a hint
    }

    /// Changes the probation queue's target share after a SET of a key that the ghost remembers as
    /// evicted from queue `from`. If two columns call this function at once, a change may be lost.
    pub(crate) fn rebalance(&self, from: Queue, item_bytes: u64) {
        let Some(policy) = self.config.eviction else { return };
        let all_bytes = self.memory_bytes() as u64;
        let Share(share) = policy.rebalance(self.share(), from, item_bytes, all_bytes);
        self.share.store(share.to_bits(), Ordering::Relaxed); // a hint
    }

    /// Approximate mean bytes of a linked item, with its frames.
    pub(crate) fn mean_item_bytes(&self) -> u32 {
        let (probation_bytes, main_bytes) = self.live_bytes();
        let items = self.sum(|counters| &counters.curr_items).max(1);
        u32::try_from((probation_bytes + main_bytes) / items).unwrap_or(u32::MAX)
    }

    pub(crate) fn sum(&self, gauge: fn(&Counters) -> &Counter) -> u64 {
        let columns = self.counters.iter().map(|counters| gauge(counters).get());
        whole(columns.fold(0, u64::wrapping_add))
    }

    /// Estimates the bytes of linked items, with their frames, in the probation and the main queue.
    pub(crate) fn live_bytes(&self) -> (u64, u64) {
        let probation = self.sum(|counters| &counters.probation_bytes);
        (probation, self.sum(|counters| &counters.bytes).saturating_sub(probation))
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.log.memory
    }

    pub(crate) fn frame_bytes(&self) -> u32 {
        self.memory().frames.frame_bytes()
    }
}

/// Returns a gauge's sum, or 0 while the sum is below 0 because an addition was not seen yet.
fn whole(sum: u64) -> u64 {
    if sum > i64::MAX as u64 { 0 } else { sum }
}
