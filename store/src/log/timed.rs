//! Open segments for items that expire. A segment gets items of similar life (the time until an
//! item expires), so that its items expire together, and it is freed without moving any item.
//!
//! Where: the log asks here for the segment to which an item with an exptime is appended.
//! Invariant: an item goes to a segment of its class or of a class of longer lives, so no item of a
//! segment lives longer than the segment's class says. If no such segment is open, the item goes to
//! a segment of items that do not expire.
//! Source: Segcache's TTL buckets (Yang, Yue and Rashmi, NSDI 2021).
//!
//! The lives in one class differ by a quarter at most. The memory of a segment is freed when its
//! last item has expired; if the segment was filled at once, its items have by then been dead for a
//! ninth of their lives on average. Each life below 8 seconds has a class of its own; longer lives
//! have three classes for each doubling, and the last class has all lives from 38 days on.

use memory::nodes::Nodes;
use memory::segments::NONE;
use memory::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of classes: one for each bit of a word.
pub(super) const CLASSES: u32 = 64;
/// Each life of fewer seconds than this number has a class of its own.
const SINGLE_SECONDS: u32 = 8;
/// The first class that covers a third of an octave. An octave is a doubling of the life.
const FIRST_PART: u32 = SINGLE_SECONDS - 1;
/// The starts of the second and the third part of an octave: 2^(1/3) and 2^(2/3), times `OCTAVE`.
const OCTAVE: u64 = 1 << 16;
const PARTS: [u64; 2] = [82_570, 104_032];

pub(super) fn class_of(seconds: u32) -> u32 {
    if seconds < SINGLE_SECONDS {
        return seconds.max(1) - 1;
    }
    let octave = seconds.ilog2();
    let within = (u64::from(seconds) * OCTAVE) >> octave;
    let part = u32::from(within >= PARTS[0]) + u32::from(within >= PARTS[1]);
    (FIRST_PART + 3 * (octave - SINGLE_SECONDS.ilog2()) + part).min(CLASSES - 1)
}

/// The stripe of each appender. If there are enough `stripes`, no two nodes share a stripe.
pub(super) fn stripes_of(nodes: &Nodes, appenders: u32, stripes: u32) -> Box<[usize]> {
    let (of_nodes, stripes) = (nodes.count(), stripes as usize);
    let mut seen = vec![0; of_nodes];
    let stripe = |appender: usize| {
        if stripes < of_nodes {
            return appender % stripes;
        }
        // A stripe belongs to the node whose number is the stripe modulo `of_nodes`.
        let node = nodes.of_column(appender);
        let rank = seen[node] % (stripes / of_nodes);
        seen[node] += 1;
        node + of_nodes * rank
    };
    (0..appenders as usize).map(stripe).collect()
}

/// The open segments of one queue: one for each stripe and class.
#[derive(Debug)]
pub(super) struct OpenByClass {
    open: Box<[AtomicU32]>,
    /// For each stripe, a word with a bit for each class that seems to have an open segment.
    some: Box<[AtomicU64]>,
}

impl OpenByClass {
    pub(super) fn new(stripes: u32) -> Self {
        let classes = stripes * CLASSES;
        Self {
            open: (0..classes).map(|_| AtomicU32::new(NONE)).collect(),
            some: (0..stripes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn stripes(&self) -> usize {
        self.some.len()
    }

    pub(super) fn of(&self, stripe: usize, class: u32) -> u32 {
        // Acquire pairs with the Release in `replace`, so the segment's fields are visible.
        self.at(stripe, class).load(Ordering::Acquire)
    }

    /// The first class, from `class` on, that seems to have an open segment.
    pub(super) fn at_least(&self, stripe: usize, class: u32) -> Option<u32> {
        let some = self.some[stripe].load(Ordering::Relaxed); // only a hint
        let longer = some & u64::MAX.checked_shl(class).unwrap_or(0);
        (longer != 0).then(|| longer.trailing_zeros())
    }

    pub(super) fn count(&self, stripe: usize) -> u32 {
        self.some[stripe].load(Ordering::Relaxed).count_ones() // only a hint
    }

    /// Replaces `before`, a class's open segment, by `segment`. False: `before` is not open now.
    pub(super) fn replace(&self, stripe: usize, class: u32, before: u32, segment: u32) -> bool {
        // AcqRel: Release pairs with the Acquire in `of`.
        let at = self.at(stripe, class);
        let replaced =
            at.compare_exchange(before, segment, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if replaced {
            self.mark(stripe, class);
        }
        replaced
    }

    pub(super) fn close(&self, class: u32, segment: u32) {
        for stripe in 0..self.stripes() {
            self.replace(stripe, class, segment, NONE);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        // Acquire pairs with the Release in `replace`.
        self.open.iter().map(|at| at.load(Ordering::Acquire)).filter(|segment| *segment != NONE)
    }

    /// Updates the bit that tells if a class has an open segment. If two columns update it at once,
    /// the bit may stay wrong until the class's next segment is opened or sealed.
    fn mark(&self, stripe: usize, class: u32) {
        let some = &self.some[stripe];
        // Relaxed: the bit is only a hint.
        match self.at(stripe, class).load(Ordering::Relaxed) {
            NONE => some.fetch_and(!(1 << class), Ordering::Relaxed),
            _ => some.fetch_or(1 << class, Ordering::Relaxed),
        };
    }

    fn at(&self, stripe: usize, class: u32) -> &AtomicU32 {
        &self.open[stripe * CLASSES as usize + class as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn appenders_of_one_node_share_stripes_that_those_of_another_do_not_have() {
        let two = Nodes::new(&[0, 1, 1, 0, 0], |_, _| 20);
        let stripes = |nodes: &Nodes, stripes| stripes_of(nodes, 5, stripes).into_vec();
        assert_eq!(stripes(&two, 5), [0, 1, 3, 2, 0]);
        assert_eq!(stripes(&two, 2), [0, 1, 1, 0, 0]);
        assert_eq!(stripes(&two, 1), [0; 5]);
        assert_eq!(stripes(&Nodes::default(), 3), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn classes_are_in_order_and_a_quarter_wide() {
        assert_eq!((class_of(0), class_of(1), class_of(2)), (0, 0, 1));
        assert_eq!((class_of(7), class_of(8)), (6, 7));
        assert_eq!(class_of(u32::MAX), CLASSES - 1);
        let month = 30 * 86_400;
        assert!(class_of(month) < CLASSES - 1);
        let (mut class, mut first) = (0, 1);
        for seconds in 1..month {
            let next = class_of(seconds);
            assert!(next == class || next == class + 1, "{seconds}: {class}, then {next}");
            if next != class {
                (class, first) = (next, seconds);
            }
            // Rounding to whole seconds makes a class wider by less than a second.
            assert!(seconds < first + 1 + first * 27 / 100, "{seconds} with {first}");
        }
    }

    #[test]
    fn those_that_live_longer_are_found() {
        let timed = OpenByClass::new(2);
        assert_eq!(timed.at_least(0, 0), None);
        assert!(timed.replace(0, 5, NONE, 70) && timed.replace(0, 63, NONE, 71));
        assert!(!timed.replace(0, 5, NONE, 72), "70 is there");
        assert_eq!((timed.at_least(0, 0), timed.at_least(0, 5)), (Some(5), Some(5)));
        assert_eq!((timed.at_least(0, 6), timed.at_least(1, 0)), (Some(63), None));
        assert_eq!((timed.of(0, 5), timed.count(0), timed.count(1)), (70, 2, 0));
        timed.close(5, 70);
        assert_eq!((timed.of(0, 5), timed.at_least(0, 0)), (NONE, Some(63)));
        assert_eq!(timed.all().collect::<Vec<_>>(), [71]);
    }
}
