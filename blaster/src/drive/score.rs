//! What a thread has seen since the last report, and what it has to act upon.
//!
//! Where: both halves write here; the drive hands the tally over whenever the epoch moves on.
//! Invariant: a request counts once as sent and once as answered, failed or out of time.

use super::inward::Feedback;
use super::pending::Entry;
use super::pulse::{Count, Pulse};
use crate::measure::Tally;
use crate::wire::Answer;
use crate::workload::Verb;
use std::sync::Arc;

/// What a request came to, key by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) hits: u32,
    pub(super) misses: u32,
    pub(super) done: u32,
    pub(super) not_done: u32,
    pub(super) refused: u32,
    pub(super) corrupt: u32,
    /// It, or a part of it, was given up: out of time, or its connection broke.
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

    /// A retrieval's: keys of which nothing was said are missing, unless something is wrong.
    #[inline]
    pub(super) fn of_get(entry: &Entry) -> Outcome {
        let unsaid = entry.sent.keys.saturating_sub(entry.hits);
        let (misses, refused) = if entry.refused { (0, unsaid) } else { (unsaid, 0) };
        let (hits, corrupt) = (entry.hits.min(entry.sent.keys), entry.corrupt);
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

    /// Of parts, those of the whole.
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

/// Where both halves write.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) score: Score,
    pub(super) back: Feedback,
}

/// A tally that is being filled.
#[derive(Debug)]
pub(super) struct Score {
    tally: Tally,
    late_limit_ns: u64,
    wall_from_ns: u64,
    busy_from_ns: u64,
    /// Where somebody looks on; none if nobody does.
    pulse: Option<Arc<Pulse>>,
}

impl Score {
    pub(super) fn new(late_limit_ns: u64, now_ns: u64, pulse: Option<Arc<Pulse>>) -> Score {
        let tally = Tally::new(late_limit_ns);
        Score { tally, late_limit_ns, wall_from_ns: now_ns, busy_from_ns: busy_ns(), pulse }
    }

    /// Lets it be seen at once.
    #[inline]
    fn show(&self, what: Count, by: u64) {
        if let Some(pulse) = &self.pulse {
            pulse.add(what, by);
        }
    }

    /// What was counted since the last time, and this thread's times since then.
    pub(super) fn take(&mut self, now_ns: u64) -> Tally {
        let busy_ns = busy_ns();
        self.tally.busy_ns = busy_ns.saturating_sub(self.busy_from_ns);
        self.tally.wall_ns = now_ns.saturating_sub(self.wall_from_ns);
        (self.busy_from_ns, self.wall_from_ns) = (busy_ns, now_ns);
        std::mem::replace(&mut self.tally, Tally::new(self.late_limit_ns))
    }

    /// A request was due.
    #[inline]
    pub(super) fn offered(&mut self) {
        self.tally.offered += 1;
        self.show(Count::Offered, 1);
    }

    /// A request went out.
    #[inline]
    pub(super) fn sent(&mut self, verb: Verb, keys: usize, intended_ns: u64, sent_ns: u64) {
        self.tally.sent(verb, keys as u64, intended_ns, sent_ns);
        self.show(Count::Sent, 1);
    }

    /// Its bytes, perhaps in parts.
    #[inline]
    pub(super) fn sent_bytes(&mut self, bytes: usize) {
        self.tally.sent_bytes += bytes as u64;
    }

    /// A request was sent late because it, or one before it, could not be sent when it was due.
    pub(super) fn held_back(&mut self) {
        self.tally.held_back += 1;
    }

    /// A request is over; without a time it was given up.
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
                self.tally.answered(verb, outcome.refused > 0, intended_ns, sent_ns, now_ns);
            }
            _ => self.tally.timed_out(verb),
        }
        if let Some(pulse) = &self.pulse {
            show(pulse, outcome, (intended_ns, now_ns), self.late_limit_ns);
        }
    }

    /// Bytes came.
    #[inline]
    pub(super) fn received(&mut self, bytes: usize) {
        self.tally.received_bytes += bytes as u64;
    }

    /// What came made no sense.
    pub(super) fn broken(&mut self) {
        self.tally.broken += 1;
    }

    /// The server refused, in these words.
    #[cold]
    pub(super) fn refused(&mut self, words: &[u8]) {
        self.tally.refusals.count(words);
    }

    /// So many requests were given up because their connection was lost.
    pub(super) fn cut_off(&mut self, requests: u64) {
        self.tally.cut_off += requests;
    }

    /// A connection was made.
    pub(super) fn connected(&mut self) {
        self.tally.connects += 1;
    }

    /// A connection was lost or closed.
    pub(super) fn disconnected(&mut self) {
        self.tally.disconnects += 1;
    }

    /// A request over UDP was given up.
    pub(super) fn udp_timeout(&mut self) {
        self.tally.udp.timeouts += 1;
    }

    /// Its answer did not come later either.
    pub(super) fn lost(&mut self) {
        self.tally.udp.lost += 1;
    }

    /// A datagram came once more.
    pub(super) fn duplicate(&mut self) {
        self.tally.udp.duplicate += 1;
    }

    /// An answer came after that to a later request.
    pub(super) fn reordered(&mut self) {
        self.tally.udp.reordered += 1;
    }
}

/// Lets it be seen that a request is over.
#[inline]
fn show(pulse: &Pulse, outcome: &Outcome, (from_ns, now_ns): (u64, Option<u64>), late_ns: u64) {
    let now_ns = now_ns.filter(|_| !outcome.given_up);
    pulse.add(Count::Over, 1);
    if let Some(now_ns) = now_ns {
        pulse.took(now_ns.saturating_sub(from_ns), late_ns);
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

/// The CPU time this thread has taken.
fn busy_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let (seconds, ns) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns.unwrap_or(0))
}
