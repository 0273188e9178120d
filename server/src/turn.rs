//! The part of a column's state that the turns of connections and datagrams use.
//!
//! Where: a column lends its `TurnState` to the connection or datapath that has a turn.
//! Invariant: between two turns, `out` has no replies and pins no value.

use std::sync::Arc;

use net::Calls;

use crate::execute::Context;
use crate::limits;
use crate::out::Out;

/// The part of a column that a turn uses.
#[derive(Debug)]
pub struct TurnState {
    /// The state that the execution of requests needs.
    pub context: Context,
    /// The replies of this turn.
    pub out: Out,
    /// The counts of the column's system calls.
    pub calls: Arc<Calls>,
    /// Milliseconds since the server started, read once per loop.
    pub now_ms: u64,
    /// The sum of the milliseconds of all loops, where each loop counts for at most `LOOP_MS_MAX`.
    /// By this clock the column measures how long a connection or datagram stalls or waits.
    pub served_ms: u64,
}

impl TurnState {
    /// Makes the state of a column that has not started to serve.
    #[must_use]
    pub fn new(context: Context, calls: Arc<Calls>) -> TurnState {
        let out = Out::for_column(context.store.log_value_bytes_max());
        TurnState { context, out, calls, now_ms: 0, served_ms: 0 }
    }

    /// Sets `now_ms` and `served_ms` for a loop that begins at `now_ms`.
    #[inline]
    pub(crate) fn pass_time(&mut self, now_ms: u64) {
        self.served_ms += now_ms.saturating_sub(self.now_ms).min(limits::LOOP_MS_MAX);
        self.context.begin_loop(now_ms.saturating_sub(self.now_ms));
        self.now_ms = now_ms;
    }
}
