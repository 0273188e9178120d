//! What can be seen of a driving thread between two reports: counters, and times to within 6 %.
//!
//! ```text
//! driving thread: Pulse (counts, buckets of times) <- read ~4 times a second by who shows them
//! ```
//!
//! Where: written by the score, beside the tally. Invariant: one thread writes a pulse and never
//! waits, allocates or takes turns for it; who reads sees counts that only grow, each by itself
//! exact, all together as of about the same moment.
//! Source: HdrHistogram's log-linear buckets, with four binary digits.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of each doubling.
const PARTS: usize = 1 << PARTS_LOG2;
const PARTS_LOG2: u32 = 4;
/// Doublings above `PARTS` ns that are told apart: up to 137 s, more than any timeout.
const DOUBLINGS: usize = 33;
/// Buckets in all.
const BUCKETS: usize = (DOUBLINGS + 1) * PARTS;
/// Things counted.
const COUNTS: usize = 6;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Requests that fell due (open loop).
    Offered,
    /// Requests sent.
    Sent,
    /// Requests given up, answered by an error or with a wrong value.
    Failed,
    /// Keys that had a value.
    Hits,
    /// Keys that had none.
    Misses,
    /// Requests that are over, answered or not.
    Over,
}

/// One thread's. Only that thread calls what changes it.
pub struct Pulse {
    counts: [AtomicU64; COUNTS],
    late: AtomicU64,
    /// Responses by time.
    times: [AtomicU64; BUCKETS],
    longest_ns: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            late: AtomicU64::new(0),
            times: [const { AtomicU64::new(0) }; BUCKETS],
            longest_ns: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Adds without a locked instruction: nobody else writes here.
#[inline]
fn raise(cell: &AtomicU64, by: u64) {
    // Relaxed, both: the counter is read for itself alone, and only by people's eyes.
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Pulse {
    /// Counts.
    #[inline]
    pub(super) fn add(&self, what: Count, by: u64) {
        raise(&self.counts[what as usize], by);
    }

    /// A request was given up: it is late.
    pub(super) fn gave_up(&self) {
        raise(&self.late, 1);
    }

    /// A response took so long.
    #[inline]
    pub(super) fn took(&self, ns: u64, late_limit_ns: u64) {
        raise(&self.times[bucket(ns)], 1);
        if ns > late_limit_ns {
            raise(&self.late, 1);
        }
        // Relaxed, both: as in `raise`. A reader that resets it in between loses one maximum.
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(ns, Ordering::Relaxed);
        }
    }
}

/// Whose bucket a time is.
#[inline]
fn bucket(ns: u64) -> usize {
    let doubling = (ns | PARTS as u64).ilog2() - PARTS_LOG2;
    // Of 64 bits as many are left as a bucket's number has.
    let part = usize::try_from(ns >> doubling).unwrap_or(BUCKETS);
    (doubling as usize * PARTS + part).min(BUCKETS - 1)
}

/// The longest time of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (doubling, part) = match bucket {
        at if at < 2 * PARTS => (0, at),
        at => (at / PARTS - 1, at % PARTS + PARTS),
    };
    ((part as u64 + 1) << doubling) - 1
}

/// What pulses showed at a moment, or between two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    counts: [u64; COUNTS],
    /// Responses later than the target, and requests given up.
    pub late: u64,
    times: Vec<u64>,
    /// The longest response since somebody looked before.
    pub longest_ns: u64,
}

impl Default for Sight {
    fn default() -> Sight {
        Sight { counts: [0; COUNTS], late: 0, times: vec![0; BUCKETS], longest_ns: 0 }
    }
}

impl Sight {
    /// What all of them show now.
    pub fn of<'p>(pulses: impl IntoIterator<Item = &'p Pulse>) -> Sight {
        // Relaxed, all: pair with the writer's stores; each count is taken for itself.
        let seen = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let mut sight = Sight::default();
        for pulse in pulses {
            for (sum, cell) in sight.counts.iter_mut().zip(&pulse.counts) {
                *sum += seen(cell);
            }
            for (sum, cell) in sight.times.iter_mut().zip(&pulse.times) {
                *sum += seen(cell);
            }
            sight.late += seen(&pulse.late);
            let longest = pulse.longest_ns.swap(0, Ordering::Relaxed);
            sight.longest_ns = sight.longest_ns.max(longest);
        }
        sight
    }

    /// Adds what others show.
    pub(crate) fn add(&mut self, other: &Sight) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        for (sum, count) in counts.chain(self.times.iter_mut().zip(&other.times)) {
            *sum += count;
        }
        self.late += other.late;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// What came since an earlier sight. The longest is this one's.
    #[must_use]
    pub fn since(&self, before: &Sight) -> Sight {
        let mut sight = self.clone();
        let counts = sight.counts.iter_mut().zip(&before.counts);
        for (now, then) in counts.chain(sight.times.iter_mut().zip(&before.times)) {
            *now = now.saturating_sub(*then);
        }
        sight.late = sight.late.saturating_sub(before.late);
        sight
    }

    /// A count.
    #[must_use]
    pub fn count(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// Responses.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.times.iter().sum()
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.count(Count::Sent).saturating_sub(self.count(Count::Over))
    }

    /// The time that this share of the responses took at most, to within a bucket and no longer
    /// than the longest; none of none.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let answered = self.answered();
        let wanted = (answered as f64 * share).max(1.0);
        let mut below = 0;
        let reached = self.times.iter().position(|count| {
            below += count;
            below as f64 >= wanted
        });
        let reached_ns = reached.filter(|_| answered > 0).map(upper_ns);
        reached_ns.map(|ns| if self.longest_ns > 0 { ns.min(self.longest_ns) } else { ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_its_bucket_and_no_bucket_is_wide() {
        let mut last = 0;
        for at in 0..BUCKETS - 1 {
            let upper = upper_ns(at);
            assert_eq!((bucket(upper), bucket(upper + 1)), (at, at + 1), "{at}");
            assert!(upper - last <= 1 + last / PARTS as u64, "{at}: {last} to {upper}");
            last = upper;
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert!(last > 100_000_000_000, "{last}");
    }

    #[test]
    fn what_was_counted_is_seen_once() {
        let pulses = [Pulse::default(), Pulse::default()];
        for (at, pulse) in pulses.iter().enumerate() {
            pulse.add(Count::Sent, 500);
            for us in 0..100 {
                pulse.took((us + 1) * 1000, 98_000);
                pulse.add(Count::Over, 1);
            }
            pulse.add(Count::Hits, 30 + at as u64);
        }
        let first = Sight::of(&pulses);
        assert_eq!((first.answered(), first.under_way(), first.late), (200, 800, 4));
        assert_eq!((first.count(Count::Hits), first.longest_ns), (61, 100_000));
        let near = |share: f64, us: f64| {
            let ns = first.quantile_ns(share).unwrap() as f64;
            assert!((ns / 1000.0 / us - 1.0).abs() < 0.07, "{share}: {ns}");
        };
        near(0.5, 50.0);
        near(0.99, 99.0);
        near(1.0, 100.0);
        near(0.0, 1.0);
        pulses[1].took(7_000, 98_000);
        pulses[0].gave_up();
        let now = Sight::of(&pulses);
        let since = now.since(&first);
        assert_eq!((since.answered(), since.late, since.longest_ns), (1, 1, 7_000));
        assert_eq!((since.count(Count::Sent), now.under_way()), (0, 800));
        assert_eq!(now.since(&now).quantile_ns(0.5), None);
    }
}
