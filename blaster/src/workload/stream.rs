//! The deterministic sequence of requests of one driving thread.
//!
//! Where: the drive asks for the next request, and for the time at which it is due.
//! Invariant: the same workload, seed, thread and number of threads give the same sequence; another
//! seed gives another sample of the same population. The threads of a run draw from disjoint parts
//! of one random sequence, and share a trace. With `set-order` oldest, sets go round, in the order
//! of filling, over the keys that this thread, or the connection, has filled, and no other thread
//! sets them.

use super::gaps::{Gap, Rounding};
use super::mix::Choice;
use super::popularity::{Picks, Table};
use super::random::{hash, seed_for, usage};
use super::replay::Replay;
use super::{Ask, Verb, Workload};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::Arc;

/// The requests of one thread, one after the other.
#[derive(Debug)]
pub struct Stream {
    workload: Arc<Workload>,
    random: Xoshiro256PlusPlus,
    /// The generator of gaps. It is separate, so that the requests are the same at every rate.
    gap_random: Xoshiro256PlusPlus,
    rounding: Rounding,
    /// The extra share of a gap that the first request waits, so that threads with equal gaps take
    /// turns.
    turn: f64,
    choice: Choice,
    /// One part for all connections, or one for each.
    parts: Vec<Part>,
    value_size_seed: u64,
    replaying: Option<Replaying>,
    /// True if all requests are of one drawn key, with no more to draw for it than its number.
    is_plain: bool,
}

/// The keys that a connection asks for.
#[derive(Debug)]
struct Part {
    table: Arc<Table>,
    picks: Picks,
    /// The offset of the part's keys.
    from: u64,
    /// The keys that are set in turn; below, the next one.
    filled: Range<u64>,
    oldest: u64,
}

/// A thread's position in a trace.
#[derive(Debug)]
struct Replaying {
    trace: Arc<Replay>,
    /// The next request of this thread; below, the step to the one after that.
    next: u64,
    step: u64,
    /// The end of the requests; none if the trace is replayed for ever.
    end: Option<u64>,
    second: usize,
    /// The due time of the last request; below, of the one before it.
    due_ns: u64,
    before_ns: u64,
}

impl Stream {
    /// The sequence of thread `thread` of `threads`.
    #[must_use]
    pub fn new(workload: &Arc<Workload>, seed: u64, thread: u32, threads: u32) -> Stream {
        let threads = threads.max(1);
        let random = |usage| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed_for(seed, usage));
            // Each jump is 2^128 numbers long.
            (0..thread).for_each(|_| random.jump());
            random
        };
        let shares = workload.mix.shares(workload.keys_per_get());
        let share = workload.share(thread, threads);
        // With more threads than keys, some threads have filled nothing.
        let filled = if share.is_empty() { 0..workload.keys() } else { share };
        let has_order = workload.sets_oldest || workload.per_connection;
        Stream {
            workload: Arc::clone(workload),
            random: random(usage::REQUEST),
            gap_random: random(usage::GAP),
            rounding: Rounding::default(),
            turn: f64::from(thread) / f64::from(threads),
            choice: Choice::new(shares, workload.is_dealt),
            parts: vec![Part {
                table: Arc::clone(&workload.table),
                picks: Picks::new(workload.keys(), workload.order_seed(), thread, threads),
                from: 0,
                oldest: filled.start,
                filled,
            }],
            value_size_seed: seed_for(workload.population_seed, usage::VALUE_SIZE),
            replaying: workload
                .trace
                .as_ref()
                .map(|trace| Replaying::new(trace, workload.trace_loops, thread, threads)),
            is_plain: workload.batch.whole.fixed() == Some(1)
                && workload.trace.is_none()
                && !has_order,
        }
    }

    /// Returns the stream of a thread with these of `all` connections, each of which has a part of
    /// the keys to itself if the workload says so. Parts differ by one key at most.
    #[must_use]
    pub fn over(mut self, connections: Range<u32>, all: u32) -> Stream {
        if self.workload.per_connection && !connections.is_empty() {
            let (workload, keys) = (&self.workload, self.workload.keys());
            // With more connections than keys, some share one.
            let share = |connection| {
                let Range { start, end } = workload.share(connection, all);
                let from = start.min(keys - 1);
                from..end.max(from + 1)
            };
            let shares: Vec<_> = connections.map(share).collect();
            let tables = workload.popularity.tables(&shares, keys);
            let part = |(filled, table): (Range<u64>, _)| {
                let Range { start: from, end } = filled;
                let picks = Picks::new(end - from, workload.order_seed(), 0, 1);
                Part { table, picks, from, oldest: from, filled }
            };
            self.parts = shares.into_iter().zip(tables).map(part).collect();
        }
        self
    }

    /// Makes `ask` the next request; false if a replayed trace has ended.
    pub fn next(&mut self, ask: &mut Ask) -> bool {
        self.next_on(0, ask)
    }

    /// Like `next`, but for a connection of the thread, which matters if each has its own keys.
    pub fn next_on(&mut self, connection: usize, ask: &mut Ask) -> bool {
        let connection = connection.min(self.parts.len() - 1);
        ask.keys.clear();
        (ask.value_bytes, ask.exptime_s) = (0, 0);
        let recorded = match &mut self.replaying {
            None => None,
            Some(replaying) => match replaying.advance() {
                None => return false,
                Some(at) => Some(at),
            },
        };
        let operation = match (&self.replaying, recorded) {
            (Some(replaying), Some(at)) => {
                ask.keys.push(u64::from(replaying.trace.requests[at]));
                replaying.trace.details.as_ref().map(|details| details.operations[at])
            }
            _ => None,
        };
        if let Some(operation) = operation {
            ask.verb = operation.verb;
            (ask.value_bytes, ask.exptime_s) = (operation.value_bytes, operation.exptime_s);
            return true;
        }
        ask.verb = self.choice.next(self.random.next_u64());
        match ask.verb {
            Verb::Get => self.fill(connection, ask),
            Verb::Delete => self.first(connection, ask),
            Verb::Set if self.workload.sets_oldest => {
                let key = self.parts.get_mut(connection).map_or(0, Part::in_turn);
                ask.keys.push(key);
                (ask.value_bytes, ask.exptime_s) = self.sizes(key);
            }
            Verb::Set | Verb::Append | Verb::Add | Verb::Replace => {
                self.first(connection, ask);
                let key = ask.keys.first().copied().unwrap_or(0);
                (ask.value_bytes, ask.exptime_s) = self.sizes(key);
            }
        }
        true
    }

    /// Returns the verb and key of the next request, the same as `next` would make, if all requests
    /// have one key and none is recorded. `sizes` gives the size and time to live of a write.
    #[inline(always)]
    pub(crate) fn pick(&mut self) -> Option<(Verb, u64)> {
        if !self.is_plain {
            return None;
        }
        let verb = self.choice.next(self.random.next_u64());
        Some((verb, self.draw(0)))
    }

    /// Draws a key for a connection.
    #[inline(always)]
    fn draw(&mut self, connection: usize) -> u64 {
        let Some(part) = self.parts.get_mut(connection) else { return 0 };
        part.from + part.picks.draw(&part.table, &mut self.random)
    }

    /// Draws the key of a request of one key, unless a trace has given it.
    fn first(&mut self, connection: usize, ask: &mut Ask) {
        if ask.keys.is_empty() {
            ask.keys.push(self.draw(connection));
        }
    }

    /// Draws the keys of a get; if a trace has given the first, it gives the others too.
    fn fill(&mut self, connection: usize, ask: &mut Ask) {
        let batch = &self.workload.batch.whole;
        let count = match batch.fixed() {
            Some(count) => count as usize,
            None => batch.draw(self.random.next_u64()) as usize,
        };
        while ask.keys.len() < count {
            let key = match &mut self.replaying {
                None => self.draw(connection),
                Some(replaying) => match replaying.advance() {
                    None => return,
                    Some(at) => u64::from(replaying.trace.requests[at]),
                },
            };
            ask.keys.push(key);
        }
    }

    /// The size and time to live of the last request's write.
    pub(crate) fn sizes(&mut self, key: u64) -> (u32, u32) {
        let Workload { value_size, ttl, size_per_request, .. } = &*self.workload;
        let value_bytes = match value_size.whole.fixed() {
            Some(bytes) => bytes,
            None if *size_per_request => value_size.whole.draw(self.random.next_u64()),
            None => value_size.whole.draw(hash(self.value_size_seed, key)),
        };
        let exptime_s = match ttl.whole.fixed() {
            Some(seconds) => seconds,
            None => ttl.whole.draw(self.random.next_u64()),
        };
        (value_bytes, exptime_s)
    }

    /// The time in ns between the departures of the previous request and the one that `next` made
    /// last; for the first one, from the start. The workload's shape is scaled to `mean_ns`. A mean
    /// of NaN leaves it unscaled (see `Workload::own_gap_ns`); if the workload then has no gaps of
    /// its own, the gap is 0.
    pub fn gap_ns(&mut self, mean_ns: f64) -> u64 {
        if self.workload.gap == Gap::Trace
            && let Some(replaying) = &self.replaying
        {
            let gap_ns = replaying.due_ns.saturating_sub(replaying.before_ns) as f64;
            let own_ns = self.workload.own_gap_ns(u32::try_from(replaying.step).unwrap_or(1));
            let scale = if mean_ns.is_nan() { 1.0 } else { mean_ns / own_ns.unwrap_or(mean_ns) };
            return self.rounding.whole(gap_ns * scale);
        }
        let turn = std::mem::replace(&mut self.turn, 0.0);
        let gap_ns = self.workload.pace.draw(mean_ns, &mut self.gap_random);
        let turn_ns = if self.workload.gap == Gap::Fixed { turn * mean_ns } else { 0.0 };
        self.rounding.whole(gap_ns + turn_ns)
    }
}

impl Part {
    /// The key that was set longest ago; moves on to the next.
    fn in_turn(&mut self) -> u64 {
        let key = self.oldest;
        self.oldest = if key + 1 < self.filled.end { key + 1 } else { self.filled.start };
        key
    }
}

impl Replaying {
    fn new(trace: &Arc<Replay>, loops: u64, thread: u32, threads: u32) -> Replaying {
        let end = (loops > 0).then(|| (trace.requests.len() as u64).saturating_mul(loops));
        let (next, step) = (u64::from(thread), u64::from(threads));
        let trace = Arc::clone(trace);
        Replaying { trace, next, step, end, second: 0, due_ns: 0, before_ns: 0 }
    }

    /// The place in the trace of this thread's next request; moves on.
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
            self.before_ns = self.due_ns;
            self.due_ns = round.saturating_mul(length_ns).saturating_add(due_ns);
        }
        Some(at)
    }
}
