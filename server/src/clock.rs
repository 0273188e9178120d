//! The store's clock in seconds, its relation to Unix time, and the conversion of `exptime`.
//!
//! Where: a column sets `now` once per loop; the executor converts the exptimes of requests.
//! Invariant: the store's clock starts at `START`. So second 1 is always in the past, and 0 is
//! never the current time.
//! Source: memcached 1.6.45 `realtime`, `process_started`, `EXPTIME_TO_POSITIVE_TIME`.

use memory::plant::{Fault, is};

/// The time on the store's clock when the server starts (memcached: `ITEM_UPDATE_INTERVAL + 2`).
pub const START: u32 = 62;

/// The longest exptime that is relative to now: 30 days. A larger exptime is a Unix time.
pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// The time as a column reads it once per loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The Unix time that corresponds to 0 on the store's clock.
    pub process_started: i64,
    /// The store's clock, in seconds.
    pub now: u32,
}

impl Clock {
    /// Makes the clock of a server that starts at Unix time `unix_seconds`.
    #[must_use]
    pub fn new(unix_seconds: i64) -> Clock {
        Clock { process_started: unix_seconds - i64::from(START), now: START }
    }

    /// Converts a protocol's exptime to the store's clock. 0 stays 0: the item never expires. A
    /// negative exptime becomes second 1, which is in the past.
    #[must_use]
    pub fn realtime(&self, exptime: i64) -> u32 {
        if exptime == 0 {
            return 0;
        }
        let exptime = if exptime < 0 { RELATIVE_SECONDS_MAX + 1 } else { exptime };
        let month = RELATIVE_SECONDS_MAX - i64::from(is(Fault::MonthAbsolute));
        let seconds = if exptime <= month {
            exptime + i64::from(self.now)
        } else {
            (exptime - self.process_started).max(1)
        };
        u32::try_from(seconds).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptimes_are_relative_up_to_thirty_days_and_absolute_above() {
        let clock = Clock { process_started: 1_700_000_000, now: 100 };
        assert_eq!(clock.realtime(0), 0);
        assert_eq!(clock.realtime(1), 101);
        assert_eq!(clock.realtime(2_592_000), 2_592_100);
        assert_eq!(clock.realtime(2_592_001), 1);
        assert_eq!(clock.realtime(1_700_000_000), 1);
        assert_eq!(clock.realtime(1_700_000_001), 1);
        assert_eq!(clock.realtime(1_700_000_500), 500);
        assert_eq!(clock.realtime(-1), 1);
        assert_eq!(clock.realtime(i64::MIN), 1);
        assert_eq!(clock.realtime(i32::MAX.into()), 447_483_647);
        assert_eq!(clock.realtime(u32::MAX.into()), 2_594_967_295);
    }
}
