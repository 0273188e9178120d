//! NbQ: the non-blocking queue of sealed segments. (NbQ-CLOCK queues objects instead.)
//!
//! Where: the log's main queue and probation queue. A column that seals a segment pushes it; a
//! column that makes room takes the oldest segment. Compaction keeps a segment's position.
//! Invariant: an entry is valid only while its segment's ticket is the entry's position. The column
//! that changes a segment's state from `Sealed` to `Draining` owns the segment; the entries only
//! determine the order. No column waits for another column.
//! Source: the KV-Cache paper, section 4.2.3 (NbQ), with a ring in place of a linked list.
//!
//! ```text
//!   entry, u64:  position (low half):32 | segment:32, or HOLE, or HELD
//! ```

use memory::segments::{Segments, State};
use memory::sync::{AtomicU64, CachePadded, Ordering};
use memory::words::{Words, low};
use std::io;

/// Marks an entry whose segment has left the queue.
const HOLE: u32 = u32::MAX;
/// Marks an entry whose position is kept for the segment that a compaction is filling.
const HELD: u32 = u32::MAX - 1;
/// Maximum number of segments that a search from the old end tries. Holes do not count.
const SEARCH_SEGMENTS: usize = 64;
/// Number of entries that a push moves from the old end to the young end if there are many holes.
const ROTATE_ENTRIES: usize = 4;

/// Minimum number of a ring's entries per segment if the ring gives the pages of old entries back
/// to the system. (A ring is sized for the largest number of segments that may ever exist.)
const SPARE_FACTOR: usize = 16;
/// A ring with fewer pages than this number gives no page back to the system.
const SPARE_PAGES: u64 = 4;
/// A position of a queue has this number of bits; the bits above hold the queue's number.
const POSITION_BITS: u32 = 48;

#[derive(Debug)]
pub(crate) struct Queue {
    /// The entries; an entry is 0 until it is first written.
    ring: Words,
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
}

impl Queue {
    /// Makes a queue for `segments_max` segments at most. The two queues of a log have different
    /// `number`s, so that no ticket of one queue is a position in the other queue.
    pub(crate) fn new(segments_max: u32, number: u32) -> io::Result<Self> {
        let entries = (segments_max as usize * 4).next_power_of_two();
        // Position 0 is not used, because an unwritten entry is 0, like segment 0 at position 0.
        let first = (u64::from(number) << POSITION_BITS) + entries as u64;
        Ok(Self {
            ring: Words::new(entries)?,
            head: CachePadded(AtomicU64::new(first)),
            tail: CachePadded(AtomicU64::new(first)),
        })
    }

    /// Bytes of memory that the queue takes while there are `segments` segments.
    pub(crate) fn bytes(&self, segments: u32) -> usize {
        // Relaxed: numbers for statistics.
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let positions = tail & ((1 << POSITION_BITS) - 1);
        let mut written = positions.saturating_sub(self.ring.len() as u64);
        if self.has_to_spare(segments) {
            written = written.min(tail.saturating_sub(head & !(self.page_entries() - 1)));
        }
        usize::try_from(written).unwrap_or(usize::MAX).min(self.ring.len()) * 8
    }

    /// Adds a segment at the young end. The caller sets its state to `Sealed` afterwards.
    pub(crate) fn push(&self, segments: &Segments, segment: u32) {
        self.append(segments, segment);
        // The ring has 4 positions per segment. If holes stretch the queue to over 3 positions per
        // segment, old entries move to the young end, so that the queue gets shorter.
        if self.span() > u64::from(segments.count()) * 3 {
            (0..ROTATE_ENTRIES).for_each(|_| self.rotate(segments));
        }
    }

    /// A hint: the number of positions between the two ends; 0 if `tail` seems to be behind `head`.
    fn span(&self) -> u64 {
        // Relaxed: hints. `head` is read first, because `head` only moves towards `tail`.
        let head = self.head.load(Ordering::Relaxed);
        self.tail.load(Ordering::Relaxed).saturating_sub(head)
    }

    /// True if the ring is large enough to give back pages behind the old end. A column must give a
    /// page back before the young end comes round to it. Let S be the number of segments. At first
    /// the young end is less than 4 S positions ahead of the old end (`push`). Until the column
    /// passes a quiescent point no segment is reused, so each segment is pushed at most once, which
    /// moves the young end by at most 1 + `ROTATE_ENTRIES` positions. That is 9 S in total, or 9/16
    /// of the ring; a page is at most 1/4 of the ring.
    fn has_to_spare(&self, segments: u32) -> bool {
        self.ring.len() >= SPARE_FACTOR * segments as usize
            && self.ring.len() as u64 >= SPARE_PAGES * self.page_entries()
    }

    /// The number of entries in a page of memory; a power of two.
    fn page_entries(&self) -> u64 {
        (self.ring.page_bytes() / size_of::<u64>()) as u64
    }

    fn append(&self, segments: &Segments, segment: u32) {
        let position = self.tail.fetch_add(1, Ordering::Relaxed); // the store below publishes
        segments.get(segment).set_ticket(position);
        // Release pairs with the Acquire in `segment_at`.
        self.at(position).store(entry(position, segment), Ordering::Release);
    }

    /// Takes the oldest drainable segment: its state becomes `Draining`, and the caller owns it.
    pub(crate) fn take_oldest(&self, segments: &Segments) -> Option<u32> {
        self.advance(segments);
        let head = self.head.load(Ordering::Relaxed); // a hint
        let tail = self.tail.load(Ordering::Relaxed);
        for (position, segment) in (head..tail)
            .filter_map(|position| Some((position, self.segment_at(position)?)))
            .take(SEARCH_SEGMENTS)
        {
            let there = segments.get(segment);
            if there.ticket() != position {
                self.clear(position, segment);
            } else if there.drainable() && there.change(State::Sealed, State::Draining) {
                return Some(segment);
            }
        }
        None
    }

    #[cfg(all(any(debug_assertions, shuttle), not(loom)))]
    pub(crate) fn has(&self, position: u64, segment: u32) -> bool {
        // Relaxed: for the audit.
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        (head..tail).contains(&position) && self.segment_at(position) == Some(segment)
    }

    pub(crate) fn remove(&self, segments: &Segments, segment: u32) {
        self.clear(segments.get(segment).ticket(), segment);
        self.advance(segments);
    }

    /// Removes `segment` from the queue. Keeps the position for another segment, and returns it.
    pub(crate) fn hold(&self, segments: &Segments, segment: u32) -> Option<u64> {
        let position = segments.get(segment).ticket();
        self.change(position, segment, HELD).then_some(position)
    }

    pub(crate) fn release(&self, segments: &Segments, position: u64) {
        self.change(position, HELD, HOLE);
        self.advance(segments);
    }

    /// Puts `segment` at `position`, which `hold` kept, or at the young end if `rotate` has removed
    /// the kept entry. The caller sets the segment's state to `Sealed` afterwards.
    pub(crate) fn fill(&self, segments: &Segments, position: u64, segment: u32) {
        segments.get(segment).set_ticket(position);
        if !self.change(position, HELD, segment) {
            self.push(segments, segment);
        }
    }

    /// Moves the oldest entry to the young end, so that the old end can pass the holes behind it.
    fn rotate(&self, segments: &Segments) {
        let head = self.head.load(Ordering::Relaxed); // a hint: `change` decides
        match self.segment_at(head) {
            Some(segment) => {
                let queued = segments.get(segment).ticket() == head;
                if self.change(head, segment, HOLE) && queued {
                    self.append(segments, segment);
                }
            }
            None => {
                self.change(head, HELD, HOLE);
            }
        }
        self.advance(segments);
    }

    fn advance(&self, segments: &Segments) {
        loop {
            let head = self.head.load(Ordering::Relaxed); // a hint: the exchange decides
            if self.at(head).load(Ordering::Acquire) != entry(head, HOLE) {
                return;
            }
            // Relaxed: the head is a hint; the entries decide.
            let next = head + 1;
            let moved =
                self.head.compare_exchange(head, next, Ordering::Relaxed, Ordering::Relaxed);
            let page = self.page_entries();
            if moved.is_ok() && next.is_multiple_of(page) && self.has_to_spare(segments.count()) {
                let behind = self.index(next - page) * 8;
                self.ring.give_back(behind, behind + self.ring.page_bytes());
            }
        }
    }

    fn clear(&self, position: u64, segment: u32) {
        self.change(position, segment, HOLE);
    }

    fn change(&self, position: u64, from: u32, to: u32) -> bool {
        let (from, to) = (entry(position, from), entry(position, to));
        // AcqRel pairs with the Release in `append` and the Acquire in `segment_at`.
        let at = self.at(position);
        at.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn segment_at(&self, position: u64) -> Option<u32> {
        // Acquire pairs with the Release in `append`.
        let there = self.at(position).load(Ordering::Acquire);
        let segment = low(there);
        (segment < HELD && there == entry(position, segment)).then_some(segment)
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        self.ring.word(self.index(position))
    }

    fn index(&self, position: u64) -> usize {
        let mask = self.ring.len() as u64 - 1;
        usize::try_from(position & mask).unwrap_or(0)
    }
}

fn entry(position: u64, segment: u32) -> u64 {
    (position << 32) | u64::from(segment)
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use memory::segments::{Opening, Reservation};
    use std::collections::VecDeque;

    fn sealed(count: u32) -> (Segments, Queue) {
        let segments = Segments::new(count, count).expect("address space");
        let queue = Queue::new(count, 0).expect("address space");
        for segment in 0..count {
            assert_eq!(segments.take(0), Some(segment));
            seal(&segments, &queue, segment);
        }
        (segments, queue)
    }

    fn seal(segments: &Segments, queue: &Queue, segment: u32) {
        let there = segments.get(segment);
        there.open(Opening::default());
        assert_eq!(there.reserve(100, 64), Reservation::Sealed);
        queue.push(segments, segment);
        there.set_state(State::Sealed);
    }

    #[test]
    fn the_oldest_comes_first_and_once() {
        let (segments, queue) = sealed(8);
        for segment in 0..8 {
            assert_eq!(queue.take_oldest(&segments), Some(segment));
            queue.remove(&segments, segment);
        }
        assert_eq!(queue.take_oldest(&segments), None);
    }

    #[test]
    fn a_compacted_segment_keeps_its_place() {
        let (segments, queue) = sealed(8);
        let kept = queue.hold(&segments, 2).expect("queued");
        segments.get(2).set_state(State::Free);
        queue.fill(&segments, kept, 2);
        segments.get(2).set_state(State::Sealed);
        let order: Vec<_> = (0..8).filter_map(|_| queue.take_oldest(&segments)).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    /// Runs with the system's page size, and in debug builds with two page sizes of arm64.
    #[test]
    fn what_has_left_takes_no_memory_and_is_not_there_again() {
        come_and_go();
        #[cfg(debug_assertions)]
        for page_bytes in [16 << 10, 64 << 10] {
            memory::map::plant_page_bytes(page_bytes);
            come_and_go();
        }
    }

    fn come_and_go() {
        let segments = Segments::new(100, 10_000).expect("address space");
        let queue = Queue::new(10_000, 1).expect("address space");
        let page = usize::try_from(queue.page_entries()).expect("few");
        assert!(queue.ring.len() >= 4 * page);
        let taken = || segments.take(0).expect("one of a hundred");
        let mut there: VecDeque<u32> = (0..80).map(|_| taken()).collect();
        there.iter().for_each(|segment| seal(&segments, &queue, *segment));
        for _ in 0..queue.ring.len() * 5 / 2 {
            let oldest = queue.take_oldest(&segments);
            assert_eq!(oldest, there.pop_front());
            queue.remove(&segments, oldest.expect("queued"));
            segments.give(oldest.expect("queued"));
            there.push_back(taken());
            there.back().iter().for_each(|segment| seal(&segments, &queue, **segment));
            assert!(queue.bytes(100) <= 8 * (80 + 2 * page), "{}", queue.bytes(100));
        }
        let written =
            (0..queue.ring.len()).filter(|at| queue.ring.word(*at).load(Ordering::Relaxed) != 0);
        assert!(written.count() <= 80 + 2 * page);
    }

    #[test]
    fn holes_do_not_overflow_it() {
        let (segments, queue) = sealed(8);
        // Segment 0 stays; the other segments come and go, and leave holes behind segment 0.
        for round in 0..1000 {
            let segment = 1 + round % 7;
            assert!(segments.get(segment).change(State::Sealed, State::Draining));
            queue.remove(&segments, segment);
            seal(&segments, &queue, segment);
        }
        let mut order: Vec<_> = (0..8).filter_map(|_| queue.take_oldest(&segments)).collect();
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

/// Run with `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use loom::{sync::Arc, thread};
    use memory::segments::{Opening, Reservation};

    fn seal(segments: &Segments, queue: &Queue) {
        let Some(segment) = segments.take(0) else { return };
        let there = segments.get(segment);
        there.open(Opening::default());
        assert_eq!(there.reserve(100, 64), Reservation::Sealed);
        queue.push(segments, segment);
        there.set_state(State::Sealed);
    }

    fn drain(segments: &Segments, queue: &Queue) -> u32 {
        let Some(segment) = queue.take_oldest(segments) else { return 0 };
        queue.remove(segments, segment);
        1 << (4 * segment)
    }

    #[test]
    fn the_ends_are_never_seen_far_apart() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let segments = Segments::new(2, 2).expect("no address space is needed");
            let shared = Arc::new((segments, Queue::new(2, 0).expect("nor here")));
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    seal(&shared.0, &shared.1);
                    drain(&shared.0, &shared.1);
                })
            };
            assert!(shared.1.span() <= 1);
            other.join().expect("works");
        });
    }

    #[test]
    fn each_segment_is_taken_once() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let segments = Segments::new(2, 2).expect("no address space is needed");
            let shared = Arc::new((segments, Queue::new(2, 0).expect("nor here")));
            let work = |(segments, queue): &(Segments, Queue)| {
                seal(segments, queue);
                drain(segments, queue)
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || work(&shared))
            };
            let mut taken = work(&shared) + other.join().expect("works");
            taken += drain(&shared.0, &shared.1) + drain(&shared.0, &shared.1);
            assert_eq!(taken, 0x11);
        });
    }
}
