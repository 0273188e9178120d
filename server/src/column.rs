//! A column: one thread that owns its connections, executes their requests against the shared store
//! and answers, batch by batch.
//!
//! Where: the loop that everything else is called from.
//! Invariant: per loop, every ready connection gets one turn, in the order it became ready; the
//! store's quiescent point comes once per loop, when no turn is on; the store is told before the
//! thread blocks. A column with nothing to do sleeps.

mod accept;
mod slab;
mod spares;
mod tick;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use net::{Beat, Calls, Epoll, Interest, Timeout, Waker};
use protocol::Refusal;

use crate::ahead::Asking;
use crate::connection::{Arrivals, Next, Received, Waiting};
use crate::execute::Context;
use crate::execute::turn::Budget;
use crate::limits::{self, TURNS_AHEAD};
use crate::listen::Source;
use crate::out::Out;
pub(crate) use spares::Spares;

use slab::{Slab, TOKEN_OTHER};
pub(crate) use tick::{Tick, moment};

/// The token of the column's waker; listeners follow.
const TOKEN_WAKER: u64 = TOKEN_OTHER;

/// The token of what wakes it once per second, behind all listeners.
const TOKEN_BEAT: u64 = u64::MAX;

/// What a column lends to the connection whose turn it is.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) context: Context,
    /// The turn's replies.
    pub(crate) out: Out,
    pub(crate) spares: Spares,
    pub(crate) arrivals: Arrivals,
    pub(crate) waiting: Waiting,
    pub(crate) calls: Arc<Calls>,
    /// `-R`.
    pub(crate) requests_turn_max: u32,
    /// Values longer than this arrive by `Arrivals`.
    pub(crate) log_value_bytes: usize,
    /// Milliseconds since the server started, taken once per loop.
    pub(crate) now_ms: u64,
    /// As `now_ms`, but no loop counts for more than `LOOP_MS_MAX`: how long others stall or wait
    /// is measured by this.
    pub(crate) served_ms: u64,
    /// The store's limit that the bounds below were made from.
    memory_bytes: usize,
    kept_bytes_max: usize,
    pinned_bytes_max: usize,
    /// Connections hold more than half of what they may: turns are kept short.
    pub(crate) pressed: bool,
}

impl Kit {
    fn new(context: Context, calls: Arc<Calls>) -> Kit {
        let settings = &context.shared.settings;
        let log_value_bytes = context.store.log_value_bytes_max();
        let receive_bytes = limits::receive_bytes(log_value_bytes);
        let mut kit = Kit {
            out: Out::for_column(log_value_bytes),
            spares: Spares::new(receive_bytes),
            arrivals: Arrivals::new(settings.evict),
            waiting: Waiting::default(),
            calls,
            requests_turn_max: settings.requests_per_event.max(1),
            log_value_bytes,
            now_ms: 0,
            served_ms: 0,
            memory_bytes: 0,
            kept_bytes_max: 0,
            pinned_bytes_max: 0,
            pressed: false,
            context,
        };
        kit.heed_limit();
        kit
    }

    /// Follows the store's limit, which may have changed.
    fn heed_limit(&mut self) {
        let shared = &self.context.shared;
        let memory_bytes = self.context.store.memory_bytes();
        if memory_bytes == self.memory_bytes {
            return;
        }
        let (columns, item_bytes_max) = (shared.settings.columns, shared.settings.item_bytes_max);
        self.memory_bytes = memory_bytes;
        self.kept_bytes_max = limits::kept_bytes_max(memory_bytes, columns);
        self.pinned_bytes_max = limits::pinned_bytes_max(memory_bytes, columns, item_bytes_max);
        self.arrivals.set_bytes_share(limits::arriving_bytes_share(memory_bytes, columns));
    }

    /// A loop begins at `now_ms`.
    #[inline]
    fn pass_time(&mut self, now_ms: u64) {
        self.served_ms += now_ms.saturating_sub(self.now_ms).min(limits::LOOP_MS_MAX);
        self.now_ms = now_ms;
    }

    /// What a turn may do.
    #[inline]
    pub(crate) fn budget(&self) -> Budget {
        let reply_bytes_max =
            if self.pressed { limits::PRESSED_TURN_BYTES } else { limits::OUT_BYTES_MAX };
        Budget::new(self.requests_turn_max, reply_bytes_max)
    }

    /// How much of `room` one read may fill.
    #[inline]
    pub(crate) fn read_bytes_max(&self, room: usize) -> usize {
        if self.pressed { room.min(limits::PRESSED_TURN_BYTES) } else { room }
    }

    /// Connections keep or pin more than one `part`th of what they may.
    #[inline]
    fn is_pressed(&self, part: usize) -> bool {
        self.keeps_much(part) || self.pins_much(part)
    }

    #[inline]
    fn keeps_much(&self, part: usize) -> bool {
        let kept = self.spares.held_bytes() + self.arrivals.beside_bytes();
        kept + self.waiting.held_bytes > self.kept_bytes_max / part
    }

    #[inline]
    fn pins_much(&self, part: usize) -> bool {
        self.waiting.pinned_bytes > self.pinned_bytes_max / part
    }
}

/// One column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Which of the server's columns.
    number: usize,
    kit: Kit,
    /// What turns receive into; all but the first are there once several connections were ready at
    /// once.
    buffers: [Vec<u8>; TURNS_AHEAD],
    epoll: Epoll,
    sources: Vec<Source>,
    /// Listeners that the epoll watches, one bit each.
    sources_watched: u64,
    /// Listeners with connections to accept, one bit each.
    sources_ready: u64,
    connections: Slab,
    /// Connections whose turn comes in this loop, and in the next.
    queue: Vec<u64>,
    queue_next: Vec<u64>,
    /// Connections that wait for room, and how many waited before the last loop had some ask again.
    resting: Vec<u64>,
    rested: usize,
    /// No search for stalled connections before then, by `Kit::served_ms`.
    relief_due_ms: u64,
    tick: Tick,
    waker: Arc<Waker>,
    ahead: Asking,
    /// Rings once per second, on a column that beats.
    beat: Option<Beat>,
    stopping: Arc<AtomicBool>,
}

/// What a column is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) number: usize,
    pub(crate) context: Context,
    pub(crate) sources: Vec<Source>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) ahead: Asking,
    pub(crate) tick: Tick,
}

impl Column {
    /// A column that is ready to `run`.
    ///
    /// # Errors
    /// No descriptor is left for its epoll.
    pub(crate) fn new(parts: Parts) -> std::io::Result<Column> {
        let epoll = Epoll::new(limits::EVENTS_MAX)?;
        epoll.add(&*parts.waker, TOKEN_WAKER, Interest::Wake, &parts.calls)?;
        let beat = parts.tick.first_beat().map(Beat::new).transpose()?;
        if let Some(beat) = &beat {
            epoll.add(beat, TOKEN_BEAT, Interest::Wake, &parts.calls)?;
        }
        let kit = Kit::new(parts.context, parts.calls);
        let mut column = Column {
            number: parts.number,
            buffers: std::array::from_fn(|at| match at {
                0 => vec![0; kit.spares.large_bytes()],
                _ => Vec::new(),
            }),
            kit,
            epoll,
            sources: parts.sources,
            sources_watched: 0,
            sources_ready: 0,
            connections: Slab::default(),
            queue: Vec::new(),
            queue_next: Vec::new(),
            resting: Vec::new(),
            rested: 0,
            relief_due_ms: 0,
            tick: parts.tick,
            waker: parts.waker,
            ahead: parts.ahead,
            beat,
            stopping: parts.stopping,
        };
        column.watch_sources()?;
        Ok(column)
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// The kernel refuses to wait for events; never on a sound system.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        self.tell_holding();
        // Acquire, pairs with the release in `Server::stop`.
        while !self.stopping.load(Ordering::Acquire) {
            self.wait()?;
            self.turns();
            self.accept_ready();
            self.kit.context.store.quiesce();
            self.tick.worked(self.kit.context.store.maintain());
            self.ahead.ask(&self.kit.context.store);
            self.housekeeping();
        }
        let tokens: Vec<u64> = self.connections.iter().map(|(token, _)| token).collect();
        for token in tokens {
            self.close(token);
        }
        self.kit.context.store.offline();
        Ok(())
    }

    /// Waits until something is ready, not at all when there is work left, and queues what is.
    fn wait(&mut self) -> std::io::Result<()> {
        self.tick.watch(self.kit.arrivals.any(), self.kit.now_ms);
        let timeout = self.timeout();
        let blocks = timeout != Timeout::Zero;
        if blocks {
            self.kit.context.store.offline();
        }
        let events = self.epoll.wait(timeout, &self.kit.calls)?;
        if blocks {
            self.kit.context.store.online();
        }
        for event in events {
            if event.token >= TOKEN_OTHER {
                if event.token == TOKEN_WAKER {
                    self.waker.clear();
                } else if event.token == TOKEN_BEAT {
                    self.beat.iter().for_each(Beat::clear);
                } else {
                    self.sources_ready |= 1 << (event.token - TOKEN_WAKER - 1).min(63);
                }
            } else if let Some(connection) = self.connections.get(event.token) {
                if event.readable {
                    connection.note_input(event.ended);
                }
                if !mem::replace(&mut connection.queued, true) {
                    self.queue.push(event.token);
                }
            }
        }
        let now_ms = self.tick.now(&mut self.kit.context);
        self.kit.pass_time(now_ms);
        self.wake_resting();
        Ok(())
    }

    /// How long to wait: not at all when there is work left, and not for long while connections
    /// wait for room.
    #[inline]
    fn timeout(&self) -> Timeout {
        // Where one of those that asked has got on, so may the next.
        let goes_on = self.resting.len() < self.rested && !self.resting.is_empty();
        if !self.queue.is_empty() || goes_on {
            return Timeout::Zero;
        }
        match self.tick.timeout(self.kit.now_ms) {
            Timeout::Zero => Timeout::Zero,
            _ if !self.resting.is_empty() => Timeout::Exactly(limits::REST),
            timeout => timeout,
        }
    }

    /// Gives connections that wait for room another turn, a few at a time: the column has passed a
    /// quiescent point since, and done other work.
    #[inline]
    fn wake_resting(&mut self) {
        self.rested = self.resting.len();
        if self.rested > 0 {
            let woken = self.rested.min(limits::REST_TURNS_MAX);
            self.queue.extend(self.resting.drain(..woken));
        }
    }

    /// One turn for each connection in the queue. A few are received from before the first of them
    /// is executed, so that what their requests look up is on its way.
    fn turns(&mut self) {
        let mut queue = mem::take(&mut self.queue);
        for tokens in queue.chunks(TURNS_AHEAD) {
            if let [token] = *tokens {
                let received = self.receive(token, 0);
                self.finish(token, 0, received);
            } else {
                self.turns_together(tokens);
            }
        }
        queue.clear();
        self.queue = mem::replace(&mut self.queue_next, queue);
    }

    /// One turn for each of at most `TURNS_AHEAD` connections.
    #[inline(never)]
    fn turns_together(&mut self, tokens: &[u64]) {
        let mut received = [Received::Unasked; TURNS_AHEAD];
        let mut hints = [None; TURNS_AHEAD];
        for (at, &token) in tokens.iter().enumerate() {
            if self.buffers[at].is_empty() {
                self.buffers[at] = vec![0; self.kit.spares.large_bytes()];
            }
            received[at] = self.receive(token, at);
            // The last one's memory would have no time to come.
            if let Received::Input(bytes) = received[at]
                && at + 1 < tokens.len()
                && let Some(connection) = self.connections.get(token)
            {
                hints[at] = connection.hint(&self.kit, &self.buffers[at][..bytes]);
            }
        }
        for hint in hints.into_iter().flatten() {
            self.kit.context.store.prefetch_item(hint);
        }
        for (at, &token) in tokens.iter().enumerate() {
            self.finish(token, at, received[at]);
        }
    }

    /// The first part of a turn, into the buffer `at`.
    #[inline]
    fn receive(&mut self, token: u64, at: usize) -> Received {
        let Some(connection) = self.connections.get(token) else { return Received::Unasked };
        connection.queued = false;
        connection.receive(&mut self.kit, &mut self.buffers[at])
    }

    /// The second part of a turn, and what follows from it.
    #[inline]
    fn finish(&mut self, token: u64, at: usize, received: Received) {
        let Some(connection) = self.connections.get(token) else { return };
        let next = connection.finish(&mut self.kit, &mut self.buffers[at], received);
        match next {
            Next::Again => {
                connection.queued = true;
                self.queue_next.push(token);
            }
            Next::Rest => {
                connection.queued = true;
                self.resting.push(token);
            }
            Next::Sleep | Next::AwaitWrite | Next::Close => {}
        }
        let awaits_write = next == Next::AwaitWrite;
        if next == Next::Close {
            self.close(token);
        } else if connection.awaits_write != awaits_write {
            connection.awaits_write = awaits_write;
            let on = if awaits_write { Interest::Write } else { Interest::Read };
            // It fails only for a descriptor that is not watched; ours is until it is closed.
            let _watched = self.epoll.change(connection.stream(), token, on, &self.kit.calls);
        }
        self.kit.pressed = self.kit.is_pressed(2);
        if self.kit.pressed {
            self.relieve();
        }
    }

    /// When connections hold too much together, closes that one of those that hold such which has
    /// not moved for longest.
    #[cold]
    fn relieve(&mut self) {
        while self.kit.is_pressed(2) {
            let served_ms = self.kit.served_ms;
            // Between the half and the whole of a share only the stalled go, and looking for them
            // among all connections is not worth doing in every turn.
            let over = self.kit.is_pressed(1);
            let part = if over { 1 } else { 2 };
            let (keeps, pins) = (self.kit.keeps_much(part), self.kit.pins_much(part));
            if !over && served_ms < self.relief_due_ms {
                return;
            }
            let oldest = self
                .connections
                .iter()
                .filter(|(_, it)| (keeps && it.keeps_memory()) || (pins && it.pins_memory()))
                .min_by_key(|(_, it)| it.moved_ms)
                .map(|(token, it)| (token, it.moved_ms));
            let Some((token, moved_ms)) = oldest else { return };
            if !over && served_ms.saturating_sub(moved_ms) < limits::STALLED_MS {
                self.relief_due_ms = served_ms + limits::RELIEF_REST_MS;
                return;
            }
            if let Some(connection) = self.connections.get(token) {
                connection.send_refusal(Refusal::NoMemoryRequest, &self.kit);
            }
            self.close(token);
        }
    }

    /// Drops a connection and what it holds.
    fn close(&mut self, token: u64) {
        if let Some(mut connection) = self.connections.remove(token) {
            connection.release(&mut self.kit);
            // Relaxed: a count; nothing else is read on its strength. Pairs with `admit`.
            self.kit.context.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What has its own time: listeners that rested, connections idle for too long.
    fn housekeeping(&mut self) {
        self.kit.heed_limit();
        self.tell_holding();
        if self.tick.rest_is_over(self.kit.now_ms) {
            self.resume_sources();
        }
        if self.tick.arrivals_are_due(self.kit.now_ms) {
            self.kit.arrivals.drop_stalled(self.kit.served_ms);
        }
        if self.tick.second_has_passed(self.kit.now_ms) {
            self.close_idle();
        }
    }

    /// What is held beside the store, for `stats`.
    fn tell_holding(&self) {
        let Kit { context, spares, arrivals, waiting, out, .. } = &self.kit;
        let Some(holding) = context.shared.holding.get(self.number) else { return };
        let (places, place_bytes) = self.connections.places();
        let buffers: usize = self.buffers.iter().map(Vec::len).sum();
        holding.connection_structures.set(places as u64);
        holding.connection_bytes.set((place_bytes + arrivals.held_bytes()) as u64);
        let stock = spares.stock_bytes();
        holding.read_buf_bytes.set((buffers + stock + spares.held_bytes()) as u64);
        holding.read_buf_bytes_free.set(stock as u64);
        holding.response_obj_bytes.set((out.held_bytes() + waiting.held_bytes) as u64);
        holding.resting.set(self.resting.len() as u64);
    }

    /// Closes connections that have been idle for longer than `-o idle_timeout`.
    fn close_idle(&mut self) {
        let limit_seconds = self.kit.context.shared.settings.idle_seconds_max;
        if limit_seconds == 0 {
            return;
        }
        let limit_ms = u64::from(limit_seconds) * 1000;
        let now_ms = self.kit.now_ms;
        let idle: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, it)| now_ms.saturating_sub(it.active_ms) > limit_ms)
            .map(|(token, _)| token)
            .collect();
        for token in idle {
            self.kit.context.counters.idle_kicks.add(1);
            self.close(token);
        }
    }
}
