//! Executes the requests in a connection's input.
//!
//! Where: after a turn has received bytes, and before the turn sends replies.
//! Invariant: bytes that a turn did not use are executed in a later turn, each byte once. The bytes
//! of a large value go into its frames as they arrive.

use protocol::text::operator::Streams;
use protocol::{Request, Step};

use super::arrival::Fill;
use super::{Connection, StreamState};
use crate::execute::budget::{Budget, StopReason};
use crate::execute::turn;
use crate::execute::{self, NextStep};
use crate::limits::ROOM_WAIT_MS_MAX;
use crate::turn::TurnState;

/// The reason why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The remaining input is not a whole request.
    Hungry,
    /// The turn's budget is spent; there may be more requests to execute.
    Enough,
    /// A request or an arriving value found no room in the store. The column tries again later.
    Wait,
    Close,
}

impl Connection {
    /// Executes the requests in `input`. Returns why it stopped, and the number of used bytes.
    #[inline]
    pub(super) fn execute(
        &mut self,
        turn: &mut TurnState,
        streams: &mut StreamState,
        input: &[u8],
    ) -> (Stop, usize) {
        let mut at = 0;
        self.set_may_wait(turn);
        if self.arrival.is_none()
            && let Some(done) = turn::run_only(turn, &self.session, input)
        {
            return if done { (Stop::Hungry, input.len()) } else { (Stop::Wait, 0) };
        }
        let mut budget = self.budget(turn, streams);
        if self.arrival.is_some() {
            match self.fill(turn, streams, (input, 0), &mut budget) {
                (Some(stop), used) => return (stop, used),
                (None, used) => at = used,
            }
        }
        let (stopped, at) = turn::run(turn, &mut self.session, (input, at), &mut budget);
        self.go_on(turn, streams, (input, at), &mut budget, stopped)
    }

    /// Sets `may_wait`: false if the connection has already waited too long for room in the store.
    /// If any client watches events, also notes the connection's descriptor for the events.
    #[inline]
    pub(crate) fn set_may_wait(&self, turn: &mut TurnState) {
        turn.context.may_wait = self
            .waits_since_ms
            .is_none_or(|since_ms| turn.served_ms.saturating_sub(since_ms) < ROOM_WAIT_MS_MAX);
        if turn.context.noted.watched != Streams::default() {
            turn.context.noted.descriptor = self.descriptor();
        }
    }

    /// Returns the budget of the turn that begins. The caller has called `set_may_wait`.
    #[inline]
    pub(crate) fn budget(&self, turn: &TurnState, streams: &StreamState) -> Budget {
        let mut budget = streams.budget();
        if !turn.context.may_wait {
            budget.spend_all_but_one(); // only the first request has waited too long
        }
        budget
    }

    /// Continues at byte `at`, where execution stopped for the reason `stopped`. If an incomplete
    /// large value begins at `at`, starts to receive the value. Returns why the turn stops, and how
    /// many bytes are used.
    #[inline]
    pub(super) fn go_on(
        &mut self,
        turn: &mut TurnState,
        streams: &mut StreamState,
        (input, at): (&[u8], usize),
        budget: &mut Budget,
        stopped: StopReason,
    ) -> (Stop, usize) {
        match stopped {
            StopReason::Hungry => (Stop::Hungry, at),
            StopReason::Enough => (Stop::Enough, at),
            StopReason::Close => {
                // A request to close (`quit`) is no fault; every other reason to close is a fault.
                self.fault = match self.session.clone().next(&input[at..]) {
                    Step::Request(last, _) => matches!(last, Request::LastAnswer(_)),
                    _ => true,
                };
                (Stop::Close, at)
            }
            StopReason::Wait => (Stop::Wait, at),
            StopReason::Body => self.take_body(turn, streams, (input, at), budget),
        }
    }

    /// Receives the large value of the request at byte `at`, and executes the requests after it.
    #[cold]
    fn take_body(
        &mut self,
        turn: &mut TurnState,
        streams: &mut StreamState,
        (input, mut at): (&[u8], usize),
        budget: &mut Budget,
    ) -> (Stop, usize) {
        loop {
            turn.out.settle(&turn.context.store);
            let (request, header_bytes, value_bytes, end_bytes) =
                match self.session.next(&input[at..]) {
                    Step::Body { request, header_bytes, value_bytes, end_bytes }
                        if value_bytes as usize > streams.log_value_bytes =>
                    {
                        (request, header_bytes, value_bytes, end_bytes)
                    }
                    _ => return (Stop::Hungry, at),
                };
            let header = &input[at..at + header_bytes];
            at += header_bytes;
            match execute::begin(&mut turn.context, &request, value_bytes) {
                Ok(()) => {
                    self.expect(turn, streams, (header, &request), value_bytes, end_bytes);
                    match self.fill(turn, streams, (input, at), budget) {
                        (Some(stop), at) => return (stop, at),
                        (None, filled_to) => at = filled_to,
                    }
                }
                Err(answer) => {
                    let bytes = u64::from(value_bytes) + u64::from(end_bytes);
                    self.session.swallow(bytes, answer);
                }
            }
            let (stopped, stopped_at) = turn::run(turn, &mut self.session, (input, at), budget);
            if stopped != StopReason::Body {
                return self.go_on(turn, streams, (input, stopped_at), budget, stopped);
            }
            at = stopped_at;
        }
    }

    /// Moves input from byte `at` on into the arriving value. Returns why the turn stops (`None` if
    /// the turn goes on after the value), and how many bytes are used.
    fn fill(
        &mut self,
        turn: &mut TurnState,
        streams: &mut StreamState,
        (input, at): (&[u8], usize),
        budget: &mut Budget,
    ) -> (Option<Stop>, usize) {
        let Some(arrival) = self.arrival else { return (None, at) };
        turn.out.settle(&turn.context.store);
        let (filled, used) = self.arrive(turn, streams, arrival, &input[at..]);
        let stop = match filled {
            Fill::Hungry => Some(Stop::Hungry),
            Fill::Wait => Some(Stop::Wait),
            Fill::Done(NextStep::Close) => Some(Stop::Close),
            Fill::Done(_) => {
                budget.spend_requests(1);
                None
            }
        };
        (stop, at + used)
    }
}
