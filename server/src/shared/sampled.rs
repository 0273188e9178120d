//! Samples of requests: their times and their keys.
//!
//! Where: a column records the requests of some of its loops, each request with a weight.
//! Invariant: the samples represent all requests, because only a request's time of arrival decides
//! if the request is sampled, never its kind or key. One loop in `LOOPS_SAMPLED_ONE_IN` is sampled
//! at random, and each request of this loop has the weight `LOOPS_SAMPLED_ONE_IN`. A loop that
//! begins at least `REST_MS` after the previous loop is always sampled, and each request of this
//! loop has the weight 1. A column holds the lock of its samples for one request, and never waits
//! for readers.
//! Source: D. G. Horvitz and D. J. Thompson, *A Generalization of Sampling Without Replacement From
//! a Finite Universe*, for the weights; A. Metwally, D. Agrawal and A. El Abbadi, *Efficient
//! Computation of Frequent and Top-k Elements in Data Streams*, for the keys.

mod hot;

use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use memory::plant::{Fault, is};
use memory::random::Random;
use protocol::text::operator::Streams;
use protocol::{MetaVerb, Request};

use crate::limits::{LOOPS_SAMPLED_ONE_IN, REST_MS, SAMPLED_LOOP_MAX};
pub(crate) use hot::Hot;

/// The bit that is set while the requests of the current loop are sampled.
pub(crate) const SAMPLED: Streams = Streams(1 << 10);

/// The longest time that is recorded, in nanoseconds. A longer time is recorded as `NS_MAX`.
const NS_MAX: u64 = 60_000_000_000;

/// The kinds of requests whose times are recorded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    Touch,
    Set,
    Delete,
    Arithmetic,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaArithmetic,
    Other,
}

pub(crate) const KINDS: [(Kind, &str); 10] = [
    (Kind::Get, "get"),
    (Kind::Touch, "touch"),
    (Kind::Set, "set"),
    (Kind::Delete, "delete"),
    (Kind::Arithmetic, "incr"),
    (Kind::MetaGet, "mg"),
    (Kind::MetaSet, "ms"),
    (Kind::MetaDelete, "md"),
    (Kind::MetaArithmetic, "ma"),
    (Kind::Other, "other"),
];

impl Kind {
    pub(crate) fn of<'r>(request: &Request<'r>) -> (Kind, Option<&'r [u8]>) {
        match *request {
            Request::Get(get) if get.exptime.is_none() => (Kind::Get, Some(get.key)),
            Request::Get(get) => (Kind::Touch, Some(get.key)),
            Request::Touch { key, .. } => (Kind::Touch, Some(key)),
            Request::Store(store) => (Kind::Set, Some(store.key)),
            Request::Delete(delete) => (Kind::Delete, Some(delete.key)),
            Request::Delta(delta) => (Kind::Arithmetic, Some(delta.key)),
            Request::Meta(meta) => match meta.verb {
                MetaVerb::Get => (Kind::MetaGet, Some(meta.key)),
                MetaVerb::Set => (Kind::MetaSet, Some(meta.key)),
                MetaVerb::Delete => (Kind::MetaDelete, Some(meta.key)),
                MetaVerb::Arithmetic => (Kind::MetaArithmetic, Some(meta.key)),
                MetaVerb::Debug => (Kind::Other, None),
            },
            _ => (Kind::Other, None),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sampler {
    /// Number of loops until the next loop that is sampled at random.
    left: u32,
    /// The weight of each request of this loop: the number of requests that the request represents.
    weight: u32,
    /// Number of requests that may still be sampled in this loop.
    requests_left: u32,
    number: u64,
    random: Random,
}

impl Sampler {
    pub(crate) fn new(column: usize) -> Sampler {
        let random = Random::new(column);
        Sampler { left: LOOPS_SAMPLED_ONE_IN, weight: 0, requests_left: 0, number: 0, random }
    }

    /// Begins a loop, `since_ms` ms after the previous loop. Returns true if the loop is sampled.
    #[inline]
    pub(crate) fn begin_loop(&mut self, since_ms: u64) -> bool {
        if since_ms >= REST_MS {
            return self.sample(if is(Fault::RestCountsMany) { LOOPS_SAMPLED_ONE_IN } else { 1 });
        }
        self.left -= 1;
        self.left == 0 && self.sample_many()
    }

    #[cold]
    fn sample_many(&mut self) -> bool {
        // The gap is random, with mean `LOOPS_SAMPLED_ONE_IN`, so that it fits no client's pattern.
        self.left = self.random.below(2 * LOOPS_SAMPLED_ONE_IN - 1) + 1;
        self.sample(LOOPS_SAMPLED_ONE_IN)
    }

    #[cold]
    fn sample(&mut self, weight: u32) -> bool {
        (self.weight, self.requests_left) = (weight, SAMPLED_LOOP_MAX);
        self.number += 1;
        true
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Samples a request. Returns the weight, and true if the loop's next request is sampled too.
    pub(crate) fn take(&mut self) -> (u32, bool) {
        self.requests_left = self.requests_left.saturating_sub(1);
        (self.weight, self.requests_left > 0)
    }
}

/// The samples of a column since `stats reset`.
#[derive(Debug)]
pub(crate) struct Samples {
    /// For each kind, the times of its requests, in nanoseconds.
    pub(crate) times: Vec<Histogram<u64>>,
    pub(crate) hot: Hot,
}

impl Default for Samples {
    fn default() -> Samples {
        // The precision is one digit: values in a bucket differ by at most a tenth. The call does
        // not fail, because the bounds are valid.
        let times = || Histogram::new_with_bounds(1, NS_MAX, 1).ok();
        Samples { times: KINDS.iter().filter_map(|_| times()).collect(), hot: Hot::default() }
    }
}

/// The samples of a column, which any thread may read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct SharedSamples(Mutex<Samples>);

impl SharedSamples {
    /// Calls `add` with the samples, unless a reader holds the lock.
    pub(crate) fn add(&self, add: impl FnOnce(&mut Samples)) {
        if let Ok(mut samples) = self.0.try_lock() {
            add(&mut samples);
        }
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Samples) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Samples {
    pub(crate) fn took(&mut self, kind: Kind, ns: u64, weight: u32) {
        if let Some(times) = self.times.get_mut(kind as usize) {
            times.saturating_record_n(ns.max(1), weight.into());
        }
    }

    pub(crate) fn add_times(&mut self, more: &Samples) {
        for (times, more) in self.times.iter_mut().zip(&more.times) {
            // `add` cannot fail: both histograms have the same bounds.
            let _ = times.add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn sampled_loops_count_for_all_and_each_behind_a_rest_for_itself() {
        let mut sampler = Sampler::new(0);
        let (mut counted, mut sampled) = (0_u64, 0_u64);
        let loops = 4_000_000;
        for _ in 0..loops {
            if sampler.begin_loop(0) {
                counted += u64::from(sampler.take().0);
                sampled += 1;
            }
        }
        // `begin_loop` draws about 31,000 random gaps, so the standard error is 0.33 %.
        assert!(counted.abs_diff(loops) < loops / 50, "{counted}");
        assert!(sampled < loops / 100, "{sampled}");
        for _ in 0..1000 {
            assert!(sampler.begin_loop(REST_MS));
            assert_eq!(sampler.take().0, 1);
        }
    }

    /// Draws `together` keys per loop with `ask`. Returns the found hot keys, and all true counts.
    fn told(
        seed: usize,
        together: u32,
        mut ask: impl FnMut(&mut Random, u32) -> u32,
    ) -> (Vec<hot::HotKey>, HashMap<u32, u64>) {
        let (mut sampler, mut random) = (Sampler::new(seed), Random::new(seed + 1000));
        let (mut hot, mut asked) = (Hot::default(), HashMap::new());
        for number in 0..120_000 / together {
            // One loop in fifty begins `REST_MS` after the previous loop.
            let since_ms = if random.below(50) == 0 { REST_MS } else { 0 };
            let mut goes_on = sampler.begin_loop(since_ms);
            for nth in 0..together {
                let key = ask(&mut random, number * together + nth);
                *asked.entry(key).or_default() += 1;
                if goes_on {
                    let weight;
                    (weight, goes_on) = sampler.take();
                    hot.asked(&key.to_le_bytes(), (weight, sampler.number()));
                }
            }
        }
        let told = Hot::hottest([&hot]).0.into_iter().filter(|key| key.at_least() > 0).collect();
        (told, asked)
    }

    #[test]
    fn no_key_is_told_to_have_more_requests_than_it_had() {
        let once = |_: &mut Random, nth: u32| nth;
        let uniform = |random: &mut Random, _: u32| random.below(200);
        // Each power of two is equally often the upper bound: a Zipf law of exponent 1.
        let zipf = |random: &mut Random, _: u32| {
            let bits = 1 + random.below(15);
            random.below(1 << bits)
        };
        let (mut bounds, mut found) = (0, 0);
        for seed in 0..40 {
            for together in [1, 8, 32] {
                for (law, at) in
                    [(0, &once as &dyn Fn(&mut Random, u32) -> u32), (1, &uniform), (2, &zipf)]
                {
                    let (told, asked) = told(seed, together, at);
                    for key in &told {
                        let number = u32::from_le_bytes(key.key[..].try_into().unwrap());
                        let (had, said) = (asked[&number], key.at_least());
                        // The reported lower bound must not exceed the key's true count.
                        assert!(said <= had, "{law}, {together}, seed {seed}: {said} of {had}");
                    }
                    bounds += told.len();
                    // Key 0, one of the two hottest keys, has about a fifteenth of all requests.
                    let is_first = |key: &hot::HotKey| key.key[..] == 0_u32.to_le_bytes();
                    found += usize::from(law == 2 && together == 1 && told.iter().any(is_first));
                }
            }
        }
        assert!(bounds > 500, "{bounds} bounds were looked at");
        assert_eq!(found, 40, "a key that is asked for most is told");
    }

    #[test]
    fn a_loop_has_its_last_sample() {
        let mut sampler = Sampler::new(0);
        assert!(sampler.begin_loop(REST_MS));
        let goes_on = (0..SAMPLED_LOOP_MAX).filter(|_| sampler.take().1).count();
        assert_eq!(goes_on + 1, SAMPLED_LOOP_MAX as usize);
    }

    #[test]
    fn times_of_columns_come_together_by_kind() {
        let (mut one, mut other) = (Samples::default(), Samples::default());
        one.took(Kind::Get, 300, 1);
        other.took(Kind::Get, 900, 128);
        other.took(Kind::MetaSet, 0, 1);
        one.add_times(&other);
        let of = |kind: Kind| &one.times[kind as usize];
        assert_eq!(
            (of(Kind::Get).len(), of(Kind::MetaSet).len(), of(Kind::Set).len()),
            (129, 1, 0)
        );
        assert!(of(Kind::Get).value_at_quantile(0.5).abs_diff(900) < 90);
        assert_eq!(KINDS.len(), one.times.len());
        assert!(KINDS.iter().enumerate().all(|(at, (kind, _))| *kind as usize == at));
    }
}
