//! One thread's counts and times in one epoch, per type of request.
//!
//! Where: a driving thread fills a tally and hands it over when the epoch changes.
//! Invariant: over all epochs, each type of request has `sent` = `answered` + `timeouts`. In one
//! epoch the sums may differ, because requests are in flight when the epoch begins and ends.
//! Source: the KV-Cache paper, section 5.2.2: counts, RTT, late responses per request type.

use super::connections::Connections;
use super::record;
use super::times::Times;
use crate::workload::{VERBS, Verb};
use serde::{Deserialize, Serialize};

macro_rules! add {
    ($ours:expr, $theirs:expr, $($count:ident)+) => { $($ours.$count += $theirs.$count;)+ };
}

/// The answer for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAnswer {
    /// The server returned a value.
    Hit,
    /// The server returned no value.
    Miss,
    /// The item was stored, deleted or appended to.
    Done,
    /// There was nothing to delete or to append to, which is no error.
    NotDone,
    /// The server returned another value than the one that was stored.
    Corrupt,
}

/// Counts and times of one type of request. A multiget is one request of several keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerbTally {
    /// Requests sent.
    pub sent: u64,
    /// Requests answered, errors included. A multiget counts once all its keys are answered.
    pub answered: u64,
    /// Keys in the requests sent.
    pub keys: u64,
    /// Keys for which a get returned a value.
    pub hits: u64,
    /// Keys for which a get returned no value.
    pub misses: u64,
    /// Keys for which the server did nothing (NOT_STORED, NOT_FOUND).
    pub not_done: u64,
    /// Requests answered with an error; included in `answered`.
    pub errors: u64,
    /// Keys whose value differs from the one that was set, if values are verified.
    pub corrupt: u64,
    /// Requests that were answered, but later than `late_limit_ns`.
    pub late: u64,
    /// Requests given up, because no answer came in time or their connection broke.
    pub timeouts: u64,
    /// Requests that were due and never sent, because no connection accepted them.
    #[serde(default)]
    pub unsent: u64,
    /// Times from the intended time of sending to the answer.
    pub response_ns: Times,
    /// Times from the actual time of sending to the answer.
    pub service_ns: Times,
}

/// Losses, reorderings and duplicates over UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpTally {
    /// Requests that were given up and never answered completely.
    pub lost: u64,
    /// Answers that arrived after the answer to a later request.
    pub reordered: u64,
    /// Datagrams that arrived a second time.
    pub duplicate: u64,
    /// Requests given up.
    pub timeouts: u64,
}

/// The errors with which servers refused requests, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// The server has no memory for the item.
    pub out_of_memory: u64,
    /// A value or a key is too long.
    pub too_large: u64,
    /// The server does not know the request, because its protocol differs or its version is older.
    pub not_understood: u64,
    /// The client is not authenticated or not authorized, or the server is a replica.
    pub not_allowed: u64,
    /// Another reason.
    pub other: u64,
    /// Text of the first refusal, without control characters, cut to `FIRST_CHARS_MAX` characters.
    pub first: Option<String>,
}

const FIRST_CHARS_MAX: usize = 120;

impl Refusals {
    /// Counts a refusal under its reason. `words` is a line from memcached or an error from Redis.
    #[cold]
    pub fn count(&mut self, words: &[u8]) {
        let text = String::from_utf8_lossy(words);
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let begins = |words: &[&str]| words.iter().any(|word| text.starts_with(word));
        let count = if begins(&["OOM"]) || has(&["out of memory"]) {
            &mut self.out_of_memory
        } else if has(&["too large", "too long", "exceeds maximum"]) {
            &mut self.too_large
        } else if begins(&["NOAUTH", "NOPERM", "WRONGPASS", "READONLY", "DENIED"])
            || has(&["unauthenticated"])
        {
            &mut self.not_allowed
        } else if begins(&["ERROR", "CLIENT_ERROR", "ERR "]) {
            &mut self.not_understood
        } else {
            &mut self.other
        };
        *count += 1;
        self.first.get_or_insert_with(|| {
            text.chars().filter(|one| !one.is_control()).take(FIRST_CHARS_MAX).collect()
        });
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Refusals) {
        add!(self, other, out_of_memory too_large not_understood not_allowed other);
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }

    /// Returns the counts that are not 0, each with its name.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("out of memory", self.out_of_memory),
            ("too large", self.too_large),
            ("not understood", self.not_understood),
            ("not allowed", self.not_allowed),
            ("for other reasons", self.other),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// The counts of one thread in one epoch, or the sum of several tallies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// One tally for each type of request, in the order of `VERBS`.
    #[serde(serialize_with = "record::by_name", deserialize_with = "record::read_by_name")]
    pub verbs: [VerbTally; VERBS.len()],
    /// Times from the intended to the actual time of sending.
    pub lateness_ns: Times,
    /// The answers of each connection, if there are at most `CONNECTIONS_APART_MAX` connections.
    #[serde(default)]
    pub connections: Connections,
    /// Sum of the CPU times of the driving threads.
    pub busy_ns: u64,
    /// Clock time of the epoch, summed over the driving threads.
    pub wall_ns: u64,
    /// Requests that fell due, including requests that were not sent.
    pub offered: u64,
    /// Connections made.
    pub connects: u64,
    /// Connections lost or closed.
    pub disconnects: u64,
    /// Attempts to connect that failed.
    #[serde(default)]
    pub refused: u64,
    /// Connections that the server ended.
    #[serde(default)]
    pub reset: u64,
    /// Requests given up because their connection was lost.
    #[serde(default)]
    pub cut_off: u64,
    /// The servers' refusals by reason.
    #[serde(default)]
    pub refusals: Refusals,
    /// Losses, reorderings and duplicates over UDP.
    pub udp: UdpTally,
    /// Bytes passed to the transport.
    pub sent_bytes: u64,
    /// Bytes received from the transport.
    pub received_bytes: u64,
    /// Streams given up and datagrams ignored because their bytes did not follow the protocol.
    pub broken: u64,
    /// Requests sent late because a socket was full or too many requests were outstanding.
    pub held_back: u64,
    /// An answer counts as late if its response time is longer than this.
    pub late_limit_ns: u64,
}

impl Tally {
    /// Returns an empty tally that counts answers later than `late_limit_ns` as late.
    pub fn new(late_limit_ns: u64) -> Tally {
        Tally { late_limit_ns, ..Tally::default() }
    }

    /// The counts of one type of request.
    pub fn verb(&self, verb: Verb) -> &VerbTally {
        &self.verbs[verb as usize]
    }

    /// Counts a request of `keys` keys that was sent at `sent_ns` and due at `intended_ns`.
    #[inline]
    pub fn sent(&mut self, verb: Verb, keys: u64, intended_ns: u64, sent_ns: u64) {
        self.sent_n(verb, keys, sent_ns.saturating_sub(intended_ns), 1);
    }

    /// Counts `count` requests of `keys` keys each, with equal lateness.
    pub(crate) fn sent_n(&mut self, verb: Verb, keys: u64, lateness_ns: u64, count: u64) {
        let tally = &mut self.verbs[verb as usize];
        tally.sent += count;
        tally.keys += keys * count;
        self.lateness_ns.record_n(lateness_ns, count);
    }

    /// Counts the answer for one key of a request.
    #[inline]
    pub fn found(&mut self, verb: Verb, finding: KeyAnswer) {
        let tally = &mut self.verbs[verb as usize];
        match finding {
            KeyAnswer::Hit => tally.hits += 1,
            KeyAnswer::Miss => tally.misses += 1,
            KeyAnswer::Done => {}
            KeyAnswer::NotDone => tally.not_done += 1,
            KeyAnswer::Corrupt => {
                tally.hits += 1;
                tally.corrupt += 1;
            }
        }
    }

    /// Counts a request that was answered in full. A server's error (`is_error`) is an answer too.
    #[inline]
    pub fn answered(
        &mut self,
        verb: Verb,
        is_error: bool,
        intended_ns: u64,
        sent_ns: u64,
        now_ns: u64,
    ) {
        let response_ns = now_ns.saturating_sub(intended_ns);
        self.answered_n(verb, response_ns, Some(now_ns.saturating_sub(sent_ns)), 1);
        self.verbs[verb as usize].errors += u64::from(is_error);
    }

    /// Counts `count` requests that were answered in full with equal times. The caller counts
    /// errors, and also service times if `service_ns` is `None`.
    #[inline]
    pub(crate) fn answered_n(
        &mut self,
        verb: Verb,
        response_ns: u64,
        service_ns: Option<u64>,
        count: u64,
    ) {
        let tally = &mut self.verbs[verb as usize];
        tally.answered += count;
        tally.late += if response_ns > self.late_limit_ns { count } else { 0 };
        tally.response_ns.record_n(response_ns, count);
        if let Some(service_ns) = service_ns {
            tally.service_ns.record_n(service_ns, count);
        }
    }

    /// Counts a request that was given up.
    pub(crate) fn timed_out(&mut self, verb: Verb) {
        self.verbs[verb as usize].timeouts += 1;
    }

    /// Counts a due request that was given up because no connection accepted it.
    pub(crate) fn unsent(&mut self, verb: Verb) {
        self.verbs[verb as usize].unsent += 1;
    }

    /// Number of connections that could not be made or that the server ended.
    pub(crate) fn failed_connections(&self) -> u64 {
        self.refused + self.reset
    }

    /// Adds the requests of this tally that were given up only in `other`, which is the next tally.
    pub(crate) fn give_up(&mut self, other: &Tally) {
        for (ours, theirs) in self.verbs.iter_mut().zip(&other.verbs) {
            ours.timeouts += theirs.timeouts;
            ours.unsent += theirs.unsent;
        }
        // Adds the unsent requests that fell due in `other`. `offered` already counts the requests
        // that fell due in this tally.
        let sent: u64 = other.verbs.iter().map(|verb| verb.sent).sum();
        self.offered += other.offered.saturating_sub(sent);
        add!(self, other, cut_off refused reset);
        add!(self.udp, other.udp, lost timeouts);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Tally) {
        for (ours, theirs) in self.verbs.iter_mut().zip(&other.verbs) {
            ours.merge(theirs);
        }
        self.lateness_ns.merge(&other.lateness_ns);
        self.connections.merge(&other.connections);
        self.refusals.merge(&other.refusals);
        add!(self, other, busy_ns wall_ns offered connects disconnects cut_off);
        add!(self, other, refused reset);
        add!(self, other, sent_bytes received_bytes broken held_back);
        add!(self.udp, other.udp, lost reordered duplicate timeouts);
        self.late_limit_ns = self.late_limit_ns.max(other.late_limit_ns);
    }

    /// Number of keys reported as not found, and number of keys for which such a report was
    /// possible. SET and ADD are left out, because they do not need an existing item.
    pub fn not_found(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for (verb, tally) in VERBS.iter().zip(&self.verbs) {
            let (missing, keys) = match verb {
                Verb::Get => (tally.misses, tally.hits + tally.misses),
                Verb::Set | Verb::Add => (0, 0),
                Verb::Delete | Verb::Append | Verb::Replace => {
                    (tally.not_done, tally.answered.saturating_sub(tally.errors))
                }
            };
            sums = (sums.0 + missing, sums.1 + keys);
        }
        sums
    }

    /// The share of the keys in `not_found` that were not found; `None` without keys.
    pub(crate) fn not_found_ratio(&self) -> Option<f64> {
        let (missing, keys) = self.not_found();
        (keys > 0).then(|| missing as f64 / keys as f64)
    }

    /// Failures as a share of ended requests and failed connections; `None` if there are none.
    pub(crate) fn failure_ratio(&self) -> Option<f64> {
        let (total, connections) = (self.total(), self.failed_connections());
        let all = total.answered + total.never() + connections;
        (all > 0).then(|| (total.failed() + connections) as f64 / all as f64)
    }

    /// The sum over all types of request.
    pub fn total(&self) -> VerbTally {
        let mut total = VerbTally::default();
        self.verbs.iter().for_each(|verb| total.merge(verb));
        total
    }
}

impl VerbTally {
    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &VerbTally) {
        add!(self, other, sent answered keys hits misses not_done errors corrupt late);
        add!(self, other, timeouts unsent);
        self.response_ns.merge(&other.response_ns);
        self.service_ns.merge(&other.service_ns);
    }

    /// Number of keys answered by requests of type `verb`; requests other than gets have one key.
    pub(crate) fn keys_answered(&self, verb: Verb) -> u64 {
        if verb == Verb::Get { self.hits + self.misses } else { self.answered }
    }

    /// Number of requests given up, including those that were never sent.
    pub(crate) fn never(&self) -> u64 {
        self.timeouts + self.unsent
    }

    /// Number of failures: errors, wrong values, and requests never answered.
    pub fn failed(&self) -> u64 {
        self.errors + self.never() + self.corrupt
    }

    /// Number of requests that were answered late or given up.
    pub fn late_or_lost(&self) -> u64 {
        self.late + self.never()
    }

    /// `late_or_lost` as a share of the requests that ended; `None` if no request ended.
    pub(crate) fn late_ratio(&self) -> Option<f64> {
        self.of_ended(self.late_or_lost())
    }

    /// Hits as a share of the keys looked up; `None` if no key was looked up.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let found = self.hits + self.misses;
        (found > 0).then(|| self.hits as f64 / found as f64)
    }

    /// Failures as a share of the requests that ended; `None` if no request ended.
    pub(crate) fn failure_ratio(&self) -> Option<f64> {
        self.of_ended(self.failed())
    }

    /// Requests given up as a share of the requests that ended; `None` if no request ended.
    pub(crate) fn timeout_ratio(&self) -> Option<f64> {
        self.of_ended(self.never())
    }

    fn of_ended(&self, part: u64) -> Option<f64> {
        let ended = self.answered + self.never();
        (ended > 0).then(|| part as f64 / ended as f64)
    }
}

/// A tally, and the time in which it was counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedTally<'a> {
    /// All counts and times.
    pub tally: &'a Tally,
    /// The seconds during which `tally` was counted.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tally of artificial requests, determined by their numbers.
    fn of(requests: std::ops::Range<u64>) -> Tally {
        let mut tally = Tally::new(1_000_000);
        for request in requests {
            let verb = VERBS[usize::try_from(request % 4).unwrap()];
            let (intended, sent) = (request * 1000, request * 1000 + request % 7);
            tally.sent(verb, 1 + request % 3, intended, sent);
            let findings =
                [KeyAnswer::Hit, KeyAnswer::Miss, KeyAnswer::NotDone, KeyAnswer::Corrupt];
            tally.found(verb, findings[usize::try_from(request % 13 % 4).unwrap()]);
            match request % 11 {
                0 => tally.timed_out(verb),
                1 => tally.answered(verb, true, intended, sent, sent + 5),
                _ => tally.answered(verb, false, intended, sent, sent + request * 300),
            }
            tally.offered += 1;
            tally.sent_bytes += request;
            tally.cut_off += request % 3;
            if request % 5 == 0 {
                tally.refusals.count([&b"ERROR"[..], b"OOM x"][usize::from(request % 2 == 0)]);
            }
            tally.udp.lost += request % 2;
        }
        tally
    }

    #[test]
    fn parts_merged_are_the_whole() {
        let mut merged = of(0..1000);
        merged.merge(&of(1000..1001));
        merged.merge(&Tally::new(0));
        merged.merge(&of(1001..5000));
        assert_eq!(merged, of(0..5000));
    }

    #[test]
    fn what_was_not_found_counts_over_all_types_that_look_for_something() {
        let mut tally = Tally::new(1);
        assert_eq!(tally.not_found_ratio(), None);
        let said = [
            (Verb::Get, KeyAnswer::Hit),
            (Verb::Get, KeyAnswer::Miss),
            (Verb::Set, KeyAnswer::Done),
            (Verb::Set, KeyAnswer::NotDone),
            (Verb::Delete, KeyAnswer::NotDone),
            (Verb::Append, KeyAnswer::Done),
            (Verb::Add, KeyAnswer::NotDone),
            (Verb::Replace, KeyAnswer::NotDone),
        ];
        for (verb, finding) in said {
            tally.found(verb, finding);
            tally.answered(verb, false, 0, 0, 1);
        }
        // An error or a missing answer does not show whether the key exists.
        tally.answered(Verb::Delete, true, 0, 0, 1);
        tally.timed_out(Verb::Delete);
        assert_eq!((tally.not_found(), tally.not_found_ratio()), ((3, 5), Some(0.6)));
    }

    #[test]
    fn a_late_answer_counts_from_the_intended_time() {
        let mut tally = Tally::new(1_000_000);
        tally.sent(Verb::Get, 1, 0, 100_000_000);
        tally.answered(Verb::Get, false, 0, 100_000_000, 100_100_000);
        let get = tally.verb(Verb::Get);
        assert_eq!((get.late, get.answered), (1, 1));
        assert!(get.response_ns.min_ns().unwrap() > 99_000_000);
        assert!(get.service_ns.max_ns().unwrap() < 101_000);
        assert!(tally.lateness_ns.min_ns().unwrap() > 99_000_000);
    }

    #[test]
    fn refusals_are_told_apart_by_their_words() {
        let mut refusals = Refusals::default();
        let said: [(&[u8], _); 12] = [
            (b"SERVER_ERROR out of memory storing object", "out of memory"),
            (b"OOM command not allowed when used memory > 'maxmemory'.", "out of memory"),
            (b"SERVER_ERROR object too large for cache", "too large"),
            (b"ERR string exceeds maximum allowed size (512MB)", "too large"),
            (b"CLIENT_ERROR line too long", "too large"),
            (b"ERROR", "not understood"),
            (b"ERR unknown command 'MGETX'", "not understood"),
            (b"CLIENT_ERROR bad data chunk", "not understood"),
            (b"CLIENT_ERROR unauthenticated", "not allowed"),
            (b"READONLY You can't write against a read only replica.", "not allowed"),
            (b"MISCONF Redis is configured to save RDB snapshots\x1b[2J", "for other reasons"),
            (b"SERVER_ERROR \xff", "for other reasons"),
        ];
        for (words, kind) in said {
            let mut one = Refusals::default();
            one.count(words);
            assert_eq!(one.named(), [(kind, 1)], "{}", words.escape_ascii());
            assert!(!one.first.as_ref().unwrap().contains('\u{1b}'));
            refusals.merge(&one);
        }
        let counts: Vec<u64> = refusals.named().iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 3, 3, 2, 2]);
        assert_eq!(refusals.first.as_deref(), Some("SERVER_ERROR out of memory storing object"));
        refusals.count(&[b'x'; 1000]);
        let mut long = Refusals::default();
        long.count(&[b'x'; 1000]);
        assert_eq!(long.first.map(|first| first.len()), Some(FIRST_CHARS_MAX));
    }

    #[test]
    fn what_ends_is_what_was_sent() {
        let total = of(0..5000).total();
        assert_eq!(total.sent, total.answered + total.timeouts);
        assert!(total.errors > 0 && total.corrupt > 0 && total.failed() > total.errors);
        let ratio = total.hit_ratio().unwrap();
        assert!(ratio > 0.4 && ratio < 0.9, "{ratio}");
        assert_eq!(VerbTally::default().hit_ratio(), None);
    }
}
