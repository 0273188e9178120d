//! Counts each connection's answers by response time: is one connection served worse than others?
//!
//! ```text
//! bucket 0                 below 1,024 ns
//! bucket 1 + 8 o + e       from 2^(10 + o) (1 + e / 8) ns on: octave o has 8 buckets, e = 0 to 7
//! ```
//!
//! Where: in each tally. The receiving half of a connection counts the answers.
//! Invariant: an answer counts in one bucket of one connection. A connection's number is less than
//! `CONNECTIONS_APART_MAX`, so that merged counts stay small too. In a run with more connections,
//! no connection is counted separately.
//! Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
//! Allocation in Shared Computer Systems" (1984), for the index of fairness.

use super::times::TIME_NS_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt::Write as _;
use std::ops::Range;

/// If all threads together have more connections than this, no answers are counted here.
pub(crate) const CONNECTIONS_APART_MAX: u32 = 256;

/// Number of bits of a time that choose a bucket within an octave. With 3 bits, the longest time of
/// a bucket exceeds the shortest by at most 12.5 %.
const EIGHTHS_BITS: u32 = 3;
/// Times below 2^`FIRST_BITS` ns share the first bucket.
const FIRST_BITS: u32 = 10;
/// Number of octaves from 2^`FIRST_BITS` ns up to the octave of `TIME_NS_MAX`. The last bucket also
/// counts all longer times.
const OCTAVES: u32 = TIME_NS_MAX.ilog2() + 1 - FIRST_BITS;
const BUCKETS: usize = 1 + ((OCTAVES as usize) << EIGHTHS_BITS);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Connection {
    /// The connection's number among all connections of all threads.
    number: u32,
    /// Number of answers in each bucket.
    answers: [u64; BUCKETS],
}

/// The answers of each connection, in ascending order of the connections' numbers. A connection
/// that is opened again keeps its number. Over UDP, a connection is a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections(Vec<Connection>);

#[inline]
fn bucket(ns: u64) -> usize {
    if ns >> FIRST_BITS == 0 {
        return 0;
    }
    let octave = ns.ilog2();
    let eighth = (ns >> (octave - EIGHTHS_BITS)) & ((1 << EIGHTHS_BITS) - 1);
    let before = u64::from(octave - FIRST_BITS) << EIGHTHS_BITS;
    #[expect(clippy::cast_possible_truncation, reason = "an octave is at most 63")]
    let bucket = (1 + before + eighth) as usize;
    bucket.min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn longest_ns(bucket: usize) -> u64 {
    let (octave, eighth) = (bucket >> EIGHTHS_BITS, bucket & ((1 << EIGHTHS_BITS) - 1));
    let eighths = (1 << EIGHTHS_BITS) + eighth as u64;
    (eighths << octave << (FIRST_BITS - EIGHTHS_BITS)) - 1
}

impl Connection {
    fn new(number: u32) -> Connection {
        Connection { number, answers: [0; BUCKETS] }
    }

    fn answered(&self) -> u64 {
        self.answers.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// A time that the share `quantile` of the answers did not exceed; `None` without answers.
    fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let wanted = self.answered() as f64 * quantile;
        let mut sum = 0;
        let mut counted = self.answers.iter().enumerate().filter(|(_, count)| **count > 0);
        let found = counted.find(|(_, count)| {
            sum += **count;
            sum as f64 >= wanted
        });
        found.map(|(bucket, _)| longest_ns(bucket))
    }

    /// `NUMBER BUCKET:ANSWERS,ANSWERS,... BUCKET:...`: `BUCKET` begins a run of non-empty buckets.
    fn text(&self) -> String {
        let (mut text, mut before) = (self.number.to_string(), 0);
        for (bucket, count) in self.answers.iter().enumerate() {
            let _ = match (before, count) {
                (_, 0) => Ok(()),
                (0, _) => write!(text, " {bucket}:{count}"),
                _ => write!(text, ",{count}"),
            };
            before = *count;
        }
        text
    }

    /// Parses a text that the method `text` wrote. Returns `None` for any other text.
    fn read(text: &str) -> Option<Connection> {
        let mut words = text.split(' ');
        let number = words.next()?.parse().ok().filter(|number| *number < CONNECTIONS_APART_MAX)?;
        let mut read = Connection::new(number);
        for word in words {
            let (first, counts) = word.split_once(':')?;
            let first = usize::from(first.parse::<u16>().ok()?);
            for (bucket, count) in (first..).zip(counts.split(',')) {
                *read.answers.get_mut(bucket)? = count.parse().ok()?;
            }
        }
        Some(read)
    }
}

impl Connections {
    /// Returns connections without answers. `numbers` must be ascending ranges that do not overlap.
    pub(crate) fn new(numbers: impl Iterator<Item = Range<u32>>) -> Connections {
        Connections(numbers.flatten().map(Connection::new).collect())
    }

    /// Returns the same connections with all counts set to 0.
    pub(crate) fn without_answers(&self) -> Connections {
        Connections(self.0.iter().map(|one| Connection::new(one.number)).collect())
    }

    /// Counts `count` answers of the connection at the index `at`, if there is such a connection.
    #[inline]
    pub fn record(&mut self, at: u32, response_ns: u64, count: u64) {
        if let Some(connection) = self.0.get_mut(at as usize) {
            connection.answers[bucket(response_ns)] += count;
        }
    }

    /// Adds all answers of `other` to the connections with the same numbers.
    pub fn merge(&mut self, other: &Connections) {
        for theirs in &other.0 {
            match self.0.binary_search_by_key(&theirs.number, |ours| ours.number) {
                Err(at) => self.0.insert(at, theirs.clone()),
                Ok(at) => {
                    let pairs = self.0[at].answers.iter_mut().zip(theirs.answers);
                    pairs.for_each(|(ours, theirs)| *ours = ours.saturating_add(theirs));
                }
            }
        }
    }

    /// Number of connections that are counted separately: all connections of the run, or 0.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The connections' numbers among all connections of all threads.
    #[cfg(test)]
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|one| one.number)
    }

    /// Number of answers of all connections together.
    #[cfg(test)]
    pub(crate) fn answered(&self) -> u64 {
        self.0.iter().map(Connection::answered).sum()
    }

    /// Jain's index: 1 if all connections have the same number of answers, and 1/n if one of n
    /// connections has all answers. `None` without answers.
    pub(crate) fn fairness(&self) -> Option<f64> {
        let counts = || self.0.iter().map(|one| one.answered() as f64);
        let (sum, squares) = (counts().sum::<f64>(), counts().map(|count| count * count));
        (sum > 0.0).then(|| sum * sum / (self.0.len() as f64 * squares.sum::<f64>()))
    }

    /// The smallest and the largest number of answers of a connection. `None` without connections.
    pub(crate) fn answered_range(&self) -> Option<(u64, u64)> {
        let counts = || self.0.iter().map(Connection::answered);
        counts().min().zip(counts().max())
    }

    /// The highest 99th percentile of response times that a connection has. The result is never too
    /// low, and at most 12.5 % too high. `None` without answers.
    pub(crate) fn worst_p99_ns(&self) -> Option<u64> {
        self.0.iter().filter_map(|one| one.quantile_ns(0.99)).max()
    }
}

/// The JSON form. All fields except `each` are computed from `each`.
#[derive(Serialize)]
struct Written {
    count: usize,
    fairness: Option<f64>,
    answered_min: Option<u64>,
    answered_max: Option<u64>,
    worst_p99_ns: Option<u64>,
    each: Vec<String>,
}

#[derive(Deserialize)]
struct Read {
    each: Vec<String>,
}

impl Serialize for Connections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (answered_min, answered_max) = self.answered_range().unzip();
        Written {
            count: self.len(),
            fairness: self.fairness(),
            answered_min,
            answered_max,
            worst_p99_ns: self.worst_p99_ns(),
            each: self.0.iter().map(Connection::text).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Connections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Connections, D::Error> {
        let mut read = Connections::default();
        for text in Read::deserialize(deserializer)?.each {
            let one = Connection::read(&text);
            let is_next = |one: &Connection| read.0.last().is_none_or(|l| l.number < one.number);
            let one = one.filter(is_next).ok_or_else(|| {
                de::Error::custom(
                    "the counts of a connection's answers do not have the form that kvblaster \
                     writes",
                )
            })?;
            read.0.push(one);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns connections `numbers`: connection n has `answers(n)` answers of `ns(n)` each.
    fn made(
        numbers: Range<u32>,
        answers: impl Fn(u32) -> u64,
        ns: impl Fn(u32) -> u64,
    ) -> Connections {
        let mut made = Connections::new(std::iter::once(numbers.clone()));
        for (at, number) in (0..).zip(numbers) {
            made.record(at, ns(number), answers(number));
        }
        made
    }

    #[test]
    fn a_bucket_is_at_most_an_eighth_wide_and_has_its_bounds() {
        let mut before = None;
        for bucket in 0..BUCKETS {
            let last = longest_ns(bucket);
            assert_eq!(super::bucket(last), bucket, "{last}");
            if let Some(before) = before {
                assert_eq!(super::bucket(before + 1), bucket);
                assert!((last - before) * 8 <= before + 1, "{before} to {last}");
            }
            before = Some(last);
        }
        assert_eq!((super::bucket(0), super::bucket(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!((longest_ns(0), longest_ns(BUCKETS - 1)), (1023, (1 << 37) - 1));
    }

    #[test]
    fn fairness_falls_with_the_share_of_those_who_get_much() {
        let index = |answers: fn(u32) -> u64| made(0..10, answers, |_| 1).fairness();
        assert_eq!(index(|_| 7), Some(1.0));
        // First, one of ten connections has all answers. Then five connections have one answer each
        // and five have three: 20² / (10 * 50).
        assert_eq!(index(|number| u64::from(number == 4)), Some(0.1));
        assert_eq!(index(|number| 1 + 2 * u64::from(number % 2)), Some(0.8));
        assert_eq!((index(|_| 0), Connections::default().fairness()), (None, None));
    }

    #[test]
    fn the_worst_connection_is_seen_though_it_has_few_of_all_answers() {
        // All ten answers of one connection are slow, and the other 90,000 answers are fast.
        let slow = |number| if number == 3 { 9_000_000 } else { 20_000 };
        let all = made(0..10, |number| if number == 3 { 10 } else { 10_000 }, slow);
        let worst = all.worst_p99_ns().unwrap();
        assert!((9_000_000..=10_125_000).contains(&worst), "{worst}");
        assert_eq!(all.answered_range(), Some((10, 10_000)));
        // One slow answer in a hundred does not change the p99, but two slow answers do.
        let mut one = made(0..1, |_| 99, |_| 20_000);
        one.record(0, 9_000_000, 1);
        assert!(one.worst_p99_ns().unwrap() < 22_500);
        one.record(0, 9_000_000, 1);
        assert!(one.worst_p99_ns().unwrap() > 9_000_000);
    }

    #[test]
    fn parts_merged_are_the_whole_and_connections_that_are_not_kept_are_not_counted() {
        let (count, ns) = (|number: u32| u64::from(number) * 3 + 1, |n: u32| u64::from(n) << 12);
        let mut merged = made(20..30, count, ns);
        // Merges another thread's connections, and then a later report of the first thread's
        // connections.
        merged.merge(&made(0..20, count, ns));
        merged.merge(&made(20..30, |_| 5, |_| 1 << 30));
        let mut whole = made(0..30, count, ns);
        (20..30).for_each(|at| whole.record(at, 1 << 30, 5));
        whole.record(30, 1, 1);
        assert_eq!(merged, whole);
        assert_eq!((merged.len(), merged.answered_range()), (30, Some((1, 29 * 3 + 1 + 5))));
        let (none, empty) = (merged.without_answers(), Connections::default());
        assert_eq!((none.len(), none.answered_range()), (30, Some((0, 0))));
        assert_eq!((empty.worst_p99_ns(), empty.answered_range()), (None, None));
    }

    #[test]
    fn what_is_written_is_read_back_and_nothing_else_is() {
        let all = made(3..200, |number| u64::from(number % 7), |number| u64::from(number) << 20);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Connections>(&text).unwrap(), all);
        assert!(text.starts_with("{\"count\":197,\"fairness\":0.") && text.contains("\"7\","));
        let mut several = made(7..8, |_| 4, |_| 0);
        for (ns, count) in [(1_100, 5), (1_200, 6), (5_000, 7)] {
            several.record(0, ns, count);
        }
        assert_eq!(several.0[0].text(), "7 0:4,5,6 18:7");
        assert_eq!(Connection::read("7 0:4,5,6 18:7").as_ref(), several.0.first());
        let strange = ["", "256", "1 2", "1 217:1", "1 216:1,1", "1 0:-1", "1 0:1,", "1 x:1"];
        for each in strange.into_iter().chain(["1  0:1", "5\",\"5", "5\",\"4"]) {
            let text = format!("{{\"each\":[\"{each}\"]}}");
            assert!(serde_json::from_str::<Connections>(&text).is_err(), "{text}");
        }
    }
}
