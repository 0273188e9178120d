//! Counts the bytes of the store's memory by their use.
//!
//! Where: `stats memory` looks at a bounded number of segments, tests look at all segments, and
//! `stats` looks at none.
//! Invariant: each byte of memory that the system has given to the store counts in one field of
//! `Usage`. Address space without memory counts in no field.

use crate::Store;
use memory::segments::{Segment, State};

/// Maximum number of segments that an estimate examines while the column's clients wait.
const LOOKS_MAX: u32 = 1 << 12;

/// Bytes of memory by use, and segments by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The length of a segment in bytes.
    pub segment_bytes: u64,
    /// Number of segments that the memory limit allows to be in use.
    pub segments_allowed: u64,
    /// Number of segments to which items are being appended.
    pub segments_open: u64,
    /// Number of segments that are in a queue, or are being drained.
    pub segments_sealed: u64,
    /// Number of segments cut into frames.
    pub segments_frames: u64,
    /// Number of free segments, with or without memory.
    pub segments_free: u64,
    /// Number of retired segments, which a column may still be reading.
    pub segments_limbo: u64,
    /// Number of segments whose memory was granted to the index.
    pub segments_index: u64,
    /// Number of segments withheld from use, because the limit was lowered.
    pub segments_withheld: u64,
    /// Bytes of the log that linked items take.
    pub live_bytes: u64,
    /// Bytes of the log that dead items take.
    pub dead_bytes: u64,
    /// Bytes of memory after the last items of segments: for more items, or too few for an item.
    pub tail_bytes: u64,
    /// Bytes of frames in use.
    pub frame_bytes: u64,
    /// Bytes of memory in segments cut into frames, except for the frames in use.
    pub frame_free_bytes: u64,
    /// Bytes of memory in free segments.
    pub free_bytes: u64,
    /// Bytes of memory in retired segments, which a column may still be reading.
    pub limbo_bytes: u64,
    /// Bytes of the index: lines, overflow lines and group words.
    pub index_bytes: u64,
    /// Bytes of the ghost, which remembers evictions.
    pub ghost_bytes: u64,
    /// Bytes of the tables of segments, frames, queues and calendar, and of the sampled keys.
    pub table_bytes: u64,
    /// Bytes of the arena's chunks that hold values. `sum_bytes` does not include these bytes.
    pub arena_bytes: u64,
    /// Bytes of the arena's free chunks.
    pub arena_free_bytes: u64,
    /// The second of the store's clock in which the oldest segment with live items was opened.
    pub oldest_opened: Option<u32>,
}

impl Usage {
    /// Bytes of all memory except the arena.
    #[must_use]
    pub fn sum_bytes(&self) -> u64 {
        self.log_bytes() + self.index_bytes + self.ghost_bytes + self.table_bytes
    }

    /// Bytes of memory in segments.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        let items = self.live_bytes + self.dead_bytes + self.tail_bytes;
        let frames = self.frame_bytes + self.frame_free_bytes;
        items + frames + self.free_bytes + self.limbo_bytes
    }

    fn add(&mut self, segment: &Segment, used_frame_bytes: u32, segment_bytes: u32, times: u64) {
        #[cfg(all(test, not(loom)))]
        tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
        let touched = u64::from(segment.touched()) * times;
        let (open, sealed) = (segment.is(State::Open), segment.is(State::Sealed));
        if open || sealed || segment.is(State::Draining) {
            let filled = if open { segment.committed() } else { segment.end().min(segment_bytes) };
            // `live` wraps around for a moment if an unlinked item was already counted by a pass.
            let live = segment.live();
            let live = if live > segment_bytes { 0 } else { u64::from(live) * times };
            let filled = (u64::from(filled) * times).max(live);
            self.live_bytes += live;
            if live > 0 {
                let oldest = self.oldest_opened.unwrap_or(u32::MAX);
                self.oldest_opened = Some(oldest.min(segment.opened()));
            }
            self.dead_bytes += filled - live;
            self.tail_bytes += touched.saturating_sub(filled);
            *(if open { &mut self.segments_open } else { &mut self.segments_sealed }) += times;
        } else if segment.is(State::Frames) {
            let used = u64::from(used_frame_bytes) * times;
            self.frame_bytes += used;
            self.frame_free_bytes += touched.saturating_sub(used);
            self.segments_frames += times;
        } else if segment.is(State::Limbo) {
            self.limbo_bytes += touched;
            self.segments_limbo += times;
        } else if segment.is(State::Index) {
            self.segments_index += times;
        } else if segment.is(State::Withheld) {
            self.segments_withheld += times;
        } else {
            self.free_bytes += touched;
            self.segments_free += times;
        }
    }
}

impl Store {
    /// Returns the present use of memory, and examines each segment for it. A change that a column
    /// makes meanwhile may be counted in one field and not yet in another field.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage_in_looks(u32::MAX)
    }

    /// Like `usage`, but looks at 4,096 segments at most. A store above 8 GiB has more segments:
    /// then only every n-th segment is looked at, and counts n times.
    #[must_use]
    pub fn usage_estimate(&self) -> Usage {
        self.usage_in_looks(LOOKS_MAX)
    }

    /// Returns each NUMA node's number in the system, and estimates the memory in its segments.
    /// Looks at as many segments as `usage_estimate`. The list is empty if there is only one node.
    #[must_use]
    pub fn node_bytes_estimate(&self) -> Vec<(usize, u64)> {
        let (segments, nodes) = (&self.memory().segments, self.memory().segments.nodes());
        if nodes.count() == 1 {
            return Vec::new();
        }
        let mut usages = vec![Usage::default(); nodes.count()];
        for (segment, times) in self.looks(LOOKS_MAX) {
            self.look_at(segment, times, &mut usages[segments.node_of(segment)]);
        }
        let bytes = |(at, usage): (usize, &Usage)| (nodes.number(at), usage.log_bytes());
        usages.iter().enumerate().map(bytes).collect()
    }

    /// Returns the segments to look at, each with the number of segments that it stands for.
    fn looks(&self, looks_max: u32) -> impl Iterator<Item = (u32, u64)> {
        let count = self.memory().segments.count();
        let step = count.div_ceil(looks_max).max(1);
        (0..count).step_by(step as usize).map(move |segment| (segment, step.into()))
    }

    fn look_at(&self, segment: u32, times: u64, usage: &mut Usage) {
        let memory = self.memory();
        let used_bytes = memory.frames.used_bytes(segment);
        let segment_bytes = memory.region.segment_bytes();
        usage.add(memory.segments.get(segment), used_bytes, segment_bytes, times);
    }

    fn usage_in_looks(&self, looks_max: u32) -> Usage {
        let memory = self.memory();
        let (count, mut usage) = (memory.segments.count(), Usage::default());
        self.looks(looks_max).for_each(|(segment, times)| self.look_at(segment, times, &mut usage));
        let (index_bytes, ghost_bytes) = self.index.bytes_by_part();
        let arena = memory.arena().map_or((0, 0, 0), |arena| {
            let free_bytes = arena.free() as usize * arena.chunk_bytes();
            (arena.value_bytes().saturating_sub(free_bytes), free_bytes, arena.table_bytes())
        });
        let tables = size_of::<Segment>() * count as usize
            + memory.frames.table_bytes(count)
            + self.log.queue_bytes()
            + self.chores.harvest.bytes(count)
            + self.mrc.bytes()
            + arena.2;
        Usage {
            segment_bytes: memory.region.segment_bytes().into(),
            segments_allowed: memory.allowed().into(),
            index_bytes: index_bytes as u64,
            ghost_bytes: ghost_bytes as u64,
            table_bytes: tables as u64,
            arena_bytes: arena.0 as u64,
            arena_free_bytes: arena.1 as u64,
            ..usage
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::{Body, Config, Put, Verb};
    use std::cell::Cell;
    use std::sync::Arc;

    thread_local! {
        pub(super) static LOOKS: Cell<u32> = const { Cell::new(0) };
    }

    fn store_of(megabytes: usize) -> Arc<Store> {
        let store = Store::new(&Config {
            memory_bytes: megabytes << 20,
            item_bytes_max: 1 << 20,
            columns: 1,
            eviction: None,
            cas: true,
            now: 62,
        });
        store.expect("address space")
    }

    #[test]
    fn a_segment_cut_into_frames_has_used_and_free_ones() {
        let store = store_of(16);
        let mut column = store.column();
        let segment_bytes = store.usage().segment_bytes;
        for (key, bytes) in [(b"stays", segment_bytes / 4), (b"leave", segment_bytes / 2)] {
            let value = vec![7; usize::try_from(bytes).expect("a length")];
            column.put(&Put::new(Verb::Set, key), Body::Bytes(&value)).expect("room");
        }
        assert!(column.delete(b"leave"));
        let usage = store.usage();
        let present = usage.frame_bytes + usage.frame_free_bytes;
        assert!(present <= usage.segments_frames * usage.segment_bytes, "{usage:?}");
        assert!(usage.frame_bytes <= segment_bytes && usage.frame_free_bytes > 0, "{usage:?}");
    }

    #[test]
    fn statistics_do_not_cost_more_where_there_are_more_segments() {
        for megabytes in [64, 1024, 16_384] {
            let store = store_of(megabytes);
            let looks = |ask: &dyn Fn()| {
                let before = LOOKS.get();
                ask();
                LOOKS.get() - before
            };
            assert_eq!(looks(&|| _ = store.stats()), 0, "stats at {megabytes} MiB");
            let all = store.memory().segments.count();
            let most = all.min(LOOKS_MAX);
            let looked = looks(&|| _ = store.usage_estimate());
            assert!(looked <= most && looked * 2 >= most, "{looked} of {all} segments");
            assert_eq!(looks(&|| _ = store.usage()), all);
        }
    }
}
