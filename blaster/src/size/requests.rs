//! A workload as requests to an offline cache: those that `run` would send, one key at a time.
//!
//! Where: between a workload and the store in process.
//! Invariant: the same workload, seed and rate give the same requests; a sample's requests keep the
//! times that they have among all.

use crate::workload::{Ask, Names, Stream, Verb, Workload};
use simulate::sizes::Size;
use simulate::stream::{Operation, Request, sample, sampled};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The parameters of the requests.
#[derive(Debug)]
pub(crate) struct Requests<'p> {
    pub(crate) workload: &'p Arc<Workload>,
    pub(crate) names: &'p Names,
    pub(crate) seed: u64,
    /// Requests per second; NaN if the workload itself sets the gaps between requests.
    pub(crate) rate_per_s: f64,
    /// True if every key is stored once before the first request.
    pub(crate) populates: bool,
    /// Number of connections, which take turns.
    pub(crate) connections: u32,
    /// Keys that each key of the sample stands for.
    pub(crate) one_in: u64,
    /// The time at which the requests end.
    pub(crate) span_ns: u64,
}

impl Requests<'_> {
    /// The requests of the sample. Keys looked up within `counted_ns`, in the sample or not, are
    /// counted in `gets`; the milliseconds that have passed are added to `passed_ms`.
    pub(crate) fn of_sample<'r>(
        &'r self,
        counted_ns: Range<u64>,
        (gets, passed_ms): (&'r AtomicU64, &'r AtomicU64),
    ) -> impl Iterator<Item = Request> + 'r {
        let is_sampled = sampled(self.one_in);
        let filled = sample(self.one_in, if self.populates { self.workload.keys() } else { 0 });
        let filled = filled.map(|key| self.stored(key));
        let all = self.connections;
        let mut stream = Stream::new(self.workload, self.seed, 0, 1).over(0..all, all);
        let mut connections = (0..self.connections as usize).cycle();
        let (mut ask, mut at_ns, mut key, mut told_ms) = (Ask::new(), 0, 0, 0);
        let mean_ns = 1e9 / self.rate_per_s;
        let asked = std::iter::from_fn(move || {
            while key >= ask.keys.len() {
                if !stream.next_on(connections.next().unwrap_or(0), &mut ask) {
                    return None;
                }
                at_ns += stream.gap_ns(mean_ns);
                key = 0;
                let at_ms = at_ns.min(self.span_ns) / 1_000_000;
                if at_ms > told_ms {
                    // Relaxed: progress only; nothing else becomes visible with it.
                    passed_ms.fetch_add(at_ms - told_ms, Ordering::Relaxed);
                    told_ms = at_ms;
                }
                if at_ns >= self.span_ns {
                    return None;
                }
                if ask.verb == Verb::Get && counted_ns.contains(&at_ns) {
                    // Relaxed: a count, read after the counting threads have ended.
                    gets.fetch_add(ask.keys.len() as u64, Ordering::Relaxed);
                }
            }
            key += 1;
            Some(self.asked(&ask, ask.keys[key - 1], at_ns))
        });
        filled.chain(asked.filter(is_sampled)).map(|request| self.named(request))
    }

    /// The request that fills the cache with a key.
    fn stored(&self, key: u64) -> Request {
        let size = Size { key: 0, value: self.names.value_bytes(key) };
        let ttl_s = self.names.exptime_s(key);
        Request { key, size, ttl_s, operation: Operation::Set, at_ns: 0 }
    }

    fn asked(&self, ask: &Ask, key: u64, at_ns: u64) -> Request {
        let written = Request {
            size: Size { key: 0, value: ask.value_bytes },
            ttl_s: ask.exptime_s,
            ..self.stored(key)
        };
        let request = match ask.verb {
            Verb::Get if self.workload.cache_aside() => {
                Request { operation: Operation::Fetch, ..self.stored(key) }
            }
            Verb::Get => Request { operation: Operation::Get, ..written },
            Verb::Set => written,
            Verb::Add => Request { operation: Operation::Add, ..written },
            Verb::Replace => Request { operation: Operation::Replace, ..written },
            Verb::Append => Request { operation: Operation::Append, ..written },
            Verb::Delete => Request { operation: Operation::Delete, ..written },
        };
        Request { at_ns, ..request }
    }

    /// Adds the length of the key's name, which is slow to compute, so only for the sample.
    fn named(&self, request: Request) -> Request {
        let mut name = Vec::with_capacity(64);
        self.names.key(request.key, &mut name);
        let key = u32::try_from(name.len()).unwrap_or(u32::MAX);
        Request { size: Size { key, ..request.size }, ..request }
    }
}
