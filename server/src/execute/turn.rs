//! The requests of one input, executed in their order, and what one turn may do.
//!
//! Where: between the bytes a connection received and the replies it sends.
//! Invariant: a turn stops after `-R` requests, when its replies are enough for one write, when a
//! request must wait, or when the input asks for more; what it did not use is executed next time,
//! from the same byte on.

use protocol::{Request, Session};

use super::batch::{self, End, Input, Inputs};
use super::{After, execute_hashed};
use crate::limits::{
    KEYS_TURN_MAX, OUT_BYTES_MAX, PINNED_BYTES_TURN_MAX, PINS_MAX, STATS_REQUESTS,
};
use crate::out::Out;
use crate::turn::TurnState;

/// What a turn may still do.
#[derive(Clone, Debug)]
pub struct Budget {
    requests: u32,
    keys: u32,
    /// It is spent once the replies have so many bytes of text, pin so many values, or pin so many
    /// bytes.
    text_end: usize,
    pins_end: usize,
    pinned_bytes_end: usize,
}

/// Why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// What is left is not a whole request.
    Hungry,
    /// Enough for one turn; there may be more to execute.
    Enough,
    /// The connection ends here.
    Close,
    /// At a storage command whose value is not all here: the session says so once more.
    Body,
    /// At a request that must wait for room in the store; the same again, a little later.
    Wait,
}

impl Budget {
    /// A connection's: `requests` requests, and `reply_bytes_max` bytes of replies or, if less,
    /// `OUT_BYTES_MAX`.
    #[inline]
    #[must_use]
    pub fn new(requests: u32, reply_bytes_max: usize) -> Budget {
        Budget {
            requests,
            keys: KEYS_TURN_MAX,
            text_end: reply_bytes_max.min(OUT_BYTES_MAX),
            pins_end: PINS_MAX,
            pinned_bytes_end: PINNED_BYTES_TURN_MAX,
        }
    }

    /// Nothing.
    pub(crate) fn none() -> Budget {
        Budget { text_end: 0, ..Budget::new(u32::MAX, 0) }
    }

    /// Keys of one retrieval line are one request to `-R`, and `stats` is many.
    #[inline(always)]
    pub(super) fn spend(&mut self, request: &Request<'_>) {
        match request {
            Request::Get(get) if get.form.is_continued() => self.keys -= 1,
            Request::Stats { .. } => self.requests = self.requests.saturating_sub(STATS_REQUESTS),
            _ => self.spend_request(),
        }
    }

    /// A request whose value came by itself.
    #[inline]
    pub(crate) fn spend_request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Leaves one request at most.
    pub(crate) fn spend_all_but_one(&mut self) {
        self.requests = self.requests.min(1);
    }

    /// No request is left to it.
    pub(super) fn has_no_requests(&self) -> bool {
        self.requests == 0
    }

    #[inline(always)]
    pub(super) fn is_spent(&self, out: &Out) -> bool {
        self.requests == 0
            || self.keys == 0
            || out.buf.len() >= self.text_end
            || out.pins.len() >= self.pins_end
            || out.pinned_bytes() >= self.pinned_bytes_end
    }
}

/// Executes the requests in `input` from byte `at` on, appending replies to the turn's. Why it
/// stopped, and at which byte.
#[inline]
pub fn run(
    turn: &mut TurnState,
    session: &mut Session,
    (input, at): (&[u8], usize),
    budget: &mut Budget,
) -> (Stopped, usize) {
    // A plain request alone, which is most often all: there is nothing to read ahead.
    if at == 0
        && let Some(only) = session.only(input)
    {
        return match execute_hashed(&mut turn.context, &only, None, &mut turn.out) {
            After::Wait => (Stopped::Wait, 0),
            _ => (Stopped::Hungry, input.len()),
        };
    }
    run_any(turn, session, (input, at), budget)
}

#[inline(never)]
fn run_any(
    turn: &mut TurnState,
    session: &mut Session,
    (bytes, at): (&[u8], usize),
    budget: &mut Budget,
) -> (Stopped, usize) {
    let (before, mut behind) = (session.clone(), at);
    let first = match batch::read_one(bytes, &mut behind, session) {
        Ok(first) => first,
        Err(stopped) => return (stopped, behind),
    };
    // Nor is there where any other request is alone.
    if behind == bytes.len() && at == 0 {
        return match execute_hashed(&mut turn.context, &first, None, &mut turn.out) {
            After::Close => (Stopped::Close, at),
            After::Continue | After::Flush => (Stopped::Hungry, behind),
            After::Wait => {
                *session = before;
                (Stopped::Wait, at)
            }
        };
    }
    let first = Some((first, behind, session.clone()));
    let input = Input { number: 0, bytes, at, session: before, first };
    let mut alone = Alone { input: Some(input), session, budget, stopped: (Stopped::Hungry, at) };
    batch::run(turn, &mut alone);
    alone.stopped
}

/// A batch of one input.
struct Alone<'i, 'b> {
    input: Option<Input<'i>>,
    session: &'b mut Session,
    budget: &'b mut Budget,
    stopped: (Stopped, usize),
}

impl<'i> Inputs<'i> for Alone<'i, '_> {
    #[inline]
    fn next(&mut self) -> Option<Input<'i>> {
        self.input.take()
    }

    #[inline]
    fn begin(&mut self, _: usize, _: &mut TurnState) -> Budget {
        self.budget.clone()
    }

    #[inline]
    fn end(&mut self, _: usize, end: End<'_>, _: &mut TurnState) {
        self.session.clone_from(end.session);
        self.budget.clone_from(end.budget);
        self.stopped = (end.stopped, end.at);
    }
}
