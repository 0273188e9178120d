//! The limits of one turn's execution, and the reasons why execution stops.
//!
//! Where: the executor checks the budget before each request.
//! Invariant: a connection's turn ends after `-R` requests, or when its replies are enough for one
//! write. A message ends after `MESSAGE_REQUESTS_MAX` requests, or when its answer exceeds the
//! allowed length. A turn or a message also ends after `KEYS_TURN_MAX` keys.

use memory::plant::{Fault, is};
use protocol::Request;

use crate::executor::NextStep;
use crate::limits::{
    KEY_COST_BYTES, KEYS_TURN_MAX, MESSAGE_REQUESTS_MAX, OUT_BYTES_MAX, PINNED_BYTES_TURN_MAX,
    PINS_MAX, REQUEST_COST_BYTES, STATS_REQUESTS,
};
use crate::out::{Mark, Out};

/// The requests, keys and reply bytes that a turn has left.
#[derive(Clone, Debug)]
pub struct Budget {
    requests: u32,
    keys: u32,
    /// The budget is spent when the replies have `text_end` bytes of text, `pins_end` pinned values
    /// or `pinned_bytes_end` pinned bytes. `text_end` is 0 if no requests or keys are left.
    text_end: usize,
    pins_end: usize,
    pinned_bytes_end: usize,
}

/// The reason why a turn's execution stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The remaining input is not a whole request.
    Hungry,
    /// The turn's budget is spent; there may be more requests to execute.
    Enough,
    /// The connection must be closed.
    Close,
    /// Some of a storage command's value is missing. No byte of the command is consumed.
    Body,
    /// The next request must wait for room in the store, and is executed again a little later.
    Wait,
}

impl StopReason {
    /// Returns the reason to stop after a request whose execution returned `step`, and true if the
    /// request's bytes are used. `None` if execution goes on.
    #[inline(always)]
    pub(crate) fn after(step: NextStep) -> Option<(StopReason, bool)> {
        match step {
            NextStep::Continue | NextStep::Flush => None,
            NextStep::Close => Some((StopReason::Close, false)),
            NextStep::Wait => Some((StopReason::Wait, false)),
            NextStep::Errand => Some((StopReason::Enough, true)),
        }
    }
}

impl Budget {
    /// The budget of a connection's turn: `requests` requests, and `reply_bytes_max` bytes of
    /// replies, but at most `OUT_BYTES_MAX`.
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

    /// Returns a message's budget: `reply_bytes_max` bytes of text, and as many of pinned values.
    pub(crate) fn of_message(from: Mark, pinned_bytes: usize, reply_bytes_max: usize) -> Budget {
        Budget {
            requests: MESSAGE_REQUESTS_MAX,
            keys: KEYS_TURN_MAX,
            text_end: from.text + reply_bytes_max + 1,
            pins_end: usize::MAX,
            pinned_bytes_end: pinned_bytes + reply_bytes_max + 1,
        }
    }

    pub(crate) fn none() -> Budget {
        Budget { text_end: 0, ..Budget::new(u32::MAX, 0) }
    }

    /// Spends a request. A `stats` costs `STATS_REQUESTS` requests, a whole multiget one request.
    #[inline(always)]
    pub(crate) fn spend(&mut self, request: &Request<'_>) {
        match request {
            Request::Get(get) if get.form.is_continued() => {
                self.keys = self.keys.saturating_sub(1);
                self.end_if(self.keys == 0);
            }
            Request::Stats(_) => {
                self.spend_requests(if is(Fault::StatsCostOne) { 1 } else { STATS_REQUESTS });
            }
            _ => self.spend_requests(1),
        }
    }

    #[inline(always)]
    pub(crate) fn spend_requests(&mut self, requests: u32) {
        self.requests = self.requests.saturating_sub(requests);
        self.end_if(self.requests == 0);
    }

    #[inline(always)]
    fn end_if(&mut self, nothing_is_left: bool) {
        if nothing_is_left {
            self.text_end = 0;
        }
    }

    pub(crate) fn spend_all_but_one(&mut self) {
        self.requests = self.requests.min(1);
    }

    /// The cost of a message's requests so far, in bytes.
    #[inline]
    pub(crate) fn spent_bytes(&self) -> usize {
        let cost = |requests: u32, keys: u32| {
            requests as usize * REQUEST_COST_BYTES + keys as usize * KEY_COST_BYTES
        };
        cost(MESSAGE_REQUESTS_MAX, KEYS_TURN_MAX).saturating_sub(cost(self.requests, self.keys))
    }

    /// True if no request or no key is left.
    pub(crate) fn is_worked_off(&self) -> bool {
        self.requests == 0 || self.keys == 0
    }

    pub(crate) fn has_no_requests(&self) -> bool {
        self.requests == 0
    }

    /// True if, with the replies in `out`, no further request may be executed.
    #[inline(always)]
    pub(crate) fn is_spent(&self, out: &Out) -> bool {
        let pins = out.pins.len();
        out.buf.len() >= self.text_end
            || (pins > 0
                && (pins >= self.pins_end
                    || out.text_bytes() >= self.text_end
                    || out.pinned_bytes() >= self.pinned_bytes_end))
    }
}
