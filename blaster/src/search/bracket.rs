//! The bracket of a capacity: a rate that passed, and a higher rate that failed.
//!
//! Where: each round of a search has one bracket for each objective.
//! Invariant: `low` < `high`. A trial at the rate that `next` returns narrows the bracket or sets a
//! missing end, so the search ends.
//! Source: the KV-Cache paper, section 6.1. Rates are doubled, then bisected on a logarithmic
//! scale.

use serde::{Deserialize, Serialize};

/// The largest factor between tried rates while the bracket lacks one end.
const STEP_GROWTH: f64 = 2.0;

const STEPS_ESTIMATED_MAX: u32 = 64;

/// The reason why a capacity is not higher. If rounds have different reasons, the reason that is
/// listed last here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The server does not meet the objective at a slightly higher rate.
    Server,
    /// The objective is not met even at the lowest rate.
    LowestRate,
    /// The objective is met at the highest allowed rate; the capacity is at least this rate.
    HighestRate,
    /// The generator cannot send at a higher rate; the capacity is at least the found rate.
    Generator,
    /// The search ended before the bracket was narrow enough.
    Unknown,
}

/// The bracket of one objective.
#[derive(Clone, Debug)]
pub(crate) struct Bracket {
    /// The highest rate that passed.
    pub low: Option<f64>,
    /// The lowest rate that failed.
    pub high: Option<f64>,
    /// True if only the generator failed at `high`.
    is_client_bound: bool,
    start: f64,
    /// Rates below the floor are tried only after the server has failed at a higher rate. Failures
    /// of the generator, and trials for other goals, do not make the search go below the floor.
    floor: f64,
    step: f64,
    range: (f64, f64),
    precision: f64,
}

impl Bracket {
    /// Returns a bracket that starts at the rate `start`. `step` is the factor between the first
    /// rates. All rates are in `range`. For `floor`, see the field.
    pub(crate) fn new(
        start: f64,
        floor: f64,
        step: f64,
        range: (f64, f64),
        precision: f64,
    ) -> Bracket {
        let start = start.clamp(range.0, range.1);
        let (floor, low, high, is_client_bound) = (floor.min(start), None, None, false);
        Bracket { low, high, is_client_bound, start, floor, step, range, precision }
    }

    pub(crate) fn next(&self) -> Option<f64> {
        let (least, most) = self.range;
        let least = if self.is_client_bound { self.floor.max(least) } else { least };
        match (self.low, self.high) {
            (None, None) => Some(self.start),
            (Some(low), None) if low >= most => None,
            (Some(low), None) => Some((low * self.step).min(most)),
            (None, Some(high)) if high <= least => None,
            (None, Some(high)) => Some((high / self.step).max(least)),
            (Some(low), Some(high)) => {
                let middle = (low * high).sqrt();
                let is_inside = low < middle && middle < high;
                (high / low > 1.0 + self.precision && is_inside).then_some(middle)
            }
        }
    }

    /// Estimates the number of further rates, assuming that the next rate sets a missing end.
    pub(crate) fn steps_left(&self) -> u32 {
        let ratio = match (self.low, self.high) {
            _ if self.next().is_none() => return 0,
            (Some(low), Some(high)) => high / low,
            _ => self.step.max(STEP_GROWTH),
        };
        let (mut width, precision) = (ratio.ln(), self.precision.ln_1p());
        let mut steps = u32::from(self.low.is_none() || self.high.is_none());
        while width > precision && steps < STEPS_ESTIMATED_MAX {
            width /= 2.0;
            steps += 1;
        }
        steps.max(1)
    }

    pub(crate) fn is_open_at(&self, rate: f64) -> bool {
        let is_begun = self.low.is_some() || self.high.is_some();
        (is_begun || rate >= self.floor)
            && self.low.is_none_or(|low| rate > low)
            && self.high.is_none_or(|high| rate < high)
            && self.next().is_some()
    }

    pub(crate) fn passed(&mut self, rate: f64) {
        self.low = Some(rate);
        self.grow();
    }

    /// Records a failure at a rate. `is_client_bound` is true if only the generator was at fault.
    pub(crate) fn failed(&mut self, rate: f64, is_client_bound: bool) {
        self.high = Some(rate);
        self.is_client_bound = is_client_bound;
        self.grow();
    }

    /// Squares the step, up to `STEP_GROWTH`, to reach a capacity far from the start in few steps.
    fn grow(&mut self) {
        self.step = (self.step * self.step).min(self.step.max(STEP_GROWTH));
    }

    pub(crate) fn limit(&self) -> Limit {
        if self.next().is_some() {
            return Limit::Unknown;
        }
        match (self.low, self.high) {
            (_, Some(_)) if self.is_client_bound => Limit::Generator,
            (None, _) => Limit::LowestRate,
            (_, None) => Limit::HighestRate,
            _ => Limit::Server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Narrows a bracket around a known capacity. Returns the rates that were tried.
    fn narrow(bracket: &mut Bracket, capacity: f64) -> Vec<f64> {
        let mut tried = Vec::new();
        while let Some(rate) = bracket.next() {
            assert!(bracket.is_open_at(rate) && tried.len() < 100, "{bracket:?} at {rate}");
            tried.push(rate);
            if rate <= capacity { bracket.passed(rate) } else { bracket.failed(rate, false) }
        }
        tried
    }

    #[test]
    fn any_capacity_is_found_from_any_start() {
        for capacity in [11.0, 99.0, 1234.5, 1e5, 7e6] {
            for start in [10.0, 1000.0, 1e7] {
                for step in [1.04, 2.0] {
                    let mut bracket = Bracket::new(start, start, step, (10.0, 1e7), 0.02);
                    let tried = narrow(&mut bracket, capacity);
                    let (low, high) = (bracket.low.unwrap(), bracket.high.unwrap());
                    assert!(low <= capacity && capacity < high && high / low <= 1.02);
                    assert_eq!(bracket.limit(), Limit::Server);
                    assert!(tried.len() < 40, "{} tries", tried.len());
                }
            }
        }
    }

    #[test]
    fn a_good_guess_takes_few_tries() {
        let mut bracket = Bracket::new(1000.0, 500.0, 1.04, (10.0, 1e7), 0.02);
        assert!(narrow(&mut bracket, 1010.0).len() <= 4);
    }

    #[test]
    fn ends_of_the_range_are_told() {
        let mut never = Bracket::new(1000.0, 1000.0, 2.0, (10.0, 1e4), 0.02);
        narrow(&mut never, 5.0);
        assert_eq!((never.low, never.limit()), (None, Limit::LowestRate));
        let mut always = Bracket::new(1000.0, 1000.0, 2.0, (10.0, 1e4), 0.02);
        narrow(&mut always, 1e9);
        assert_eq!((always.low, always.limit()), (Some(1e4), Limit::HighestRate));
    }

    #[test]
    fn where_the_generator_alone_fails_the_floor_is_the_end() {
        let mut bracket = Bracket::new(1000.0, 400.0, 2.0, (10.0, 1e4), 0.02);
        bracket.failed(1000.0, true);
        assert_eq!((bracket.next(), bracket.limit()), (Some(500.0), Limit::Unknown));
        // If the server fails, lower rates are tried, down to the lowest rate of the range.
        let mut server = bracket.clone();
        server.failed(500.0, false);
        assert_eq!(server.next(), Some(250.0));
        bracket.failed(500.0, true);
        assert_eq!(bracket.next(), Some(400.0));
        bracket.failed(400.0, true);
        assert_eq!((bracket.next(), bracket.limit()), (None, Limit::Generator));
    }

    #[test]
    fn what_others_are_tried_at_tells_nothing_below_the_floor_until_it_has_begun() {
        let mut bracket = Bracket::new(1000.0, 400.0, 2.0, (10.0, 1e4), 0.02);
        assert!(!bracket.is_open_at(399.0) && bracket.is_open_at(400.0));
        bracket.failed(1000.0, false);
        assert!(bracket.is_open_at(399.0));
        assert!(Bracket::new(300.0, 400.0, 2.0, (10.0, 1e4), 0.02).is_open_at(300.0));
    }

    #[test]
    fn a_rate_outside_tells_nothing() {
        let mut bracket = Bracket::new(1000.0, 1000.0, 2.0, (10.0, 1e4), 0.02);
        assert_eq!(bracket.limit(), Limit::Unknown);
        bracket.passed(1000.0);
        bracket.failed(2000.0, true);
        assert!(!bracket.is_open_at(1000.0) && !bracket.is_open_at(2500.0));
        assert!(bracket.is_open_at(1500.0));
        bracket.passed(1990.0);
        assert!(!bracket.is_open_at(1995.0));
        assert_eq!(bracket.limit(), Limit::Generator);
    }
}
