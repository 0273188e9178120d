//! The log: two queues of segments (main and probation), and the open segments of both queues.
//!
//! Where: every item that is stored or moved gets its place from the log (`append`, `out`). A
//! segment enters its queue when it is sealed (`seal`).
//! Invariant: a segment is drained only after it was sealed and all its places were committed. A
//! segment belongs to one queue, which its birth names, from its opening to its retirement.
//! Source: the KV-Cache paper, section 4.2.3, whose queues hold objects in place of segments.

mod append;
#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod calendar;
mod due;
mod epoch;
mod out;
mod place;
mod queue;
mod seal;
mod timed;

pub(crate) use place::{Place, WrittenPlace};

use crate::policy;
use append::TIMED_PART;
use calendar::Calendar;
use epoch::AtomicFlushWord;
use memory::frames::Memory;
use memory::segments::{NONE, Opening, Reservation, Segment};
use memory::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};
use out::CompactionTarget;
use queue::Queue;
use std::io;
use std::sync::Arc;
use timed::{CLASSES, OpenByClass};

/// The next CAS unique minus the `cas_base` of a new segment: half of a short unique's range.
const CAS_REACH: u64 = 1 << 31;
/// The low bits of a segment's birth tell the queue, if the items expire, and the class of their
/// lifetimes. The high bits (the order) rise with each segment that is opened in the queue.
const PROBATION: u64 = 1;
const TIMED: u64 = 2;
const CLASS_AT: u32 = 2;
const ORDER_AT: u32 = 8;
/// Mask of the bits of a birth below the order.
const KIND: u64 = (1 << ORDER_AT) - 1;

#[derive(Debug)]
struct Lane {
    queue: Queue,
    /// The open segment of each appender.
    appenders: Box<[CachePadded<AtomicU32>]>,
    timed: OpenByClass,
    /// For each drain token, the two segments that compaction fills; `[1]` takes items that expire.
    outs: Box<[[CompactionTarget; 2]]>,
    count: CachePadded<Count>,
}

#[derive(Debug)]
struct Count {
    segments: AtomicU32,
    /// Number of segments ever opened for the queue, except segments that compaction fills.
    opened: AtomicU64,
    /// A hit raises an item's counter only if the order of the item's segment is below this number.
    young_from: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) memory: Arc<Memory>,
    lanes: [Lane; 2],
    /// The stripe of `Lane::timed` that each appender uses.
    stripe_of: Box<[usize]>,
    /// Percentage of a queue's segments, the youngest ones, in which hits do not raise counters.
    window_percent: u32,
    pub(crate) calendar: Calendar,
    pub(crate) flush: CachePadded<AtomicFlushWord>,
    /// Bytes of all voids minus bytes of all retired segments, since the start. The dead bytes in
    /// the log are the sum of this number and the `dead_bytes` of all columns.
    dead_bytes: CachePadded<AtomicU64>,
    cas: CachePadded<AtomicU64>,
    /// The latest time of any column's clock, in seconds.
    now: CachePadded<AtomicU32>,
    /// Number of changes that may have made background work due, see `upkeep`.
    changes: CachePadded<AtomicU32>,
}

impl Log {
    pub(crate) fn new(
        memory: Arc<Memory>,
        appenders: u32,
        tokens: u32,
        window_percent: u32,
    ) -> io::Result<Self> {
        let segments_max = memory.segments.count_max();
        let nodes = memory.segments.nodes();
        let of_nodes = u32::try_from(nodes.count()).unwrap_or(u32::MAX);
        let stripes = memory.segments.count() / TIMED_PART / CLASSES;
        let stripes = stripes.max(of_nodes).clamp(1, appenders);
        let lane = |number| -> io::Result<Lane> {
            Ok(Lane {
                queue: Queue::new(segments_max, number)?,
                appenders: (0..appenders).map(|_| CachePadded(AtomicU32::new(NONE))).collect(),
                timed: OpenByClass::new(stripes),
                outs: (0..tokens)
                    .map(|_| [CompactionTarget::new(), CompactionTarget::new()])
                    .collect(),
                count: CachePadded(Count {
                    segments: AtomicU32::new(0),
                    opened: AtomicU64::new(0),
                    // Without a window no segment is young: no order reaches `u64::MAX`.
                    young_from: AtomicU64::new(if window_percent == 0 { u64::MAX } else { 0 }),
                }),
            })
        };
        Ok(Self {
            lanes: [lane(0)?, lane(1)?],
            stripe_of: timed::stripes_of(nodes, appenders, stripes),
            window_percent,
            calendar: Calendar::new(segments_max)?,
            flush: CachePadded(AtomicFlushWord::default()),
            dead_bytes: CachePadded(AtomicU64::new(0)),
            cas: CachePadded(AtomicU64::new(1)),
            now: CachePadded(AtomicU32::new(0)),
            changes: CachePadded(AtomicU32::new(0)),
            memory,
        })
    }

    pub(crate) fn set_now(&self, now: u32) {
        self.now.fetch_max(now, Ordering::Relaxed); // no other data depends on `now`
    }

    pub(crate) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed) // no other data depends on `now`
    }

    /// Notes a change that may have made background work due. Called after the change.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release); // pairs with `changes`
    }

    /// Number of changes noted. The caller then sees all that was changed before they were noted.
    #[inline]
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire) // pairs with `note_change`
    }

    fn lane(&self, queue: policy::Queue) -> &Lane {
        &self.lanes[usize::from(queue == policy::Queue::Probation)]
    }

    fn lane_of(&self, segment: u32) -> &Lane {
        self.lane(self.queue_of(segment))
    }

    /// The queue that a segment is in, or will enter when it is sealed.
    #[inline]
    pub(crate) fn queue_of(&self, segment: u32) -> policy::Queue {
        match self.segment(segment).birth() & PROBATION {
            0 => policy::Queue::Main,
            _ => policy::Queue::Probation,
        }
    }

    /// Number of segments opened in the queue of `segment` since its items were stored.
    pub(crate) fn age(&self, segment: u32) -> u64 {
        let opened = self.lane_of(segment).count.opened.load(Ordering::Relaxed); // a count
        opened.saturating_sub(self.segment(segment).birth() >> ORDER_AT)
    }

    /// True if the item at `loc` is so new that a hit does not predict later hits.
    #[inline]
    pub(crate) fn is_young(&self, loc: u64) -> bool {
        let birth = self.segment_of(loc).birth();
        let count = &self.lanes[usize::from(birth & PROBATION != 0)].count;
        birth >> ORDER_AT >= count.young_from.load(Ordering::Relaxed) // a hint
    }

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

    /// Reserves `count` consecutive CAS uniques for the caller, and returns the lowest.
    pub(crate) fn take_cas(&self, count: u64) -> u64 {
        self.cas.fetch_add(count, Ordering::Relaxed) // uniqueness needs no order
    }

    #[inline]
    pub(crate) fn cas_now(&self) -> u64 {
        self.cas.load(Ordering::Relaxed) // a hint
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.flush.now().epoch()
    }

    fn begin(&self, segment: u32, birth: u64) {
        // Relaxed: no other data depends on the loaded numbers, and any recent value will do.
        let cas_base = self.cas.load(Ordering::Relaxed).saturating_sub(CAS_REACH);
        let now = self.now.load(Ordering::Relaxed);
        self.segment(segment).open(Opening { cas_base, epoch: self.epoch(), birth, now });
    }

    fn queue(&self, segment: u32) -> &Queue {
        &self.lane_of(segment).queue
    }

    fn try_reserve(&self, segment: u32, bytes: u32) -> Reservation {
        let (there, segment_bytes) = (self.segment(segment), self.memory.region.segment_bytes());
        let far = there.cas_base() + CAS_REACH + CAS_REACH / 2;
        // Relaxed: the comparison of `cas` with `far` needs no order of accesses.
        let current = there.epoch() == self.epoch() && self.cas.load(Ordering::Relaxed) < far;
        there.reserve(if current { bytes } else { segment_bytes + 1 }, segment_bytes)
    }

    fn place(&self, segment: u32, offset: u32, bytes: u32) -> Place {
        let loc = self.memory.region.start(segment) + u64::from(offset);
        Place::new(segment, loc, bytes)
    }

    /// The sum in the field `dead_bytes`, which wraps around if it falls below 0.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.dead_bytes.load(Ordering::Relaxed) // a sum
    }

    /// Bytes of memory that the queues and the calendar take.
    pub(crate) fn queue_bytes(&self) -> usize {
        let count = self.memory.segments.count();
        let of_segments = self.calendar.bytes(&self.memory.segments);
        of_segments + self.lanes.iter().map(|lane| lane.queue.bytes(count)).sum::<usize>()
    }
}
