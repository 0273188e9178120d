//! Capacity: the highest rate at which a server still meets its objectives.
//!
//! Where: the search chooses the rate of the next trial, and the drive makes the trial.
//! Invariant: a search ends after at most `trials_max` trials. A bracket only narrows, and each end
//! is a rate at which most trials passed or failed. If only the generator failed, rates below the
//! bracket's `floor` are not tried. One search finds the capacities for several objectives; each
//! trial is a vote on every objective.
//! Source: the KV-Cache paper, section 6.1: Cap_avg and Cap_max, five runs for each point.

pub mod bootstrap;
pub(crate) mod bracket;
pub(crate) mod curve;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;

use crate::measure::Interval;
use crate::measure::check::{Loop, check};
use crate::measure::interval::ACHIEVED_SHARE_MIN;
use crate::measure::objective::{Objective, ObjectiveError};
use crate::measure::verdict::{LATE_SENDS, Remark, Severity};
use crate::words::values::number;
use crate::words::values::rate;
use bracket::{Bracket, Limit};
use curve::Point;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The maximum number of objectives of one search.
pub const GOALS_MAX: usize = 16;
/// The maximum number of trials of one search.
pub const TRIALS_MAX: u32 = 100_000;
/// The maximum number of trials at one rate.
const VOTES_MAX: u32 = 99;
/// The maximum number of rounds for one confidence interval.
const ROUNDS_MAX: u32 = 1000;
const RESAMPLES: u32 = 10_000;
/// The approximate number of rates that a round tries if the round begins near the capacity.
const STEPS_NEAR: u32 = 3;
/// The name of the rule in remarks on trials that measured the generator, not the server.
pub(crate) const GENERATOR_RULE: &str = "generator";
/// The factor between tried rates while the capacity is not yet bracketed.
const GROWTH: f64 = 2.0;

/// One objective of a search, with its name.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The name of the capacity, such as `avg` or `p99`.
    pub name: String,
    /// The objective that has to be met.
    pub objective: Objective,
}

/// Parses an objective. The goal's name is the text before the comparison.
pub(crate) fn goal(text: &str) -> Result<Goal, ObjectiveError> {
    let name = text.split(['<', '>']).next().unwrap_or(text).trim().to_owned();
    Ok(Goal { name, objective: text.parse()? })
}

/// The settings of a search. Those without a flag have the values of the KV-Cache paper.
#[derive(Clone, Debug, clap::Args)]
pub struct SearchPlan {
    /// Find the highest rate at which this objective is met, as in 'p99<1ms'; may be given several
    /// times (default: the mean, p99 and p99.9 below --late, and no request late or lost)
    #[arg(long = "objective", short = 'O', value_name = "WHAT", value_parser = goal)]
    pub goals: Vec<Goal>,
    /// Rate of the first trial
    #[arg(long = "first", value_name = "N", value_parser = rate, default_value = "10k")]
    pub start_per_s: f64,
    /// Lowest rate tried: a server that fails there has no capacity.
    #[arg(skip = 10.0)]
    pub rate_per_s_min: f64,
    /// Highest rate to try
    #[arg(long = "highest", value_name = "N", value_parser = rate, default_value = "1000m")]
    pub rate_per_s_max: f64,
    /// Precision of the capacity, as a fraction: 0.02 means 2 %
    #[arg(long, value_name = "PART", value_parser = number(0.001..=0.5), default_value = "0.02")]
    pub precision: f64,
    /// Trials at each rate; the majority decides whether the rate meets the objective
    #[arg(long, value_name = "N", value_parser = number(1..=VOTES_MAX), default_value = "3")]
    pub votes: u32,
    /// Number of searches, whose results give the confidence interval. Each search starts from the
    /// result of the previous search. If this number is above 1, a further search comes first, and
    /// its result is only the start of the next search
    #[arg(long = "repeats", value_name = "N")]
    #[arg(value_parser = number(1..=ROUNDS_MAX), default_value = "5")]
    pub rounds: u32,
    /// The maximum number of trials of the whole search.
    #[arg(skip = 500_u32)]
    pub trials_max: u32,
    /// Share of requests that may fail (errors, timeouts, wrong values), unless an objective
    /// requires that none fails.
    #[arg(skip = 0.001)]
    pub errors_max: f64,
    /// Confidence of the intervals.
    #[arg(skip = 0.95)]
    pub confidence: f64,
    /// Seed of the resampling and of the jitter of each round's first rate.
    #[arg(skip = 1_u64)]
    pub seed: u64,
}

impl SearchPlan {
    /// The goals of the KV-Cache paper and of Pavlik's thesis: `avg` (the mean is
    /// below the target), `p99`, `p999`, and `max` (no request is lost or answered after the
    /// target).
    pub(crate) fn usual_goals(target: Duration) -> Result<Vec<Goal>, ObjectiveError> {
        let ns = target.as_nanos();
        let (time, unit) = match ns {
            ns if ns.is_multiple_of(1_000_000) => (ns / 1_000_000, "ms"),
            ns if ns.is_multiple_of(1_000) => (ns / 1_000, "us"),
            ns => (ns, "ns"),
        };
        let goals = [
            ("avg", format!("mean<{time}{unit}")),
            ("p99", format!("p99<{time}{unit}")),
            ("p999", format!("p99.9<{time}{unit}")),
            ("max", "late<=0".to_owned()),
        ];
        let goal = |(name, objective): (&str, String)| {
            Ok(Goal { name: name.to_owned(), objective: objective.parse()? })
        };
        goals.into_iter().map(goal).collect()
    }

    fn bounded(&self) -> SearchPlan {
        let mut aim = self.clone();
        let sane = |value: f64, least: f64, most: f64| {
            if value.is_finite() { value.clamp(least, most) } else { least }
        };
        aim.goals.truncate(GOALS_MAX);
        aim.rate_per_s_min = sane(aim.rate_per_s_min, 1e-3, 1e12);
        aim.rate_per_s_max = sane(aim.rate_per_s_max, aim.rate_per_s_min, 1e12);
        aim.start_per_s = sane(aim.start_per_s, aim.rate_per_s_min, aim.rate_per_s_max);
        aim.precision = sane(aim.precision, 1e-4, 1.0);
        aim.votes = aim.votes.clamp(1, VOTES_MAX);
        aim.rounds = aim.rounds.clamp(1, ROUNDS_MAX);
        aim.trials_max = aim.trials_max.clamp(1, TRIALS_MAX);
        aim.confidence = sane(aim.confidence, 0.5, 0.999);
        aim
    }
}

/// The outcome of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The trial's report, including `asked_per_s`.
    pub interval: Interval,
    /// A remark which says that the trial measured the generator. `None` if it measured the server.
    pub client_bound: Option<Remark>,
}

impl Outcome {
    pub(crate) fn new(interval: Interval) -> Outcome {
        let client_bound = check(&interval, Loop::Open).generator_fault().cloned();
        Outcome { interval, client_bound }
    }
}

/// The system under test: a freshly populated server, and the drive that sends requests to the
/// server.
pub trait Trial {
    /// The error of a trial that could not be made. Such an error ends the search.
    type Error;

    /// Makes a trial at `rate_per_s`. Returns `None` if the user stopped the trial. Fails if the
    /// trial cannot be made.
    fn run(&mut self, rate_per_s: f64) -> Result<Option<Outcome>, Self::Error>;
}

/// The capacity for one goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The goal's name.
    pub name: String,
    /// The objective as text.
    pub objective: String,
    /// The mean over all rounds, in requests per second. `None` if no round met the objective.
    pub rate_per_s: Option<f64>,
    /// The confidence interval of the mean. `None` if there is only one round.
    pub interval_per_s: Option<(f64, f64)>,
    /// The capacity that each round found; 0 if the objective was not met at any rate.
    pub rounds_per_s: Vec<f64>,
    /// The reason why the capacity is not higher.
    pub limit: Limit,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// One capacity for each goal, in the order of the goals.
    pub capacities: Vec<Capacity>,
    /// All trials in chronological order, with the latency and throughput of each trial.
    pub curve: Vec<Point>,
    /// The confidence of the intervals.
    pub confidence: f64,
    /// True if all rounds were completed: the user did not stop the search, and trials sufficed.
    pub is_complete: bool,
}

impl Capacity {
    /// Number of rounds in which the objective was met at no rate.
    pub(crate) fn rounds_of_none(&self) -> usize {
        self.rounds_per_s.iter().filter(|rate| **rate <= 0.0).count()
    }
}

impl SearchResult {
    pub(crate) fn remark(&self) -> Option<Remark> {
        let is_bound = self.capacities.iter().any(|one| one.limit == Limit::Generator);
        let severity = if is_bound { Severity::Invalid } else { Severity::Warning };
        let is_spoilt = |point: &&Point| point.met.len() < self.capacities.len();
        let whys =
            || self.curve.iter().filter(is_spoilt).filter_map(|one| one.client_bound.as_ref());
        let (count, all) = (whys().count(), self.curve.len());
        let behind = self.curve.iter().filter(|one| one.client_bound.is_some()).count();
        let sentence = match whys().next() {
            Some(why) => format!(
                "in {count} of {all} trials an objective was not met while kvblaster was behind \
                 schedule: {why}"
            ),
            None => format!(
                "in {behind} of {all} trials kvblaster was behind schedule, but all objectives \
                 were met nevertheless: the times of these trials include delays of kvblaster"
            ),
        };
        let remark = Remark { rule: GENERATOR_RULE.to_owned(), severity, sentence };
        (behind > 0).then_some(remark)
    }
}

/// Searches for the capacities. After each trial, passes to `report` the trial's point and the
/// estimated number of further trials.
pub(crate) fn search<T: Trial>(
    aim: &SearchPlan,
    trial: &mut T,
    mut report: impl FnMut(&Point, u32),
) -> Result<SearchResult, T::Error> {
    let aim = aim.bounded();
    let known_per_s = vec![None; aim.goals.len()];
    let mut search = Search {
        aim: &aim,
        trial,
        known_per_s,
        curve: Vec::new(),
        rounds_left: 0,
        report: &mut report,
    };
    let mut rounds: Vec<Vec<Bracket>> = Vec::new();
    // The first round begins far from the capacity, so disturbed trials may mislead it. Its result
    // only sets the start of later rounds. Without later rounds, the result counts.
    let searches = if aim.rounds == 1 { 1 } else { aim.rounds + 1 };
    let mut random = Xoshiro256PlusPlus::seed_from_u64(aim.seed);
    let mut is_complete = true;
    for nth in 0..searches {
        let jitter = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut brackets = search.brackets(jitter);
        search.rounds_left = searches - nth - 1;
        is_complete = search.round(&mut brackets)?;
        search.learn(&brackets);
        if !is_complete && nth > 0 {
            break;
        }
        if nth == 1 {
            rounds.clear();
        }
        rounds.push(brackets);
        if !is_complete {
            break;
        }
    }
    let capacities =
        aim.goals.iter().enumerate().map(|(at, goal)| capacity(&aim, goal, at, &rounds));
    Ok(SearchResult {
        capacities: capacities.collect(),
        curve: search.curve,
        confidence: aim.confidence,
        is_complete,
    })
}

fn capacity(aim: &SearchPlan, goal: &Goal, at: usize, rounds: &[Vec<Bracket>]) -> Capacity {
    let brackets: Vec<&Bracket> = rounds.iter().filter_map(|round| round.get(at)).collect();
    let rounds_per_s: Vec<f64> =
        brackets.iter().map(|bracket| bracket.low.unwrap_or(0.0)).collect();
    let mean = rounds_per_s.iter().sum::<f64>() / rounds_per_s.len().max(1) as f64;
    Capacity {
        name: goal.name.clone(),
        objective: goal.objective.text.clone(),
        rate_per_s: (mean > 0.0).then_some(mean),
        interval_per_s: bootstrap::interval(&rounds_per_s, aim.confidence, RESAMPLES, aim.seed),
        rounds_per_s,
        // If the generator was too slow in one round, the mean is only a lower bound, so the limit
        // that `Limit` lists last counts.
        limit: brackets.iter().map(|bracket| bracket.limit()).max().unwrap_or(Limit::Unknown),
    }
}

struct Search<'a, T, F> {
    aim: &'a SearchPlan,
    trial: &'a mut T,
    /// For each goal, the last capacity that a round has found.
    known_per_s: Vec<Option<f64>>,
    curve: Vec<Point>,
    rounds_left: u32,
    report: &'a mut F,
}

impl<T: Trial, F: FnMut(&Point, u32)> Search<'_, T, F> {
    /// Returns the brackets for a new round, which start near the known capacity. The start is
    /// random within a step, because rounds that try the same rates would agree too closely.
    fn brackets(&self, jitter: f64) -> Vec<Bracket> {
        let aim = self.aim;
        let range = (aim.rate_per_s_min, aim.rate_per_s_max);
        let bracket = |known: &Option<f64>| match known {
            None => Bracket::new(aim.start_per_s, aim.start_per_s, GROWTH, range, aim.precision),
            Some(known) => {
                let start = known * (1.0 + aim.precision * (2.0 * jitter - 1.0));
                let step = 1.0 + 2.0 * aim.precision;
                Bracket::new(start, known / GROWTH, step, range, aim.precision)
            }
        };
        self.known_per_s.iter().map(bracket).collect()
    }

    /// Stores the capacities that a round has found. A goal keeps its earlier capacity if only the
    /// generator failed in this round.
    fn learn(&mut self, brackets: &[Bracket]) {
        for (known, bracket) in self.known_per_s.iter_mut().zip(brackets) {
            let is_lowest = bracket.limit() == Limit::LowestRate;
            *known = bracket.low.or(is_lowest.then_some(self.aim.rate_per_s_min)).or(*known);
        }
    }

    /// Narrows all brackets. Returns false if the search was stopped or has used all trials.
    fn round(&mut self, brackets: &mut [Bracket]) -> Result<bool, T::Error> {
        loop {
            // Try the lowest rate first: its result may make trials at higher rates unnecessary.
            let next = brackets.iter().filter_map(Bracket::next).min_by(f64::total_cmp);
            let Some(rate) = next else { return Ok(true) };
            if !self.vote(rate, brackets)? {
                return Ok(false);
            }
        }
    }

    /// Tries a rate until each bracket that contains the rate has a clear majority. Returns false
    /// if the search was stopped or has used all trials.
    fn vote(&mut self, rate: f64, brackets: &mut [Bracket]) -> Result<bool, T::Error> {
        let majority = self.aim.votes / 2 + 1;
        let concerned: Vec<bool> = brackets.iter().map(|one| one.is_open_at(rate)).collect();
        let mut passed = vec![0; brackets.len()];
        let mut failed = vec![0; brackets.len()];
        let mut client_bound = vec![0; brackets.len()];
        let mut votes_cast = 0;
        loop {
            if self.curve.len() as u64 >= u64::from(self.aim.trials_max) {
                return Ok(false);
            }
            let Some(outcome) = self.trial.run(rate)? else { return Ok(false) };
            let point = self.point(rate, &outcome);
            let mut is_clear = true;
            for (at, goal) in self.aim.goals.iter().enumerate().filter(|(at, _)| concerned[*at]) {
                let is_met = point.met.contains(&goal.name);
                let votes = if is_met { &mut passed } else { &mut failed };
                votes[at] += 1;
                client_bound[at] += u32::from(!is_met && point.client_bound.is_some());
                is_clear &= passed[at] >= majority || failed[at] >= majority;
            }
            votes_cast += 1;
            let left = self.trials_left(brackets, votes_cast);
            (self.report)(&point, left);
            self.curve.push(point);
            if is_clear {
                break;
            }
        }
        for (at, bracket) in brackets.iter_mut().enumerate().filter(|(at, _)| concerned[*at]) {
            if passed[at] >= majority {
                bracket.passed(rate);
            } else {
                // The server has failed if not all failed trials were the generator's fault.
                bracket.failed(rate, client_bound[at] == failed[at]);
            }
        }
        Ok(true)
    }

    /// Estimates the number of further trials. Goals share trials, and later rounds try few rates.
    fn trials_left(&self, brackets: &[Bracket], votes_cast: u32) -> u32 {
        let majority = self.aim.votes / 2 + 1;
        let steps: u32 = brackets.iter().map(Bracket::steps_left).max().unwrap_or(0);
        let goals = u32::try_from(brackets.len()).unwrap_or(1);
        let votes = (steps + self.rounds_left * (STEPS_NEAR + goals)) * majority;
        votes.saturating_sub(votes_cast)
    }

    /// Returns the trial's point of the curve, with the goals that the trial met. An objective
    /// counts as met even if the generator sends late, because this only lengthens response times.
    fn point(&self, rate: f64, outcome: &Outcome) -> Point {
        let interval = &outcome.interval;
        let bound = outcome.client_bound.as_ref();
        let mut point = Point::new(rate, interval, bound.map(|remark| remark.sentence.clone()));
        let keeps_up = interval.is_offered_in_full()
            && interval.achieved_per_s() >= ACHIEVED_SHARE_MIN * interval.offered_per_s();
        let failed = interval.tally.total().failure_ratio();
        let is_tolerated = |objective: &Objective| {
            let most = if objective.asks_for_none() { 0.0 } else { self.aim.errors_max };
            failed.is_some_and(|failed| failed <= most)
        };
        let is_reliable = |objective: &Objective| {
            bound.is_none_or(|one| one.rule == LATE_SENDS && objective.is_harder_when_late())
        };
        let is_met = |objective: &Objective| {
            is_tolerated(objective) && is_reliable(objective) && objective.is_met(interval.judged())
        };
        let met = self.aim.goals.iter().filter(|goal| keeps_up && is_met(&goal.objective));
        point.met = met.map(|goal| goal.name.clone()).collect();
        point
    }
}
