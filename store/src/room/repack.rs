//! Repacking empties segments of frames: it copies the values that have frames in the last segments
//! to free frames of earlier segments.
//!
//! Where: when the memory limit was lowered, before items are evicted to meet the limit.
//! Invariant: a published chain of frames never changes. Repacking copies the whole chain, and a
//! new item, which names the copy, replaces the old item. Each reader holds a reference to the old
//! chain; the last reference to be dropped frees the chain.

use crate::column::handle::View;
use crate::engine::link::{MoveResult, MovedFields};
use crate::item::Item;
use crate::shared::Shared;
use memory::segments::State;
use memory::sync::Ordering;

/// Maximum bytes in frames of a value that is copied. Longer values nearly fill whole segments.
const COPIED_BYTES_MAX: u32 = 2 << 20;
/// After a pass that copied no value, the next pass begins when the result of `lacking` has fallen
/// by 1 / `IN_VAIN_PART`.
const IN_VAIN_PART: u32 = 16;
/// Maximum number of segments that one call examines to find a segment to walk.
const LOOKS_MAX: u32 = 4096;

impl Shared {
    /// Returns a segment: repacking moves the frames in this segment and in all later segments.
    /// Returns `None` if that would free fewer segments than the limit demands.
    pub(crate) fn scattered(&self) -> Option<u32> {
        let memory = self.memory();
        let lacking = self.lacking();
        // Relaxed, here and below: hints. At worst a segment is walked twice or late.
        let in_vain = self.limit.in_vain.load(Ordering::Relaxed);
        if lacking == 0 || lacking > in_vain - in_vain.div_ceil(IN_VAIN_PART) {
            return None;
        }
        let (spare, from) = memory.frames.scattered(&memory.segments)?;
        (spare >= lacking).then_some(from)
    }

    /// Claims a segment of items for a walk that repacks values. Returns the claimed segment and
    /// the result of `scattered`.
    pub(crate) fn claim_to_repack(&self) -> Option<(u32, u32)> {
        let from = self.scattered()?;
        let (memory, limit) = (self.memory(), &self.limit);
        for _ in 0..LOOKS_MAX {
            let segment = limit.repack_at.fetch_add(1, Ordering::Relaxed);
            if segment >= memory.segments.count() {
                limit.repack_at.store(0, Ordering::Relaxed);
                if limit.repacked.swap(0, Ordering::Relaxed) == 0 {
                    limit.in_vain.store(self.lacking().max(1), Ordering::Relaxed);
                    return None;
                }
                self.log.seal_all();
                continue;
            }
            let there = memory.segments.get(segment);
            if there.drainable() && there.change(State::Sealed, State::Draining) {
                return Some((segment, from));
            }
        }
        None
    }
}

impl View<'_> {
    /// Copies the value of the item at `loc` if it has a frame in segment `from` or later. The
    /// holder of `token` fills the new item's segment. Returns the number of bytes copied.
    pub(crate) fn repack(
        self,
        (hash, loc): (u64, u64),
        item: &Item<'_>,
        from: u32,
        token: usize,
    ) -> u32 {
        let (value_bytes, log_bytes) = item.value_bytes();
        let framed_bytes = value_bytes - log_bytes;
        let Some(old) = item.first_frame().filter(|_| framed_bytes <= COPIED_BYTES_MAX) else {
            return 0;
        };
        let memory = self.memory();
        // If the item is not linked any more, the frames are not read.
        let Some(pinned) = self.pin(item, old) else { return 0 };
        let linked = self.index.find(self.moment(), hash, |at| at.offset() == loc).is_some();
        if !linked || !pinned.is_scattered(from) {
            return 0;
        }
        let Some(copy) = pinned.copied_before(from) else { return 0 };
        let segment = memory.region.segment_of(loc);
        let place = |bytes| self.log.reserve_out(token, segment, bytes);
        let moved = MovedFields { cnt: None, first_frame: Some(copy) };
        if self.relocate((hash, loc), item, moved, place) == MoveResult::Moved {
            memory.release(old);
            self.limit.repacked.fetch_add(1, Ordering::Relaxed); // Relaxed: a hint
            self.counters().compacted_bytes.add(framed_bytes.into());
        } else {
            memory.release(copy);
        }
        framed_bytes
    }
}
