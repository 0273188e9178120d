//! Executing the requests in a connection's input.
//!
//! Where: between the bytes a turn received and the replies it sends.
//! Invariant: what a turn did not use is executed next time, from the same byte on; a large value
//! goes to its place as it comes.

use protocol::Step;

use super::ColumnState;
use super::Connection;
use super::arrival::Fill;
use crate::execute::turn::{self, Stopped};
use crate::execute::{self, After};
use crate::limits::ROOM_WAIT_MS_MAX;

/// Why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// What is left is not a whole request.
    Hungry,
    /// Enough for one turn; there may be more to execute.
    Enough,
    /// No room yet for a request, or for a large value's next bytes; the same input again, a little
    /// later.
    Wait,
    /// The connection ends here.
    Close,
}

impl Connection {
    /// Executes the requests in `input`, appending replies to the turn's output. Why it stopped,
    /// and how many bytes it used.
    #[inline]
    pub(super) fn execute(&mut self, state: &mut ColumnState, input: &[u8]) -> (Stop, usize) {
        let mut at = 0;
        let mut budget = state.budget();
        let since_ms = self.waits_since_ms.unwrap_or(state.served_ms);
        state.context.may_wait = state.served_ms.saturating_sub(since_ms) < ROOM_WAIT_MS_MAX;
        if !state.context.may_wait {
            budget.spend_all_but_one(); // the next has not waited yet
        }
        loop {
            if let Some(arrival) = self.arrival {
                let (filled, used) = self.arrive(state, arrival, &input[at..]);
                at += used;
                match filled {
                    Fill::Hungry => return (Stop::Hungry, at),
                    Fill::Wait => return (Stop::Wait, at),
                    Fill::Done(After::Close) => return (Stop::Close, at),
                    Fill::Done(_) => budget.spend_request(),
                }
            }
            let ColumnState { context, out, .. } = state;
            let (stopped, stopped_at) =
                turn::run(context, &mut self.session, (input, at), &mut budget, out);
            at = stopped_at;
            match stopped {
                Stopped::Hungry => return (Stop::Hungry, at),
                Stopped::Enough => return (Stop::Enough, at),
                Stopped::Close => return (Stop::Close, at),
                Stopped::Wait => return (Stop::Wait, at),
                Stopped::Body => {}
            }
            match self.session.next(&input[at..]) {
                Step::Body { request, header_bytes, value_bytes, end_bytes }
                    if value_bytes as usize > state.log_value_bytes =>
                {
                    let header = &input[at..at + header_bytes];
                    at += header_bytes;
                    match execute::begin(&mut state.context, &request, value_bytes) {
                        Ok(()) => self.expect(state, (header, &request), value_bytes, end_bytes),
                        Err(answer) => {
                            let bytes = u64::from(value_bytes) + u64::from(end_bytes);
                            self.session.swallow(bytes, answer);
                        }
                    }
                }
                _ => return (Stop::Hungry, at),
            }
        }
    }
}
