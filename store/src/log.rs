//! The log: columns append items to open segments; full ones go into the queue.
//!
//! Where: every item written, by a client's SET or by a drain, gets its place here.
//! Invariant: a place is committed after its item was published or voided; a segment drains only
//! when sealed and wholly committed; and when its last item goes it is retired at once, by whoever
//! sees it.
//! Source: the paper's section 4.2.3, with a log in place of per-object queue entries.

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
mod audit;
mod place;
mod timed;

pub(crate) use place::{Place, Written};

use crate::calendar::Calendar;
use crate::flush::Flush;
use crate::policy;
use crate::queue::Queue;
use memory::frames::Memory;
use memory::segments::{NONE, Opening, Reserved, Segment, State};
use memory::sync::{AtomicU32, AtomicU64, Line, Ordering, fence};
use std::io;
use std::sync::Arc;
use timed::{CLASSES, Timed, class_of};

/// Short CAS uniques reach this far before and behind a segment's base.
const CAS_REACH: u64 = 1 << 31;
/// The lowest bits of a segment's birth: its queue, whether its items expire, and their class.
const PROBATION: u64 = 1;
const TIMED: u64 = 2;
const CLASS_AT: u32 = 2;
const ORDER_AT: u32 = 8;
/// All but the order.
const KIND: u64 = (1 << ORDER_AT) - 1;
/// An item stored without an exptime, or to get one later.
const NEVER: [u32; 2] = [0, u32::MAX];
/// Open segments of items that expire may be this part of all, and while this part of all is free,
/// so much more.
const TIMED_PART: u32 = 16;
const TIMED_PART_WHILE_FREE: u32 = 8;
const FREE_PART: u32 = 8;
/// A segment is not walked sooner after a walk because an item's life was shortened.
const WALK_SECONDS_MIN: u32 = 60;

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
    /// The open segments of items that expire.
    timed: Timed,
    /// The open segments that each drain token's compaction fills: with items that do not expire,
    /// and with those that do.
    outs: Box<[[Out; 2]]>,
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
    calendar: Calendar,
    /// What lies in segments of earlier epochs is gone.
    pub(crate) flush: Line<Flush>,
    /// Bytes of voids, less all bytes of retired segments: with those of the items that columns
    /// have unlinked, the dead bytes of the segments there are.
    dead_bytes: Line<AtomicU64>,
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
        let stripes = (memory.segments.count() / TIMED_PART / CLASSES).clamp(1, appenders);
        let out = || Out { segment: AtomicU32::new(NONE), position: AtomicU64::new(u64::MAX) };
        let lane = |number| -> io::Result<Lane> {
            Ok(Lane {
                queue: Queue::new(segments_max, number)?,
                appenders: (0..appenders).map(|_| Line(AtomicU32::new(NONE))).collect(),
                timed: Timed::new(stripes),
                outs: (0..tokens).map(|_| [out(), out()]).collect(),
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
            calendar: Calendar::new(segments_max)?,
            flush: Line(Flush::default()),
            dead_bytes: Line(AtomicU64::new(0)),
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

    /// How many segments of its queue were opened since a segment's items were stored.
    pub(crate) fn age(&self, segment: u32) -> u64 {
        let opened = self.lane_of(segment).count.opened.load(Ordering::Relaxed); // a count
        opened.saturating_sub(self.segment(segment).birth() >> ORDER_AT)
    }

    /// Was the item at `loc` stored so lately that a hit says nothing of what comes later?
    #[inline]
    pub(crate) fn is_young(&self, loc: u64) -> bool {
        let birth = self.segment_of(loc).birth();
        let count = &self.lanes[usize::from(birth & PROBATION != 0)].count;
        birth >> ORDER_AT >= count.young_from.load(Ordering::Relaxed) // a hint
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
        self.flush.epoch()
    }

    /// Takes `bytes` for an item that will expire at `exptime` (0: never) from an open segment of a
    /// queue; opens another if more than `keep` are free.
    pub(crate) fn reserve(
        &self,
        queue: policy::Queue,
        (appender, exptime): (usize, u32),
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        if !NEVER.contains(&exptime)
            && let Some(place) = self.reserve_timed(queue, (appender, exptime), bytes, keep)
        {
            return Some(place);
        }
        let place = self.reserve_untimed(queue, appender, bytes, keep)?;
        if !NEVER.contains(&exptime) && self.segment(place.segment()).due() == u32::MAX {
            self.note_due(place.segment(), exptime);
        }
        Some(place)
    }

    /// As `reserve`, among those that do not expire.
    fn reserve_untimed(
        &self,
        queue: policy::Queue,
        appender: usize,
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        let open = &self.lane(queue).appenders[appender];
        let kind = kind(queue);
        loop {
            // Acquire pairs with the Release below: the segment is seen as opened.
            let segment = open.load(Ordering::Acquire);
            if segment != NONE
                && self.segment(segment).birth() & KIND == kind
                && let Some(place) = self.reserve_in(segment, bytes)
            {
                return Some(place);
            }
            let fresh = self.open(queue, kind, keep)?;
            // AcqRel: Release pairs with the Acquire above.
            let (opened, before) = (Ordering::AcqRel, Ordering::Relaxed);
            match open.compare_exchange(segment, fresh, opened, before) {
                Ok(_) => self.displaced(segment, fresh),
                // Sealed, not given back: a stale number elsewhere may have let somebody append to
                // it already.
                Err(_) => self.seal(fresh),
            }
        }
    }

    /// `segment`, which was full, or another's, is nobody's to append to any more. It may have been
    /// drained since and opened again, even for the very same place: then nobody else would seal
    /// it.
    fn displaced(&self, segment: u32, by: u32) {
        if segment != NONE && segment != by {
            self.seal(segment);
        }
    }

    /// As `reserve`, among those that expire: of the item's class, or of one that lives longer.
    fn reserve_timed(
        &self,
        queue: policy::Queue,
        (appender, exptime): (usize, u32),
        bytes: u32,
        keep: u32,
    ) -> Option<Place> {
        let timed = &self.lane(queue).timed;
        let stripe = appender % timed.stripes();
        let now = self.now.load(Ordering::Relaxed); // a number to look at
        let own = class_of(exptime.saturating_sub(now));
        let mut class = own;
        loop {
            let segment = timed.of(stripe, class);
            let kind = kind(queue) | TIMED | (u64::from(class) << CLASS_AT);
            if segment != NONE {
                if self.segment(segment).birth() & KIND == kind
                    && let Some(place) = self.reserve_in(segment, bytes)
                {
                    return Some(place);
                }
                // It is full or was another's all along: no more of this class.
                if timed.replace(stripe, class, segment, NONE) {
                    self.displaced(segment, NONE);
                }
            }
            if class == own
                && self.may_open_timed(stripe)
                && let Some(fresh) = self.open(queue, kind, keep)
            {
                if !timed.replace(stripe, class, NONE, fresh) {
                    self.seal(fresh); // as in `reserve`
                }
                // The others will expire with this one, or a little later: then it is asked.
                self.note_due(fresh, exptime);
                continue;
            }
            // Each round closes a class, or goes on to a longer one.
            class = timed.at_least(stripe, class + u32::from(segment == NONE))?;
        }
    }

    /// May another segment be opened for a class of items that expire?
    fn may_open_timed(&self, stripe: usize) -> bool {
        let [main, probation] = &self.lanes;
        let open = main.timed.count(stripe) + probation.timed.count(stripe);
        let all = self.memory.present();
        let much_is_free = self.memory.segments.free() > all / FREE_PART;
        let part = if much_is_free { TIMED_PART_WHILE_FREE } else { TIMED_PART };
        let stripes = u32::try_from(main.timed.stripes()).unwrap_or(u32::MAX);
        open < all / part / stripes
    }

    /// Opens a free segment of a queue if more than `keep` are.
    fn open(&self, queue: policy::Queue, kind: u64, keep: u32) -> Option<u32> {
        let segment = self.memory.segments.take(keep)?;
        let Lane { count, .. } = self.lane(queue);
        // Relaxed, here and below: counts, in no order.
        let birth = count.opened.fetch_add(1, Ordering::Relaxed);
        let segments = count.segments.fetch_add(1, Ordering::Relaxed) + 1;
        let young_from = policy::room::young_from(birth, segments, self.window_percent);
        count.young_from.fetch_max(young_from, Ordering::Relaxed);
        self.begin(segment, (birth << ORDER_AT) | kind);
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
        let out = self.out(token, from);
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
        let out = self.out(token, from);
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
        let (queue, out) = (self.queue(segment), self.out(token, segment));
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
            queue.release(&self.memory.segments, before);
        }
    }

    /// What the holder of `token` fills from such as `from`.
    fn out(&self, token: usize, from: u32) -> &Out {
        let timed = self.segment(from).birth() & TIMED != 0;
        &self.lane_of(from).outs[token][usize::from(timed)]
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
                lane.queue.release(segments, position);
                queue.push(segments, segment);
            }
        }
        self.segment(segment).set_state(State::Sealed);
        self.note_first_due(segment);
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
            lane.outs.iter().flatten().for_each(|out| self.seal_out(lane, out));
        }
    }

    /// The holder of `token` gives it back, and nobody will take it again: seals what it fills.
    pub(crate) fn seal_outs(&self, token: usize) {
        for lane in &self.lanes {
            lane.outs[token].iter().for_each(|out| self.seal_out(lane, out));
        }
    }

    /// Seals those of the appenders' segments that `which` says.
    fn seal_open(&self, which: impl Fn(&Segment) -> bool) {
        let appenders = self.lanes.iter().flat_map(|lane| &lane.appenders);
        // Acquire pairs with the Release in `reserve`.
        let open = appenders.map(|open| open.load(Ordering::Acquire));
        let open = open.filter(|segment| *segment != NONE);
        let timed = self.lanes.iter().flat_map(|lane| lane.timed.all());
        open.chain(timed)
            .filter(|segment| which(self.segment(*segment)))
            .for_each(|segment| self.seal(segment));
    }

    /// Seals one of the open segments of items that expire, if there are more than there may be
    /// where memory is short: so that what is not filled of it can be used.
    pub(crate) fn trim_timed(&self) {
        let all = self.memory.present();
        let open = || self.lanes.iter().flat_map(|lane| lane.timed.all());
        let hints = self
            .lanes
            .iter()
            .flat_map(|lane| (0..lane.timed.stripes()).map(|stripe| lane.timed.count(stripe)));
        if hints.sum::<u32>() > (all / TIMED_PART).max(1)
            && let Some(oldest) = open().min_by_key(|segment| self.segment(*segment).opened())
        {
            self.seal(oldest);
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
        Place::new(segment, loc, bytes)
    }

    fn sealed(&self, segment: u32) {
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

    /// Notes when a segment that was just sealed is to be walked.
    fn note_first_due(&self, segment: u32) {
        if let Some(due) = self.first_due(segment) {
            self.note_due(segment, due);
        }
    }

    /// When a sealed segment is to be walked: when all of it has expired, where its items do so
    /// nearly together; else when about an eighth of those that expire has. `None`: none expires.
    pub(crate) fn first_due(&self, segment: u32) -> Option<u32> {
        let there = self.segment(segment);
        let (first, last) = (there.min_exp(), there.max_exp());
        let life = first.saturating_sub(there.opened());
        match last {
            _ if first == u32::MAX => None,
            u32::MAX => Some(first.saturating_add(life / 2)),
            _ if last.saturating_sub(first) <= life / 2 + 1 => Some(last),
            _ => Some(first + last.saturating_sub(first) / 8),
        }
    }

    /// A claimed segment is as any other again. It is to be walked in second `due` at the latest,
    /// or when others have said meanwhile.
    pub(crate) fn unclaim(&self, segment: u32, due: Option<u32>) {
        let there = self.segment(segment);
        there.set_state(State::Sealed);
        // Of one that a pass has left uncounted nobody sees the last item go. Who gathers it moves
        // what is alive.
        let now = self.now.load(Ordering::Relaxed); // a number to look at
        let soon = there.is_uncounted().then_some(now + 1);
        let due = due.into_iter().chain(soon).min();
        self.calendar.note_unclaimed(&self.memory.segments, segment, due.unwrap_or(u32::MAX));
        self.retire_if_dead(segment);
    }

    /// The segment is to be looked at in second `due`.
    pub(crate) fn note_due(&self, segment: u32, due: u32) {
        self.calendar.note(&self.memory.segments, segment, due);
    }

    /// The segment is to be looked at in second `due` at the latest.
    pub(crate) fn note_due_earlier(&self, segment: u32, due: u32) {
        self.calendar.note_earlier(&self.memory.segments, segment, due);
    }

    /// Might a segment be due in second `now`? A hint.
    #[inline]
    pub(crate) fn may_be_due(&self, now: u32) -> bool {
        self.calendar.may_be_due(now)
    }

    /// A segment to be walked in second `now`; it is due until it is claimed or noted anew.
    pub(crate) fn due(&self, now: u32) -> Option<u32> {
        loop {
            // Each round gives one, or notes an open one for later.
            let segment = self.calendar.due(&self.memory.segments, now)?;
            let there = self.segment(segment);
            if !there.is(State::Open) {
                return Some(segment);
            }
            match there.max_exp() {
                // Nothing is linked in it yet.
                0 => self.note_due(segment, now + 1),
                last if last > now => self.note_due(segment, last),
                _ => {
                    self.seal(segment);
                    if there.is(State::Open) {
                        // Somebody else is about to.
                        self.note_due(segment, now + 1);
                    }
                }
            }
        }
    }

    /// The exptime of the item at `loc`, which was `before`, is `exptime` now; 0: never. Under its
    /// group's lock, and `raise_exp` came before.
    pub(crate) fn changed_exp(&self, loc: u64, before: u32, exptime: u32) {
        if exptime == 0 || (before != 0 && before <= exptime) {
            return;
        }
        let segment = self.memory.region.segment_of(loc);
        let there = self.segment(segment);
        there.shorten_exp(exptime);
        let rested = there.walked().saturating_add(WALK_SECONDS_MIN);
        self.note_due_earlier(segment, exptime.max(rested));
    }

    /// Bytes of voids, less those of retired segments; may be less than nothing.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.dead_bytes.load(Ordering::Relaxed) // a sum
    }

    /// The item of `bytes` at `loc` is unlinked.
    pub(crate) fn unlink(&self, loc: u64, bytes: u32) {
        let segment = self.memory.region.segment_of(loc);
        if self.segment(segment).unlink(bytes) {
            self.retire_if_dead(segment);
        }
    }

    /// Bytes of memory that the queues and the calendar take.
    pub(crate) fn queue_bytes(&self) -> usize {
        let count = self.memory.segments.count();
        let of_segments = self.calendar.bytes(&self.memory.segments);
        of_segments + self.lanes.iter().map(|lane| lane.queue.bytes(count)).sum::<usize>()
    }

    /// Retires a sealed segment without a live item. Sealing, the last commit and the last unlink
    /// each come here after their own change; the fence makes the last of them see the others'.
    pub(crate) fn retire_if_dead(&self, segment: u32) {
        fence(Ordering::SeqCst); // pairs with itself in the other callers
        let there = self.segment(segment);
        // In this order: what a reservation has become counts as live before it is committed, so
        // that from when all are committed on there is only less.
        if there.drainable() && there.live() == 0 && there.change(State::Sealed, State::Draining) {
            self.retire(segment);
        }
    }

    /// A drained segment, owned by the caller, waits to be free.
    pub(crate) fn retire(&self, segment: u32) {
        let Lane { queue, count, .. } = self.lane_of(segment);
        queue.remove(&self.memory.segments, segment);
        // Relaxed: a count and a sum.
        count.segments.fetch_sub(1, Ordering::Relaxed);
        self.dead_bytes.fetch_sub(self.segment(segment).end().into(), Ordering::Relaxed);
        self.memory.segments.retire(segment, &self.memory.quiescence);
    }
}

/// The lowest bits of the birth of a segment of items that do not expire.
fn kind(queue: policy::Queue) -> u64 {
    if queue == policy::Queue::Probation { PROBATION } else { 0 }
}
