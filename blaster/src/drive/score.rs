//! A thread's counts since its last report. Each change also updates the live counts.
//!
//! Where: both halves write the counts; when the epoch changes, the thread reports its tally.
//! Invariant: a request counts once as sent, and once as answered or given up.

use super::live_counts::{Count, LiveCounts};
use super::messages::Feedback;
use super::pending::{Entry, Sent};
use super::plan::ThreadSignals;
use crate::measure::{Connections, Tally};
use crate::wire::Answer;
use crate::workload::{VERBS, Verb};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The outcome of a request: the number of keys with each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) hits: u32,
    pub(super) misses: u32,
    pub(super) done: u32,
    pub(super) not_done: u32,
    pub(super) refused: u32,
    pub(super) corrupt: u32,
    /// True if a part of the request was given up: it timed out, or its connection broke.
    pub(super) given_up: bool,
}

impl Outcome {
    pub(super) const GIVEN_UP: Outcome = Outcome {
        hits: 0,
        misses: 0,
        done: 0,
        not_done: 0,
        refused: 0,
        corrupt: 0,
        given_up: true,
    };

    /// Returns the outcome of a get. Keys without a value count as refused if the server sent an
    /// error, and otherwise as misses.
    #[inline]
    pub(super) fn of_get(entry: &Entry) -> Outcome {
        let keys = u32::from(entry.sent.keys);
        let unsaid = keys.saturating_sub(entry.hits.into());
        let (misses, refused) = if entry.refused { (0, unsaid) } else { (unsaid, 0) };
        let (hits, corrupt) = (u32::from(entry.hits).min(keys), entry.corrupt.into());
        Outcome { hits, misses, refused, corrupt, ..Outcome::default() }
    }

    #[inline]
    pub(super) fn add_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Hit { .. } => self.hits += 1,
            Answer::Miss => self.misses += 1,
            Answer::Done => self.done += 1,
            Answer::NotDone => self.not_done += 1,
            Answer::Refused => self.refused += 1,
        }
    }

    pub(super) fn add(&mut self, part: &Outcome) {
        self.hits += part.hits;
        self.misses += part.misses;
        self.done += part.done;
        self.not_done += part.not_done;
        self.refused += part.refused;
        self.corrupt += part.corrupt;
        self.given_up |= part.given_up;
    }
}

/// A thread's counts and feedback, passed to both halves. If the halves run on two threads, each
/// thread has its own `DriveState`.
#[derive(Debug)]
pub(super) struct DriveState {
    pub(super) score: Score,
    pub(super) feedback: Feedback,
}

/// Consecutive requests with equal `figures`, which are counted in one step. All requests written
/// in one call have the same time, and so do all answers received in one call.
#[derive(Clone, Copy, Debug)]
struct EqualRequests {
    verb: Verb,
    count: u64,
    /// For sent requests: number of keys, lateness, 0. For answered requests: due time, sending
    /// time, answer time.
    figures: [u64; 3],
}

const NO_REQUESTS: EqualRequests = EqualRequests { verb: Verb::Get, count: 0, figures: [0; 3] };

impl EqualRequests {
    /// Adds `more` requests with the same verb and figures. If verb or figures differ, returns the
    /// earlier requests, and keeps only the new requests.
    #[inline(always)]
    fn add(&mut self, verb: Verb, figures: [u64; 3], more: u64) -> Option<EqualRequests> {
        if self.verb == verb && self.figures == figures {
            self.count += more;
            return None;
        }
        Some(std::mem::replace(self, EqualRequests { verb, count: more, figures }))
    }
}

#[derive(Debug)]
pub(super) struct Score {
    /// The counts since the last `take`. Both halves also count here what needs no other action.
    pub(super) tally: Tally,
    sent: EqualRequests,
    /// For each verb, the number of requests with one key that were sent when due.
    sent_when_due: [u64; VERBS.len()],
    answered: EqualRequests,
    line: u32,
    /// Number of requests in `answered` that are already counted on a line (a connection).
    counted_on_lines: u64,
    /// True in a closed loop, where every request is sent when due. Response and service times are
    /// then equal, and are recorded once.
    is_closed: bool,
    late_limit_ns: u64,
    wall_from_ns: u64,
    busy_from_ns: u64,
    /// Clock time that a spinning thread spent on polls that found nothing.
    pub(super) idle_ns: u64,
    live: Option<Arc<LiveCounts>>,
}

impl Score {
    pub(super) fn new(
        late_limit_ns: u64,
        is_closed: bool,
        now_ns: u64,
        live: Option<Arc<LiveCounts>>,
        connections: Connections,
    ) -> Score {
        Score {
            tally: Tally { connections, ..Tally::new(late_limit_ns) },
            sent: NO_REQUESTS,
            sent_when_due: [0; VERBS.len()],
            answered: NO_REQUESTS,
            line: 0,
            counted_on_lines: 0,
            is_closed,
            late_limit_ns,
            wall_from_ns: now_ns,
            busy_from_ns: net::thread_time_ns(),
            idle_ns: 0,
            live,
        }
    }

    #[inline]
    fn show(&self, what: Count, by: u64) {
        if let Some(live) = &self.live {
            live.add(what, by);
        }
    }

    /// Sets `has_answered` if bytes were received, and `has_lost` if requests were given up.
    pub(super) fn signal(&self, signals: &ThreadSignals) {
        // Relaxed stores are enough: the flags publish no other data.
        if self.tally.received_bytes > 0 {
            signals.has_answered.store(true, Ordering::Relaxed);
        }
        if self.tally.verbs.iter().any(|verb| verb.never() > 0) {
            signals.has_lost.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the tally since the last call, with this thread's wall and CPU time.
    pub(super) fn take(&mut self, now_ns: u64) -> Tally {
        let sent = std::mem::replace(&mut self.sent, NO_REQUESTS);
        self.count_sent(&sent);
        let answered = std::mem::replace(&mut self.answered, NO_REQUESTS);
        self.count_answered(&answered);
        for (verb, count) in VERBS.into_iter().zip(std::mem::take(&mut self.sent_when_due)) {
            if count > 0 {
                self.tally.offered += count;
                self.tally.sent_n(verb, 1, 0, count);
            }
        }
        if self.is_closed {
            let verbs = &mut self.tally.verbs;
            verbs.iter_mut().for_each(|verb| verb.service_ns = verb.response_ns.clone());
        }
        let cpu_ns = net::thread_time_ns();
        let idle_ns = std::mem::take(&mut self.idle_ns);
        self.tally.wall_ns = now_ns.saturating_sub(self.wall_from_ns);
        // Idle time is clock time, and the thread may have had no CPU during it. So idle time is
        // not subtracted from CPU time, but limits `busy_ns`.
        let not_idle_ns = self.tally.wall_ns.saturating_sub(idle_ns);
        self.tally.busy_ns = cpu_ns.saturating_sub(self.busy_from_ns).min(not_idle_ns);
        (self.busy_from_ns, self.wall_from_ns) = (cpu_ns, now_ns);
        let connections = self.tally.connections.without_answers();
        let next = Tally { connections, ..Tally::new(self.late_limit_ns) };
        std::mem::replace(&mut self.tally, next)
    }

    #[inline]
    pub(super) fn offered(&mut self) {
        self.tally.offered += 1;
        self.show(Count::Offered, 1);
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, verb: Verb, keys: usize, intended_ns: u64, sent_ns: u64) {
        let figures = [keys as u64, sent_ns.saturating_sub(intended_ns), 0];
        if let Some(over) = self.sent.add(verb, figures, 1) {
            self.count_sent(&over);
        }
        self.show(Count::Sent, 1);
    }

    /// Counts requests of one key that were sent when due. `counts` has a number per verb.
    #[inline]
    pub(super) fn sent_at_once(&mut self, counts: &[u64; VERBS.len()]) {
        self.sent_when_due.iter_mut().zip(counts).for_each(|(ours, more)| *ours += more);
        self.show(Count::Offered, counts.iter().sum());
        self.show(Count::Sent, counts.iter().sum());
    }

    fn count_sent(&mut self, equal: &EqualRequests) {
        if equal.count > 0 {
            let [keys, lateness_ns, _] = equal.figures;
            self.tally.sent_n(equal.verb, keys, lateness_ns, equal.count);
        }
    }

    /// Counts a request that was answered on `line` at `now_ns`, or given up if `now_ns` is `None`.
    #[inline]
    pub(super) fn over(&mut self, line: u32, sent: &Sent, outcome: &Outcome, now_ns: Option<u64>) {
        let Sent { verb, intended_ns, .. } = *sent;
        let tally = &mut self.tally.verbs[verb as usize];
        tally.hits += u64::from(outcome.hits);
        tally.misses += u64::from(outcome.misses);
        tally.not_done += u64::from(outcome.not_done);
        tally.corrupt += u64::from(outcome.corrupt);
        match now_ns {
            Some(now_ns) if !outcome.given_up => {
                tally.errors += u64::from(outcome.refused > 0);
                self.time(line, sent, now_ns);
            }
            _ => self.tally.timed_out(verb),
        }
        if let Some(live) = &self.live {
            show(live, outcome, (intended_ns, now_ns), self.late_limit_ns);
        }
    }

    /// Counts an answered request, except its keys, which the caller counts.
    #[inline(always)]
    pub(super) fn answered(&mut self, line: u32, sent: &Sent, now_ns: u64) {
        self.time(line, sent, now_ns);
        if let Some(live) = &self.live {
            live.add(Count::Over, 1);
            live.record(now_ns.saturating_sub(sent.intended_ns), self.late_limit_ns);
        }
    }

    #[inline(always)]
    fn time(&mut self, line: u32, sent: &Sent, now_ns: u64) {
        let Sent { verb, intended_ns, sent_ns, .. } = *sent;
        match self.answered.add(verb, [intended_ns, sent_ns, now_ns], 1) {
            Some(over) => {
                self.count_answered(&over);
                self.line = line;
            }
            None if line != self.line => self.change_line(line),
            None => {}
        }
    }

    /// Called when the last of the equal requests was answered on `line`, and the earlier requests
    /// on another line: counts the earlier requests on that other line.
    #[cold]
    fn change_line(&mut self, line: u32) {
        let before = self.answered.count - 1;
        self.count_on_line(&EqualRequests { count: before, ..self.answered });
        self.counted_on_lines = before;
        self.line = line;
    }

    /// On the line of the last answer, counts the equal requests that no line has counted yet.
    #[inline]
    fn count_on_line(&mut self, equal: &EqualRequests) {
        let [intended_ns, _, now_ns] = equal.figures;
        let count = equal.count - self.counted_on_lines;
        self.tally.connections.record(self.line, now_ns.saturating_sub(intended_ns), count);
    }

    fn count_answered(&mut self, equal: &EqualRequests) {
        if equal.count > 0 {
            self.count_on_line(equal);
            self.counted_on_lines = 0;
            let [intended_ns, sent_ns, now_ns] = equal.figures;
            let response_ns = now_ns.saturating_sub(intended_ns);
            let service_ns = (!self.is_closed).then(|| now_ns.saturating_sub(sent_ns));
            self.tally.answered_n(equal.verb, response_ns, service_ns, equal.count);
        }
    }

    #[inline]
    pub(super) fn found(&mut self, hits: u64, misses: u64) {
        let gets = &mut self.tally.verbs[Verb::Get as usize];
        gets.hits += hits;
        gets.misses += misses;
        self.show(Count::Hits, hits);
        self.show(Count::Misses, misses);
    }

    /// Counts a due request that was given up because no connection accepted it.
    #[cold]
    pub(super) fn unsent(&mut self, verb: Verb) {
        self.tally.unsent(verb);
        if let Some(live) = &self.live {
            live.add(Count::Over, 1);
            live.add(Count::Failed, 1);
            live.record_given_up();
        }
    }

    #[cold]
    pub(super) fn refused(&mut self, words: &[u8]) {
        self.tally.refusals.count(words);
    }
}

#[inline]
fn show(live: &LiveCounts, outcome: &Outcome, (from_ns, now_ns): (u64, Option<u64>), late_ns: u64) {
    let now_ns = now_ns.filter(|_| !outcome.given_up);
    live.add(Count::Over, 1);
    match now_ns {
        Some(now_ns) => live.record(now_ns.saturating_sub(from_ns), late_ns),
        None => live.record_given_up(),
    }
    if now_ns.is_none() || outcome.refused > 0 || outcome.corrupt > 0 {
        live.add(Count::Failed, 1);
    }
    if outcome.hits > 0 {
        live.add(Count::Hits, u64::from(outcome.hits));
    }
    if outcome.misses > 0 {
        live.add(Count::Misses, u64::from(outcome.misses));
    }
}
