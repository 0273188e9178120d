//! A column's time: the clock it goes by, and when it must wake without an event.
//!
//! Where: asked before each wait, set after it.
//! Invariant: the clock is read once per loop. One column wakes once per second for the store's
//! sake, by a `Beat`; the others sleep until an event, unless a listener rests, the store has work,
//! or idle connections are to be closed.

use std::time::Duration;

use net::Timeout;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::START;
use crate::execute::Context;
use crate::limits::{ARRIVALS_CHECK_MS, LISTENER_REST_MS, MAINTAIN_PAUSE_MS, MAINTAIN_SLICES_MAX};

/// Nanoseconds of a second.
const NANOS: i64 = 1_000_000_000;

/// The longest that the clock of `now` stands still: at a hundred ticks a second.
const CLOCK_STEP_NANOS: i64 = 10_000_000;

/// When something is due.
#[derive(Debug)]
pub(crate) struct Tick {
    /// The server's start, on the clock of `now`.
    start: Timespec,
    /// Wakes once per second.
    beats: bool,
    beat_ms: u64,
    /// Listeners rest until then.
    rest_until_ms: Option<u64>,
    /// Arriving values are looked at then.
    arrivals_due_ms: Option<u64>,
    /// Slices of background work in a row; `None`: no work is left.
    slices: Option<u32>,
}

/// The moment, on the clock that columns go by.
pub(crate) fn moment() -> Timespec {
    clock_gettime(ClockId::MonotonicCoarse)
}

impl Tick {
    /// `start`: the server's, from `moment`. `beats`: this column wakes once per second.
    pub(crate) fn new(start: Timespec, beats: bool) -> Tick {
        Tick { start, beats, beat_ms: 0, rest_until_ms: None, arrivals_due_ms: None, slices: None }
    }

    /// Reads the clock and sets the store's and the executor's; milliseconds since the start.
    pub(crate) fn now(&mut self, context: &mut Context) -> u64 {
        let moment = moment();
        let seconds = moment.tv_sec - self.start.tv_sec;
        let nanos = seconds * NANOS + (moment.tv_nsec - self.start.tv_nsec);
        let now_ms = u64::try_from(nanos / 1_000_000).unwrap_or(0);
        #[cfg(debug_assertions)]
        let now_ms = match context.shared.planted_ms() {
            0 => now_ms,
            planted_ms => planted_ms,
        };
        let seconds = u32::try_from(now_ms / 1000).unwrap_or(u32::MAX).saturating_add(START);
        if seconds != context.clock.now {
            context.clock.now = seconds;
            context.store.set_now(seconds);
        }
        now_ms
    }

    /// The store has had a slice of background work; `more` is to do.
    pub(crate) fn worked(&mut self, more: bool) {
        self.slices = more.then(|| self.slices.map_or(0, |slices| slices.saturating_add(1)));
    }

    /// Before a wait: do values `arrive`?
    #[inline]
    pub(crate) fn watch(&mut self, arrive: bool, now_ms: u64) {
        let due_ms = || self.arrivals_due_ms.unwrap_or(now_ms + ARRIVALS_CHECK_MS);
        self.arrivals_due_ms = arrive.then(due_ms);
    }

    /// It is time to look for stalled values.
    pub(crate) fn arrivals_are_due(&mut self, now_ms: u64) -> bool {
        self.arrivals_due_ms.take_if(|at_ms| now_ms >= *at_ms).is_some()
    }

    /// When a column that beats is to be woken first, and then once per second: a little behind the
    /// second's end, for the clock of `now` stands still for that long.
    pub(crate) fn first_beat(&self) -> Option<Timespec> {
        let nanos = self.start.tv_nsec + CLOCK_STEP_NANOS;
        let tv_sec = self.start.tv_sec + 1 + nanos / NANOS;
        self.beats.then_some(Timespec { tv_sec, tv_nsec: nanos % NANOS })
    }

    /// How long the column may sleep; a beat wakes it by itself.
    pub(crate) fn timeout(&self, now_ms: u64) -> Timeout {
        let mut until_ms = None;
        let mut by = |at_ms: u64| until_ms = Some(until_ms.map_or(at_ms, |it: u64| it.min(at_ms)));
        match self.slices {
            Some(slices) if slices % MAINTAIN_SLICES_MAX != MAINTAIN_SLICES_MAX - 1 => {
                return Timeout::Zero;
            }
            Some(_) => by(now_ms + MAINTAIN_PAUSE_MS),
            None => {}
        }
        for at_ms in [self.rest_until_ms, self.arrivals_due_ms] {
            at_ms.map(&mut by);
        }
        match until_ms {
            Some(at_ms) => Timeout::Within(Duration::from_millis(at_ms.saturating_sub(now_ms))),
            None => Timeout::Never,
        }
    }

    /// True once per second, on a column that beats.
    pub(crate) fn second_has_passed(&mut self, now_ms: u64) -> bool {
        let passed = self.beats && now_ms >= self.beat_ms + 1000;
        if passed {
            self.beat_ms = now_ms - now_ms % 1000;
        }
        passed
    }

    /// Listeners rest from now on; false when they do already.
    pub(crate) fn rest(&mut self, now_ms: u64) -> bool {
        let rested = self.rest_until_ms.is_some();
        self.rest_until_ms = Some(now_ms + LISTENER_REST_MS);
        !rested
    }

    /// Listeners rest, and have done so for long enough.
    pub(crate) fn rest_is_over(&self, now_ms: u64) -> bool {
        self.rest_until_ms.is_some_and(|at_ms| now_ms >= at_ms)
    }

    /// Listeners are back.
    pub(crate) fn rested(&mut self) {
        self.rest_until_ms = None;
    }
}
