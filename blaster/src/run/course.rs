//! The course of a run: populate, settle, report after report, end.
//!
//! Where: called by `main`; `capacity` runs it once for each rate it tries.
//! Invariant: an epoch ends for all threads at the same word, and its CPU readings are taken then;
//! Ctrl-C, a thread that fails and the last request end a run early, and what was measured stays.
//! Source: the paper's section 6.1: six consecutive reports of ten seconds after it has settled.

use super::asked::Asked;
use super::crew::{Crew, Ground, Handed};
use super::live::Live;
use super::patience::{Hopeless, Patience, silence_max};
use super::unstored::Stored;
use super::{Plan, RunError};
use crate::drive::{Mode, Pace};
use crate::measure::schedule::{Collector, Merged, Schedule};
use crate::measure::warm::Warm;
use crate::measure::watch::{Moment, Usage, Watch};
use crate::measure::{Interval, Tally};
use crate::target::Place;
use crate::words::{clock, grouped, percent, time};
use std::time::{Duration, Instant};

/// How long the mailbox is waited for at a time; Ctrl-C is seen as often.
const TICK: Duration = Duration::from_millis(100);
/// Epochs of no report: settling, and what comes after the last.
const POPULATE_EPOCH: Duration = Duration::from_millis(500);

/// How often it is looked whether the hit ratio has settled.
const WARM_EPOCH: Duration = Duration::from_secs(1);

/// A stretch of traffic, measured.
#[derive(Debug, Default)]
pub(crate) struct Course {
    /// In their order.
    pub(crate) intervals: Vec<Interval>,
    /// Why it ended before its time.
    pub(crate) cut_short: Option<String>,
    /// That the hit ratio had not settled when it began.
    pub(crate) unsettled: Option<String>,
}

/// Stores every key once; what is to be told if some were not.
///
/// # Errors
/// A thread could not go on, nothing is answered, or hardly anything could be stored.
pub(crate) fn populate(
    plan: &Plan,
    ground: &Ground,
    (watch, live): (&Watch, &Live),
) -> Result<Option<String>, RunError> {
    let depth = if has_udp(ground) { 1 } else { POPULATE_DEPTH };
    let pace = Pace::Closed { connections: plan.connections, depth };
    live.populating(ground.workload.keys());
    let crew = Crew::start(plan, ground, Mode::Populate, pace, live.is_watched());
    let crew = crew.map_err(RunError::Threads)?;
    let start = crew.start;
    // It may be over before it is looked at again.
    live.tick(start.elapsed(), 0, || crew.sight(), Some(watch));
    let mut stored = Stored::default();
    let mut patience = Patience::new(plan.timeout, ground.workload.keys());
    let mut hopeless = None;
    let (mut epoch, mut ends) = (0, crew.start + POPULATE_EPOCH);
    while hopeless.is_none() && !crew.is_over() && !ground.is_stopped() {
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
        live.tick(crew.start.elapsed(), epoch, || crew.sight(), Some(watch));
    }
    let (rest, failed) = crew.end();
    rest.into_iter().for_each(|handed| stored.add(&handed.tally));
    live.done();
    if hopeless.is_none() {
        live.populated(stored.keys(), start.elapsed());
    }
    match failed {
        Some(error) => Err(RunError::Drive(error)),
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

/// Why the rest of the keys is not stored, and who is at fault.
fn given_up(ground: &Ground, stored: &Stored, (why, told): (Hopeless, Option<String>)) -> RunError {
    let who = ground.servers.silent();
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

/// Nobody ever answered.
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
    ground.servers.targets.iter().any(|target| matches!(target.place, Place::Udp(_)))
}

/// Requests under way on a connection that is to be fast. Over UDP one: a burst that overflows the
/// server's socket is lost.
const POPULATE_DEPTH: u32 = 32;

/// Drives at `pace` by the plan's schedule.
///
/// # Errors
/// No thread could be started, or nobody ever answers; what fails later cuts the course short.
pub(crate) fn drive(
    plan: &Plan,
    ground: &Ground,
    pace: Pace,
    (watch, live): (&Watch, &Live),
) -> Result<Course, RunError> {
    let crew = Crew::start(plan, ground, Mode::Traffic, pace, live.is_watched());
    let mut crew = crew.map_err(RunError::Threads)?;
    let unsettled = match plan.warm {
        Some(limit) => warm(plan, ground, &mut crew, limit, (watch, live)),
        None => None,
    };
    let is_cold = plan.warm.is_some() && !is_on(plan, ground, &crew);
    let mut marks = Marks::new(watch, plan.schedule);
    let mut books = Books::new(crew.reporters, Asked::new(watch, rate_of(pace)));
    // No part of an epoch is so short that a thread may not see it.
    let part_min = TICK.min(plan.schedule.report / 4);
    let mut epoch = 0;
    while epoch <= plan.schedule.reports && is_on(plan, ground, &crew) {
        let left = plan.schedule.end_of(epoch).saturating_sub(crew.start.elapsed());
        if left.is_zero() {
            epoch += 1;
            crew.move_on(books.asked.number(epoch));
            marks.mark(watch, crew.start.elapsed());
            continue;
        }
        if let Some(handed) = crew.next(left.min(TICK)) {
            books.take(handed, plan, live);
        }
        let (now, ends) = (crew.start.elapsed(), plan.schedule.end_of(epoch));
        let is_inside = marks.last_end() + part_min < now && now + part_min < ends;
        if is_inside && books.asked.is_cut(ground, watch, (epoch, now)) {
            crew.move_on(books.asked.number(epoch));
        }
        live.tick(crew.start.elapsed(), epoch, || crew.sight(), Some(watch));
    }
    if let Some(silence) = silence(plan, &crew) {
        // Why a thread ended does not matter beside that.
        let _ = crew.end();
        return Err(RunError::Silent(ground.servers.silent(), unheard(ground, silence)));
    }
    if is_cold {
        let why = crew.end().1.map(|failed| failed.to_string());
        let cut_short = why.or_else(|| Some("it ended before it was warm".to_owned()));
        return Ok(Course { cut_short, ..Course::default() });
    }
    let (elapsed, early) = (crew.start.elapsed(), epoch <= plan.schedule.reports);
    if early {
        marks.mark(watch, elapsed);
    }
    let (rest, failed) = crew.end();
    rest.into_iter().for_each(|handed| books.take(handed, plan, live));
    let cut_short = failed.map(|error| error.to_string());
    let stopped = || (early && ground.is_stopped()).then(|| "stopped by Ctrl-C".to_owned());
    Ok(Course {
        intervals: marks.intervals(books.close(), rate_of(pace)),
        cut_short: cut_short.or_else(stopped),
        unsettled,
    })
}

/// What is put together of what threads hand over.
struct Books {
    mail: Collector,
    /// Epochs of which a part is whole.
    merged: Vec<(u32, Merged)>,
    asked: Asked,
}

impl Books {
    fn new(reporters: u32, asked: Asked) -> Books {
        Books { mail: Collector::new(reporters), merged: Vec::new(), asked }
    }

    fn take(&mut self, handed: Handed, plan: &Plan, live: &Live) {
        let Some((number, all)) = self.mail.take(handed.epoch, &handed.tally) else { return };
        let (epoch, report) = self.asked.take(number, &all);
        let all = self.join(epoch, all);
        match report {
            Some(report) => report.tell(live, plan.out.as_deref()),
            None => live.reported(epoch, &all.tally),
        }
    }

    /// The part of an epoch, with those before it.
    fn join(&mut self, epoch: u32, part: Merged) -> &Merged {
        let at = self.merged.iter().position(|(other, _)| *other == epoch);
        let at = at.unwrap_or_else(|| {
            self.merged.push((epoch, Merged::default()));
            self.merged.len() - 1
        });
        let all = &mut self.merged[at].1;
        all.join(&part);
        all
    }

    /// All epochs.
    fn close(mut self) -> Vec<(u32, Merged)> {
        for (number, part) in std::mem::replace(&mut self.mail, Collector::new(0)).rest() {
            let (epoch, _) = self.asked.take(number, &part);
            self.join(epoch, part);
        }
        self.merged
    }
}

/// Is there any reason to go on?
fn is_on(plan: &Plan, ground: &Ground, crew: &Crew) -> bool {
    !crew.is_over() && !ground.is_stopped() && silence(plan, crew).is_none()
}

/// How long nothing was heard, where that is too long.
fn silence(plan: &Plan, crew: &Crew) -> Option<Duration> {
    let silence = crew.born.elapsed();
    (silence >= silence_max(plan.timeout) && crew.is_unheard()).then_some(silence)
}

/// Traffic until the hit ratio has settled, for `limit` at most; then the crew's epochs and time
/// begin anew. If it has not settled, what is to be told.
fn warm(
    plan: &Plan,
    ground: &Ground,
    crew: &mut Crew,
    limit: Duration,
    (watch, live): (&Watch, &Live),
) -> Option<String> {
    live.warming(Some(limit));
    let (mut mail, mut warm) = (Collector::new(crew.reporters), Warm::default());
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
        live.tick(crew.start.elapsed(), 0, || crew.sight(), Some(watch));
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

/// The ends of the epochs: when, and what had been taken until then.
struct Marks {
    schedule: Schedule,
    /// The end of each epoch, in their order.
    ends: Vec<(Duration, Usage)>,
    last: Moment,
}

impl Marks {
    fn new(watch: &Watch, schedule: Schedule) -> Marks {
        Marks { schedule, ends: Vec::new(), last: watch.moment() }
    }

    /// When the last epoch ended.
    fn last_end(&self) -> Duration {
        self.ends.last().map_or(Duration::ZERO, |(end, _)| *end)
    }

    /// An epoch has ended.
    fn mark(&mut self, watch: &Watch, elapsed: Duration) {
        let now = watch.moment();
        self.ends.push((elapsed, now.since(&self.last)));
        self.last = now;
    }

    /// The reports among the epochs. Where even the settling was cut short, it is the report. An
    /// epoch that no thread so much as saw, on a machine that gave them no CPU, is an empty report.
    fn intervals(self, mut merged: Vec<(u32, Merged)>, asked_per_s: Option<f64>) -> Vec<Interval> {
        let Some((_, any)) = merged.first() else { return Vec::new() };
        let late_limit_ns = any.tally.late_limit_ns;
        let only = self.ends.len() == 1;
        let mut intervals = Vec::new();
        let mut from = Duration::ZERO;
        for (epoch, (end, usage)) in (0_u32..).zip(self.ends) {
            if self.schedule.is_reported(epoch) || (only && epoch == 0) {
                let at = merged.iter().position(|(other, _)| *other == epoch);
                let nothing = || Merged { tally: Tally::new(late_limit_ns), busiest: 0.0 };
                let merged = at.map_or_else(nothing, |at| merged.swap_remove(at).1);
                let seconds = end.saturating_sub(from).as_secs_f64();
                let interval = Interval::new(merged, from.as_secs_f64(), seconds, usage);
                intervals.push(Interval { asked_per_s, ..interval });
            }
            from = end;
        }
        // After the last report the threads only wait for answers to what they sent in it.
        let after = merged.iter().find(|(epoch, _)| *epoch == self.schedule.reports + 1);
        if let (Some(last), Some((_, after))) = (intervals.last_mut(), after) {
            last.tally.give_up(&after.tally);
        }
        intervals
    }
}

fn rate_of(pace: Pace) -> Option<f64> {
    match pace {
        // The workload's own is no number.
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
        let mut marks = Marks::new(&Watch::new(std::iter::empty(), &[]), schedule);
        marks.ends = (1..=3).map(|nth| (10 * nth * TICK, Usage::default())).collect();
        let epoch = |epoch: u32| {
            let mut tally = Tally::new(0);
            tally.answered(Verb::Get, false, 0, 0, 1);
            (0..epoch).for_each(|_| tally.timed_out(Verb::Get));
            (tally.cut_off, tally.udp.lost) = (epoch.into(), epoch.into());
            (epoch, Merged { tally, busiest: 0.0 })
        };
        let intervals = marks.intervals((0..4).map(epoch).collect(), None);
        let seen = |one: &Interval| {
            let get = one.tally.verb(Verb::Get);
            (get.answered, get.timeouts, one.tally.cut_off, one.tally.udp.lost)
        };
        let seen: Vec<_> = intervals.iter().map(seen).collect();
        assert_eq!(seen, [(1, 1, 1, 1), (1, 5, 5, 5)]);
    }
}
