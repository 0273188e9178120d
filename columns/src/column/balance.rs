//! Decides which connections move, so that no column is saturated while another has time to spare.
//!
//! ```text
//! load of a column    | load in the last period, and when it was published | claimed until |
//!
//! each column         at the end of a period of half a second: publishes its load
//! a saturated column  after two periods in which other columns had time to spare: divides its work
//!                     among itself and those columns, and claims each of them for two periods
//! ```
//!
//! Where: `migration` calls `end_period` twice a second on each column that is awake.
//! Invariant: by the measured loads, a column that takes a connection does not become more loaded
//! than the column that gave the connection. So a connection that causes all of a column's load
//! stays, and no move is undone. A column takes connections from only one column at a time, and
//! takes no more until its load has been measured again. A load published more than two periods ago
//! belongs to a sleeping column and counts as 0. Published loads may be out of date.
//! Source: our own; the KV-Cache paper, section 4.2.1, balances requests instead of connections.

use std::cmp::Reverse;
use std::sync::Arc;

use memory::plant::{Fault, is};
use memory::sync::{AtomicU64, Ordering};

use crate::limits::{
    MIGRATION_BUSY, MIGRATION_CANDIDATES_MAX, MIGRATION_PERIOD_MS, MIGRATION_PERIODS,
    MIGRATION_SPARE, MIGRATIONS_MAX,
};

/// Number of low bits of `Load::published` that hold the load.
const LOAD_BITS: u32 = 10;

/// The load of a column that was busy all the time. Loads are in thousandths of a period.
pub(super) const LOAD_MAX: u32 = 1000;

/// The load that a column publishes to other columns.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Load {
    /// The low `LOAD_BITS` bits are the load. The bits above are the time at which the load was
    /// published, in milliseconds since the server started.
    published: AtomicU64,
    /// Until this time, no column may give connections to this column; 0 at first.
    claimed_until_ms: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Loads(Box<[Load]>);

/// A column's task at the end of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Even,
    /// Count the cost of each connection from now on.
    Count,
    /// Move the connections that `Balance::plan` chooses by the counted costs.
    Give,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) token: u64,
    pub(super) to: usize,
}

#[derive(Debug)]
pub(super) struct Balance {
    loads: Arc<Loads>,
    own: usize,
    /// The column's load in the period that ended last.
    load: u32,
    /// Number of periods in a row in which this column was saturated and another had time to spare.
    uneven_periods: u32,
    /// Buffers of `plan`: the connections that may move, and the columns that may take them.
    candidates: Vec<Connection>,
    takers: Vec<Taker>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) token: u64,
    pub(super) work: u64,
    pub(super) may_go: bool,
}

/// A column that may take connections. `work` is the load of this column, converted into the unit
/// of `Connection::work`.
#[derive(Clone, Copy, Debug)]
struct Taker {
    column: usize,
    work: u64,
}

impl Loads {
    pub(crate) fn new(columns: usize) -> Arc<Loads> {
        Arc::new(Loads((0..columns).map(|_| Load::default()).collect()))
    }

    /// Returns the load of a column that may take connections; `None` if the column may take none.
    fn of_taker(&self, column: usize, now_ms: u64) -> Option<u32> {
        let load = &self.0[column];
        // Relaxed, here and below: the values are hints that order nothing. The reads pair with the
        // exchange in `claim` and with the store in `end_period`.
        if load.claimed_until_ms.load(Ordering::Relaxed) > now_ms {
            return None;
        }
        let published = load.published.load(Ordering::Relaxed);
        let is_old =
            (published >> LOAD_BITS) + 2 * MIGRATION_PERIOD_MS < now_ms && !is(Fault::OldLoadKept);
        let published = u32::try_from(published & ((1 << LOAD_BITS) - 1)).unwrap_or(LOAD_MAX);
        let load = if is_old { 0 } else { published };
        (load <= MIGRATION_SPARE).then_some(load)
    }

    /// Claims a column for `MIGRATION_PERIODS` periods. Returns false if it is already claimed.
    fn claim(&self, column: usize, now_ms: u64) -> bool {
        let until = &self.0[column].claimed_until_ms;
        // Relaxed: of several claims at once only one exchange succeeds; the time orders nothing.
        let before = until.load(Ordering::Relaxed);
        let after = now_ms + u64::from(MIGRATION_PERIODS) * MIGRATION_PERIOD_MS;
        is(Fault::ClaimedByTwo)
            || before <= now_ms
                && until
                    .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
    }
}

impl Balance {
    pub(super) fn new(loads: Arc<Loads>, own: usize) -> Balance {
        let takers = Vec::with_capacity(loads.0.len());
        Balance {
            loads,
            own,
            load: 0,
            uneven_periods: 0,
            candidates: Vec::with_capacity(MIGRATION_CANDIDATES_MAX),
            takers,
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.loads.0.len()
    }

    /// Ends a period in which the column had this `load`, and publishes the load.
    pub(super) fn end_period(&mut self, now_ms: u64, load: u32) -> Verdict {
        self.load = load.min(LOAD_MAX);
        let published = now_ms << LOAD_BITS | u64::from(self.load);
        // Relaxed: the load is a hint that orders nothing. Pairs with the read in `of_taker`.
        self.loads.0[self.own].published.store(published, Ordering::Relaxed);
        let is_uneven = self.load >= MIGRATION_BUSY
            && self.others().any(|column| self.loads.of_taker(column, now_ms).is_some());
        self.uneven_periods = if is_uneven { self.uneven_periods + 1 } else { 0 };
        match self.uneven_periods {
            0 => Verdict::Even,
            periods if periods < MIGRATION_PERIODS && !is(Fault::BurstMoved) => Verdict::Count,
            _ => Verdict::Give,
        }
    }

    pub(super) fn note_taken(&mut self) {
        self.uneven_periods = 0;
    }

    /// Returns the other columns, in the order of their numbers, from the column after this one on.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (own, columns) = (self.own, self.columns());
        (1..columns).map(move |step| (own + step) % columns)
    }

    /// Plans moves that divide the last period's work among the columns. Puts the moves, sorted by
    /// destination, into `moves`, which must be empty. `connections` are all connections of this
    /// column.
    pub(super) fn plan(
        &mut self,
        now_ms: u64,
        connections: impl Iterator<Item = Connection>,
        moves: &mut Vec<Move>,
    ) {
        self.uneven_periods = 0;
        let mut own_work = self.choose_candidates(connections);
        self.choose_takers(now_ms, own_work);
        self.candidates.sort_unstable_by_key(|it| (Reverse(it.work), it.token));
        for Connection { work, token, .. } in self.candidates.drain(..) {
            // If several takers have the least work, the first of them in `takers` is chosen.
            let Some(taker) = self.takers.iter_mut().min_by_key(|it| it.work) else { break };
            let is_less = taker.work + work <= own_work - work || is(Fault::WholeWorkMoved);
            if is_less && moves.len() < MIGRATIONS_MAX {
                (taker.work, own_work) = (taker.work + work, own_work - work);
                moves.push(Move { token, to: taker.column });
            }
        }
        moves.sort_unstable_by_key(|it| it.to);
        // Drops moves to a column that another column has claimed in the meantime.
        let (loads, mut asked) = (&self.loads, None);
        moves.retain(|it| {
            if asked.is_none_or(|(column, _)| column != it.to) {
                asked = Some((it.to, loads.claim(it.to, now_ms)));
            }
            asked.is_some_and(|(_, is_ours)| is_ours)
        });
    }

    /// Fills `candidates` with the costliest movable connections. Returns the sum of all work.
    fn choose_candidates(&mut self, connections: impl Iterator<Item = Connection>) -> u64 {
        let mut work_sum = 0;
        for connection in connections {
            work_sum += connection.work;
            if !connection.may_go || connection.work == 0 {
                continue;
            }
            if self.candidates.len() == MIGRATION_CANDIDATES_MAX {
                let half = MIGRATION_CANDIDATES_MAX / 2;
                self.candidates.select_nth_unstable_by_key(half, |it| Reverse(it.work));
                self.candidates.truncate(half);
            }
            self.candidates.push(connection);
        }
        work_sum
    }

    /// Fills `takers` with the columns that have time to spare. `own_work` is the work that caused
    /// this column's load; the loads of other columns are converted into work at the same rate.
    fn choose_takers(&mut self, now_ms: u64, own_work: u64) {
        self.takers.clear();
        for column in self.others() {
            if let Some(load) = self.loads.of_taker(column, now_ms) {
                let work = u128::from(own_work) * u128::from(load) / u128::from(self.load.max(1));
                self.takers.push(Taker { column, work: u64::try_from(work).unwrap_or(u64::MAX) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
