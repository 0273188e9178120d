//! The requests that `run` sends for a workload, split into requests of one key each.
//!
//! Where: between a workload and a store in this process.
//! Invariant: the same workload, seed and rate give the same requests. A sampled request has the
//! same time as in the full sequence.

use crate::workload::{Names, Stream, Verb, Workload, WorkloadRequest};
use simulate::sizes::Size;
use simulate::stream::{Operation, Request, sample, sampled};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Parameters {
    pub(crate) workload: Arc<Workload>,
    pub(crate) seed: u64,
    /// Requests per second. NaN means that the gaps between requests are those of the workload.
    pub(crate) rate_per_s: f64,
    /// True if every key is stored once before the first request.
    pub(crate) populates: bool,
    /// The memory sizes given by `-m`; if empty, `PARTS` of the live items' memory are simulated.
    pub(crate) memory_bytes: Vec<u64>,
    /// The simulated time. `None` means the time that the workload needs.
    pub(crate) span: Option<Duration>,
    /// Number of connections to the server, which take turns to send requests. Each connection may
    /// have its own keys.
    pub(crate) connections: u32,
    pub(crate) threads: usize,
    pub(crate) is_quiet: bool,
}

/// The requests of a sample of the keys.
#[derive(Debug)]
pub(crate) struct Requests<'p> {
    pub(crate) parameters: &'p Parameters,
    pub(crate) names: &'p Names,
    /// Number of keys that each key of the sample represents.
    pub(crate) one_in: u64,
    /// The time in ns from the start at which the requests end.
    pub(crate) span_ns: u64,
}

impl Requests<'_> {
    /// Returns the sample's requests. Adds to `gets` the number of keys looked up in `counted_ns`,
    /// also outside the sample, and to `passed_ms` the simulated milliseconds.
    pub(crate) fn of_sample<'r>(
        &'r self,
        counted_ns: Range<u64>,
        (gets, passed_ms): (&'r AtomicU64, &'r AtomicU64),
    ) -> impl Iterator<Item = Request> + 'r {
        let Parameters { workload, rate_per_s, .. } = self.parameters;
        let is_sampled = sampled(self.one_in);
        let stored = if self.parameters.populates { workload.keys() } else { 0 };
        let filled = sample(self.one_in, stored);
        let filled = filled.map(|key| self.stored(key));
        let all = self.parameters.connections;
        let mut stream = Stream::new(workload, self.parameters.seed, 0, 1).over(0..all, all);
        let mut connections = (0..all as usize).cycle();
        let (mut drawn, mut at_ns, mut key, mut added_ms) = (WorkloadRequest::default(), 0, 0, 0);
        let mean_ns = 1e9 / rate_per_s;
        let requests = std::iter::from_fn(move || {
            while key >= drawn.keys.len() {
                if !stream.next_on(connections.next().unwrap_or(0), &mut drawn) {
                    return None;
                }
                at_ns += stream.gap_ns(mean_ns);
                key = 0;
                let at_ms = at_ns.min(self.span_ns) / 1_000_000;
                if at_ms > added_ms {
                    // Relaxed: the number is only displayed, and guards no other data.
                    passed_ms.fetch_add(at_ms - added_ms, Ordering::Relaxed);
                    added_ms = at_ms;
                }
                if at_ns >= self.span_ns {
                    return None;
                }
                if drawn.verb == Verb::Get && counted_ns.contains(&at_ns) {
                    // Relaxed: the count is read after the counting threads have ended.
                    gets.fetch_add(drawn.keys.len() as u64, Ordering::Relaxed);
                }
            }
            key += 1;
            Some(self.converted(&drawn, drawn.keys[key - 1], at_ns))
        });
        filled.chain(requests.filter(is_sampled)).map(|request| self.with_key_size(request))
    }

    fn stored(&self, key: u64) -> Request {
        let size = Size { key: 0, value: self.names.value_bytes(key) };
        let ttl_s = self.names.exptime_s(key);
        Request { key, size, ttl_s, operation: Operation::Set, at_ns: 0 }
    }

    fn converted(&self, drawn: &WorkloadRequest, key: u64, at_ns: u64) -> Request {
        let written = Request {
            size: Size { key: 0, value: drawn.value_bytes },
            ttl_s: drawn.exptime_s,
            ..self.stored(key)
        };
        let request = match drawn.verb {
            Verb::Get if self.parameters.workload.cache_aside => {
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

    /// Adds the length of the key's name to a request of the sample. Computing a name is slow.
    fn with_key_size(&self, request: Request) -> Request {
        let mut name = Vec::with_capacity(64);
        self.names.key(request.key, &mut name);
        let key = u32::try_from(name.len()).unwrap_or(u32::MAX);
        Request { size: Size { key, ..request.size }, ..request }
    }
}
