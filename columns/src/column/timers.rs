//! A column's clock, and the times at which the column must wake without an event.
//!
//! Where: the column calls `timeout` before each wait, and `now` after each wait.
//! Invariant: a loop reads the clock once. A `SecondTimer` wakes the first column once a second to
//! advance the store's clock. With `-o idle_timeout` every column has a `SecondTimer`; with `--xdp`
//! every column with a port has one. A column without a `SecondTimer` sleeps until an event, unless
//! listeners rest, values arrive, or the store has background work.

use std::time::Duration;

use net::Timeout;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::executor::Executor;
use crate::limits::{
    ARRIVALS_CHECK_MS, LISTENER_REST_MS, MAINTAIN_PAUSE_MS, MAINTAIN_SLICES_MAX, RELIEF_REST_MS,
};
use crate::turn::TurnState;

const NANOS: i64 = 1_000_000_000;

/// The coarse clock's longest step: the kernel updates the clock at least a hundred times a second.
const CLOCK_STEP_NANOS: i64 = 10_000_000;

/// The times at which work of one column is due, in milliseconds since the server started.
#[derive(Debug)]
pub struct Timers {
    start: Timespec,
    wakes_each_second: bool,
    /// The end of the last full second that `second_has_passed` has reported.
    second_ms: u64,
    /// The time at which the listeners accept again; `None` if they do not rest.
    rest_until_ms: Option<u64>,
    rest_since_ms: u64,
    /// The time of the next search for stalled values; `None` if no large value is arriving.
    arrivals_due_ms: Option<u64>,
    /// The earliest time of the next search for stalled connections, by `TurnState::served_ms`.
    relief_due_ms: u64,
    /// Number of slices of background work done in a row. `None` if no work is left.
    slices: Option<u32>,
}

/// Returns the coarse monotonic time. The coarse clock is cheaper to read than the exact clock, but
/// up to `CLOCK_STEP_NANOS` behind the exact clock.
#[must_use]
pub fn coarse_now() -> Timespec {
    clock_gettime(ClockId::MonotonicCoarse)
}

impl Timers {
    /// Makes the clock of a server that started at `start`, by `coarse_now`.
    #[must_use]
    pub fn new(start: Timespec, wakes_each_second: bool) -> Timers {
        Timers {
            start,
            wakes_each_second,
            second_ms: 0,
            rest_until_ms: None,
            rest_since_ms: 0,
            arrivals_due_ms: None,
            relief_due_ms: 0,
            slices: None,
        }
    }

    /// Reads the clock, and sets the executor's clock. Returns the milliseconds
    /// since the server started.
    pub(crate) fn now<E: Executor>(&mut self, turn: &mut TurnState<E>) -> u64 {
        let coarse_now = coarse_now();
        let seconds = coarse_now.tv_sec - self.start.tv_sec;
        let nanos = seconds * NANOS + (coarse_now.tv_nsec - self.start.tv_nsec);
        let now_ms = u64::try_from(nanos / 1_000_000).unwrap_or(0);
        #[cfg(debug_assertions)]
        let now_ms = match turn.shared.planted_ms() {
            0 => now_ms,
            planted_ms => planted_ms,
        };
        turn.executor.set_now(u32::try_from(now_ms / 1000).unwrap_or(u32::MAX));
        now_ms
    }

    /// Notes that the store did a slice of background work. `more` is true if work is left.
    pub(crate) fn worked(&mut self, more: bool) {
        self.slices = more.then(|| self.slices.map_or(0, |slices| slices.saturating_add(1)));
    }

    /// Schedules a search for stalled values if values `arrive`; otherwise cancels the search.
    #[inline]
    pub(crate) fn watch_arrivals(&mut self, arrive: bool, now_ms: u64) {
        let due_ms = || self.arrivals_due_ms.unwrap_or(now_ms + ARRIVALS_CHECK_MS);
        self.arrivals_due_ms = arrive.then(due_ms);
    }

    /// If it is time to search for stalled values, clears the timer and returns true.
    pub(crate) fn arrivals_are_due(&mut self, now_ms: u64) -> bool {
        self.arrivals_due_ms.take_if(|at_ms| now_ms >= *at_ms).is_some()
    }

    pub(crate) fn relief_is_due(&self, served_ms: u64) -> bool {
        served_ms >= self.relief_due_ms
    }

    /// Delays the next search for stalled connections, because the last search found none.
    pub(crate) fn rest_relief(&mut self, served_ms: u64) {
        self.relief_due_ms = served_ms + RELIEF_REST_MS;
    }

    /// Returns the time at which the `SecondTimer` first fires, if the column wakes each second:
    /// `CLOCK_STEP_NANOS` after the end of a second, so that the coarse clock shows the new second.
    pub(crate) fn first_second(&self) -> Option<Timespec> {
        let nanos = self.start.tv_nsec + CLOCK_STEP_NANOS;
        let tv_sec = self.start.tv_sec + 1 + nanos / NANOS;
        self.wakes_each_second.then_some(Timespec { tv_sec, tv_nsec: nanos % NANOS })
    }

    /// Returns how long the column may sleep. The `SecondTimer` is an event and needs no timeout.
    /// `way_due_ms` is the time at which the way of streams has work.
    pub(crate) fn timeout(&self, now_ms: u64, way_due_ms: Option<u64>) -> Timeout {
        let mut until_ms = None;
        let mut by = |at_ms: u64| until_ms = Some(until_ms.map_or(at_ms, |it: u64| it.min(at_ms)));
        match self.slices {
            Some(slices) if slices % MAINTAIN_SLICES_MAX != MAINTAIN_SLICES_MAX - 1 => {
                return Timeout::Zero;
            }
            Some(_) => by(now_ms + MAINTAIN_PAUSE_MS),
            None => {}
        }
        for at_ms in [self.rest_until_ms, self.arrivals_due_ms, way_due_ms] {
            at_ms.map(&mut by);
        }
        match until_ms {
            Some(at_ms) => Timeout::Within(Duration::from_millis(at_ms.saturating_sub(now_ms))),
            None => Timeout::Never,
        }
    }

    /// Returns true once in each second, on a column that wakes each second.
    pub(crate) fn second_has_passed(&mut self, now_ms: u64) -> bool {
        let passed = self.wakes_each_second && now_ms >= self.second_ms + 1000;
        if passed {
            self.second_ms = now_ms - now_ms % 1000;
        }
        passed
    }

    /// Makes listeners rest for `LISTENER_REST_MS` from now on. Returns false if they rest already.
    pub(crate) fn rest_listeners(&mut self, now_ms: u64) -> bool {
        let rest_already = self.rest_until_ms.is_some();
        if !rest_already {
            self.rest_since_ms = now_ms;
        }
        self.rest_until_ms = Some(now_ms + LISTENER_REST_MS);
        !rest_already
    }

    pub(crate) fn listeners_rest_is_over(&self, now_ms: u64) -> bool {
        self.rest_until_ms.is_some_and(|at_ms| now_ms >= at_ms)
    }

    /// Notes that listeners accept again. Returns for how many milliseconds they have rested.
    pub(crate) fn resume_listeners(&mut self, now_ms: u64) -> u64 {
        self.rest_until_ms = None;
        now_ms.saturating_sub(self.rest_since_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_for_stalled_connections_in_vain_is_made_again_after_a_rest() {
        let mut timers = Timers::new(coarse_now(), false);
        for served_ms in [0, 5, 5000] {
            assert!(timers.relief_is_due(served_ms));
            timers.rest_relief(served_ms);
            let due = [0, RELIEF_REST_MS - 1, RELIEF_REST_MS, RELIEF_REST_MS + 1];
            let due = due.map(|later| timers.relief_is_due(served_ms + later));
            assert_eq!(due, [false, false, true, true], "{served_ms}");
            timers.relief_due_ms = 0;
        }
    }
}
