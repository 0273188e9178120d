//! The log: columns append items to open segments; full ones go into the queue.
//!
//! Where: every item written, by a client's SET or by a drain, gets its place here.
//! Invariant: a place is committed after its item was published or voided; a segment drains only
//! when sealed and wholly committed; and when its last item goes it is retired at once, by whoever
//! sees it.
//! Source: the paper's section 4.2.3, with a log in place of per-object queue entries.

use crate::policy;
use crate::queue::Queue;
use memory::frames::Memory;
use memory::segments::{NONE, Opening, Reserved, Segment, State};
use memory::sync::{AtomicU32, AtomicU64, Line, Ordering, fence};
use std::io;
use std::sync::Arc;

/// Short CAS uniques reach this far before and behind a segment's base.
const CAS_REACH: u64 = 1 << 31;
/// The lowest bit of a segment's birth.
const PROBATION: u64 = 1;

/// Bytes in an open segment, the caller's until committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) loc: u64,
    pub(crate) bytes: u32,
}

/// A segment being filled by compaction, and the place in the queue kept for it.
#[derive(Debug)]
#[repr(align(64))]
struct Out {
    segment: AtomicU32,
    /// `u64::MAX`: none is kept.
    position: AtomicU64,
}

/// A queue of segments, and what is open of it.
#[derive(Debug)]
struct Lane {
    queue: Queue,
    /// The open segment of each appender.
    appenders: Box<[Line<AtomicU32>]>,
    /// The open segment that each drain token's compaction fills.
    outs: Box<[Out]>,
    count: Line<Count>,
}

/// What is counted of a queue's segments, when one is opened or retired.
#[derive(Debug)]
struct Count {
    /// Those there are.
    segments: AtomicU32,
    /// Those ever opened, but for what compaction fills.
    opened: AtomicU64,
    /// In those opened from this one on, hits do not count.
    young_from: AtomicU64,
}

/// The log of a store.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) memory: Arc<Memory>,
    /// The main queue, and probation.
    lanes: [Lane; 2],
    /// The youngest part of a queue, in percent.
    window_percent: u32,
    /// The flush epoch: what lies in segments of earlier ones is gone.
    epoch: AtomicU32,
    /// The next CAS unique to hand out.
    cas: Line<AtomicU64>,
    /// The latest clock of any column, in seconds.
    now: Line<AtomicU32>,
}

impl Log {
    pub(crate) fn new(
        memory: Arc<Memory>,
        appenders: u32,
        tokens: u32,
        window_percent: u32,
    ) -> io::Result<Self> {
        let segments_max = memory.segments.count_max();
        let out = |_| Out { segment: AtomicU32::new(NONE), position: AtomicU64::new(u64::MAX) };
        let lane = |number| -> io::Result<Lane> {
            Ok(Lane {
                queue: Queue::new(segments_max, number)?,
                appenders: (0..appenders).map(|_| Line(AtomicU32::new(NONE))).collect(),
                outs: (0..tokens).map(out).collect(),
                count: Line(Count {
                    segments: AtomicU32::new(0),
                    opened: AtomicU64::new(0),
                    // Where there is no window, never reached.
                    young_from: AtomicU64::new(if window_percent == 0 { u64::MAX } else { 0 }),
                }),
            })
        };
        Ok(Self {
            lanes: [lane(0)?, lane(1)?],
            window_percent,
            epoch: AtomicU32::new(0),
            cas: Line(AtomicU64::new(1)),
            now: Line(AtomicU32::new(0)),
            memory,
        })
    }

    /// A column's clock says `now`.
    pub(crate) fn set_now(&self, now: u32) {
        self.now.fetch_max(now, Ordering::Relaxed); // a number to look at
    }

    fn lane(&self, queue: policy::Queue) -> &Lane {
        &self.lanes[usize::from(queue == policy::Queue::Probation)]
    }

    fn lane_of(&self, segment: u32) -> &Lane {
        self.lane(self.queue_of(segment))
    }

    /// The queue that a segment stands in, or will when sealed.
    #[inline]
    pub(crate) fn queue_of(&self, segment: u32) -> policy::Queue {
        match self.segment(segment).birth() & PROBATION {
            0 => policy::Queue::Main,
            _ => policy::Queue::Probation,
        }
    }

    /// Was the item at `loc` stored so lately that a hit says nothing of what comes later?
    #[inline]
    pub(crate) fn is_young(&self, loc: u64) -> bool {
        let birth = self.segment_of(loc).birth();
        let count = &self.lanes[usize::from(birth & PROBATION != 0)].count;
        birth >> 1 >= count.young_from.load(Ordering::Relaxed) // a hint
    }

    /// Takes the oldest segment of a queue that can be drained, as `Queue::take_oldest`.
    pub(crate) fn take_oldest(&self, queue: policy::Queue) -> Option<u32> {
        self.lane(queue).queue.take_oldest(&self.memory.segments)
    }

    #[inline]
    pub(crate) fn segment(&self, segment: u32) -> &Segment {
        self.memory.segments.get(segment)
    }

    #[inline]
    pub(crate) fn segment_of(&self, loc: u64) -> &Segment {
        self.segment(self.memory.region.segment_of(loc))
    }

    /// A block of CAS uniques, as many as asked for.
    pub(crate) fn take_cas(&self, count: u64) -> u64 {
        self.cas.fetch_add(count, Ordering::Relaxed) // unique by itself
    }

    /// The next CAS unique that nobody has taken.
    #[inline]
    pub(crate) fn cas_now(&self) -> u64 {
        self.cas.load(Ordering::Relaxed) // a hint
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire) // pairs with `flush`
    }

    /// Everything appended so far is flushed. Seals what is open, so that nothing new joins it.
    pub(crate) fn flush(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel); // Release pairs with the Acquire in `epoch`
        self.seal_all();
    }

    /// As `flush`, unless somebody has flushed since `epoch`.
    pub(crate) fn flush_from(&self, epoch: u32) {
        let next = epoch.wrapping_add(1);
        // AcqRel: as in `flush`.
        let only = self.epoch.compare_exchange(epoch, next, Ordering::AcqRel, Ordering::Acquire);
        if only.is_ok() {
            self.seal_all();
        }
    }

    /// Takes `bytes` for an item from the appender's open segment of a queue; opens another if more
    /// than `keep` are free.
    pub(crate) fn reserve(
        &self,
        queue: policy::Queue,
        appender: usize,
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        let open = &self.lane(queue).appenders[appender];
        loop {
            // Acquire pairs with the Release below: the segment is seen as opened.
            let segment = open.load(Ordering::Acquire);
            if segment != NONE
                && let Some(place) = self.reserve_in(segment, bytes)
            {
                return Some(place);
            }
            let fresh = self.open(queue, keep)?;
            // AcqRel: Release pairs with the Acquire above.
            if open.compare_exchange(segment, fresh, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // Sealed, not given back: a stale number elsewhere may have let somebody append to
                // it already.
                self.seal(fresh);
            }
        }
    }

    /// Opens a free segment of a queue if more than `keep` are.
    fn open(&self, queue: policy::Queue, keep: u32) -> Option<u32> {
        let segment = self.memory.segments.take(keep)?;
        let Lane { count, .. } = self.lane(queue);
        // Relaxed, here and below: counts, in no order.
        let birth = count.opened.fetch_add(1, Ordering::Relaxed);
        let segments = count.segments.fetch_add(1, Ordering::Relaxed) + 1;
        let window = u64::from(segments) * u64::from(self.window_percent) / 100;
        count.young_from.fetch_max((birth + 1).saturating_sub(window), Ordering::Relaxed);
        let probation = if queue == policy::Queue::Probation { PROBATION } else { 0 };
        self.begin(segment, (birth << 1) | probation);
        Some(segment)
    }

    /// Opens a free segment for what compaction moves out of `from`: of the same queue and age.
    fn open_as(&self, from: u32) -> Option<u32> {
        let segment = self.memory.segments.take(0)?;
        self.lane_of(from).count.segments.fetch_add(1, Ordering::Relaxed); // a count
        self.begin(segment, self.segment(from).birth());
        Some(segment)
    }

    fn begin(&self, segment: u32, birth: u64) {
        // Relaxed: any value will do; a number to look at.
        let cas_base = self.cas.load(Ordering::Relaxed).saturating_sub(CAS_REACH);
        let now = self.now.load(Ordering::Relaxed);
        self.segment(segment).open(Opening { cas_base, epoch: self.epoch(), birth, now });
    }

    /// Takes `bytes` of an open segment. `None`: it is full, or of an earlier epoch, and sealed
    /// now.
    fn reserve_in(&self, segment: u32, bytes: u32) -> Option<Place> {
        match self.try_reserve(segment, bytes) {
            Reserved::At(offset) => Some(self.place(segment, offset, bytes)),
            Reserved::Sealed => {
                self.sealed(segment);
                None
            }
            Reserved::Full => None,
        }
    }

    /// Takes `bytes` for an item that compaction moves out of the segment `from`: of the one of its
    /// queue that the holder of `token` fills.
    pub(crate) fn reserve_out(&self, token: usize, from: u32, bytes: u32) -> Option<Place> {
        let lane = self.lane_of(from);
        let out = &lane.outs[token];
        loop {
            // Relaxed: only the token's holder stores it, and tokens are handed over with Release.
            let segment = out.segment.load(Ordering::Relaxed);
            if segment != NONE {
                match self.try_reserve(segment, bytes) {
                    Reserved::At(offset) => return Some(self.place(segment, offset, bytes)),
                    Reserved::Sealed => self.sealed_out(lane, out, segment),
                    Reserved::Full => {}
                }
            }
            let fresh = self.open_as(from)?;
            out.segment.store(fresh, Ordering::Relaxed); // as above
        }
    }

    /// Bytes left in the segment that the holder of `token` fills from such as `from`.
    pub(crate) fn out_room(&self, token: usize, from: u32) -> u32 {
        // Relaxed: as in `reserve_out`.
        let out = &self.lane_of(from).outs[token];
        let segment = out.segment.load(Ordering::Relaxed);
        if segment == NONE || !self.segment(segment).is(State::Open) {
            return 0;
        }
        let left = u64::from(self.memory.region.segment_bytes())
            .saturating_sub(self.segment(segment).reserved());
        u32::try_from(left).unwrap_or(0)
    }

    /// The drained `segment` leaves the queue; the one its items went to takes its place, if that
    /// is the older one.
    pub(crate) fn inherit(&self, token: usize, segment: u32) {
        let Lane { queue, outs, .. } = self.lane_of(segment);
        let out = &outs[token];
        let open = out.segment.load(Ordering::Relaxed); // as in `reserve_out`
        let mine = self.segment(segment).ticket();
        let kept = out.position.load(Ordering::Acquire); // pairs with the swaps below
        if open == NONE || !self.segment(open).is(State::Open) || kept < mine {
            return;
        }
        let held = queue.hold(&self.memory.segments, segment).unwrap_or(u64::MAX);
        // pairs with itself and the load above
        let before = out.position.swap(held, Ordering::AcqRel);
        if before != u64::MAX {
            queue.release(before);
        }
    }

    /// The queue of a segment.
    fn queue(&self, segment: u32) -> &Queue {
        &self.lane_of(segment).queue
    }

    /// Seals what the holder of `token` fills.
    fn seal_out(&self, lane: &Lane, out: &Out) {
        // a segment number; `reserve` decides who seals
        let segment = out.segment.load(Ordering::Acquire);
        if segment != NONE && self.segment(segment).is(State::Open) && self.close(segment) {
            self.sealed_out(lane, out, segment);
        }
    }

    /// Queues a full segment of compaction in the place kept for it, or at the young end.
    fn sealed_out(&self, lane: &Lane, out: &Out, segment: u32) {
        let (segments, queue) = (&self.memory.segments, self.queue(segment));
        match out.position.swap(u64::MAX, Ordering::AcqRel) {
            u64::MAX => queue.push(segments, segment),
            position if std::ptr::eq(queue, &lane.queue) => {
                queue.fill(segments, position, segment);
            }
            // The number was stale: the segment is another queue's by now.
            position => {
                lane.queue.release(position);
                queue.push(segments, segment);
            }
        }
        self.segment(segment).set_state(State::Sealed);
        self.retire_if_dead(segment);
    }

    fn try_reserve(&self, segment: u32, bytes: u32) -> Reserved {
        let (there, segment_bytes) = (self.segment(segment), self.memory.region.segment_bytes());
        let far = there.cas_base() + CAS_REACH + CAS_REACH / 2;
        // a distance, no order
        let current = there.epoch() == self.epoch() && self.cas.load(Ordering::Relaxed) < far;
        there.reserve(if current { bytes } else { segment_bytes + 1 }, segment_bytes)
    }

    /// Seals every appender's segment that holds anything.
    pub(crate) fn seal_all(&self) {
        self.seal_open(|segment| segment.reserved() > 0);
        for lane in &self.lanes {
            lane.outs.iter().for_each(|out| self.seal_out(lane, out));
        }
    }

    /// Seals those of the appenders' segments that `which` says.
    fn seal_open(&self, which: impl Fn(&Segment) -> bool) {
        for open in self.lanes.iter().flat_map(|lane| &lane.appenders) {
            // Acquire pairs with the Release in `reserve`.
            let segment = open.load(Ordering::Acquire);
            if segment != NONE && which(self.segment(segment)) {
                self.seal(segment);
            }
        }
    }

    fn seal(&self, segment: u32) {
        if self.close(segment) {
            self.sealed(segment);
        }
    }

    /// Takes more than there is. True: that sealed the segment, and the caller queues it.
    fn close(&self, segment: u32) -> bool {
        let segment_bytes = self.memory.region.segment_bytes();
        self.segment(segment).reserve(segment_bytes + 1, segment_bytes) == Reserved::Sealed
    }

    fn place(&self, segment: u32, offset: u32, bytes: u32) -> Place {
        let loc = self.memory.region.start(segment) + u64::from(offset);
        Place { segment, loc, bytes }
    }

    /// Seals the appenders' segments whose items have all expired, so that they can be walked.
    pub(crate) fn seal_expired(&self, now: u32) {
        self.seal_open(|segment| (1..=now).contains(&segment.max_exp()));
    }

    fn sealed(&self, segment: u32) {
        self.queue(segment).push(&self.memory.segments, segment);
        self.segment(segment).set_state(State::Sealed);
        self.retire_if_dead(segment);
    }

    /// The place holds a published item, or a void.
    pub(crate) fn commit(&self, place: Place) {
        if self.segment(place.segment).commit(place.bytes) {
            self.retire_if_dead(place.segment);
        }
    }

    /// The item of `bytes` at `loc` is unlinked.
    pub(crate) fn unlink(&self, loc: u64, bytes: u32) {
        let segment = self.memory.region.segment_of(loc);
        if self.segment(segment).unlink(bytes) {
            self.retire_if_dead(segment);
        }
    }

    /// Bytes of memory that the queues take.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.lanes.iter().map(|lane| lane.queue.bytes()).sum()
    }

    /// Retires a sealed segment without a live item. Sealing, the last commit and the last unlink
    /// each come here after their own change; the fence makes the last of them see the others'.
    pub(crate) fn retire_if_dead(&self, segment: u32) {
        fence(Ordering::SeqCst); // pairs with itself in the other callers
        let there = self.segment(segment);
        if there.live() == 0 && there.drainable() && there.change(State::Sealed, State::Draining) {
            self.retire(segment);
        }
    }

    /// A drained segment, owned by the caller, waits to be free.
    pub(crate) fn retire(&self, segment: u32) {
        let Lane { queue, count, .. } = self.lane_of(segment);
        queue.remove(&self.memory.segments, segment);
        count.segments.fetch_sub(1, Ordering::Relaxed); // a count
        self.memory.segments.retire(segment, &self.memory.quiescence);
    }
}
