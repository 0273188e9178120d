//! A connection's way from one column to another.
//!
//! Where: beside its turns; `column::migration` decides and carries.
//! Invariant: a connection that is at rest holds nothing of its column's: no buffer, no frame, no
//! place in a queue; and the kernel announces what it is to do next.

use std::os::fd::AsFd;

use net::Stream;
use protocol::Speak;

use super::Connection;
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

    /// It has not moved of late, and may do so as soon as it is at rest.
    pub(crate) fn may_be_chosen(&self, now_ms: u64) -> bool {
        now_ms >= self.stays_until_ms && self.errand.is_none()
    }

    /// It is between two requests, all that it has received is executed, and all replies are sent.
    pub(crate) fn is_free_to_go(&self) -> bool {
        let waits = self.queued || self.awaits_write || self.waits_since_ms.is_some();
        let is_between = self.session.is_between_requests() && !self.closing;
        is_between && !waits && !self.is_under_way()
    }

    /// It has come to the column of this `turn`.
    pub(crate) fn arrived(&mut self, turn: &TurnState) {
        debug_assert!(self.is_free_to_go(), "it left at rest");
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
