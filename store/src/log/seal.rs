//! The end of a segment: it is sealed when it is full, and retired when its last item goes.
//!
//! Where: an append to a full segment, a flush and a change of the limit seal segments; the last
//! commit and the last unlink in a segment retire it.
//! Invariant: exactly one caller seals a segment, and exactly one caller retires it. The caller
//! that leaves a segment sealed, all committed and without a live item retires the segment at once.
//! Source: none.

use super::{CLASS_AT, KIND, Lane, Log, TIMED};
use memory::segments::{NONE, Reservation, Segment, State};
use memory::sync::{Ordering, fence};

impl Log {
    /// Seals every appender's segment that holds any bytes, and the segments that compaction fills.
    pub(crate) fn seal_all(&self) {
        self.seal_open(|segment| segment.reserved() > 0);
        for lane in &self.lanes {
            lane.outs.iter().flatten().for_each(|out| self.seal_out(lane, out));
        }
    }

    fn seal_open(&self, which: impl Fn(&Segment) -> bool) {
        let appenders = self.lanes.iter().flat_map(|lane| &lane.appenders);
        // Acquire pairs with the Release in `reserve_untimed`.
        let open = appenders.map(|open| open.load(Ordering::Acquire));
        let open = open.filter(|segment| *segment != NONE);
        let timed = self.lanes.iter().flat_map(|lane| lane.timed.all());
        open.chain(timed)
            .filter(|segment| which(self.segment(*segment)))
            .for_each(|segment| self.seal(segment));
    }

    pub(super) fn seal(&self, segment: u32) {
        if self.close(segment) {
            self.sealed(segment);
        }
    }

    /// Closes a segment by reserving more bytes than it has. Returns true if this call has sealed
    /// the segment: then the caller must queue it.
    pub(super) fn close(&self, segment: u32) -> bool {
        let segment_bytes = self.memory.region.segment_bytes();
        self.segment(segment).reserve(segment_bytes + 1, segment_bytes) == Reservation::Sealed
    }

    pub(super) fn sealed(&self, segment: u32) {
        let birth = self.segment(segment).birth();
        if birth & TIMED != 0 {
            let class = u32::try_from((birth & KIND) >> CLASS_AT).unwrap_or(0);
            self.lane_of(segment).timed.close(class, segment);
        }
        self.queue(segment).push(&self.memory.segments, segment);
        self.segment(segment).set_state(State::Sealed);
        self.note_first_due(segment);
        self.retire_if_dead(segment);
    }

    pub(crate) fn unlink(&self, segment: u32, bytes: u32) {
        if self.segment(segment).unlink(bytes) {
            self.retire_if_dead(segment);
        }
    }

    /// Retires the segment if it is sealed and has no live item. Called after each sealing, commit
    /// and unlink; because of the fence, the last caller sees the changes of all earlier callers.
    pub(crate) fn retire_if_dead(&self, segment: u32) {
        fence(Ordering::SeqCst); // pairs with the fence of the other callers
        let there = self.segment(segment);
        // The order of these checks matters: an item counts as live before its place is committed,
        // so once all places are committed the live bytes only fall.
        if there.drainable() && there.live() == 0 && there.change(State::Sealed, State::Draining) {
            self.retire(segment);
        }
    }

    /// Retires a drained segment that the caller owns.
    pub(crate) fn retire(&self, segment: u32) {
        let Lane { queue, count, .. } = self.lane_of(segment);
        queue.remove(&self.memory.segments, segment);
        // Relaxed: a count and a sum.
        count.segments.fetch_sub(1, Ordering::Relaxed);
        self.dead_bytes.fetch_sub(self.segment(segment).end().into(), Ordering::Relaxed);
        self.memory.segments.retire(segment, &self.memory.quiescence);
    }
}
