//! Executes the requests in a connection's input.
//!
//! Where: after a turn has received bytes, and before the turn sends replies.
//! Invariant: bytes that a turn did not use are executed in a later turn, each byte once. The bytes
//! of a large value go into its frames as they arrive.

use protocol::{Request, Step};

use super::arrival::Fill;
use super::{Connection, StreamState};
use crate::budget::{Budget, StopReason};
use crate::executor::{Executor, NextStep, Origin};
use crate::input as requests;
use crate::limits::ROOM_WAIT_MS_MAX;
use crate::stream::Stream;
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

impl<E: Executor, S: Stream> Connection<E, S> {
    /// Executes the requests in `input`. Returns why it stopped, and the number of used bytes.
    #[inline]
    pub(super) fn execute(
        &mut self,
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        input: &[u8],
    ) -> (Stop, usize) {
        let mut at = 0;
        let may_wait = self.begin_input(turn);
        if self.arrival.is_none()
            && let Some((stopped, at)) = requests::run_only(turn, &self.session, input)
        {
            return match stopped {
                StopReason::Hungry => (Stop::Hungry, at),
                stopped => self.go_on(turn, streams, (input, at), &mut Budget::none(), stopped),
            };
        }
        let mut budget = Connection::<E, S>::budget(may_wait, streams);
        if self.arrival.is_some() {
            match self.fill(turn, streams, (input, 0), &mut budget) {
                (Some(stop), used) => return (stop, used),
                (None, used) => at = used,
            }
        }
        let (stopped, at) = requests::run(turn, &mut self.session, (input, at), &mut budget);
        self.go_on(turn, streams, (input, at), &mut budget, stopped)
    }

    /// Tells the executor that requests of this connection follow. Returns false if the connection
    /// has already waited too long for room in the store.
    #[inline]
    pub(crate) fn begin_input(&self, turn: &mut TurnState<E>) -> bool {
        let may_wait = self
            .waits_since_ms
            .is_none_or(|since_ms| turn.served_ms.saturating_sub(since_ms) < ROOM_WAIT_MS_MAX);
        turn.executor.begin_input(Origin::Connection(self.number()), may_wait);
        may_wait
    }

    /// Returns the budget of the turn that begins. `may_wait` is the result of `begin_input`.
    #[inline]
    pub(crate) fn budget(may_wait: bool, streams: &StreamState) -> Budget {
        let mut budget = streams.budget();
        if !may_wait {
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
        turn: &mut TurnState<E>,
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
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        (input, mut at): (&[u8], usize),
        budget: &mut Budget,
    ) -> (Stop, usize) {
        loop {
            turn.out.settle(turn.executor.store());
            let (request, header_bytes, value_bytes, tail) = match self.session.next(&input[at..]) {
                Step::Body { request, header_bytes, value_bytes, tail }
                    if value_bytes as usize > streams.log_value_bytes =>
                {
                    (request, header_bytes, value_bytes, tail)
                }
                _ => return (Stop::Hungry, at),
            };
            let header = &input[at..at + header_bytes];
            at += header_bytes;
            match turn.executor.begin_value(&request, value_bytes) {
                Ok(()) => {
                    self.expect(turn, streams, (header, &request), value_bytes, tail);
                    match self.fill(turn, streams, (input, at), budget) {
                        (Some(stop), at) => return (stop, at),
                        (None, filled_to) => at = filled_to,
                    }
                }
                Err(answer) => self.session.swallow(value_bytes.into(), tail, answer),
            }
            let (stopped, stopped_at) = requests::run(turn, &mut self.session, (input, at), budget);
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
        turn: &mut TurnState<E>,
        streams: &mut StreamState,
        (input, at): (&[u8], usize),
        budget: &mut Budget,
    ) -> (Option<Stop>, usize) {
        let Some(arrival) = self.arrival else { return (None, at) };
        turn.out.settle(turn.executor.store());
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
