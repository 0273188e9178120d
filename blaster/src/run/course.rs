//! The course of a run: populate, settle, report after report, end.
//!
//! Where: called by `main`; `capacity` runs it once for each rate it tries.
//! Invariant: an epoch ends for all threads at once, and its CPU readings are taken then; Ctrl-C, a
//! thread that fails and the last request end a run early, and the measurements so far are kept.
//! Source: the paper's section 6.1: six consecutive reports of ten seconds after it has settled.

use super::agents::Parts;
use super::asked::{Asked, Report};
use super::crew::{Crew, Ground, Handed};
use super::live::Live;
use super::patience::{Hopeless, Patience, silence_max};
use super::unstored::Stored;
use super::{Plan, RunError};
use crate::drive::{Mode, OUTSTANDING_MAX, Pace};
use crate::measure::check::{Remark, Severity};
use crate::measure::schedule::{Collector, Merged, Schedule};
use crate::measure::warm::Warm;
use crate::measure::watch::{Moment, Usage, Watch};
use crate::measure::{Interval, Tally};
use crate::result::agent::AgentPart;
use crate::words::{clock, grouped, percent, time};
use std::time::{Duration, Instant};

/// Longest wait for a tally; Ctrl-C is looked for between two.
const TICK: Duration = Duration::from_millis(100);
/// The length of an epoch while populating.
const POPULATE_EPOCH: Duration = Duration::from_millis(500);

/// The length of an epoch while the hit ratio settles.
const WARM_EPOCH: Duration = Duration::from_secs(1);

/// The measurements of a stretch of traffic.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// The reports in their order.
    pub(crate) intervals: Vec<Interval>,
    /// The reason why it ended early.
    pub(crate) cut_short: Option<String>,
    /// A remark that the hit ratio had not settled when it began.
    pub(crate) unsettled: Option<String>,
    /// The part of each agent, if agents drove.
    pub(crate) agents: Vec<AgentPart>,
    /// A remark on reports in which an agent was lost.
    pub(crate) lost: Option<(Severity, &'static str)>,
    /// A remark on servers that went away or were restarted.
    pub(crate) gone: Option<Remark>,
}

/// Stores every key once. Returns a description of the keys that were not stored.
///
/// # Errors
/// A thread could not go on, nothing is answered, or hardly anything could be stored.
pub(crate) fn populate(
    plan: &Plan,
    ground: &Ground,
    (watch, live): (&Watch, &Live),
) -> Result<Option<String>, RunError> {
    let depth = if has_udp(ground) { 1 } else { POPULATE_DEPTH };
    let connections = plan.connections;
    let pace = match plan.fill_rate_per_s {
        Some(rate_per_s) => {
            let outstanding_max = connections.saturating_mul(depth).min(OUTSTANDING_MAX);
            Pace::Open { rate_per_s, connections, outstanding_max }
        }
        None => Pace::Closed { connections, depth },
    };
    live.populating(ground.workload.keys());
    let crew = Crew::start(plan, ground, (Mode::Populate, pace), live.is_watched())?;
    let start = crew.start;
    // Populating may be over before the next look.
    live.tick(start.elapsed(), 0, || crew.hands.sight(), Some(watch));
    let mut stored = Stored::default();
    let mut patience = Patience::new(plan.timeout, ground.workload.keys());
    let mut hopeless = None;
    let (mut epoch, mut ends) = (0, crew.start + POPULATE_EPOCH);
    while hopeless.is_none() && !crew.hands.is_over() && !ground.is_stopped() {
        if let Some(handed) = crew.next(TICK) {
            stored.add(&handed.tally);
            let (answered, lost) = stored.over();
            hopeless = patience.look(crew.start.elapsed(), answered, lost);
        }
        if Instant::now() >= ends {
            epoch += 1;
            ends += POPULATE_EPOCH;
            crew.move_on(epoch);
        }
        live.tick(crew.start.elapsed(), epoch, || crew.hands.sight(), Some(watch));
    }
    let (rest, failed) = crew.end();
    rest.into_iter().for_each(|handed| stored.add(&handed.tally));
    live.done();
    ground.stored.set(ground.stored.get().max(stored.keys()));
    if hopeless.is_none() {
        live.populated(stored.keys(), start.elapsed());
    }
    match failed {
        Some(error) => Err(error),
        None if ground.is_stopped() => Err(RunError::Stopped),
        None if stored.keys() == 0 && stored.is_broken() => {
            Err(RunError::Speechless(ground.servers.speech.name()))
        }
        None => match (hopeless, stored.told()) {
            (Some(why), told) => Err(given_up(ground, &stored, (why, told))),
            (None, told) if stored.lacking() >= stored.keys() => {
                let told = told.unwrap_or_else(|| "no key could be stored".to_owned());
                Err(RunError::Unpopulated(told, stored.advice()))
            }
            (None, told) => Ok(told),
        },
    }
}

/// Describes why the rest of the keys is not stored, and which servers are at fault.
fn given_up(ground: &Ground, stored: &Stored, (why, told): (Hopeless, Option<String>)) -> RunError {
    let who = ground.silent();
    let told = told.map_or(String::new(), |told| format!("; {told}"));
    let (answered, lost) = stored.over();
    let so_far = format!(
        "after {} of {} keys",
        grouped((answered + lost) as f64),
        grouped(ground.workload.keys() as f64)
    );
    let said = match why {
        Hopeless::Lossy(left) => format!(
            "filling was given up {so_far}: requests that are never answered make it so slow that \
             it would take {} more{told}.\n{}",
            clock(left),
            stored.advice()
        ),
        Hopeless::Silent(silence) if answered == 0 => unheard(ground, silence) + &told,
        Hopeless::Silent(silence) => format!(
            "stopped answering while it was filled, {so_far}: nothing came for {}{told}.\nLook \
             after the server first: its log, and whether it still runs",
            time(ns(silence))
        ),
    };
    RunError::Silent(who, said)
}

/// Describes that no server ever answered.
fn unheard(ground: &Ground, silence: Duration) -> String {
    let protocol = ground.servers.speech.name();
    let over = if has_udp(ground) { " over UDP" } else { "" };
    format!(
        "nothing was answered for {}: is a server running there, and does it speak \
         {protocol}{over}?",
        time(ns(silence))
    )
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn has_udp(ground: &Ground) -> bool {
    ground.servers.targets.iter().any(|target| target.place.datagrams().is_some())
}

/// Requests under way on a connection while populating. Over UDP it is one: a burst that overflows
/// the server's socket is lost.
const POPULATE_DEPTH: u32 = 32;

/// Drives at `pace` by the plan's schedule.
///
/// # Errors
/// No thread could be started, or no server ever answers; a later failure cuts the course short.
pub(crate) fn drive(
    plan: &Plan,
    ground: &Ground,
    pace: Pace,
    (watch, live): (&Watch, &Live),
) -> Result<Course, RunError> {
    let mut crew = Crew::start(plan, ground, (Mode::Traffic, pace), live.is_watched())?;
    let unsettled = match plan.warm {
        Some(limit) => warm(plan, ground, &mut crew, limit, (watch, live)),
        None => None,
    };
    let is_cold = plan.warm.is_some() && !is_on(plan, ground, &crew);
    let (agents, asked) = (ground.agents.as_ref(), Asked::new(watch, rate_of(pace)));
    let reporters = (crew.hands.reporters(), Parts::new(agents));
    let mut books = Books::new(watch, plan.schedule, asked, reporters);
    // A part of an epoch must be long enough for each thread to see it.
    let part_min = TICK.min(plan.schedule.report / 4);
    let mut epoch = 0;
    while epoch <= plan.schedule.reports && is_on(plan, ground, &crew) {
        let left = plan.schedule.end_of(epoch).saturating_sub(crew.start.elapsed());
        if left.is_zero() {
            epoch += 1;
            crew.move_on(books.asked.number(epoch));
            books.mark(watch, crew.start.elapsed());
            continue;
        }
        if let Some(handed) = crew.next(left.min(TICK)) {
            books.take(handed, plan, live);
        }
        let (now, ends) = (crew.start.elapsed(), plan.schedule.end_of(epoch));
        let is_inside = books.last_end() + part_min < now && now + part_min < ends;
        if is_inside && books.asked.is_cut(ground, watch, (epoch, now)) {
            crew.move_on(books.asked.number(epoch));
        }
        live.tick(crew.start.elapsed(), epoch, || crew.hands.sight(), Some(watch));
    }
    if let Some(silence) = silence(plan, &crew) {
        // The silence explains more than the error with which a thread ended.
        let _ = crew.end();
        return Err(RunError::Silent(ground.silent(), unheard(ground, silence)));
    }
    if is_cold {
        let why = crew.end().1.map(|failed| failed.to_string());
        let cut_short = why.or_else(|| Some("it ended before it was warm".to_owned()));
        return Ok(Course { cut_short, ..Course::default() });
    }
    let (elapsed, early) = (crew.start.elapsed(), epoch <= plan.schedule.reports);
    if early {
        books.mark(watch, elapsed);
    }
    let (rest, failed) = crew.end();
    rest.into_iter().for_each(|handed| books.take(handed, plan, live));
    let cut_short = failed.map(|error| error.to_string());
    let stopped =
        || (early && ground.is_stopped()).then(|| "stopped by Ctrl-C or SIGTERM".to_owned());
    let lost = agents.filter(|all| all.is_one_lost()).map(|_| books.lose());
    let (intervals, parts) = books.close(rate_of(pace));
    Ok(Course {
        intervals,
        cut_short: cut_short.or_else(stopped),
        unsettled,
        agents: agents.map(|all| all.told(parts, plan, rate_of(pace))).unwrap_or_default(),
        lost,
        gone: None,
    })
}

/// True if there is a reason to go on.
fn is_on(plan: &Plan, ground: &Ground, crew: &Crew<'_>) -> bool {
    !crew.hands.is_over() && !ground.is_stopped() && silence(plan, crew).is_none()
}

/// The time since the start without any answer, if it is too long.
fn silence(plan: &Plan, crew: &Crew<'_>) -> Option<Duration> {
    let silence = crew.born.elapsed();
    (silence >= silence_max(plan.timeout) && crew.hands.is_unheard()).then_some(silence)
}

/// Drives traffic until the hit ratio has settled, for `limit` at most; then the crew's epochs and
/// time begin anew. Returns a remark if it has not settled.
fn warm(
    plan: &Plan,
    ground: &Ground,
    crew: &mut Crew<'_>,
    limit: Duration,
    (watch, live): (&Watch, &Live),
) -> Option<String> {
    live.warming(Some(limit));
    let (mut mail, mut warm) = (Collector::new(crew.hands.reporters()), Warm::default());
    let (mut epoch, mut ends) = (0, WARM_EPOCH);
    while crew.start.elapsed() < limit && !warm.is_settled() && is_on(plan, ground, crew) {
        if crew.start.elapsed() >= ends {
            epoch += 1;
            ends += WARM_EPOCH;
            crew.move_on(epoch);
        }
        if let Some(handed) = crew.next(TICK)
            && let Some((epoch, all)) = mail.take(handed.epoch, &handed.tally)
        {
            let total = all.tally.total();
            warm.add(WARM_EPOCH * (epoch + 1), total.hits, total.hits + total.misses);
        }
        live.tick(crew.start.elapsed(), 0, || crew.hands.sight(), Some(watch));
    }
    let took = clock(crew.start.elapsed());
    live.warming(None);
    crew.begin_anew(epoch + 1);
    let is_settled = warm.is_settled();
    let told = warm.ratios().map_or_else(
        || "nobody knows the hit ratio".to_owned(),
        |[last, before]| format!("hits were {}, and {} before", percent(last), percent(before)),
    );
    if is_settled {
        live.note(&format!("the hit ratio has settled after {took}: {told}"));
    }
    (!is_settled).then(|| format!("the hit ratio had not settled after {took}: {told}"))
}

/// The figures of a stretch of traffic while they are put together.
struct Books {
    schedule: Schedule,
    /// The end of each epoch, in their order: its time, and the usage since the one before.
    ends: Vec<(Duration, Usage)>,
    last: Moment,
    mail: Collector,
    asked: Asked,
    /// Epochs of which a part is complete.
    merged: Vec<(u32, Merged)>,
    /// The last complete epoch.
    whole: u32,
    parts: Parts,
}

impl Books {
    fn new(
        watch: &Watch,
        schedule: Schedule,
        asked: Asked,
        (reporters, parts): (u32, Parts),
    ) -> Books {
        let (last, mail) = (watch.moment(), Collector::new(reporters));
        let (ends, merged) = (Vec::new(), Vec::new());
        Books { schedule, ends, last, mail, asked, merged, whole: 0, parts }
    }

    fn last_end(&self) -> Duration {
        self.ends.last().map_or(Duration::ZERO, |(end, _)| *end)
    }

    /// Marks the end of an epoch.
    fn mark(&mut self, watch: &Watch, elapsed: Duration) {
        let now = watch.moment();
        self.ends.push((elapsed, now.since(&self.last)));
        self.last = now;
    }

    fn take(&mut self, handed: Handed, plan: &Plan, live: &Live) {
        let Handed { epoch: number, tally, part } = handed;
        let whole = self.mail.take(number, &tally);
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
        // Threads that are done hand over before the epoch has ended. Whether the part before the
        // first report is the only one is not known yet.
        if epoch > 0 && (epoch as usize) < self.ends.len() {
            self.add_parts(epoch);
        }
    }

    /// Joins what threads did under a number to its epoch. Returns the epoch, its parts so far, and
    /// the report if one was asked for there.
    fn join(&mut self, (number, part): (u32, Merged)) -> (u32, &Merged, Option<Report>) {
        let (epoch, report) = self.asked.take(number, &part);
        self.parts.number(number, epoch);
        let at = self.merged.iter().position(|(other, _)| *other == epoch);
        let at = at.unwrap_or_else(|| {
            self.merged.push((epoch, Merged::default()));
            self.merged.len() - 1
        });
        let all = &mut self.merged[at].1;
        all.join(&part);
        (epoch, all, report)
    }

    fn add_parts(&mut self, epoch: u32) {
        if let Some((_, whole)) = self.merged.iter_mut().find(|(of, _)| *of == epoch) {
            self.parts.add((epoch, whole), span(&mut self.ends, epoch));
        }
    }

    /// Drops the report under way, in which an agent's part is lost. Returns the remark on it.
    fn lose(&mut self) -> (Severity, &'static str) {
        if self.whole == 0 {
            let told = "what the agent did that was lost is not known and missing in the figures: \
                        fewer requests were made than were asked for";
            return (Severity::Invalid, told);
        }
        self.ends.truncate(self.whole as usize + 1);
        self.mail = Collector::new(0);
        let told =
            "all reports end before an agent was lost: the one that was under way is left out";
        (Severity::Warning, told)
    }

    /// Returns the reports among the epochs, and the agents' parts. If the settling was cut short,
    /// it is the report. An epoch that no thread ever saw, on a machine that gave them no CPU, is
    /// an empty report.
    fn close(mut self, asked_per_s: Option<f64>) -> (Vec<Interval>, Parts) {
        let mail = std::mem::replace(&mut self.mail, Collector::new(0));
        mail.rest().into_iter().for_each(|part| _ = self.join(part));
        let Some((_, any)) = self.merged.first() else { return (Vec::new(), self.parts) };
        let late_limit_ns = any.tally.late_limit_ns;
        let only = self.ends.len() == 1;
        let mut intervals = Vec::new();
        for epoch in (0..).take(self.ends.len()) {
            let is_report = self.schedule.is_reported(epoch) || (only && epoch == 0);
            if !is_report {
                continue;
            }
            self.add_parts(epoch);
            let at = self.merged.iter().position(|(other, _)| *other == epoch);
            let nothing = || Merged { tally: Tally::new(late_limit_ns), busiest: 0.0 };
            let merged = at.map_or_else(nothing, |at| self.merged.swap_remove(at).1);
            let Some((from, seconds, usage)) = span(&mut self.ends, epoch) else { continue };
            let interval = Interval::new(merged, from, seconds, std::mem::take(usage));
            intervals.push(Interval { asked_per_s, ..interval });
        }
        // After the last report the threads only wait for answers to its requests.
        let after = self.schedule.reports + 1;
        self.add_parts(after);
        let after = self.merged.iter().find(|(epoch, _)| *epoch == after);
        if let (Some(last), Some((_, after))) = (intervals.last_mut(), after) {
            last.tally.give_up(&after.tally);
        }
        (intervals, self.parts)
    }
}

/// Returns the start and length of an epoch in seconds, and its usage; none if it has not ended.
fn span(ends: &mut [(Duration, Usage)], epoch: u32) -> Option<(f64, f64, &mut Usage)> {
    let before = epoch.checked_sub(1).and_then(|before| ends.get(before as usize));
    let from = before.map_or(Duration::ZERO, |(end, _)| *end);
    let (end, usage) = ends.get_mut(epoch as usize)?;
    Some((from.as_secs_f64(), end.saturating_sub(from).as_secs_f64(), usage))
}

fn rate_of(pace: Pace) -> Option<f64> {
    match pace {
        // A workload's own pace is NaN.
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
        let asked = Asked::new(&watch, None);
        let mut books = Books::new(&watch, schedule, asked, (1, Parts::new(None)));
        books.ends = (1..=3).map(|nth| (10 * nth * TICK, Usage::default())).collect();
        let epoch = |epoch: u32| {
            let mut tally = Tally::new(0);
            tally.answered(Verb::Get, false, 0, 0, 1);
            (0..epoch).for_each(|_| tally.timed_out(Verb::Get));
            (tally.cut_off, tally.udp.lost) = (epoch.into(), epoch.into());
            (epoch, Merged { tally, busiest: 0.0 })
        };
        books.merged = (0..4).map(epoch).collect();
        let (intervals, _) = books.close(None);
        let seen = |one: &Interval| {
            let get = one.tally.verb(Verb::Get);
            (get.answered, get.timeouts, one.tally.cut_off, one.tally.udp.lost)
        };
        let seen: Vec<_> = intervals.iter().map(seen).collect();
        assert_eq!(seen, [(1, 1, 1, 1), (1, 5, 5, 5)]);
    }
}
