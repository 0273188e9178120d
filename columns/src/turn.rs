//! The part of a column's state that the turns of connections and datagrams use.
//!
//! Where: a column lends its `TurnState` to the connection or datapath that has a turn.
//! Invariant: between two turns, `out` has no replies and pins no value.

use std::sync::Arc;

use net::Calls;

use crate::counters::Counters;
use crate::executor::Executor;
use crate::limits;
use crate::out::Out;
use crate::shared::Shared;

/// The part of a column that a turn uses.
#[derive(Debug)]
pub struct TurnState<E> {
    /// Executes the requests.
    pub executor: E,
    /// The replies of this turn.
    pub out: Out,
    /// The column's own counters.
    pub counters: Arc<Counters>,
    /// The state that all columns share.
    pub shared: Arc<Shared>,
    /// The number of the column.
    pub column: usize,
    /// The counts of the column's system calls.
    pub calls: Arc<Calls>,
    /// Milliseconds since the server started, read once per loop.
    pub now_ms: u64,
    /// The sum of the milliseconds of all loops, where each loop counts for at most `LOOP_MS_MAX`.
    /// By this clock the column measures how long a connection or datagram stalls or waits.
    pub served_ms: u64,
}

impl<E: Executor> TurnState<E> {
    /// Makes the state of a column that has not started to serve.
    #[must_use]
    pub fn new(
        executor: E,
        (shared, column): (Arc<Shared>, usize),
        calls: Arc<Calls>,
    ) -> TurnState<E> {
        let value_bytes_max = executor.store().map_or(0, store::Column::log_value_bytes_max);
        let counters = shared.counters.get(column).map(Arc::clone).unwrap_or_default();
        let out = Out::for_column(value_bytes_max);
        TurnState { executor, out, counters, shared, column, calls, now_ms: 0, served_ms: 0 }
    }

    /// Sets `now_ms` and `served_ms` for a loop that begins at `now_ms`.
    #[inline]
    pub(crate) fn pass_time(&mut self, now_ms: u64) {
        let since_ms = now_ms.saturating_sub(self.now_ms);
        self.served_ms += since_ms.min(limits::LOOP_MS_MAX);
        self.executor.begin_loop(since_ms);
        self.now_ms = now_ms;
    }
}
