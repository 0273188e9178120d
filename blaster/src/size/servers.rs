//! Drives servers at the workload's rate, measures their times, CPU use and capacity, and asks them
//! for estimates of hits with other memory sizes.
//!
//! Where: after the simulation, for servers that the user names or that kvblaster starts.
//! Invariant: servers are driven one at a time. Figures that only show the generator's limit are
//! marked. If a server fails, the other servers are still driven. A server that only `--stats`
//! names is not driven.

use super::{APART_MAX, Memory};
use crate::launch;
use crate::measure::Interval;
use crate::run::{self, Plan, RunError, capacity};
use crate::search::bracket::Limit;
use crate::search::{Goal, SearchPlan};
use crate::target::version;
use crate::target::{self, Family};
use serde::Serialize;
use std::sync::atomic::Ordering;

/// The placeholder in a server's command for the memory size that was found, in megabytes.
pub(crate) const MEMORY: &str = "{mb}";
/// The relative precision of the capacity. It is coarse because the number of CPUs is rounded up.
const PRECISION: f64 = 0.1;

#[derive(Debug, Default, Serialize)]
pub(crate) struct DrivenServer {
    /// The server's command or target, and its version.
    pub(crate) name: String,
    /// Answers per second at the given rate. `None` if the server could not be driven. The response
    /// times, hits and busy `cpus` below are measured at the same rate.
    pub(crate) answered_per_s: Option<f64>,
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
    pub(crate) p999_ns: Option<u64>,
    pub(crate) hit_ratio: Option<f64>,
    /// Seconds from the filling of the server to the end of the measurement, if this time is too
    /// short: `hit_ratio` is then an upper bound.
    pub(crate) hits_bound_s: Option<f64>,
    pub(crate) cpus: Option<f64>,
    /// Reasons why the figures at the given rate do not show the server alone.
    pub(crate) remarks: Vec<String>,
    /// The reason why the server could not be driven, or why its capacity search ended early.
    pub(crate) trouble: Option<String>,
    /// The highest rate at which the objective was met. `None` if no rate met it.
    pub(crate) capacity_per_s: Option<f64>,
    /// True if the capacity may be higher: the generator was the limit, or the search ended early.
    pub(crate) is_at_least: bool,
    /// Number of the server's busy CPUs in the trial whose rate was nearest to the capacity.
    pub(crate) capacity_cpus: Option<f64>,
    /// The server's own statistics on memory and hits.
    pub(crate) said: Option<ServerStats>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ServerStats {
    /// The hit ratio since the server's start, or since its statistics were reset.
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Memory sizes in bytes with the estimated hit ratios, from Hypostyle's `stats mrc`.
    pub(crate) estimates: Vec<(u64, f64)>,
}

impl ServerStats {
    /// Fails if `place` is not a target, or if the server does not answer or has no statistics.
    pub(crate) fn query(place: &str) -> Result<ServerStats, String> {
        let target = target::parse(place, Family::Any).map_err(|error| error.to_string())?;
        let answer = |question| version::answer(&target, question);
        let answers = answer("stats\r\n").and_then(|all| Ok(all + &answer("stats mrc\r\n")?));
        let stats = ServerStats::read(&answers.map_err(|error| format!("{place}: {error}"))?);
        match stats.memory_bytes {
            Some(_) => Ok(stats),
            None => Err(format!("{place}: the server's answer to `stats` has no limit_maxbytes")),
        }
    }

    fn read(answer: &str) -> ServerStats {
        let rows = || {
            let lines = answer.lines().filter_map(|line| line.strip_prefix("STAT "));
            lines.filter_map(|row| row.split_once(' '))
        };
        let number = |name: &str| {
            let value = rows().find(|(row, _)| *row == name)?.1;
            value.trim().parse::<u64>().ok()
        };
        let (hits, misses) = (number("get_hits").unwrap_or(0), number("get_misses").unwrap_or(0));
        let estimate = |(name, ratio): (&str, &str)| {
            let bytes = name.strip_prefix("mrc:")?.strip_suffix(":miss_ratio")?;
            Some((bytes.parse().ok()?, 1.0 - ratio.trim().parse::<f64>().ok()?))
        };
        ServerStats {
            hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            memory_bytes: number("limit_maxbytes"),
            estimates: rows().filter_map(estimate).collect(),
        }
    }
}

impl DrivenServer {
    /// Drives each server that the plan names. Then starts a server with each command of `starts`,
    /// with the memory size that was found, and drives it. A server that fails is listed with its
    /// error. After Ctrl-C, no further server is driven. Fails if signals cannot be caught.
    pub(crate) fn drive_all(
        plan: &mut Plan,
        starts: &[String],
        (goal, memory): (&Goal, &Memory),
    ) -> Result<Vec<DrivenServer>, RunError> {
        // Relaxed: only the flag itself is read.
        let stop = run::prepare::signal_flags()?.stop;
        let is_stopped = || stop.load(Ordering::Relaxed);
        let mut all = Vec::new();
        for target in std::mem::take(&mut plan.targets) {
            if !is_stopped() {
                let server = DrivenServer { name: target.clone(), ..DrivenServer::default() };
                all.extend(server.drive(plan, &target, goal));
            }
        }
        let mb = memory.enough_for(super::ENOUGH).map_or(64, |point| point.memory_bytes >> 20);
        // A server that is started here is killed at the end, so its items need not be removed.
        plan.is_part = !starts.is_empty();
        for words in starts {
            if is_stopped() {
                break;
            }
            let name = words.replace(MEMORY, &mb.to_string());
            match launch::start(&launch::shell(&name), &[]) {
                Ok(server) => {
                    plan.server_pids = vec![server.pid()];
                    let version = server.version.as_deref().unwrap_or("version unknown");
                    let name = format!("{name} ({version})");
                    let driven = DrivenServer { name, ..DrivenServer::default() };
                    all.extend(driven.drive(plan, &server.target, goal));
                }
                Err(error) => {
                    let trouble = Some(error.to_string());
                    all.push(DrivenServer { name, trouble, ..DrivenServer::default() });
                }
            }
        }
        Ok(all)
    }

    /// Measures the server and queries its statistics. `None` if Ctrl-C prevented a measurement.
    fn drive(mut self, plan: &mut Plan, target: &str, goal: &Goal) -> Option<DrivenServer> {
        plan.targets = vec![target.to_owned()];
        let rate_per_s = plan.rate_per_s;
        let done = self.measure(plan, goal);
        plan.rate_per_s = rate_per_s;
        match done {
            Err(RunError::Stopped) if self.answered_per_s.is_none() => return None,
            Err(error) => self.trouble = Some(error.to_string()),
            Ok(()) => {}
        }
        self.said = ServerStats::query(target).ok();
        Some(self)
    }

    fn measure(&mut self, plan: &mut Plan, goal: &Goal) -> Result<(), RunError> {
        let at_rate = run::run(plan)?;
        at_rate.left_behind.iter().for_each(|told| run::live::tell(plan, told));
        let told = at_rate.verdict.remarks.iter().map(|remark| remark.sentence.clone());
        self.remarks = told.collect();
        if let Some(all) = &at_rate.merged {
            self.set_figures(all);
        }
        let ttl_s = plan.workload.exptime_s_max();
        self.hits_bound_s = bound_s(&at_rate.reports, ttl_s).filter(|_| plan.populate);
        let start_per_s = plan.rate_per_s.take().filter(|rate| !rate.is_nan());
        let aim = SearchPlan {
            goals: vec![goal.clone()],
            start_per_s: start_per_s.unwrap_or(10_000.0),
            rate_per_s_min: 10.0,
            rate_per_s_max: 1e9,
            precision: PRECISION,
            votes: 3,
            rounds: 1,
            trials_max: 100,
            errors_max: 0.001,
            confidence: 0.95,
            seed: plan.seed,
        };
        let searched = capacity::run(plan, &aim)?;
        searched.left_behind.iter().for_each(|told| run::live::tell(plan, told));
        let found = searched.search.as_ref().and_then(|found| found.capacities.first());
        self.capacity_per_s = found.and_then(|found| found.rate_per_s);
        self.is_at_least =
            searched.is_interrupted || found.is_some_and(|found| found.limit == Limit::Generator);
        self.capacity_cpus = self.capacity_per_s.and_then(|capacity| {
            let off = |one: &&Interval| (one.asked_per_s.unwrap_or(0.0) - capacity).abs();
            let nearest = searched.reports.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
            Some(nearest.usage.server?.cpus())
        });
        if searched.is_interrupted {
            let why = searched.verdict.remarks.into_iter().next().map(|remark| remark.sentence);
            self.trouble =
                why.or_else(|| Some("the search for the capacity was not completed".to_owned()));
        }
        Ok(())
    }

    fn set_figures(&mut self, all: &Interval) {
        let total = all.tally.total();
        self.answered_per_s = Some(all.achieved_per_s());
        let quantile = |share| total.response_ns.quantile_ns(share);
        [self.p50_ns, self.p99_ns, self.p999_ns] = [0.5, 0.99, 0.999].map(quantile);
        self.hit_ratio = total.hit_ratio();
        self.cpus = all.usage.server.map(|server| server.cpus());
    }

    /// Returns the number of CPUs needed for a rate, if each CPU is as busy as at the capacity.
    pub(crate) fn cpus_for(&self, rate_per_s: f64) -> Option<f64> {
        let cpus = self.capacity_cpus? * rate_per_s / self.capacity_per_s?;
        cpus.is_finite().then(|| cpus.ceil().max(1.0))
    }
}

/// If the hit ratio is only an upper bound, because some of the first items have not expired and
/// hits do not rise, returns the seconds from the filling of the server to the end of the reports.
fn bound_s(reports: &[Interval], ttl_s: u32) -> Option<f64> {
    let (first, last) = (reports.first()?, reports.last()?);
    let hits = |report: &Interval| report.tally.total().hit_ratio();
    let driven_s = last.start_s + last.seconds;
    let is_bound = driven_s < f64::from(ttl_s) && hits(last)? <= hits(first)? + APART_MAX;
    is_bound.then_some(driven_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Tally;
    use crate::workload::Verb;

    #[test]
    fn statistics_are_read_from_either_server() {
        let memcached = "STAT get_hits 75\r\nSTAT get_misses 25\r\nSTAT limit_maxbytes 67108864\r\n\
                         END\r\nERROR\r\n";
        let stats = ServerStats::read(memcached);
        assert_eq!((stats.hit_ratio, stats.memory_bytes), (Some(0.75), Some(64 << 20)));
        assert!(stats.estimates.is_empty());
        let ours = "STAT limit_maxbytes 1048576\r\nEND\r\nSTAT mrc:sampled_one_in 64\r\n\
                    STAT mrc:131072:miss_ratio 0.75\r\nSTAT mrc:1048576:miss_ratio 0.25\r\nEND\r\n";
        let stats = ServerStats::read(ours);
        assert_eq!(stats.estimates, [(131_072, 0.25), (1 << 20, 0.75)]);
        assert_eq!(stats.hit_ratio, None);
        assert_eq!(ServerStats::read("-ERR unknown command\r\n"), ServerStats::default());
    }

    #[test]
    fn hits_before_ttls_have_passed_are_an_upper_bound() {
        let report = |start_s: f64, hits: u64| {
            let mut tally = Tally::new(u64::MAX);
            let get = &mut tally.verbs[Verb::Get as usize];
            (get.hits, get.misses) = (hits, 100 - hits);
            Interval { start_s, seconds: 2.0, tally, ..Interval::default() }
        };
        let bound_s = |hits: &[u64], ttl_s| {
            let reports = hits.iter().zip([1.0, 3.0]).map(|(hits, start_s)| report(start_s, *hits));
            bound_s(&reports.collect::<Vec<_>>(), ttl_s)
        };
        assert_eq!(bound_s(&[99, 99], 60), Some(5.0));
        assert_eq!(bound_s(&[99, 97], 60), Some(5.0));
        assert_eq!(
            [bound_s(&[90, 97], 60), bound_s(&[99, 99], 5), bound_s(&[99, 99], 0)],
            [None; 3]
        );
    }

    #[test]
    fn as_many_cpus_as_at_the_capacity_and_one_at_least() {
        let driven = |capacity: f64, cpus: f64| DrivenServer {
            capacity_per_s: Some(capacity),
            capacity_cpus: Some(cpus),
            ..DrivenServer::default()
        };
        assert_eq!(driven(100_000.0, 0.9).cpus_for(40_000.0), Some(1.0));
        assert_eq!(driven(100_000.0, 1.9).cpus_for(160_000.0), Some(4.0));
        assert_eq!(DrivenServer::default().cpus_for(1.0), None);
        assert_eq!(driven(100_000.0, 0.9).cpus_for(f64::NAN), None);
    }
}
