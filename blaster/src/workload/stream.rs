//! The deterministic sequence of requests of one driving thread.
//!
//! Where: `drive` takes each request, and the gap before the request, from a `Stream`.
//! Invariant: the same workload, seed, thread and number of threads give the same sequence; another
//! seed gives another sample of the same population. The threads of a run use disjoint parts of one
//! random sequence, and each request of a trace is sent by one thread. With `set-order` oldest, a
//! thread (or a connection with its own keys) sets the keys that it filled before, again and again
//! in the same order; no other thread sets these keys. If each agent has its own keys, no two
//! agents request the same key.

use super::gaps::{Gap, Rounding};
use super::mix::VerbSampler;
use super::popularity::{KeySampler, Table};
use super::random::{hash, seed_for, usage};
use super::replay::Replay;
use super::request::{Verb, WorkloadRequest};
use super::traffic::Workload;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

/// The sequence of requests of one thread.
#[derive(Debug)]
pub struct Stream {
    workload: Arc<Workload>,
    random: Xoshiro256PlusPlus,
    /// A separate generator for gaps, so that the requests do not depend on the rate.
    gap_random: Xoshiro256PlusPlus,
    rounding: Rounding,
    /// The share of a gap by which the first request is delayed, so that threads take turns.
    turn: f64,
    choice: VerbSampler,
    /// One part of the keys for all connections, or one part for each connection.
    parts: Vec<Part>,
    value_size_seed: u64,
    trace_cursor: Option<TraceCursor>,
    /// True if each request has one key, which is drawn from all keys, so that `pick` can be used.
    is_plain: bool,
}

#[derive(Debug)]
struct Part {
    table: Arc<Table>,
    sampler: KeySampler,
    from: u64,
    /// The keys that requests set in turn if the setting `set-order` is `oldest`.
    filled: Range<u64>,
    oldest: u64,
}

#[derive(Debug)]
struct TraceCursor {
    trace: Arc<Replay>,
    next: u64,
    /// The difference between the indexes of successive requests of this thread in the trace.
    step: u64,
    /// The index after the last request, or `None` if the trace is repeated without end.
    end: Option<u64>,
    second: usize,
    /// The due time of this thread's latest request.
    due_ns: u64,
    /// The due time of the request that precedes this thread's latest request in the trace.
    previous_due_ns: u64,
}

impl Stream {
    /// Returns the sequence of thread `thread` of `threads`.
    pub(crate) fn new(workload: &Arc<Workload>, seed: u64, thread: u32, threads: u32) -> Stream {
        let threads = threads.max(1);
        let random = |usage| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed_for(seed, usage));
            // Each jump skips 2^128 numbers, so threads draw disjoint numbers.
            (0..thread).for_each(|_| random.jump());
            random
        };
        let shares = workload.mix.shares(workload.keys_per_get());
        let share = workload.share(thread, threads);
        // If there are more threads than keys, threads that filled no keys set all keys.
        let filled = if share.is_empty() { 0..workload.keys() } else { share };
        let has_order = workload.sets_oldest || workload.per_connection();
        Stream {
            workload: Arc::clone(workload),
            random: random(usage::REQUEST),
            gap_random: random(usage::GAP),
            rounding: Rounding::default(),
            turn: f64::from(thread) / f64::from(threads),
            choice: VerbSampler::new(shares, workload.is_dealt),
            parts: vec![Part {
                table: Arc::clone(&workload.table),
                sampler: KeySampler::new(workload.keys(), workload.order_seed(), thread, threads),
                from: 0,
                oldest: filled.start,
                filled,
            }],
            value_size_seed: seed_for(workload.population_seed, usage::VALUE_SIZE),
            trace_cursor: workload
                .trace
                .as_ref()
                .map(|trace| TraceCursor::new(trace, workload.trace_loops, thread, threads)),
            is_plain: workload.batch.sampler.fixed() == Some(1)
                && workload.trace.is_none()
                && !has_order,
        }
    }

    /// Returns the stream of a thread with the connections `connections` out of `all` connections.
    /// If each connection has its own keys, the connections' numbers of keys differ by at most one.
    pub(crate) fn over(mut self, connections: Range<u32>, all: u32) -> Stream {
        if self.workload.per_connection() && !connections.is_empty() {
            let (workload, keys) = (&self.workload, self.workload.keys());
            // If there are more connections than keys, some connections share a key.
            let share = |connection| {
                let Range { start, end } = workload.share(connection, all);
                let from = start.min(keys - 1);
                from..end.max(from + 1)
            };
            let shares: Vec<_> = connections.map(share).collect();
            let tables = workload.popularity.tables(&shares, keys);
            let part = |(filled, table): (Range<u64>, _)| {
                let Range { start: from, end } = filled;
                let sampler = KeySampler::new(end - from, workload.order_seed(), 0, 1);
                Part { table, sampler, from, oldest: from, filled }
            };
            self.parts = shares.into_iter().zip(tables).map(part).collect();
        }
        self
    }

    /// Returns the stream of one thread of one agent. `agent` has the agent's index and the number
    /// of agents; it has an effect only if each agent has its own keys.
    pub(crate) fn of_agent(mut self, agent: (u32, u32), (thread, threads): (u32, u32)) -> Stream {
        let workload = &self.workload;
        let keys = workload.share(agent.0, agent.1);
        if workload.per_agent() && !keys.is_empty() {
            let share = workload.share_of_agent(agent, (thread, threads));
            // If there are more threads than keys, threads that filled no keys set all keys.
            let filled = if share.is_empty() { keys.clone() } else { share };
            let tables = workload.popularity.tables(from_ref(&keys), workload.keys());
            let (from, count) = (keys.start, keys.end - keys.start);
            let part = |table| Part {
                table,
                sampler: KeySampler::new(count, workload.order_seed(), thread, threads),
                from,
                oldest: filled.start,
                filled,
            };
            self.parts = tables.into_iter().next().map(part).into_iter().collect();
        }
        self
    }

    /// Fills in `request` with the next request. Returns false if a trace has ended.
    pub fn next(&mut self, request: &mut WorkloadRequest) -> bool {
        self.next_on(0, request)
    }

    /// Fills in `request` like `next`, but for one connection of the thread. The connection has an
    /// effect only if each connection has its own keys.
    pub(crate) fn next_on(&mut self, connection: usize, request: &mut WorkloadRequest) -> bool {
        let connection = connection.min(self.parts.len() - 1);
        request.keys.clear();
        (request.value_bytes, request.exptime_s) = (0, 0);
        if let Some(cursor) = &mut self.trace_cursor {
            let Some(at) = cursor.advance() else { return false };
            request.keys.push(u64::from(cursor.trace.requests[at]));
            if let Some(details) = &cursor.trace.details {
                let sent = details.operations[at];
                request.verb = sent.verb;
                (request.value_bytes, request.exptime_s) = (sent.value_bytes, sent.exptime_s);
                return true;
            }
        }
        request.verb = self.choice.next(self.random.next_u64());
        match request.verb {
            Verb::Get => self.draw_batch(connection, request),
            Verb::Delete => self.draw_one(connection, request),
            Verb::Set if self.workload.sets_oldest => {
                let key = self.parts.get_mut(connection).map_or(0, Part::next_oldest);
                request.keys.push(key);
                (request.value_bytes, request.exptime_s) = self.sizes(key);
            }
            Verb::Set | Verb::Append | Verb::Add | Verb::Replace => {
                self.draw_one(connection, request);
                let key = request.keys.first().copied().unwrap_or(0);
                (request.value_bytes, request.exptime_s) = self.sizes(key);
            }
        }
        true
    }

    /// Returns the verb and key of the request that `next` would make, or `None` if `is_plain` is
    /// false. For a write, the caller then calls `sizes` for the size and the time to live.
    #[inline(always)]
    pub(crate) fn pick(&mut self) -> Option<(Verb, u64)> {
        if !self.is_plain {
            return None;
        }
        let verb = self.choice.next(self.random.next_u64());
        Some((verb, self.draw(0)))
    }

    #[inline(always)]
    fn draw(&mut self, connection: usize) -> u64 {
        let Some(part) = self.parts.get_mut(connection) else { return 0 };
        part.from + part.sampler.draw(&part.table, &mut self.random)
    }

    /// Draws the key of a request with one key, unless a trace has given the key.
    fn draw_one(&mut self, connection: usize, request: &mut WorkloadRequest) {
        if request.keys.is_empty() {
            request.keys.push(self.draw(connection));
        }
    }

    /// Draws the keys of a get. If a trace has given the first key, the trace gives all keys.
    fn draw_batch(&mut self, connection: usize, request: &mut WorkloadRequest) {
        let batch = &self.workload.batch.sampler;
        let count = batch.fixed().unwrap_or_else(|| batch.draw(self.random.next_u64())) as usize;
        while request.keys.len() < count {
            let key = match &mut self.trace_cursor {
                None => self.draw(connection),
                Some(cursor) => match cursor.advance() {
                    None => return,
                    Some(at) => u64::from(cursor.trace.requests[at]),
                },
            };
            request.keys.push(key);
        }
    }

    /// Draws the value size and the time to live with which the latest request writes `key`.
    pub(crate) fn sizes(&mut self, key: u64) -> (u32, u32) {
        let Workload { value_size, ttl, size_per_request, .. } = &*self.workload;
        let value_bytes = match value_size.sampler.fixed() {
            Some(bytes) => bytes,
            None if *size_per_request => value_size.sampler.draw(self.random.next_u64()),
            None => value_size.sampler.draw(hash(self.value_size_seed, key)),
        };
        let draw = || ttl.sampler.draw(self.random.next_u64());
        (value_bytes, ttl.sampler.fixed().unwrap_or_else(draw))
    }

    /// Returns the gap in ns between the latest request that `next` made and the previous request
    /// (or the start). Gaps are scaled to the mean `mean_ns`. If `mean_ns` is NaN, the gaps are not
    /// scaled (see `Workload::own_gap_ns`), and are 0 if the workload does not set gaps.
    pub(crate) fn gap_ns(&mut self, mean_ns: f64) -> u64 {
        if self.workload.gap == Gap::Trace
            && let Some(cursor) = &self.trace_cursor
        {
            let gap_ns = cursor.due_ns.saturating_sub(cursor.previous_due_ns) as f64;
            let own_ns = self.workload.own_gap_ns(u32::try_from(cursor.step).unwrap_or(1));
            let scale = if mean_ns.is_nan() { 1.0 } else { mean_ns / own_ns.unwrap_or(mean_ns) };
            return self.rounding.whole(gap_ns * scale);
        }
        let turn = std::mem::replace(&mut self.turn, 0.0);
        let gap_ns = self.workload.gap_sampler.draw(mean_ns, &mut self.gap_random);
        let turn_ns = if self.workload.gap == Gap::Fixed { turn * mean_ns } else { 0.0 };
        self.rounding.whole(gap_ns + turn_ns)
    }
}

impl Part {
    fn next_oldest(&mut self) -> u64 {
        let key = self.oldest;
        self.oldest = if key + 1 < self.filled.end { key + 1 } else { self.filled.start };
        key
    }
}

impl TraceCursor {
    fn new(trace: &Arc<Replay>, loops: u64, thread: u32, threads: u32) -> TraceCursor {
        let end = (loops > 0).then(|| (trace.requests.len() as u64).saturating_mul(loops));
        let (next, step) = (u64::from(thread), u64::from(threads));
        let trace = Arc::clone(trace);
        TraceCursor { trace, next, step, end, second: 0, due_ns: 0, previous_due_ns: 0 }
    }

    /// Returns the index of this thread's next request, and advances. `None` at the trace's end.
    fn advance(&mut self) -> Option<usize> {
        if self.end.is_some_and(|end| self.next >= end) {
            return None;
        }
        let requests = self.trace.requests.len() as u64;
        let (round, at) = (self.next / requests, usize::try_from(self.next % requests).ok()?);
        self.next = self.next.saturating_add(self.step);
        if let (Some(due_ns), Some(length_ns)) =
            (self.trace.due_ns(at, &mut self.second), self.trace.length_ns())
        {
            self.previous_due_ns = self.due_ns;
            self.due_ns = round.saturating_mul(length_ns).saturating_add(due_ns);
        }
        Some(at)
    }
}
