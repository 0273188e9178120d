//! The health of the server, by the store's clock, which the first column sets each second.
//!
//! Where: `/healthz` and the service manager's watchdog ask for it.
//! Invariant: a server is healthy if its first column has run within `HEALTHY_LAG_SECONDS_MAX`.
//! Other columns sleep if they have no clients, so that their loops tell nothing.

use super::Shared;
use crate::clock::START;
use crate::limits::HEALTHY_LAG_SECONDS_MAX;

impl Shared {
    /// The time of the store's clock, by the caller's own clock.
    pub(crate) fn now(&self) -> u32 {
        let seconds = u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX);
        seconds.saturating_add(START)
    }

    /// The reason why the server does not work; `None` while it works.
    pub(crate) fn sickness(&self) -> Option<String> {
        let lag_seconds = self.now().saturating_sub(self.store.now().max(START));
        (lag_seconds > HEALTHY_LAG_SECONDS_MAX)
            .then(|| format!("the first thread has not run for {lag_seconds} s"))
    }
}
