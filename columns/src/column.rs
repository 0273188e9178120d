//! A column: a thread that owns connections, executes their requests in batches, and answers them.
//!
//! Where: the column's loop calls all code on a request's path.
//! Invariant: in each loop, every ready connection gets one turn, and the connection that became
//! ready first comes first. Once per loop, between turns, the column passes a quiescent point: a
//! moment at which the column holds no reference into the store. Before a column's thread blocks,
//! the column goes offline in the store, so that the reuse of memory does not wait for this column.

mod accept;
mod balance;
mod connections;
mod ending;
mod migration;
mod spin;
mod steal;
mod tell;
mod timers;
mod turns;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::{Calls, Epoll, Interest, SecondTimer, Timeout, Waker};
use protocol::{ProtocolMode, Refusal};

use crate::connection::StreamState;
use crate::datagram;
use crate::datapath::list::{Datapaths, LoopInput, NUMBERS};
use crate::executor::Executor;
use crate::limits::{self, DATAGRAMS_RECEIVED_MAX, TURNS_AHEAD};
use crate::shared::Shared;
use crate::stream::{Ready, Stream, StreamWay};
use crate::turn::TurnState;

use connections::{Connections, TOKEN_OTHER};
pub use ending::End;
use ending::Ending;
pub use migration::Migration;
use spin::Spin;
use steal::Victim;
pub use steal::{Neighbour, Statuses, Stealing};
pub use timers::{Timers, coarse_now};

/// The token of the column's waker. The column's listeners have the next tokens.
const TOKEN_WAKER: u64 = TOKEN_OTHER;

/// The token of the datapaths' descriptor number 0. The tokens of all listeners are smaller.
const TOKEN_DATAPATHS: u64 = TOKEN_OTHER + 64;

/// The token of the timer that wakes the column once a second.
const TOKEN_TIMER: u64 = u64::MAX;

const _: () = assert!(TOKEN_DATAPATHS + NUMBERS < TOKEN_TIMER);

/// A listener of one column: the column's own socket, or a socket that all columns share.
#[derive(Debug)]
pub struct ColumnListener<L> {
    /// The socket.
    pub socket: Arc<L>,
    /// The protocols that clients of the listener may speak.
    pub speak: ProtocolMode,
    /// True if all columns share the socket.
    pub shared: bool,
}

impl<L> Clone for ColumnListener<L> {
    fn clone(&self) -> Self {
        ColumnListener { socket: Arc::clone(&self.socket), ..*self }
    }
}

/// A column, which serves in the thread that calls `run`.
#[derive(Debug)]
pub struct Column<E: Executor, W: StreamWay> {
    turn: TurnState<E>,
    streams: StreamState,
    /// The receive buffers of turns. Each buffer except the first is allocated when it is needed.
    buffers: [Vec<u8>; TURNS_AHEAD],
    epoll: Epoll,
    /// The way by which connections reach this column.
    way: W,
    listeners: Vec<ColumnListener<W::Listener>>,
    datapaths: Datapaths,
    /// Present with `-U` and several columns, unless `-o no_steal` is given.
    stealing: Option<Stealing>,
    migration: Option<Migration<E, W::Stream>>,
    victim: Option<Victim>,
    /// One bit for each listener. The bit is set if the epoll watches the listener.
    listeners_watched: u64,
    /// One bit for each listener. The bit is set if the listener has connections to accept.
    listeners_ready: u64,
    connections: Connections<E, W::Stream>,
    /// Connections that get a turn in this loop (`queue`) or in the next loop (`queue_next`).
    queue: Vec<u64>,
    queue_next: Vec<u64>,
    /// Connections that wait for room in the store, in the order in which they began to wait.
    awaiting_room: Vec<u64>,
    /// The length of `awaiting_room` before some of its connections got a turn in the last loop.
    awaiting_room_before: usize,
    /// Connections whose errand (a command that takes several turns) has nothing to do now. The
    /// column tries these errands again a little later.
    awaiting_errand: Vec<u64>,
    timers: Timers,
    /// Present with `-o busy_poll`.
    spin: Option<Spin>,
    waker: Arc<Waker>,
    /// `None` if this column need not wake up every second.
    second_timer: Option<SecondTimer>,
    end: Arc<End>,
    ending: Ending,
}

/// The parts from which a column is made.
#[derive(Debug)]
pub struct Parts<E: Executor, W: StreamWay> {
    /// Executes the column's requests.
    pub executor: E,
    /// The state that all columns share, and the number of this column.
    pub shared: (Arc<Shared>, usize),
    /// The listeners from which the column accepts connections.
    pub listeners: Vec<ColumnListener<W::Listener>>,
    /// The way by which connections reach the column.
    pub way: W,
    /// The ways by which datagrams reach the column.
    pub datapaths: Datapaths,
    /// Present if the column takes datagrams from other columns.
    pub stealing: Option<Stealing>,
    /// Present if connections may move between columns.
    pub migration: Option<Migration<E, W::Stream>>,
    /// Wakes the column.
    pub waker: Arc<Waker>,
    /// The orders to stop.
    pub end: Arc<End>,
    /// The counts of the column's system calls.
    pub calls: Arc<Calls>,
    /// The column's clock.
    pub timers: Timers,
}

impl<E: Executor, W: StreamWay> Column<E, W> {
    /// Makes a column that does not serve yet.
    ///
    /// # Errors
    /// The kernel has no descriptor or memory for the column.
    pub fn new(parts: Parts<E, W>) -> std::io::Result<Column<E, W>> {
        let epoll = Epoll::new(limits::EVENTS_MAX)?;
        epoll.add(&*parts.waker, TOKEN_WAKER, Interest::Wake, &parts.calls)?;
        let second_timer = parts.timers.first_second().map(SecondTimer::new).transpose()?;
        if let Some(second_timer) = &second_timer {
            epoll.add(second_timer, TOKEN_TIMER, Interest::Wake, &parts.calls)?;
        }
        let turn = TurnState::new(parts.executor, parts.shared, parts.calls);
        let streams = StreamState::new(&turn);
        let spin = Spin::new(turn.shared.settings.busy_poll_us);
        let mut column = Column {
            buffers: std::array::from_fn(|at| match at {
                0 => vec![0; streams.spares.large_bytes()],
                _ => Vec::new(),
            }),
            turn,
            streams,
            epoll,
            way: parts.way,
            listeners: parts.listeners,
            datapaths: parts.datapaths,
            stealing: parts.stealing,
            migration: parts.migration,
            victim: None,
            listeners_watched: 0,
            listeners_ready: 0,
            connections: Connections::default(),
            queue: Vec::new(),
            queue_next: Vec::new(),
            awaiting_room: Vec::new(),
            awaiting_room_before: 0,
            awaiting_errand: Vec::new(),
            timers: parts.timers,
            spin,
            waker: parts.waker,
            second_timer,
            end: parts.end,
            ending: Ending::default(),
        };
        column.watch_listeners()?;
        for (number, descriptor) in column.datapaths.descriptors() {
            let (token, calls) = (TOKEN_DATAPATHS + number, &column.turn.calls);
            column.epoll.add(descriptor, token, Interest::Read, calls)?;
        }
        Ok(column)
    }

    /// Serves until the server stops.
    ///
    /// # Errors
    /// `epoll_wait` fails.
    pub fn run(mut self) -> std::io::Result<()> {
        self.tell_holding();
        let thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        self.turn.counters.thread_id.set(u64::try_from(thread_id).unwrap_or(0));
        self.migration.iter_mut().for_each(Migration::begin);
        // Each order to stop wakes the column, and one may have been given before this point.
        let mut is_woken = true;
        while !((is_woken || self.ending != Ending::Serving) && self.is_over()) {
            is_woken = self.wait()?;
            self.turn.counters.loops.add(1);
            self.turns();
            self.datagram_turns();
            if let Some(victim) = self.victim.take() {
                self.steal(&victim);
            }
            if self.listeners_ready != 0 {
                self.accept_ready();
            }
            if let Some(migration) = &self.migration
                && self.turn.now_ms >= migration.due_ms
                && self.ending == Ending::Serving
            {
                self.migrate();
            }
            self.timers.worked(self.turn.executor.end_loop());
            self.housekeeping();
        }
        self.close_mailbox();
        let tokens: Vec<u64> = self.connections.iter().map(|(token, _)| token).collect();
        for token in tokens {
            self.close(token);
        }
        self.turn.executor.offline();
        Ok(())
    }

    /// Takes events, and waits for events only if no work is left. Queues the ready connections.
    /// Returns true if the column's waker was among the events.
    fn wait(&mut self) -> std::io::Result<bool> {
        self.timers.watch_arrivals(self.streams.arrivals.any(), self.turn.now_ms);
        let due = self.timeout();
        let victim = match due {
            Timeout::Zero => None,
            _ => self.stealing.as_ref().and_then(Stealing::victim),
        };
        let spins = self.spin.as_mut().is_some_and(|spin| spin.goes_on(due));
        let goes_on = spins || victim.is_some();
        let timeout = if goes_on { Timeout::Zero } else { due };
        let blocks = timeout != Timeout::Zero;
        if blocks {
            self.turn.out.shrink();
            self.turn.executor.offline();
            self.stealing.iter_mut().for_each(|it| it.sleeps(true));
        }
        let events = self.epoll.wait(timeout, &self.turn.calls)?;
        let count = events.len();
        if blocks {
            self.stealing.iter_mut().for_each(|it| it.sleeps(false));
            self.turn.executor.online();
        }
        // A column that has events of its own does not steal.
        self.victim = victim.filter(|_| count == 0);
        let mut is_woken = false;
        for event in events {
            if event.token >= TOKEN_OTHER {
                if event.token == TOKEN_WAKER {
                    self.waker.clear();
                    is_woken = true;
                } else if event.token == TOKEN_TIMER {
                    self.second_timer.iter().for_each(SecondTimer::clear);
                } else if event.token >= TOKEN_DATAPATHS {
                    self.datapaths.note_input(event.token - TOKEN_DATAPATHS);
                } else {
                    self.listeners_ready |= 1 << (event.token - TOKEN_WAKER - 1).min(63);
                }
            } else {
                let ready = Ready { readable: event.readable, ended: event.ended };
                note_ready(&mut self.connections, &mut self.queue, event.token, ready);
            }
        }
        if let Some(spin) = &mut self.spin
            && count > 0
        {
            spin.note_work();
        }
        if self.ending != Ending::Serving {
            self.note_events(count);
        }
        let now_ms = self.timers.now(&mut self.turn);
        self.turn.pass_time(now_ms);
        self.take_ready();
        if is_woken {
            self.take_given();
        }
        self.retry_for_room();
        self.queue.append(&mut self.awaiting_errand);
        Ok(is_woken)
    }

    /// Queues the connections that are ready without an event of the epoll.
    #[inline]
    fn take_ready(&mut self) {
        let Column { connections, queue, spin, .. } = self;
        self.way.ready(self.turn.now_ms, |token, ready| {
            spin.iter_mut().for_each(Spin::note_work);
            note_ready(connections, queue, token, ready);
        });
    }

    /// Returns how long the column may wait for events. The time is zero while work is left, and
    /// `ROOM_RETRY` while requests wait for room in the store.
    #[inline]
    fn timeout(&mut self) -> Timeout {
        // If a connection found room in the last loop, other connections may now find room too.
        let goes_on =
            self.awaiting_room.len() < self.awaiting_room_before && !self.awaiting_room.is_empty();
        let datagrams = self.datapaths.next();
        let is_behind = self.stealing.as_ref().is_some_and(Stealing::looks_again);
        let goes_on = goes_on || is_behind || matches!(datagrams, datagram::Next::Again);
        if !self.queue.is_empty() || goes_on || self.ending == Ending::Looking {
            return Timeout::Zero;
        }
        let awaits_room =
            !self.awaiting_room.is_empty() || matches!(datagrams, datagram::Next::AwaitRoom);
        match self.timers.timeout(self.turn.now_ms, self.way.due_ms()) {
            Timeout::Zero => Timeout::Zero,
            _ if awaits_room => Timeout::Exactly(limits::ROOM_RETRY),
            Timeout::Within(time) if !self.awaiting_errand.is_empty() => {
                Timeout::Within(time.min(limits::ERRAND_RETRY))
            }
            _ if !self.awaiting_errand.is_empty() => Timeout::Within(limits::ERRAND_RETRY),
            timeout => timeout,
        }
    }

    #[inline]
    fn datagram_turns(&mut self) {
        let counters = &self.turn.counters;
        let steals_given = counters.steals_given_near.get() + counters.steals_given_far.get();
        let at_once = self.stealing.as_ref().map_or(DATAGRAMS_RECEIVED_MAX, Stealing::at_once);
        let input = self.datapaths.turns(at_once, &mut self.turn);
        let input = LoopInput { steals_given, ..input };
        self.stealing.iter_mut().for_each(|it| it.note_loop(input, net::monotonic_ns));
    }

    /// Steals datagrams from a column that receives datagrams faster than it executes them.
    fn steal(&mut self, &Victim { column, socket, at_once, is_near }: &Victim) {
        let taken = self.datapaths.steal((column, socket), at_once, &mut self.turn);
        self.stealing.iter_mut().for_each(|it| it.note_try(taken));
        if taken == 0 {
            return;
        }
        self.spin.iter_mut().for_each(Spin::note_work);
        let TurnState { counters, shared, .. } = &self.turn;
        counters.datagrams_stolen.add(taken as u64);
        let given = &shared.counters[column];
        if is_near {
            counters.steals_taken_near.add(1);
            given.steals_given_near.add_one();
        } else {
            counters.steals_taken_far.add(1);
            given.steals_given_far.add_one();
        }
    }

    /// Gives another turn to a few of the connections that wait for room in the store. There may be
    /// room now, because the column has passed a quiescent point.
    #[inline]
    fn retry_for_room(&mut self) {
        self.awaiting_room_before = self.awaiting_room.len();
        if self.awaiting_room_before > 0 {
            let woken = self.awaiting_room_before.min(limits::ROOM_RETRIES_MAX);
            self.queue.extend(self.awaiting_room.drain(..woken));
        }
    }

    /// While the connections of this column together use too much memory, closes the connection
    /// that has made no progress for the longest time.
    #[cold]
    fn relieve(&mut self) {
        while self.streams.is_pressed(2) {
            let served_ms = self.turn.served_ms;
            // A column that uses less than its whole share of memory closes only stalled
            // connections. After a search that finds no stalled connection, the column pauses,
            // because a search in every turn would cost too much.
            let over = self.streams.is_pressed(1);
            let divisor = if over { 1 } else { 2 };
            let (keeps, pins) = (self.streams.keeps_much(divisor), self.streams.pins_much(divisor));
            if !over && !self.timers.relief_is_due(served_ms) {
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
                self.timers.rest_relief(served_ms);
                return;
            }
            if let Some(connection) = self.connections.get(token) {
                connection.send_refusal(Refusal::NoMemoryRequest, &self.turn);
            }
            self.close(token);
        }
    }

    fn note_connection(&mut self, stream: &W::Stream, reason: Option<&str>) {
        self.turn.executor.note_connection(|| stream.peer(), stream.number(), reason);
    }

    fn close(&mut self, token: u64) {
        self.close_for(token, "normal");
    }

    /// Closes a connection. Gives `reason` to clients that use `watch connevents`.
    pub(crate) fn close_for(&mut self, token: u64, reason: &str) {
        if let Some(mut connection) = self.connections.remove(token) {
            self.note_connection(connection.stream(), Some(reason));
            connection.release(&mut self.streams);
            // Relaxed: no other data depend on the count. `admit` adds to the count.
            self.turn.shared.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Does periodic work: resumes listeners, drops stalled values, closes idle connections.
    fn housekeeping(&mut self) {
        if self.turn.shared.pages.any() {
            self.answer_page_requests();
        }
        self.streams.follow_memory_limit(&self.turn);
        self.tell_holding();
        if self.timers.listeners_rest_is_over(self.turn.now_ms) {
            self.resume_listeners();
        }
        if self.timers.arrivals_are_due(self.turn.now_ms) {
            self.streams.arrivals.drop_stalled(self.turn.served_ms);
        }
        if self.timers.second_has_passed(self.turn.now_ms) {
            self.close_idle();
            self.datapaths.look(&self.turn);
        }
    }

    /// Publishes how much memory and how many connections the column has, for `stats`.
    fn tell_holding(&self) {
        let TurnState { counters: holding, out, calls, .. } = &self.turn;
        let StreamState { spares, arrivals, waiting, .. } = &self.streams;
        let (entries, entry_bytes) = self.connections.entries();
        let buffers: usize = self.buffers.iter().map(Vec::len).sum();
        holding.connection_structures.set(entries as u64);
        holding.connection_bytes.set((entry_bytes + arrivals.held_bytes()) as u64);
        let spare = spares.spare_bytes();
        let datagrams = self.datapaths.held_bytes();
        let read_buf_bytes = buffers + spare + spares.held_bytes() + datagrams;
        let received = self.buffers.iter().filter(|buffer| !buffer.is_empty()).count();
        holding.read_buf_count.set((received + spares.count()) as u64);
        holding.read_buf_bytes.set(read_buf_bytes as u64);
        holding.read_buf_bytes_free.set(spare as u64);
        holding.response_obj_count.set(1 + waiting.count as u64);
        holding.response_obj_bytes.set((out.held_bytes() + waiting.held_bytes) as u64);
        holding.awaiting_room.set(self.awaiting_room.len() as u64);
        holding.connections.set(self.connections.len() as u64);
        holding.queued.set(self.queue.len() as u64);
        holding.system_calls.set(calls.sum());
    }

    fn close_idle(&mut self) {
        let limit_seconds = self.turn.shared.settings.idle_seconds_max;
        if limit_seconds == 0 {
            return;
        }
        let limit_ms = u64::from(limit_seconds) * 1000;
        let now_ms = self.turn.now_ms;
        let idle: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, it)| now_ms.saturating_sub(it.active_ms) > limit_ms)
            .map(|(token, _)| token)
            .collect();
        for token in idle {
            self.turn.counters.idle_kicks.add(1);
            self.close_for(token, "idle_timeout");
        }
    }
}

/// Notes that a connection is ready, and queues the connection for a turn.
#[inline]
fn note_ready<E: Executor, S: Stream>(
    connections: &mut Connections<E, S>,
    queue: &mut Vec<u64>,
    token: u64,
    ready: Ready,
) {
    let Some(connection) = connections.get(token) else { return };
    if ready.readable {
        connection.note_input(ready.ended);
    }
    if !mem::replace(&mut connection.queued, true) {
        queue.push(token);
    }
}
