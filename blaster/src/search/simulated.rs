//! A simulated server for tests: a queue whose capacities are known.
//!
//! Where: used by tests. Invariant: the same seed gives the same trials.
//! Source: the M/D/1 queue at load ρ with service time s. A share ρ of the requests waits, and the
//! mean wait over all requests is ρs / 2(1 - ρ). Here the waits are exponentially distributed.

use super::{Outcome, Trial};
use crate::measure::Interval;
use crate::measure::verdict::{Remark, Severity};
use crate::workload::Verb;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::ops::Range;
use std::time::Duration;

/// Number of requests of a trial: enough to find the distribution's 99.9th percentile.
const REQUESTS: u64 = 10_000;

/// The additional time of each request that is slow (see the field `slow`), in seconds.
pub(super) const SLOW_S: f64 = 5e-3;
/// The factor by which waits are longer if the rate is between the two rates of `dip`.
const DIP: f64 = 1000.0;

pub(super) struct Simulated {
    pub(super) service_s: f64,
    /// Waits vary from trial to trial by at most this factor.
    pub(super) noise: f64,
    /// Share of trials in which one request in a hundred takes 100 ms.
    pub(super) stalls: f64,
    /// Share of requests that take `SLOW_S` longer at any rate.
    pub(super) slow: f64,
    /// Between these two rates, waits are `DIP` times as long as elsewhere.
    pub(super) dip: (f64, f64),
    pub(super) client_per_s: f64,
    /// The generator's lateness in seconds, which is added to each response time, and the numbers
    /// of the trials in which the generator is late.
    pub(super) late: (f64, Range<u32>),
    pub(super) errors: u64,
    pub(super) lost: u64,
    /// Number of trials after which `run` reports that the user stopped the search.
    pub(super) trials_max: u32,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) trials: u32,
}

impl Simulated {
    /// Returns a server that takes `service_us` per request, without noise.
    pub(super) fn new(service_us: f64, seed: u64) -> Simulated {
        Simulated {
            service_s: service_us / 1e6,
            noise: 1.0,
            stalls: 0.0,
            slow: 0.0,
            dip: (0.0, 0.0),
            client_per_s: 1e12,
            late: (0.0, 0..u32::MAX),
            errors: 0,
            lost: 0,
            trials_max: u32::MAX,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            trials: 0,
        }
    }

    fn wait_s(&self, rate: f64) -> f64 {
        let load = rate * self.service_s;
        load * self.service_s / (2.0 * (1.0 - load))
    }

    /// Returns the response time that the fraction `share` of the requests does not exceed.
    pub(super) fn quantile_s(&self, rate: f64, share: f64) -> f64 {
        let load = rate * self.service_s;
        if load >= 1.0 {
            return f64::INFINITY;
        }
        let beyond = (1.0 - share) / load;
        let wait = if beyond < 1.0 { self.wait_s(rate) / load * -beyond.ln() } else { 0.0 };
        self.service_s + wait
    }

    pub(super) fn mean_s(&self, rate: f64) -> f64 {
        let load = rate * self.service_s;
        if load >= 1.0 { f64::INFINITY } else { self.service_s + self.wait_s(rate) }
    }

    /// Returns the highest rate at which a figure that grows with the rate stays below a bound.
    pub(super) fn capacity(&self, bound_s: f64, of: impl Fn(&Simulated, f64) -> f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0 / self.service_s);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if of(self, middle) < bound_s { low = middle } else { high = middle }
        }
        low
    }

    fn share(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Trial for Simulated {
    type Error = std::convert::Infallible;

    fn run(&mut self, rate: f64) -> Result<Option<Outcome>, Self::Error> {
        if self.trials >= self.trials_max {
            return Ok(None);
        }
        let late_s = if self.late.1.contains(&self.trials) { self.late.0 } else { 0.0 };
        let ns = |seconds| Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap();
        self.trials += 1;
        let is_dip = self.dip.0 < rate && rate < self.dip.1;
        let factor = self.noise.powf(2.0 * self.share() - 1.0) * if is_dip { DIP } else { 1.0 };
        let stalled = if self.share() < self.stalls { REQUESTS / 100 } else { 0 };
        let sent = rate.min(self.client_per_s);
        let answered = 1.0 / self.service_s / sent * REQUESTS as f64;
        let mut interval = Interval::default();
        (interval.asked_per_s, interval.seconds) = (Some(rate), REQUESTS as f64 / sent);
        interval.tally.late_limit_ns = 1_000_000;
        interval.tally.offered = REQUESTS;
        for request in 0..REQUESTS {
            interval.tally.sent(Verb::Get, 1, 0, ns(late_s));
            let share = (request as f64 + 0.5) / REQUESTS as f64;
            let is_slow = (request as f64) < self.slow * REQUESTS as f64;
            let response_s = if request < stalled {
                0.1
            } else {
                factor * self.quantile_s(sent, share).min(10.0) + if is_slow { SLOW_S } else { 0.0 }
            };
            if request < self.lost {
                interval.tally.timed_out(Verb::Get);
            } else if (request as f64) < answered {
                let is_error = request < self.errors;
                let answered_ns = ns(late_s + response_s);
                interval.tally.answered(Verb::Get, is_error, 0, ns(late_s), answered_ns);
            }
        }
        let checked = Outcome::new(interval);
        let is_slow = sent < rate;
        let no_more = || Remark {
            rule: "not-offered".to_owned(),
            severity: Severity::Invalid,
            sentence: "it sends no more".to_owned(),
        };
        let client_bound = checked.client_bound.or(is_slow.then(no_more));
        Ok(Some(Outcome { client_bound, ..checked }))
    }
}
