//! Counts of a driving thread that are read while the thread runs. Response times are accurate to 6
//! %.
//!
//! ```text
//! driving thread -> LiveCounts (counts, buckets of times) <- live view, about 4 times a second
//! ```
//!
//! Where: `Score` updates these counts together with the tally.
//! Invariant: one thread writes the counts, without waiting, allocating or locking. Counts only
//! grow. Each count is exact, but the counts of a snapshot are not read at the same instant.
//! Source: HdrHistogram's log-linear buckets, here 16 for each doubling.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets for each doubling of the time.
const PARTS: usize = 1 << PARTS_LOG2;
const PARTS_LOG2: u32 = 4;
/// Number of doublings above `PARTS` ns. The buckets reach 137 s, which is more than any timeout.
const DOUBLINGS: usize = 33;
const BUCKETS: usize = (DOUBLINGS + 1) * PARTS;
const COUNTS: usize = 6;

/// One of the live counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Requests that fell due (open loop).
    Offered,
    /// Requests sent.
    Sent,
    /// Requests that were given up, or answered with an error or a wrong value.
    Failed,
    /// Keys that a get found.
    Hits,
    /// Keys that a get did not find.
    Misses,
    /// Requests that have ended, answered or given up.
    Over,
}

/// The live counts of one thread. Only that thread calls the methods that change them.
pub struct LiveCounts {
    counts: [AtomicU64; COUNTS],
    late: AtomicU64,
    times: [AtomicU64; BUCKETS],
    longest_ns: AtomicU64,
}

impl Default for LiveCounts {
    fn default() -> LiveCounts {
        LiveCounts {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            late: AtomicU64::new(0),
            times: [const { AtomicU64::new(0) }; BUCKETS],
            longest_ns: AtomicU64::new(0),
        }
    }
}

impl fmt::Debug for LiveCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveCounts").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Adds without an atomic read-modify-write instruction, because only one thread writes.
#[inline]
fn raise(cell: &AtomicU64, by: u64) {
    // Relaxed accesses are enough: the counter publishes no other data.
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl LiveCounts {
    #[inline]
    pub(super) fn add(&self, what: Count, by: u64) {
        raise(&self.counts[what as usize], by);
    }

    /// Counts a request that was given up as late.
    pub(super) fn record_given_up(&self) {
        raise(&self.late, 1);
    }

    #[inline]
    pub(super) fn record(&self, ns: u64, late_limit_ns: u64) {
        raise(&self.times[bucket(ns)], 1);
        if ns > late_limit_ns {
            raise(&self.late, 1);
        }
        // Relaxed accesses are enough: the maximum publishes no other data. If a reader resets the
        // maximum after the load, `ns` may not be stored.
        if ns > self.longest_ns.load(Ordering::Relaxed) {
            self.longest_ns.store(ns, Ordering::Relaxed);
        }
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    let doubling = (ns | PARTS as u64).ilog2() - PARTS_LOG2;
    // The shift leaves a number below `2 * PARTS`, so the conversion never fails.
    let part = usize::try_from(ns >> doubling).unwrap_or(BUCKETS);
    (doubling as usize * PARTS + part).min(BUCKETS - 1)
}

/// Returns the longest time that belongs to a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let (doubling, part) = match bucket {
        at if at < 2 * PARTS => (0, at),
        at => (at / PARTS - 1, at % PARTS + PARTS),
    };
    ((part as u64 + 1) << doubling) - 1
}

/// The sum of several threads' live counts: since the start, or between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveSnapshot {
    counts: [u64; COUNTS],
    /// Number of responses that exceeded the latency limit, plus requests given up.
    pub late: u64,
    times: Vec<u64>,
    /// The longest response time since the previous snapshot.
    pub longest_ns: u64,
}

impl Default for LiveSnapshot {
    fn default() -> LiveSnapshot {
        LiveSnapshot { counts: [0; COUNTS], late: 0, times: vec![0; BUCKETS], longest_ns: 0 }
    }
}

impl LiveSnapshot {
    /// Adds up the current counts of all threads, and resets each thread's `longest_ns` to 0.
    pub(crate) fn of<'p>(live_counts: impl IntoIterator<Item = &'p LiveCounts>) -> LiveSnapshot {
        // Relaxed loads are enough: no count depends on another.
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let mut snapshot = LiveSnapshot::default();
        for counts in live_counts {
            for (sum, cell) in snapshot.counts.iter_mut().zip(&counts.counts) {
                *sum += load(cell);
            }
            for (sum, cell) in snapshot.times.iter_mut().zip(&counts.times) {
                *sum += load(cell);
            }
            snapshot.late += load(&counts.late);
            let longest = counts.longest_ns.swap(0, Ordering::Relaxed);
            snapshot.longest_ns = snapshot.longest_ns.max(longest);
        }
        snapshot
    }

    pub(crate) fn add(&mut self, other: &LiveSnapshot) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        for (sum, count) in counts.chain(self.times.iter_mut().zip(&other.times)) {
            *sum += count;
        }
        self.late += other.late;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns the counts since an earlier snapshot. `longest_ns` is copied from the later
    /// snapshot.
    pub(crate) fn since(&self, before: &LiveSnapshot) -> LiveSnapshot {
        let mut snapshot = self.clone();
        let counts = snapshot.counts.iter_mut().zip(&before.counts);
        for (now, then) in counts.chain(snapshot.times.iter_mut().zip(&before.times)) {
            *now = now.saturating_sub(*then);
        }
        snapshot.late = snapshot.late.saturating_sub(before.late);
        snapshot
    }

    /// Returns one count.
    pub(crate) fn count(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// Number of responses.
    pub(crate) fn answered(&self) -> u64 {
        self.times.iter().sum()
    }

    /// Number of requests in flight.
    pub(crate) fn under_way(&self) -> u64 {
        self.count(Count::Sent).saturating_sub(self.count(Count::Over))
    }

    /// The time that a `share` of the responses does not exceed, rounded up to the end of its
    /// bucket. `None` without responses.
    pub(crate) fn quantile_ns(&self, share: f64) -> Option<u64> {
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
        let live_counts = [LiveCounts::default(), LiveCounts::default()];
        for (at, counts) in live_counts.iter().enumerate() {
            counts.add(Count::Sent, 500);
            for us in 0..100 {
                counts.record((us + 1) * 1000, 98_000);
                counts.add(Count::Over, 1);
            }
            counts.add(Count::Hits, 30 + at as u64);
        }
        let first = LiveSnapshot::of(&live_counts);
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
        live_counts[1].record(7_000, 98_000);
        live_counts[0].record_given_up();
        let now = LiveSnapshot::of(&live_counts);
        let since = now.since(&first);
        assert_eq!((since.answered(), since.late, since.longest_ns), (1, 1, 7_000));
        assert_eq!((since.count(Count::Sent), now.under_way()), (0, 800));
        assert_eq!(now.since(&now).quantile_ns(0.5), None);
    }
}
