//! The clock of a driving thread.
//!
//! Where: read once for many requests or answers. Invariant: all threads of a run count from the
//! same start.

use std::time::Instant;

/// A clock that counts nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start_ns: u64,
}

impl Clock {
    pub(super) fn new(start: Instant) -> Clock {
        let since_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(0);
        Clock { start_ns: net::monotonic_ns().saturating_sub(since_ns) }
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        net::monotonic_ns().saturating_sub(self.start_ns)
    }
}
