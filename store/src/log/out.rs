//! The segments that compaction fills: a few open segments for each drain token. Such a segment
//! inherits its position in the queue from the segments whose items it receives.
//!
//! Where: every item that compaction moves goes to such a segment.
//! Invariant: a moved item does not become younger: its new segment has the birth of a segment from
//! which its items came, and the oldest position in the queue of all these segments.
//! Source: cost-benefit cleaning of log-structured file systems, which keeps the age of moved data
//! (Rosenblum and Ousterhout, 1992).

use super::{Lane, Log, Place, TIMED};
use memory::segments::{NONE, Reservation, State};
use memory::sync::{AtomicU32, AtomicU64, Ordering};

/// A segment that compaction is filling, and the position in the queue that is kept for it.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct CompactionTarget {
    pub(super) segment: AtomicU32,
    /// `u64::MAX` if no position is kept.
    position: AtomicU64,
}

impl CompactionTarget {
    pub(super) fn new() -> Self {
        Self { segment: AtomicU32::new(NONE), position: AtomicU64::new(u64::MAX) }
    }
}

impl Log {
    /// Opens a free segment, on the node of `from` or near it, for items that compaction moves out
    /// of `from`. The new segment gets the queue and the birth of `from`.
    fn open_as(&self, from: u32) -> Option<u32> {
        let segments = &self.memory.segments;
        let segment = segments.take_near(0, segments.node_of(from))?;
        self.lane_of(from).count.segments.fetch_add(1, Ordering::Relaxed); // a count orders nothing
        self.begin(segment, self.segment(from).birth());
        Some(segment)
    }

    /// Reserves `bytes` bytes for an item that compaction moves out of the segment `from`. The
    /// bytes are in the segment that the holder of `token` fills with such items, see `out`.
    pub(crate) fn reserve_out(&self, token: usize, from: u32, bytes: u32) -> Option<Place> {
        let lane = self.lane_of(from);
        let out = self.out(token, from);
        loop {
            // Relaxed: only the token's holder stores the number. A later holder sees it, because a
            // column takes a token with Acquire.
            let segment = out.segment.load(Ordering::Relaxed);
            if segment != NONE {
                match self.try_reserve(segment, bytes) {
                    Reservation::At(offset) => return Some(self.place(segment, offset, bytes)),
                    Reservation::Sealed => self.sealed_out(lane, out, segment),
                    Reservation::Full => {}
                }
            }
            let fresh = self.open_as(from)?;
            out.segment.store(fresh, Ordering::Relaxed); // only the holder stores it
        }
    }

    /// Number of bytes left in the segment to which the holder of `token` moves items of the
    /// segment `from`.
    pub(crate) fn out_room(&self, token: usize, from: u32) -> u32 {
        // Relaxed: only the token's holder stores the number.
        let out = self.out(token, from);
        let segment = out.segment.load(Ordering::Relaxed);
        if segment == NONE || !self.segment(segment).is(State::Open) {
            return 0;
        }
        let left = u64::from(self.memory.region.segment_bytes())
            .saturating_sub(self.segment(segment).reserved());
        u32::try_from(left).unwrap_or(0)
    }

    /// Gives the position of `segment`, which has been drained and leaves the queue, to the segment
    /// that received its items, unless the receiving segment already has an older position.
    pub(crate) fn inherit(&self, token: usize, segment: u32) {
        let (queue, out) = (self.queue(segment), self.out(token, segment));
        let open = out.segment.load(Ordering::Relaxed); // only the token's holder stores it
        let mine = self.segment(segment).ticket();
        let kept = out.position.load(Ordering::Acquire); // pairs with the swaps below
        if open == NONE || !self.segment(open).is(State::Open) || kept < mine {
            return;
        }
        let held = queue.hold(&self.memory.segments, segment).unwrap_or(u64::MAX);
        // AcqRel: this swap pairs with the other swaps and with the load above.
        let before = out.position.swap(held, Ordering::AcqRel);
        if before != u64::MAX {
            queue.release(&self.memory.segments, before);
        }
    }

    /// The segment that the holder of `token` fills with items from `from`. For each queue there
    /// are two: one for items from `TIMED` segments, and one for items from all others.
    fn out(&self, token: usize, from: u32) -> &CompactionTarget {
        let timed = self.segment(from).birth() & TIMED != 0;
        &self.lane_of(from).outs[token][usize::from(timed)]
    }

    pub(super) fn seal_out(&self, lane: &Lane, out: &CompactionTarget) {
        // The number may be outdated, but `close` decides which caller seals the segment.
        let segment = out.segment.load(Ordering::Acquire);
        if segment != NONE && self.segment(segment).is(State::Open) && self.close(segment) {
            self.sealed_out(lane, out, segment);
        }
    }

    /// Queues a full segment of moved items, at the position kept for it or else at the young end.
    fn sealed_out(&self, lane: &Lane, out: &CompactionTarget, segment: u32) {
        let (segments, queue) = (&self.memory.segments, self.queue(segment));
        match out.position.swap(u64::MAX, Ordering::AcqRel) {
            u64::MAX => queue.push(segments, segment),
            position if std::ptr::eq(queue, &lane.queue) => {
                queue.fill(segments, position, segment);
            }
            // Meanwhile the segment was drained and opened for another queue.
            position => {
                lane.queue.release(segments, position);
                queue.push(segments, segment);
            }
        }
        self.segment(segment).set_state(State::Sealed);
        self.note_first_due(segment);
        self.retire_if_dead(segment);
    }

    /// Seals the segments that the holder of `token` fills, because nobody takes `token` under the
    /// present memory limit.
    pub(crate) fn seal_outs(&self, token: usize) {
        for lane in &self.lanes {
            lane.outs[token].iter().for_each(|out| self.seal_out(lane, out));
        }
    }
}
