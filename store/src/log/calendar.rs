//! The calendar records, for each segment, the second in which the segment is due: a column must
//! then search it for expired items. So no column has to search all segments every second.
//!
//! Where: a column notes a second when it seals a segment; background work takes due segments.
//! Invariant: while no column notes a second, the due second of a block (64 segments) is no later
//! than the due second of any of its segments, and `next` is no later than the due second of any
//! block. A block's due second may be too early: then a search finds no due segment in the block.
//! Source: timing wheels (Varghese and Lauck, 1987), lock-free because minima replace the lists.
//!
//! ```text
//!   next: u32      block: u64 for each 64 segments, NEVER - second      segment: its own due, u32
//! ```

use memory::plant::{self, Fault};
use memory::segments::{Segments, State};
use memory::sync::{AtomicU32, CachePadded, Ordering};
use memory::words::Words;
use std::io;

const BLOCK: u32 = 64;
const NEVER: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Calendar {
    /// The earliest due second of all blocks, or an earlier second.
    next: CachePadded<AtomicU32>,
    /// For each block, `NEVER` minus the block's due second. New memory is 0: never due.
    blocks: Words,
}

impl Calendar {
    /// # Errors
    /// The system refuses the address space.
    pub(crate) fn new(segments_max: u32) -> io::Result<Self> {
        let blocks = Words::new(segments_max.div_ceil(BLOCK) as usize)?;
        Ok(Self { next: CachePadded(AtomicU32::new(NEVER)), blocks })
    }

    pub(crate) fn bytes(&self, segments: &Segments) -> usize {
        segments.count().div_ceil(BLOCK) as usize * 8
    }

    /// Sets the segment's due second to `due`, even if an earlier second was noted before.
    pub(crate) fn note(&self, segments: &Segments, segment: u32, due: u32) {
        segments.get(segment).set_due(due);
        self.announce(segment, due);
    }

    /// Sets the segment's due second to `due`, unless the segment is due earlier already.
    pub(crate) fn note_earlier(&self, segments: &Segments, segment: u32, due: u32) {
        if segments.get(segment).lower_due(due) {
            self.announce(segment, due);
        }
    }

    /// Notes that a segment is sealed again after a claim, and is due in second `due`. If another
    /// column noted an earlier second during the claim, the earlier second stays, and is announced
    /// again, since a search in `due_in` may have skipped the claimed segment.
    pub(crate) fn note_unclaimed(&self, segments: &Segments, segment: u32, due: u32) {
        let there = segments.get(segment);
        if there.lower_due(due) || !plant::is(Fault::DueUnannounced) {
            self.announce(segment, there.due());
        }
    }

    fn announce(&self, segment: u32, due: u32) {
        if due == NEVER {
            return;
        }
        // Release pairs with the Acquire of the swaps in `due` and `due_in`. A search resets
        // `next`, then a block's word, then reads the segments' seconds; this column stores in the
        // opposite order. If the search resets a word after a store by this column, the search then
        // reads the segment's new second. Otherwise the store stays for the next search.
        self.blocks.word((segment / BLOCK) as usize).fetch_max(early(due), Ordering::Release);
        self.next.fetch_min(due, Ordering::Release);
    }

    /// True if a segment may be due at `now`. May overlook a second that is noted at the same time.
    #[inline]
    pub(crate) fn may_be_due(&self, now: u32) -> bool {
        self.next.load(Ordering::Relaxed) <= now // a hint
    }

    /// Returns an open or sealed segment that is due at `now`. Later calls may return the same
    /// segment, until a column claims the segment or notes another due second for it.
    pub(crate) fn due(&self, segments: &Segments, now: u32) -> Option<u32> {
        if !self.may_be_due(now) {
            return None;
        }
        self.next.swap(NEVER, Ordering::Acquire); // pairs with `announce`
        let (mut found, mut next) = (None, 0);
        for block in 0..segments.count().div_ceil(BLOCK) {
            let at = self.blocks.word(block as usize);
            if found.is_none() && at.load(Ordering::Relaxed) >= early(now) {
                found = self.due_in(segments, block, now);
            }
            // Relaxed, for both loads of `at`: the swap of `next` orders these loads.
            next = next.max(at.load(Ordering::Relaxed));
        }
        self.next.fetch_min(NEVER - u32::try_from(next).unwrap_or(NEVER), Ordering::Release);
        found
    }

    fn due_in(&self, segments: &Segments, block: u32, now: u32) -> Option<u32> {
        let at = self.blocks.word(block as usize);
        at.swap(0, Ordering::Acquire); // pairs with `announce`
        let first = block * BLOCK;
        let (mut found, mut earliest) = (None, NEVER);
        for segment in first..(first + BLOCK).min(segments.count()) {
            let there = segments.get(segment);
            let due = there.due();
            if due == NEVER || !(there.is(State::Sealed) || there.is(State::Open)) {
                continue; // the column that ends the claim notes the due second again
            }
            if due + u32::from(plant::is(Fault::DueOneLate)) <= now {
                found = found.or(Some(segment));
            }
            earliest = earliest.min(due);
        }
        at.fetch_max(early(earliest), Ordering::Release); // as in `announce`
        found
    }
}

/// The number of seconds from `due` to `NEVER`. An earlier `due` gives a larger number.
fn early(due: u32) -> u64 {
    u64::from(NEVER - due)
}

#[cfg(all(any(debug_assertions, shuttle), not(loom)))]
impl Calendar {
    /// Checks that `due` will find a sealed segment in the segment's due second.
    pub(crate) fn audit(&self, segments: &Segments, segment: u32, faults: &mut Vec<String>) {
        let due = segments.get(segment).due();
        let block = self.blocks.word((segment / BLOCK) as usize).load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Relaxed);
        if due != NEVER && (block < early(due) || next > due) {
            faults.push(format!(
                "segment {segment} is due in second {due}, but the calendar misses it (next \
                 search: second {next})"
            ));
        }
        if due == NEVER && segments.get(segment).is_uncounted() {
            faults.push(format!("segment {segment} is marked as uncounted, but is never due"));
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::expect_used, reason = "a test")]
mod tests {
    use super::*;
    use memory::segments::Opening;

    fn open(count: u32) -> (Segments, Calendar) {
        let segments = Segments::new(count, count).expect("address space");
        let calendar = Calendar::new(count).expect("address space");
        (0..count).for_each(|segment| segments.get(segment).open(Opening::default()));
        (segments, calendar)
    }

    fn take(segments: &Segments, calendar: &Calendar, now: u32) -> Vec<u32> {
        let due = || {
            let segment = calendar.due(segments, now)?;
            calendar.note(segments, segment, NEVER);
            Some(segment)
        };
        std::iter::from_fn(due).collect()
    }

    #[test]
    fn each_is_due_in_its_second() {
        let (segments, calendar) = open(200);
        for segment in 0..200 {
            calendar.note(&segments, segment, 10 + segment % 7);
        }
        assert_eq!(calendar.due(&segments, 9), None);
        for second in 10..17 {
            let due: Vec<_> = (0..200).filter(|segment| 10 + segment % 7 == second).collect();
            assert_eq!(take(&segments, &calendar, second), due);
        }
        assert_eq!(calendar.next.load(Ordering::Relaxed), NEVER);
    }

    #[test]
    fn the_latest_note_counts_and_earlier_ones_do_no_harm() {
        let (segments, calendar) = open(70);
        calendar.note(&segments, 65, 10);
        calendar.note(&segments, 65, 20);
        calendar.note_earlier(&segments, 65, 30);
        calendar.note_earlier(&segments, 66, 15);
        assert_eq!(take(&segments, &calendar, 14), []);
        assert_eq!(take(&segments, &calendar, 15), [66]);
        assert_eq!(take(&segments, &calendar, 100), [65]);
    }

    #[test]
    fn what_is_drained_is_not_due() {
        let (segments, calendar) = open(3);
        calendar.note(&segments, 1, 10);
        calendar.note(&segments, 2, 11);
        segments.get(1).set_state(State::Draining);
        assert_eq!(take(&segments, &calendar, 50), [2]);
        calendar.note(&segments, 1, 12);
        segments.get(1).set_state(State::Sealed);
        assert_eq!(take(&segments, &calendar, 50), [1], "the segment was sealed again");
    }

    #[test]
    fn what_is_noted_while_it_is_drained_is_not_forgotten() {
        let (segments, calendar) = open(3);
        segments.get(1).set_state(State::Draining);
        calendar.note_earlier(&segments, 1, 20);
        calendar.note(&segments, 2, 10);
        assert_eq!(take(&segments, &calendar, 15), [2], "the search visits all three segments");
        segments.get(1).set_state(State::Sealed);
        calendar.note_unclaimed(&segments, 1, 40);
        assert_eq!(take(&segments, &calendar, 19), []);
        assert_eq!(take(&segments, &calendar, 20), [1]);
    }
}

/// Run these tests by `RUSTFLAGS="--cfg loom" cargo test --release -p hypostyle-store --lib`.
#[cfg(all(test, loom))]
mod under_loom {
    use super::*;
    use loom::{sync::Arc, thread};
    use memory::segments::Opening;

    #[test]
    fn no_note_is_lost_to_a_look() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let segments = Segments::new(2, 2).expect("memory");
            let shared = Arc::new((segments, Calendar::new(2).expect("memory")));
            let (segments, calendar) = &*shared;
            (0..2).for_each(|segment| segments.get(segment).open(Opening::default()));
            calendar.note(segments, 0, 20);
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.1.note(&shared.0, 1, 10))
            };
            let early = calendar.due(segments, 10);
            other.join().expect("notes");
            assert_eq!(calendar.due(segments, 10), Some(1), "first {early:?}");
            calendar.note(segments, 1, NEVER);
            assert_eq!(calendar.due(segments, 19), None);
            assert_eq!(calendar.due(segments, 20), Some(0));
        });
    }
}
