//! The course of a run: populating, settling, the reports one after another, and the end.
//!
//! Where: `run` calls `populate` and `drive` once, `capacity` calls them for each trial.
//! Invariant: an epoch ends for all threads at once, and CPU use is read at the same time. Ctrl-C,
//! a failed thread or the last request ends a run early; the earlier measurements are reported.
//! Source: the KV-Cache paper, section 6.1: six consecutive reports of ten seconds after settling.

use super::agents::{Agents, Parts};
use super::context::RunContext;
use super::error::RunError;
use super::live::Live;
use super::on_demand::{OnDemandReports, Report};
use super::plan::Plan;
use super::stall::{Stall, StallDetector, silence_max};
use super::task::EpochTally;
use super::unstored::PopulateCounts;
use super::workers::Workers;
use crate::drive::{Mode, OUTSTANDING_MAX, Pace};
use crate::measure::schedule::{Collector, MergedTally, Schedule};
use crate::measure::verdict::{Remark, Severity};
use crate::measure::warm::WarmUp;
use crate::measure::watch::{Moment, Usage, Watch};
use crate::measure::{Interval, Tally};
use crate::result::AgentPart;
use crate::words::{clock, grouped, ns, percent, time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait for a tally. Ctrl-C is checked between two waits.
const TICK: Duration = Duration::from_millis(100);
const POPULATE_EPOCH: Duration = Duration::from_millis(500);

const WARM_EPOCH: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct TrafficResult {
    pub(crate) intervals: Vec<Interval>,
    /// The reason why the traffic ended early, if it did.
    pub(crate) cut_short: Option<String>,
    /// A remark that the hit ratio had not settled when the first report began.
    pub(crate) unsettled: Option<String>,
    pub(crate) agents: Vec<AgentPart>,
    /// A remark on the reports if an agent was lost.
    pub(crate) lost: Option<(Severity, &'static str)>,
    /// Remarks on servers that went away or were restarted, and on connections that they closed.
    pub(crate) gone: Vec<Remark>,
}

/// Stores every key once. Returns a description of the keys that were not stored. Fails if a thread
/// fails, no request is answered, or at least half of the keys cannot be stored.
pub(crate) fn populate(
    plan: &Plan,
    context: &RunContext,
    (watch, live): (&Watch, &Live),
) -> Result<Option<String>, RunError> {
    let depth = if has_udp(context) { 1 } else { POPULATE_DEPTH };
    let connections = plan.connections;
    let pace = match plan.fill_rate_per_s {
        Some(rate_per_s) => {
            let outstanding_max = connections.saturating_mul(depth).min(OUTSTANDING_MAX);
            Pace::Open { rate_per_s, connections, outstanding_max }
        }
        None => Pace::Closed { connections, depth },
    };
    live.populating(context.workload.keys());
    let workers = Workers::start(plan, context, (Mode::Populate, pace), live.is_watched())?;
    let start = workers.start;
    // Shows the progress before the loop, because populating may end before the loop shows it.
    live.tick(start.elapsed(), 0, || workers.group.snapshot(), Some(watch));
    let mut stored = PopulateCounts::default();
    let mut detector = StallDetector::new(plan.timeout, context.workload.keys());
    let mut stall = None;
    let (mut epoch, mut ends) = (0, workers.start + POPULATE_EPOCH);
    while stall.is_none() && !workers.group.is_over() && !context.is_stopped() {
        if let Some(handed) = workers.next(TICK) {
            stored.add(&handed.tally);
            let (answered, lost) = stored.over();
            stall = detector.observe(workers.start.elapsed(), answered, lost);
        }
        if Instant::now() >= ends {
            epoch += 1;
            ends += POPULATE_EPOCH;
            workers.move_on(epoch);
        }
        live.tick(workers.start.elapsed(), epoch, || workers.group.snapshot(), Some(watch));
    }
    let (rest, failed) = workers.end();
    rest.into_iter().for_each(|handed| stored.add(&handed.tally));
    live.done();
    context.stored.set(context.stored.get().max(stored.keys()));
    if stall.is_none() {
        live.populated(stored.keys(), start.elapsed());
    }
    match failed {
        Some(error) => Err(error),
        None if context.is_stopped() => Err(RunError::Stopped),
        None if stored.keys() == 0 && stored.is_broken() => {
            let protocol = context.servers.protocol.name();
            Err(RunError::Failed(format!(
                "the server's answers do not follow the protocol {protocol}. Name the server's \
                 protocol with --protocol, or write redis://HOST:PORT for Redis"
            )))
        }
        None => match (stall, stored.description()) {
            (Some(why), message) => Err(given_up(context, &stored, (why, message))),
            (None, message) if stored.lacking() >= stored.keys() => {
                let message = message.unwrap_or_else(|| "no key could be stored".to_owned());
                let advice = stored.advice();
                let why = format!("{message}.\n{advice} (--no-populate skips filling)");
                Err(RunError::Failed(why))
            }
            (None, message) => Ok(message),
        },
    }
}

fn given_up(
    context: &RunContext,
    stored: &PopulateCounts,
    (why, message): (Stall, Option<String>),
) -> RunError {
    let who = context.silent();
    let message = message.map_or(String::new(), |message| format!("; {message}"));
    let (answered, lost) = stored.over();
    let so_far = format!(
        "after {} of {} keys",
        grouped((answered + lost) as f64),
        grouped(context.workload.keys() as f64)
    );
    let said = match why {
        Stall::Lossy(left) => format!(
            "kvblaster gave up filling {so_far}: many requests are never answered, so filling \
             would take {} more{message}.\n{}",
            clock(left),
            stored.advice()
        ),
        Stall::Silent(silence) if answered == 0 => unheard(context, silence) + &message,
        Stall::Silent(silence) => format!(
            "the server stopped answering while it was filled, {so_far}: no answer came for \
             {}{message}.\nCheck first whether the server still runs, and what its log says",
            time(ns(silence))
        ),
    };
    RunError::Failed(format!("{who}: {said}"))
}

fn unheard(context: &RunContext, silence: Duration) -> String {
    let protocol = context.servers.protocol.name();
    let over = if has_udp(context) { " over UDP" } else { "" };
    format!(
        "no answer came for {}: is a server running there, and does it support the protocol \
         {protocol}{over}?",
        time(ns(silence))
    )
}

fn has_udp(context: &RunContext) -> bool {
    context.servers.targets.iter().any(|target| target.place.datagrams().is_some())
}

/// Outstanding requests per connection while populating. Over UDP there is only one, because
/// requests that overflow the server's socket buffer are lost.
const POPULATE_DEPTH: u32 = 32;

/// Sends requests at `pace` for the time of the plan's schedule. Fails if a thread cannot be
/// started, or if no answer ever arrives. A later failure ends the traffic early.
pub(crate) fn drive(
    plan: &Plan,
    context: &RunContext,
    pace: Pace,
    (watch, live): (&Watch, &Live),
) -> Result<TrafficResult, RunError> {
    let mut workers = Workers::start(plan, context, (Mode::Traffic, pace), live.is_watched())?;
    let warmed = |limit| warm(plan, context, &mut workers, limit, (watch, live));
    let unsettled = plan.warm.and_then(warmed);
    let is_cold = plan.warm.is_some() && !is_on(plan, context, &workers);
    let (agents, on_demand) = (context.agents.as_ref(), OnDemandReports::new(watch, rate_of(pace)));
    let hosts = agents.map(Agents::hosts).unwrap_or_default();
    let reporters = (workers.group.reporters(), Parts::new(hosts));
    let mut builder = ReportBuilder::new(watch, plan.schedule, on_demand, reporters);
    // A report on demand cuts an epoch into two parts, which are long enough for threads to notice.
    let part_min = TICK.min(plan.schedule.report / 4);
    let mut epoch = 0;
    while epoch <= plan.schedule.reports && is_on(plan, context, &workers) {
        let left = plan.schedule.end_of(epoch).saturating_sub(workers.start.elapsed());
        if left.is_zero() {
            epoch += 1;
            workers.move_on(builder.on_demand.number(epoch));
            builder.mark(watch, workers.start.elapsed());
            continue;
        }
        if let Some(handed) = workers.next(left.min(TICK)) {
            builder.take(handed, plan, live);
        }
        let (now, ends) = (workers.start.elapsed(), plan.schedule.end_of(epoch));
        let is_inside = builder.last_end() + part_min < now && now + part_min < ends;
        if is_inside && builder.on_demand.cut_if_requested(context, watch, (epoch, now)) {
            workers.move_on(builder.on_demand.number(epoch));
        }
        live.tick(workers.start.elapsed(), epoch, || workers.group.snapshot(), Some(watch));
    }
    if let Some(silence) = silence(plan, &workers) {
        // Reports the silence instead of a thread's error, because the silence explains more.
        let _ = workers.end();
        let (who, why) = (context.silent(), unheard(context, silence));
        return Err(RunError::Failed(format!("{who}: {why}")));
    }
    if is_cold {
        let why = workers.end().1.map(|failed| failed.to_string());
        let cut_short = why.or_else(|| Some("the hit ratio had not settled".to_owned()));
        return Ok(TrafficResult { cut_short, ..TrafficResult::default() });
    }
    let (elapsed, early) = (workers.start.elapsed(), epoch <= plan.schedule.reports);
    if early {
        builder.mark(watch, elapsed);
    }
    let (rest, failed) = workers.end();
    rest.into_iter().for_each(|handed| builder.take(handed, plan, live));
    let cut_short = failed.map(|error| error.to_string());
    let stopped =
        || (early && context.is_stopped()).then(|| "stopped by Ctrl-C or SIGTERM".to_owned());
    let lost = agents.filter(|all| all.is_one_lost()).map(|_| builder.lose());
    let (intervals, parts) = builder.close(rate_of(pace));
    Ok(TrafficResult {
        intervals,
        cut_short: cut_short.or_else(stopped),
        unsettled,
        agents: agents.map(|all| all.parts(parts, plan, rate_of(pace))).unwrap_or_default(),
        lost,
        gone: Vec::new(),
    })
}

fn is_on(plan: &Plan, context: &RunContext, workers: &Workers<'_>) -> bool {
    !workers.group.is_over() && !context.is_stopped() && silence(plan, workers).is_none()
}

/// Returns the time since the start if no answer has arrived and this time is too long.
fn silence(plan: &Plan, workers: &Workers<'_>) -> Option<Duration> {
    let silence = workers.born.elapsed();
    (silence >= silence_max(plan.timeout) && workers.group.is_unheard()).then_some(silence)
}

/// Runs traffic until the hit ratio has settled, but at most for `limit`. Then restarts the
/// workers' epoch count and time. Returns a remark if the hit ratio has not settled.
fn warm(
    plan: &Plan,
    context: &RunContext,
    workers: &mut Workers<'_>,
    limit: Duration,
    (watch, live): (&Watch, &Live),
) -> Option<String> {
    live.warming(Some(limit));
    let (mut collector, mut warm) = (Collector::new(workers.group.reporters()), WarmUp::default());
    let (mut epoch, mut ends) = (0, WARM_EPOCH);
    while workers.start.elapsed() < limit && !warm.is_settled() && is_on(plan, context, workers) {
        if workers.start.elapsed() >= ends {
            epoch += 1;
            ends += WARM_EPOCH;
            workers.move_on(epoch);
        }
        if let Some(handed) = workers.next(TICK)
            && let Some((epoch, all)) = collector.take(handed.epoch, &handed.tally)
        {
            let total = all.tally.total();
            warm.add(WARM_EPOCH * (epoch + 1), total.hits, total.hits + total.misses);
        }
        live.tick(workers.start.elapsed(), 0, || workers.group.snapshot(), Some(watch));
    }
    let took = clock(workers.start.elapsed());
    live.warming(None);
    workers.begin_anew(epoch + 1);
    let is_settled = warm.is_settled();
    let message = warm.ratios().map_or_else(
        || "the hit ratio is not known".to_owned(),
        |[last, before]| {
            format!(
                "{} in the last quarter of this time, {} in the quarter before",
                percent(last),
                percent(before)
            )
        },
    );
    if is_settled {
        live.note(&format!("the hit ratio has settled after {took}: {message}"));
    }
    (!is_settled).then(|| format!("the hit ratio had not settled after {took}: {message}"))
}

struct ReportBuilder {
    schedule: Schedule,
    /// For each epoch, in order: the time of its end, and the CPU use during the epoch.
    ends: Vec<(Duration, Usage)>,
    last: Moment,
    collector: Collector,
    on_demand: OnDemandReports,
    /// The counts of each epoch, as far as the epoch's parts have arrived.
    merged: BTreeMap<u32, MergedTally>,
    whole: u32,
    parts: Parts,
}

impl ReportBuilder {
    fn new(
        watch: &Watch,
        schedule: Schedule,
        on_demand: OnDemandReports,
        (reporters, parts): (u32, Parts),
    ) -> ReportBuilder {
        let (last, collector) = (watch.moment(), Collector::new(reporters));
        let (ends, merged) = (Vec::new(), BTreeMap::new());
        ReportBuilder { schedule, ends, last, collector, on_demand, merged, whole: 0, parts }
    }

    fn last_end(&self) -> Duration {
        self.ends.last().map_or(Duration::ZERO, |(end, _)| *end)
    }

    fn mark(&mut self, watch: &Watch, elapsed: Duration) {
        let now = watch.moment();
        self.ends.push((elapsed, now.since(&self.last)));
        self.last = now;
    }

    fn take(&mut self, handed: EpochTally, plan: &Plan, live: &Live) {
        let EpochTally { epoch: number, tally, part } = handed;
        let whole = self.collector.take(number, &tally);
        if let Some(part) = part {
            self.parts.keep(number, tally, part);
        }
        let Some(whole) = whole else { return };
        let (epoch, all, report) = self.join(whole);
        if let Some(report) = report {
            return report.tell(live, plan.out.as_deref());
        }
        live.reported(epoch, &all.tally);
        self.whole = self.whole.max(epoch);
        // `close` adds the parts of an epoch that has not ended yet, and of epoch 0 (settling),
        // because only `close` knows whether settling is the only report.
        if epoch > 0 && (epoch as usize) < self.ends.len() {
            self.add_parts(epoch);
        }
    }

    /// Adds the counts of the threads' epoch number `number` to the epoch of the schedule. Returns
    /// the schedule's epoch, its counts so far, and the report on demand that ends with `number`,
    /// if any.
    fn join(&mut self, (number, part): (u32, MergedTally)) -> (u32, &MergedTally, Option<Report>) {
        let (epoch, report) = self.on_demand.take(number, &part);
        self.parts.number(number, epoch);
        let all = self.merged.entry(epoch).or_default();
        all.join(&part);
        (epoch, all, report)
    }

    fn add_parts(&mut self, epoch: u32) {
        if let Some(whole) = self.merged.get_mut(&epoch) {
            self.parts.add((epoch, whole), span(&mut self.ends, epoch));
        }
    }

    /// Drops the current report, which lacks a lost agent's part. Returns a remark on this loss.
    fn lose(&mut self) -> (Severity, &'static str) {
        if self.whole == 0 {
            let message = "the figures of the lost agent are missing, so the result counts \
                           fewer requests than were planned";
            return (Severity::Invalid, message);
        }
        self.ends.truncate(self.whole as usize + 1);
        self.collector = Collector::new(0);
        let message =
            "an agent was lost during a report: this report and all later reports are left out";
        (Severity::Warning, message)
    }

    /// Returns the reports and the agents' parts. If traffic ended during settling, settling is the
    /// only report. If no thread got CPU time in an epoch, the epoch's report is empty.
    fn close(mut self, asked_per_s: Option<f64>) -> (Vec<Interval>, Parts) {
        let collector = std::mem::replace(&mut self.collector, Collector::new(0));
        collector.rest().into_iter().for_each(|part| _ = self.join(part));
        let Some(any) = self.merged.values().next() else { return (Vec::new(), self.parts) };
        let late_limit_ns = any.tally.late_limit_ns;
        let only = self.ends.len() == 1;
        let mut intervals = Vec::new();
        for epoch in (0..).take(self.ends.len()) {
            let is_report = self.schedule.is_reported(epoch) || (only && epoch == 0);
            if !is_report {
                continue;
            }
            self.add_parts(epoch);
            let nothing = || MergedTally { tally: Tally::new(late_limit_ns), busiest: 0.0 };
            let merged = self.merged.remove(&epoch).unwrap_or_else(nothing);
            let Some((from, seconds, usage)) = span(&mut self.ends, epoch) else { continue };
            let interval = Interval::new(merged, from, seconds, std::mem::take(usage));
            intervals.push(Interval { asked_per_s, ..interval });
        }
        // After the last report, threads only wait for answers to requests of the last report.
        let after = self.schedule.reports + 1;
        self.add_parts(after);
        if let (Some(last), Some(after)) = (intervals.last_mut(), self.merged.get(&after)) {
            last.tally.give_up(&after.tally);
        }
        (intervals, self.parts)
    }
}

/// Returns an epoch's start and length in seconds, and its usage. `None` before the epoch's end.
fn span(ends: &mut [(Duration, Usage)], epoch: u32) -> Option<(f64, f64, &mut Usage)> {
    let before = epoch.checked_sub(1).and_then(|before| ends.get(before as usize));
    let from = before.map_or(Duration::ZERO, |(end, _)| *end);
    let (end, usage) = ends.get_mut(epoch as usize)?;
    Some((from.as_secs_f64(), end.saturating_sub(from).as_secs_f64(), usage))
}

fn rate_of(pace: Pace) -> Option<f64> {
    match pace {
        // NaN means that the workload sets the pace.
        Pace::Open { rate_per_s, .. } => Some(rate_per_s).filter(|rate| !rate.is_nan()),
        Pace::Closed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Verb;

    #[test]
    fn what_is_given_up_after_the_last_report_counts_in_it() {
        let schedule = Schedule { reports: 2, ..Schedule::default() };
        let watch = Watch::new(std::iter::empty(), &[]);
        let on_demand = OnDemandReports::new(&watch, None);
        let mut builder =
            ReportBuilder::new(&watch, schedule, on_demand, (1, Parts::new(Vec::new())));
        builder.ends = (1..=3).map(|nth| (10 * nth * TICK, Usage::default())).collect();
        let epoch = |epoch: u32| {
            let mut tally = Tally::new(0);
            tally.answered(Verb::Get, false, 0, 0, 1);
            (0..epoch).for_each(|_| tally.timed_out(Verb::Get));
            (tally.cut_off, tally.udp.lost) = (epoch.into(), epoch.into());
            (epoch, MergedTally { tally, busiest: 0.0 })
        };
        builder.merged = (0..4).map(epoch).collect();
        let (intervals, _) = builder.close(None);
        let seen = |one: &Interval| {
            let get = one.tally.verb(Verb::Get);
            (get.answered, get.timeouts, one.tally.cut_off, one.tally.udp.lost)
        };
        let seen: Vec<_> = intervals.iter().map(seen).collect();
        assert_eq!(seen, [(1, 1, 1, 1), (1, 5, 5, 5)]);
    }
}
