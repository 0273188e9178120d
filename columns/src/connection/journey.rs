//! A connection's move from one column (a pinned thread) to another.
//!
//! Where: between turns. `column::migration` chooses the connections, and moves them.
//! Invariant: a connection that is free to go holds no frame and no unsent reply; its only memory
//! is kept input, which moves with it. The new column gives the connection its next turn, because
//! the connection is in that column's queue, or because that column's epoll reports input of it.

use super::{Connection, StreamState};
use crate::executor::Executor;
use crate::limits::MIGRATION_REST_MS;
use crate::stream::Stream;
use crate::turn::TurnState;

impl<E: Executor, S: Stream> Connection<E, S> {
    pub(crate) fn work_bytes(&self) -> u64 {
        self.work_bytes
    }

    pub(crate) fn count_anew(&mut self) {
        self.work_bytes = 0;
    }

    /// True if the connection has no errand and has not moved in the last `MIGRATION_REST_MS`.
    pub(crate) fn may_be_chosen(&self, now_ms: u64) -> bool {
        now_ms >= self.stays_until_ms && self.errand.is_none()
    }

    /// True if the connection is between two requests, all its replies are sent, and it is queued
    /// for a turn if it keeps input. So a connection with an incomplete request is not free to go.
    pub(crate) fn is_free_to_go(&self) -> bool {
        let waits = self.awaits_write || self.waits_since_ms.is_some() || self.errand.is_some();
        let holds = self.unsent.is_some() || self.arrival.is_some() || self.stream.held_bytes() > 0;
        let is_between = self.session.is_between_requests() && !self.closing;
        is_between && !waits && !holds && (self.queued || !self.is_under_way())
    }

    /// Takes the connection's memory out of the counts of its old column.
    pub(crate) fn leaves(&mut self, streams: &mut StreamState) {
        self.count_stream_bytes(streams);
        streams.spares.leaves(self.held.capacity());
    }

    /// Counts the connection's kept input in `streams`, the state of its new column.
    pub(crate) fn comes(&self, streams: &mut StreamState) {
        streams.spares.comes(self.held.capacity());
    }

    /// Notes that the connection has moved from another column to the column of `turn`.
    pub(crate) fn arrived(&mut self, turn: &TurnState<E>) {
        debug_assert!(self.is_free_to_go(), "it left between two requests");
        self.moved_ms = turn.served_ms;
        self.stays_until_ms = turn.now_ms + MIGRATION_REST_MS;
        self.work_bytes = 0;
    }
}
