//! A thread's counts since the last report, and the live figures beside them.
//!
//! Where: the sending and the receiving half write here; the drive hands the tally over whenever
//! the epoch moves on.
//! Invariant: a request counts once as sent and once as answered, failed or out of time.

use super::Signs;
use super::inward::Feedback;
use super::pending::Entry;
use super::pulse::{Count, Pulse};
use crate::measure::Tally;
use crate::wire::Answer;
use crate::workload::{VERBS, Verb};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The outcome of a request, counted by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) hits: u32,
    pub(super) misses: u32,
    pub(super) done: u32,
    pub(super) not_done: u32,
    pub(super) refused: u32,
    pub(super) corrupt: u32,
    /// True if the request, or a part of it, was given up: out of time, or its connection broke.
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

    /// The outcome of a retrieval: keys without an answer are missing, unless an error came.
    #[inline]
    pub(super) fn of_get(entry: &Entry) -> Outcome {
        let keys = u32::from(entry.sent.keys);
        let unsaid = keys.saturating_sub(entry.hits.into());
        let (misses, refused) = if entry.refused { (0, unsaid) } else { (unsaid, 0) };
        let (hits, corrupt) = (u32::from(entry.hits).min(keys), entry.corrupt.into());
        Outcome { hits, misses, refused, corrupt, ..Outcome::default() }
    }

    #[inline]
    pub(super) fn tell(&mut self, answer: Answer) {
        match answer {
            Answer::Hit { .. } => self.hits += 1,
            Answer::Miss => self.misses += 1,
            Answer::Done => self.done += 1,
            Answer::NotDone => self.not_done += 1,
            Answer::Refused => self.refused += 1,
        }
    }

    /// Adds the outcome of one part of a request.
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

/// The state that both halves write.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) score: Score,
    pub(super) back: Feedback,
}

/// Consecutive requests with the same figures, which are counted together. Requests written with
/// one call share one time, and so do answers received with one call.
#[derive(Clone, Copy, Debug)]
struct Streak {
    verb: Verb,
    count: u64,
    /// For sent requests: number of keys and lateness. For answered ones: times due, sent,
    /// answered.
    like: [u64; 3],
}

const NO_STREAK: Streak = Streak { verb: Verb::Get, count: 0, like: [0; 3] };

impl Streak {
    /// Adds `more` requests; returns the streak that ends if they differ from it.
    #[inline(always)]
    fn one(&mut self, verb: Verb, like: [u64; 3], more: u64) -> Option<Streak> {
        if self.verb == verb && self.like == like {
            self.count += more;
            return None;
        }
        Some(std::mem::replace(self, Streak { verb, count: more, like }))
    }
}

/// A tally that is being filled.
#[derive(Debug)]
pub(super) struct Score {
    tally: Tally,
    sent: Streak,
    /// Number of one-key requests sent when they were due, by verb.
    in_time: [u64; VERBS.len()],
    answered: Streak,
    /// True if every request is sent when it is due: its response time is its service time, and is
    /// recorded once.
    is_closed: bool,
    late_limit_ns: u64,
    wall_from_ns: u64,
    busy_from_ns: u64,
    /// Clock time spent only on looking for answers.
    pub(super) idle_ns: u64,
    /// The live counts; none if nobody watches.
    pulse: Option<Arc<Pulse>>,
}

impl Score {
    pub(super) fn new(
        late_limit_ns: u64,
        is_closed: bool,
        now_ns: u64,
        pulse: Option<Arc<Pulse>>,
    ) -> Score {
        Score {
            tally: Tally::new(late_limit_ns),
            sent: NO_STREAK,
            in_time: [0; VERBS.len()],
            answered: NO_STREAK,
            is_closed,
            late_limit_ns,
            wall_from_ns: now_ns,
            busy_from_ns: net::thread_time_ns(),
            idle_ns: 0,
            pulse,
        }
    }

    #[inline]
    fn show(&self, what: Count, by: u64) {
        if let Some(pulse) = &self.pulse {
            pulse.add(what, by);
        }
    }

    /// Sets the signs that a server was heard, and that a request was lost, since the last tally.
    pub(super) fn sign(&self, signs: &Signs) {
        // Relaxed, both: see `Signs`.
        if self.tally.received_bytes > 0 {
            signs.heard.store(true, Ordering::Relaxed);
        }
        if self.tally.verbs.iter().any(|verb| verb.never() > 0) {
            signs.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the tally since the last call, with this thread's times since then.
    pub(super) fn take(&mut self, now_ns: u64) -> Tally {
        let sent = std::mem::replace(&mut self.sent, NO_STREAK);
        self.count_sent(&sent);
        let answered = std::mem::replace(&mut self.answered, NO_STREAK);
        self.count_answered(&answered);
        for (verb, count) in VERBS.into_iter().zip(std::mem::take(&mut self.in_time)) {
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
        // Idle time is clock time, and a thread that looks for answers may lack a CPU meanwhile: so
        // busy time is bounded by the clock, and idle time is not subtracted from CPU time.
        let not_idle_ns = self.tally.wall_ns.saturating_sub(idle_ns);
        self.tally.busy_ns = cpu_ns.saturating_sub(self.busy_from_ns).min(not_idle_ns);
        (self.busy_from_ns, self.wall_from_ns) = (cpu_ns, now_ns);
        std::mem::replace(&mut self.tally, Tally::new(self.late_limit_ns))
    }

    /// Counts a request that is due.
    #[inline]
    pub(super) fn offered(&mut self) {
        self.tally.offered += 1;
        self.show(Count::Offered, 1);
    }

    #[inline(always)]
    pub(super) fn sent(&mut self, verb: Verb, keys: usize, intended_ns: u64, sent_ns: u64) {
        let like = [keys as u64, sent_ns.saturating_sub(intended_ns), 0];
        if let Some(over) = self.sent.one(verb, like, 1) {
            self.count_sent(&over);
        }
        self.show(Count::Sent, 1);
    }

    /// Counts requests of one key each, by verb, that were due and sent at once.
    #[inline]
    pub(super) fn sent_at_once(&mut self, counts: &[u64; VERBS.len()]) {
        self.in_time.iter_mut().zip(counts).for_each(|(ours, more)| *ours += more);
        self.show(Count::Offered, counts.iter().sum());
        self.show(Count::Sent, counts.iter().sum());
    }

    fn count_sent(&mut self, streak: &Streak) {
        if streak.count > 0 {
            let [keys, lateness_ns, _] = streak.like;
            self.tally.sent_n(streak.verb, keys, lateness_ns, streak.count);
        }
    }

    /// Counts bytes sent, which may be a part of a request.
    #[inline]
    pub(super) fn sent_bytes(&mut self, bytes: usize) {
        self.tally.sent_bytes += bytes as u64;
    }

    /// Counts a request sent late because it, or one before it, could not be sent when it was due.
    pub(super) fn held_back(&mut self) {
        self.tally.held_back += 1;
    }

    /// Counts a request that is over; one without `now_ns` was given up.
    #[inline]
    pub(super) fn over(
        &mut self,
        verb: Verb,
        outcome: &Outcome,
        intended_ns: u64,
        sent_ns: u64,
        now_ns: Option<u64>,
    ) {
        let tally = &mut self.tally.verbs[verb as usize];
        tally.hits += u64::from(outcome.hits);
        tally.misses += u64::from(outcome.misses);
        tally.not_done += u64::from(outcome.not_done);
        tally.corrupt += u64::from(outcome.corrupt);
        match now_ns {
            Some(now_ns) if !outcome.given_up => {
                tally.errors += u64::from(outcome.refused > 0);
                self.time(verb, intended_ns, sent_ns, now_ns);
            }
            _ => self.tally.timed_out(verb),
        }
        if let Some(pulse) = &self.pulse {
            show(pulse, outcome, (intended_ns, now_ns), self.late_limit_ns);
        }
    }

    /// Like `over`, but for an answered request whose keys the caller counts.
    #[inline(always)]
    pub(super) fn answered(&mut self, verb: Verb, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        self.time(verb, intended_ns, sent_ns, now_ns);
        if let Some(pulse) = &self.pulse {
            pulse.add(Count::Over, 1);
            pulse.took(now_ns.saturating_sub(intended_ns), self.late_limit_ns);
        }
    }

    #[inline(always)]
    fn time(&mut self, verb: Verb, intended_ns: u64, sent_ns: u64, now_ns: u64) {
        if let Some(over) = self.answered.one(verb, [intended_ns, sent_ns, now_ns], 1) {
            self.count_answered(&over);
        }
    }

    fn count_answered(&mut self, streak: &Streak) {
        if streak.count > 0 {
            let [intended_ns, sent_ns, now_ns] = streak.like;
            let response_ns = now_ns.saturating_sub(intended_ns);
            let service_ns = (!self.is_closed).then(|| now_ns.saturating_sub(sent_ns));
            self.tally.answered_n(streak.verb, response_ns, service_ns, streak.count);
        }
    }

    /// Counts keys of gets with a value and without one.
    #[inline]
    pub(super) fn found(&mut self, hits: u64, misses: u64) {
        let gets = &mut self.tally.verbs[Verb::Get as usize];
        gets.hits += hits;
        gets.misses += misses;
        self.show(Count::Hits, hits);
        self.show(Count::Misses, misses);
    }

    /// Counts a due request that no connection took.
    #[cold]
    pub(super) fn unsent(&mut self, verb: Verb) {
        self.tally.unsent(verb);
        if let Some(pulse) = &self.pulse {
            pulse.add(Count::Over, 1);
            pulse.add(Count::Failed, 1);
            pulse.gave_up();
        }
    }

    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        self.tally.received_bytes += bytes as u64;
    }

    /// Counts a stream whose bytes made no sense.
    pub(super) fn broken(&mut self) {
        self.tally.broken += 1;
    }

    /// Counts a server's refusal by its words.
    #[cold]
    pub(super) fn refused(&mut self, words: &[u8]) {
        self.tally.refusals.count(words);
    }

    /// Counts requests given up because their connection was lost.
    pub(super) fn cut_off(&mut self, requests: u64) {
        self.tally.cut_off += requests;
    }

    pub(super) fn connected(&mut self) {
        self.tally.connects += 1;
    }

    pub(super) fn refused_connection(&mut self) {
        self.tally.refused += 1;
    }

    /// Counts a connection ended by the server.
    pub(super) fn reset(&mut self) {
        self.tally.reset += 1;
    }

    pub(super) fn disconnected(&mut self) {
        self.tally.disconnects += 1;
    }

    pub(super) fn udp_timeout(&mut self) {
        self.tally.udp.timeouts += 1;
    }

    /// Counts a UDP request whose answer did not come late either.
    pub(super) fn lost(&mut self) {
        self.tally.udp.lost += 1;
    }

    pub(super) fn duplicate(&mut self) {
        self.tally.udp.duplicate += 1;
    }

    /// Counts an answer that came after that to a later request.
    pub(super) fn reordered(&mut self) {
        self.tally.udp.reordered += 1;
    }
}

/// Adds a request that is over to the live counts.
#[inline]
fn show(pulse: &Pulse, outcome: &Outcome, (from_ns, now_ns): (u64, Option<u64>), late_ns: u64) {
    let now_ns = now_ns.filter(|_| !outcome.given_up);
    pulse.add(Count::Over, 1);
    match now_ns {
        Some(now_ns) => pulse.took(now_ns.saturating_sub(from_ns), late_ns),
        None => pulse.gave_up(),
    }
    if now_ns.is_none() || outcome.refused > 0 || outcome.corrupt > 0 {
        pulse.add(Count::Failed, 1);
    }
    if outcome.hits > 0 {
        pulse.add(Count::Hits, u64::from(outcome.hits));
    }
    if outcome.misses > 0 {
        pulse.add(Count::Misses, u64::from(outcome.misses));
    }
}
