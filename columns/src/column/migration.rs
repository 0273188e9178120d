//! Moves connections to other columns.
//!
//! ```text
//! giving column   takes a connection out of its epoll between two requests, puts it into the
//!                 taking column's mailbox, and wakes the taking column
//! taking column   takes all connections from its mailbox, and adds them to its epoll
//! ```
//!
//! Where: a column calls `migrate` once per loop, after the turns, and `take_given` when woken.
//! Invariant: at any time a connection is in one column or in one mailbox, so that only one thread
//! reads from it and writes to it. A connection moves only between requests, after every reply is
//! sent. Its socket, parser and unexecuted input move with it. Bytes that arrive during the move
//! wait in the socket; the new column's epoll reports these bytes when the socket is added.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memory::sync::mailbox::Mailbox;
use net::{Waker, monotonic_ns};
use rustix::time::{ClockId, clock_gettime};

use super::balance::{Balance, Connection as Cost, LOAD_MAX, Loads, Move, Verdict};
use super::{Column, Spin};
use crate::connection::Connection;
use crate::executor::Executor;
use crate::limits::{MIGRATION_PERIOD_MS, MIGRATIONS_MAX};
use crate::settings::{Migrate, Settings};
use crate::stream::{Stream, StreamWay};

#[derive(Debug)]
struct Destination<E: Executor, S> {
    mailbox: Mailbox<Connection<E, S>>,
    waker: Arc<Waker>,
}

#[derive(Debug)]
struct Destinations<E: Executor, S>(Box<[Destination<E, S>]>);

/// A column's part in moving connections between columns.
#[derive(Debug)]
pub struct Migration<E: Executor, S> {
    balance: Balance,
    destinations: Arc<Destinations<E, S>>,
    own: usize,
    /// True if in each loop every connection that had a turn moves to the next column (for tests).
    at_each_turn: bool,
    /// When `migrate` next has work, by `TurnState::now_ms`; 0 if it has work in each loop.
    pub(super) due_ms: u64,
    period_ends_ms: u64,
    meter: Meter,
    /// Connections that will move as soon as they are between requests, sorted by destination.
    leaving: Vec<Move>,
    taken: Vec<Connection<E, S>>,
}

impl<E: Executor, S: Stream> Migration<E, S> {
    /// Makes a `Migration` for each column, but none for a single column or with `-o no_migrate`.
    #[must_use]
    pub fn of_columns(settings: &Settings, wakers: &[Arc<Waker>]) -> Vec<Migration<E, S>> {
        if settings.migrate == Migrate::Never || wakers.len() == 1 {
            return Vec::new();
        }
        let destination =
            |waker| Destination { mailbox: Mailbox::new(MIGRATIONS_MAX), waker: Arc::clone(waker) };
        let destinations = Arc::new(Destinations(wakers.iter().map(destination).collect()));
        let loads = Loads::new(wakers.len());
        let at_each_turn = settings.migrate == Migrate::AtEachTurn || is_asked_for_at_each_turn();
        let of_column = |own| Migration {
            balance: Balance::new(Arc::clone(&loads), own),
            destinations: Arc::clone(&destinations),
            own,
            at_each_turn,
            due_ms: 0,
            period_ends_ms: 0,
            meter: Meter::default(),
            leaving: Vec::with_capacity(MIGRATIONS_MAX),
            taken: Vec::with_capacity(MIGRATIONS_MAX),
        };
        (0..wakers.len()).map(of_column).collect()
    }

    /// Begins to measure the load of the calling thread, which must be the column's thread.
    pub(super) fn begin(&mut self) {
        self.meter = Meter::of_this_thread();
    }

    /// Sets `due_ms` to 0 if `migrate` has work in each loop, otherwise to the end of the period.
    fn set_due(&mut self) {
        let each_loop = self.at_each_turn || !self.leaving.is_empty();
        self.due_ms = if each_loop { 0 } else { self.period_ends_ms };
    }
}

/// True if the environment requests migration at each turn, in a build with debug assertions.
fn is_asked_for_at_each_turn() -> bool {
    cfg!(debug_assertions) && std::env::var_os("HYPOSTYLE_MIGRATE_AT_EACH_TURN").is_some()
}

impl<E: Executor, W: StreamWay> Column<E, W> {
    /// Moves the chosen connections that are free to go. Chooses anew at the end of each period.
    #[cold]
    pub(super) fn migrate(&mut self) {
        let Some(migration) = &mut self.migration else { return };
        let now_ms = self.turn.now_ms;
        if migration.at_each_turn {
            migration.leaving.clear();
            let to = (migration.own + 1) % migration.balance.columns();
            let had_a_turn = self.connections.iter().filter(|(_, it)| it.work_bytes() > 0);
            let moves = had_a_turn.map(|(token, _)| Move { token, to });
            migration.leaving.extend(moves.take(MIGRATIONS_MAX));
        } else if now_ms >= migration.period_ends_ms {
            // A chosen connection that was not free to go during a whole period stays here.
            migration.leaving.clear();
            migration.period_ends_ms = now_ms - now_ms % MIGRATION_PERIOD_MS + MIGRATION_PERIOD_MS;
            let load = migration.meter.load(self.spin.as_ref().map_or(0, Spin::idle_ns));
            match migration.balance.end_period(now_ms, load) {
                Verdict::Even => {}
                Verdict::Count => self.connections.iter_mut().for_each(Connection::count_anew),
                Verdict::Give => {
                    let cost = |(token, it): (u64, &Connection<E, W::Stream>)| Cost {
                        token,
                        work: it.work_bytes(),
                        may_go: it.may_be_chosen(now_ms),
                    };
                    let costs = self.connections.iter().map(cost);
                    migration.balance.plan(now_ms, costs, &mut migration.leaving);
                }
            }
        }
        self.give();
        if let Some(migration) = &mut self.migration {
            migration.set_due();
        }
    }

    fn give(&mut self) {
        let Some(migration) = &mut self.migration else { return };
        let mut leaving = std::mem::take(&mut migration.leaving);
        let destinations = Arc::clone(&migration.destinations);
        let (mut given, mut to_wake) = (0, None);
        leaving.retain(|&Move { token, to }| {
            let Some(connection) = self.connections.get(token) else { return false };
            if !connection.is_free_to_go() {
                return true;
            }
            let Some(destination) = destinations.0.get(to) else { return false };
            if self.give_one(token, destination) {
                given += 1;
                let before = to_wake.replace(&destination.waker);
                if let Some(waker) = before.filter(|waker| !Arc::ptr_eq(waker, &destination.waker))
                {
                    waker.wake();
                }
            }
            false
        });
        if let Some(waker) = to_wake {
            waker.wake();
        }
        self.turn.counters.migrations_given.add(given);
        if let Some(migration) = &mut self.migration {
            migration.leaving = leaving;
        }
    }

    /// Puts a connection into another column's mailbox, or returns false if the mailbox is full.
    fn give_one(&mut self, token: u64, destination: &Destination<E, W::Stream>) -> bool {
        let Some(connection) = self.connections.get(token) else { return false };
        self.way.unwatch(connection.stream(), &self.epoll, &self.turn.calls);
        let Some(mut connection) = self.connections.remove(token) else { return false };
        connection.leaves(&mut self.streams);
        match destination.mailbox.put(connection) {
            Ok(()) => true,
            Err(connection) => {
                self.watch(connection);
                false
            }
        }
    }

    /// Takes the connections out of the column's mailbox. The caller has already cleared the waker,
    /// so if a connection is put into the mailbox later, the waker wakes the column again.
    #[cold]
    pub(super) fn take_given(&mut self) {
        let Some(migration) = &mut self.migration else { return };
        let mut taken = std::mem::take(&mut migration.taken);
        if let Some(destination) = migration.destinations.0.get(migration.own) {
            destination.mailbox.take(&mut taken);
        }
        if !taken.is_empty() {
            migration.balance.note_taken();
        }
        self.take_in(&mut taken);
        if let Some(migration) = &mut self.migration {
            migration.taken = taken;
        }
    }

    fn take_in(&mut self, given: &mut Vec<Connection<E, W::Stream>>) {
        self.turn.counters.migrations_taken.add(given.len() as u64);
        for mut connection in given.drain(..) {
            connection.arrived(&self.turn);
            self.watch(connection);
        }
    }

    /// Adds a connection to the column and to its epoll. If the kernel has no memory to watch the
    /// connection, closes it. The epoll also reports input that arrived earlier.
    pub(super) fn watch(&mut self, connection: Connection<E, W::Stream>) {
        connection.comes(&mut self.streams);
        let token = self.connections.insert(connection);
        let Some(connection) = self.connections.get(token) else { return };
        if connection.queued {
            self.queue.push(token);
        }
        let watched = self.way.watch(connection.stream(), token, &self.epoll, &self.turn.calls);
        if watched.is_err() {
            self.close(token);
        }
    }

    pub(super) fn close_mailbox(&mut self) {
        let Some(migration) = &self.migration else { return };
        let destination = migration.destinations.0.get(migration.own);
        let mut given =
            destination.map(|destination| destination.mailbox.close()).unwrap_or_default();
        self.take_in(&mut given);
    }
}

/// Measures the share of time in which the column's thread ran or was ready to run.
#[derive(Debug, Default)]
struct Meter {
    /// The thread's file `schedstat`. The second number in the file is the time, in nanoseconds, in
    /// which the thread was ready to run but did not run. Without the file, this time counts as 0.
    schedstat: Option<File>,
    /// The time of the last reading, and the thread's busy time until then, both in nanoseconds.
    at_ns: u64,
    busy_ns: u64,
}

impl Meter {
    fn of_this_thread() -> Meter {
        let schedstat = File::open("/proc/thread-self/schedstat").ok();
        let mut meter = Meter { schedstat, at_ns: 0, busy_ns: 0 };
        (meter.at_ns, meter.busy_ns) = (monotonic_ns(), meter.busy_ns());
        meter
    }

    /// Returns the thread's busy share of the time since the last call, in thousandths. `idle_ns`
    /// is the total time that the thread has spent looking for work without finding any.
    fn load(&mut self, idle_ns: u64) -> u32 {
        let (at_ns, busy_ns) = (monotonic_ns(), self.busy_ns().saturating_sub(idle_ns));
        let passed_ns = at_ns.saturating_sub(self.at_ns).max(1);
        let load = busy_ns.saturating_sub(self.busy_ns) * u64::from(LOAD_MAX) / passed_ns;
        (self.at_ns, self.busy_ns) = (at_ns, busy_ns);
        u32::try_from(load).unwrap_or(LOAD_MAX).min(LOAD_MAX)
    }

    fn busy_ns(&self) -> u64 {
        // `schedstat` has the CPU time too, but the kernel updates the file only at timer ticks.
        let ran = clock_gettime(ClockId::ThreadCPUTime);
        let ran_ns = ran.tv_sec * 1_000_000_000 + ran.tv_nsec;
        u64::try_from(ran_ns).unwrap_or(0) + self.waited_ns().unwrap_or(0)
    }

    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0; 64];
        let bytes = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(text.get(..bytes)?).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}
