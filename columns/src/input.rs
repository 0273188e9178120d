//! Executes the requests of one input, in order.
//!
//! Where: after a connection has received bytes, and before it sends the replies.
//! Invariant: a turn stops after `-R` requests, when its replies are enough for one write, when a
//! request must wait, or when the input ends within a request. Bytes that the turn did not use are
//! executed in a later turn, each byte once.

use protocol::{Request, Session, Step};

use crate::batch::{self, End, Input, Inputs};
use crate::budget::{Budget, StopReason};
use crate::executor::Executor;
use crate::turn::TurnState;

/// If `input` is exactly one request, the most frequent case, executes it without reading ahead.
/// Returns why and at which byte it stopped. For other input, only returns `None`.
#[inline(always)]
pub fn run_only<E: Executor>(
    turn: &mut TurnState<E>,
    session: &Session,
    input: &[u8],
) -> Option<(StopReason, usize)> {
    let TurnState { executor, out, .. } = turn;
    // The request is matched here: passed on whole, it would be written to memory first.
    let step = match session.single_request(input) {
        Some(Request::Get(request)) => executor.execute_get(&request, out),
        Some(Request::Meta(request)) => executor.execute_meta_get(&request, out),
        Some(other) => executor.execute(&other, None, out),
        None => match &session.quick_step(input) {
            Some(Step::Request(request, used)) if *used == input.len() => {
                executor.execute(request, None, out)
            }
            _ => return None,
        },
    };
    let (stopped, is_used) = StopReason::after(step).unwrap_or((StopReason::Hungry, true));
    Some((stopped, if is_used { input.len() } else { 0 }))
}

/// Executes the requests in `bytes` from byte `at` on. Returns why and at which byte it stopped.
pub fn run<E: Executor>(
    turn: &mut TurnState<E>,
    session: &mut Session,
    (bytes, at): (&[u8], usize),
    budget: &mut Budget,
) -> (StopReason, usize) {
    let input = Input { number: 0, bytes, at, session: session.clone() };
    let mut single =
        SingleInput { input: Some(input), session, budget, stopped: (StopReason::Hungry, at) };
    batch::run(turn, &mut single);
    single.stopped
}

struct SingleInput<'i, 'b> {
    input: Option<Input<'i>>,
    session: &'b mut Session,
    budget: &'b mut Budget,
    stopped: (StopReason, usize),
}

impl<'i, E: Executor> Inputs<'i, E> for SingleInput<'i, '_> {
    #[inline]
    fn next(&mut self) -> Option<Input<'i>> {
        self.input.take()
    }

    #[inline]
    fn begin(&mut self, _: usize, _: &mut TurnState<E>) -> Budget {
        self.budget.clone()
    }

    #[inline]
    fn end(&mut self, _: usize, end: End<'_>, _: &mut TurnState<E>) {
        self.session.clone_from(end.session);
        self.budget.clone_from(end.budget);
        self.stopped = (end.stopped, end.at);
    }
}
