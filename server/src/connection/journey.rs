//! A connection's way from one column to another.
//!
//! Where: beside its turns; `column::migration` decides and carries.
//! Invariant: a connection that is free to go holds nothing of its column's but input, which goes
//! with it: no frame, no reply. What it is to do next the kernel announces, or it is queued, and
//! has its next turn where it comes to.

use std::os::fd::AsFd;

use net::Stream;
use protocol::Speak;

use super::{Connection, StreamState};
use crate::limits::MIGRATION_REST_MS;
use crate::turn::TurnState;

impl Connection {
    /// What it has cost since it was counted anew, in bytes.
    pub(crate) fn work_bytes(&self) -> u64 {
        self.work_bytes
    }

    /// What it costs counts from now on.
    pub(crate) fn count_anew(&mut self) {
        self.work_bytes = 0;
    }

    /// It has not moved of late, and may do so as soon as it is free to go.
    pub(crate) fn may_be_chosen(&self, now_ms: u64) -> bool {
        now_ms >= self.stays_until_ms && self.errand.is_none()
    }

    /// It is between two requests, all replies are sent, and if it keeps input, it has another turn
    /// at once. One that keeps the beginning of a request, whose rest has not come, stays.
    pub(crate) fn is_free_to_go(&self) -> bool {
        let waits = self.awaits_write || self.waits_since_ms.is_some() || self.errand.is_some();
        let holds = self.unsent.is_some() || self.arrival.is_some();
        let is_between = self.session.is_between_requests() && !self.closing;
        is_between && !waits && !holds && (self.queued || !self.is_under_way())
    }

    /// It goes from the column of these `streams`, and takes along what it keeps.
    pub(crate) fn leaves(&self, streams: &mut StreamState) {
        streams.spares.leaves(self.held.capacity());
    }

    /// It comes to the column of these `streams`, or stays there after all.
    pub(crate) fn comes(&self, streams: &mut StreamState) {
        streams.spares.comes(self.held.capacity());
    }

    /// It has come from another column to that of this `turn`.
    pub(crate) fn arrived(&mut self, turn: &TurnState) {
        debug_assert!(self.is_free_to_go(), "it left between two requests");
        // The other column has a clock of its own here.
        self.moved_ms = turn.served_ms;
        self.stays_until_ms = turn.now_ms + MIGRATION_REST_MS;
        self.work_bytes = 0;
    }

    /// Another one with the same socket: the fault that `GivenConnectionKept` plants.
    pub(crate) fn twin(&self) -> Option<Connection> {
        let stream = Stream::from(self.stream.as_fd().try_clone_to_owned().ok()?);
        let mut twin = Connection::new(stream, Speak::Auto, (self.moved_ms, self.active_ms));
        twin.session.clone_from(&self.session);
        Some(twin)
    }
}
