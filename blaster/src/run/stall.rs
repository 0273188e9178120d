//! Detects that filling servers cannot succeed, because no server answers or requests are lost.
//!
//! Where: `course` calls `observe` while it fills servers, and `items` while it deletes keys.
//! Invariant: no clock is read; the caller passes the time. Slow filling is never given up, unless
//! no request is answered at all or lost requests are the cause.

use std::collections::VecDeque;
use std::time::Duration;

/// Filling is given up if no answer arrives for this time plus `--timeout`, the limit per answer.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// If many requests are lost, filling is given up if it would still take longer than this.
const LOSSY_MAX: Duration = Duration::from_secs(600);
/// `LOSSY_MAX` applies only if at least one of this number of requests is lost.
const LOST_SHARE: u64 = 100;
/// Least time between two observations that are stored; it limits the length of `seen`.
const SPACING: Duration = Duration::from_millis(250);

/// Returns the time without any answer after which the servers count as silent.
pub(crate) fn silence_max(timeout: Duration) -> Duration {
    timeout.saturating_add(SILENCE_MAX)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stall {
    /// No request was answered for this time.
    Silent(Duration),
    /// Requests are lost, and the remaining keys would take this time.
    Lossy(Duration),
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    at: Duration,
    answered: u64,
    lost: u64,
}

#[derive(Debug)]
pub(crate) struct StallDetector {
    keys: u64,
    window: Duration,
    /// The observations, oldest first. The oldest is the start, or is at least `window` old.
    seen: VecDeque<Seen>,
}

impl StallDetector {
    pub(crate) fn new(timeout: Duration, keys: u64) -> StallDetector {
        let seen = VecDeque::from([Seen::default()]);
        StallDetector { keys, window: silence_max(timeout), seen }
    }

    /// Stores the counts at the time `at` after the start. Returns a stall if the counts show it.
    pub(crate) fn observe(&mut self, at: Duration, answered: u64, lost: u64) -> Option<Stall> {
        if self.seen.back().is_some_and(|last| at.saturating_sub(last.at) < SPACING) {
            return None;
        }
        let is_old = |seen: &Seen| at.saturating_sub(seen.at) >= self.window;
        while self.seen.get(1).is_some_and(is_old) {
            self.seen.pop_front();
        }
        let before = self.seen.front().copied().filter(is_old);
        self.seen.push_back(Seen { at, answered, lost });
        let before = before?;
        let took = at.saturating_sub(before.at);
        let (now_answered, now_lost) = (answered - before.answered, lost - before.lost);
        if now_answered == 0 {
            return Some(Stall::Silent(took));
        }
        let over = now_answered + now_lost;
        let left = self.keys.saturating_sub(answered + lost) as f64 / over as f64;
        let left = Duration::try_from_secs_f64(left * took.as_secs_f64()).unwrap_or(Duration::MAX);
        // If the newest half of the window has no answer, the stall will soon be `Silent`.
        let is_late = |seen: &&Seen| at.saturating_sub(seen.at) < self.window / 2;
        let is_answering = self.seen.iter().find(is_late).is_some_and(|s| s.answered < answered);
        let is_lossy = is_answering && now_lost * LOST_SHARE >= over && left > LOSSY_MAX;
        is_lossy.then_some(Stall::Lossy(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 1_000_000;

    /// Returns the seconds until filling is given up, and the reason. `each` returns the numbers of
    /// answered and of lost requests in the n-th half second.
    fn filling(keys: u64, each: impl Fn(u64) -> (u64, u64)) -> Option<(f64, Stall)> {
        let mut detector = StallDetector::new(Duration::from_secs(1), keys);
        let (mut answered, mut lost, mut half) = (0, 0, 0);
        while answered + lost < keys {
            half += 1;
            let (more, gone) = each(half);
            (answered, lost) = (answered + more, lost + gone);
            let at = Duration::from_millis(500 * half);
            if let Some(why) = detector.observe(at, answered, lost) {
                return Some((at.as_secs_f64(), why));
            }
        }
        None
    }

    #[test]
    fn silence_is_borne_for_seconds() {
        let four = Stall::Silent(Duration::from_secs(4));
        assert_eq!(filling(KEYS, |_| (0, 0)), Some((4.0, four)));
        assert_eq!(filling(KEYS, |_| (0, 8)), Some((4.0, four)));
        let ceases = |last, lost| move |half| if half <= last { (5000, 0) } else { (0, lost) };
        assert_eq!(filling(KEYS, ceases(20, 0)), Some((14.0, four)));
        assert_eq!(filling(KEYS, ceases(1, 64)), Some((4.5, four)));
    }

    #[test]
    fn what_is_slow_for_lost_requests_is_given_up() {
        // One of three servers does not run: each request to it occupies one of 16 connections for
        // a second.
        let (at, why) = filling(KEYS, |_| (16, 8)).unwrap();
        let Stall::Lossy(left) = why else { panic!("{why:?}") };
        assert_eq!((at, left.as_secs() / 3600), (4.0, 5));
    }

    #[test]
    fn what_is_only_slow_or_only_lossy_is_not() {
        assert_eq!(filling(KEYS, |_| (50, 0)), None);
        assert_eq!(filling(KEYS, |_| (8000, 800)), None);
        assert_eq!(filling(1000, |_| (98, 2)), None);
    }
}
