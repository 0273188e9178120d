//! The time of an item's last access, in 16 bits.
//!
//! Where: a field of each item, read and set by lookups, and made coarse by `aging`.
//! Invariant: a stamp is made coarse before its seconds wrap around, so that it denotes one time.
//!
//! ```text
//!   15  14 .. 0                      15  14  13 .. 0
//!    0  second, its lowest 15 bits    1   0  unit of 256 seconds, its lowest 14 bits: coarse
//! ```
//! Seconds wrap around after 9 hours, units after 48 days. The clock of the column that reads a
//! stamp may be a little behind the clock of the column that set the stamp.

const COARSE: u16 = 1 << 15;
/// Binary logarithm of the number of seconds in a unit of a coarse stamp.
const UNIT_LOG: u32 = 8;
/// Mask of the bits of a unit's number that a coarse stamp keeps.
const UNITS: u32 = (1 << 14) - 1;
/// A stamp that was set this many seconds ago is made coarse.
pub(crate) const COARSE_FROM_SECONDS: u32 = SECONDS / 4;
/// Number of seconds after which the seconds in a stamp wrap around.
const SECONDS: u32 = 1 << 15;
/// Maximum age in seconds of an access that a stamp can denote without being coarse.
pub(crate) const SECONDS_MAX: u32 = SECONDS - 1 - AHEAD_SECONDS as u32;
/// After a noted access to an item, no access is noted for this number of seconds (memcached's
/// `ITEM_UPDATE_INTERVAL`).
const NOTED_SECONDS: u16 = 60;
/// Maximum number of seconds that a stamp may be ahead of a column's clock.
const AHEAD_SECONDS: u16 = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) u16);

impl Stamp {
    #[inline]
    pub(crate) fn new(now: u32) -> Self {
        Self(low(now))
    }

    /// Returns false only if an access at `now` need not be noted. True may be wrong: if the
    /// column's clock is behind the stamp, and for a minute after the seconds have wrapped around.
    #[inline(always)]
    pub(crate) fn may_be_late(self, now: Stamp) -> bool {
        // The result is true for a coarse stamp, because its bit 15 is 1 and its bit 14 is 0.
        now.0.wrapping_sub(self.0) > NOTED_SECONDS
    }

    /// True if the stamp is at most a minute old at `now`, so that an access need not be noted.
    #[inline]
    pub(crate) fn is_fresh(self, now: u32) -> bool {
        self.0 & COARSE == 0 && self.seconds_before(now) <= NOTED_SECONDS.into()
    }

    /// Seconds from the access to second `now`. Up to 255 seconds too few if the stamp is coarse.
    pub(crate) fn seconds_before(self, now: u32) -> u32 {
        if self.0 & COARSE == 0 {
            let ahead = u32::from(AHEAD_SECONDS);
            let seconds = low(now.wrapping_add(ahead).wrapping_sub(self.0.into()));
            return u32::from(seconds).saturating_sub(ahead);
        }
        let units = (now >> UNIT_LOG).wrapping_sub(self.0.into()) & UNITS;
        let unit_seconds = 1 << UNIT_LOG;
        ((units << UNIT_LOG) + now % unit_seconds).saturating_sub(unit_seconds - 1)
    }

    /// Returns a coarse stamp for the same access, if this stamp is not coarse and is old enough.
    pub(crate) fn aged(self, now: u32) -> Option<Self> {
        let seconds = self.seconds_before(now);
        let is_due = self.0 & COARSE == 0 && seconds >= COARSE_FROM_SECONDS;
        is_due.then(|| Self(COARSE | low((now.wrapping_sub(seconds) >> UNIT_LOG) & UNITS)))
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are kept")]
fn low(number: u32) -> u16 {
    number as u16 & !COARSE
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_exact_until_it_is_aged_and_never_says_too_much() {
        for then in [0, 1, 255, 256, SECONDS - 1, SECONDS, 10 * SECONDS + 77] {
            let stamp = Stamp::new(then);
            (0..AHEAD_SECONDS.into()).filter(|ahead| *ahead <= then).for_each(|ahead| {
                assert_eq!(stamp.seconds_before(then - ahead), 0);
                assert!(stamp.is_fresh(then - ahead));
            });
            for seconds in 0..SECONDS - u32::from(AHEAD_SECONDS) {
                assert_eq!(stamp.seconds_before(then + seconds), seconds);
                let aged = stamp.aged(then + seconds);
                assert_eq!(aged.is_some(), seconds >= COARSE_FROM_SECONDS);
            }
            let aged = stamp.aged(then + COARSE_FROM_SECONDS);
            assert_eq!(aged.and_then(|aged| aged.aged(then + 2 * SECONDS)), None, "once");
            let days = 48 * 86_400;
            for seconds in (COARSE_FROM_SECONDS..days).step_by(997) {
                let reported = aged.map_or(0, |aged| aged.seconds_before(then + seconds));
                assert!(reported <= seconds && reported + 256 > seconds, "{reported} of {seconds}");
            }
        }
    }

    #[test]
    fn what_is_fresh_was_noted_within_a_minute() {
        for now in [0, 5, 60, 100, SECONDS - 1, SECONDS, SECONDS + 30, 3 * SECONDS + 1000] {
            for seconds in 0..(SECONDS - u32::from(AHEAD_SECONDS)).min(now + 1) {
                let stamp = Stamp::new(now - seconds);
                assert_eq!(stamp.is_fresh(now), seconds <= 60, "{seconds} before {now}");
                let may_be_late = stamp.may_be_late(Stamp::new(now));
                let comes_round = now % SECONDS < seconds;
                assert_eq!(may_be_late, seconds > 60 || comes_round, "{seconds} before {now}");
            }
        }
    }

    #[test]
    fn what_is_coarse_is_late() {
        for unit in 0..=UNITS {
            let stamp = Stamp(COARSE | low(unit));
            for now in (0..SECONDS).step_by(59).chain(0..100).chain(SECONDS - 100..SECONDS) {
                assert!(!stamp.is_fresh(now) && stamp.may_be_late(Stamp::new(now)));
            }
        }
    }
}
