//! Keys that could not be stored before the traffic: how many, why, and what the user can do.
//!
//! Where: `course` counts requests while it fills servers; `run` and `capacity` report the keys.
//! Invariant: each key that is not stored is counted once, by the outcome of its request.
//! Source: the KV-Cache paper, section 5.2.2; keys that were never stored lower the hit ratio.

use crate::measure::Tally;
use crate::workload::Verb;
use std::fmt::Write;

#[derive(Debug, Default)]
pub(crate) struct PopulateCounts {
    tally: Tally,
}

impl PopulateCounts {
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.tally.merge(tally);
    }

    pub(crate) fn keys(&self) -> u64 {
        let set = self.tally.verb(Verb::Set);
        set.answered.saturating_sub(set.errors + set.not_done)
    }

    pub(crate) fn lacking(&self) -> u64 {
        let set = self.tally.verb(Verb::Set);
        set.errors + set.not_done + set.never()
    }

    /// Returns the number of requests that were answered, and the number that were given up.
    pub(crate) fn over(&self) -> (u64, u64) {
        let set = self.tally.verb(Verb::Set);
        (set.answered, set.never())
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.tally.broken > 0
    }

    /// Describes the keys that could not be stored, by kind of failure. `None` if all were stored.
    pub(crate) fn description(&self) -> Option<String> {
        let lacking = self.lacking();
        if lacking == 0 {
            return None;
        }
        let set = self.tally.verb(Verb::Set);
        let cut_off = self.tally.cut_off.min(set.timeouts);
        let mut kinds: Vec<(String, u64)> = Vec::new();
        for (kind, count) in self.tally.refusals.named() {
            kinds.push((format!("refused, {kind}"), count));
        }
        kinds.push(("not answered in time".to_owned(), set.timeouts - cut_off));
        kinds.push(("lost because their connections closed".to_owned(), cut_off));
        kinds.push(("never sent, because no connection accepted them".to_owned(), set.unsent));
        kinds.push(("not stored, although the server gave no error".to_owned(), set.not_done));
        kinds.retain(|(_, count)| *count > 0);
        let kinds: Vec<String> =
            kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let all = lacking + self.keys();
        let mut out = format!("{lacking} of {all} keys could not be stored: {}", kinds.join("; "));
        if let Some(first) = &self.tally.refusals.first {
            let _ = write!(out, " (the first refusal: {first})");
        }
        Some(out)
    }

    pub(crate) fn advice(&self) -> &'static str {
        let set = self.tally.verb(Verb::Set);
        let refusals = &self.tally.refusals;
        let cut_off = self.tally.cut_off.min(set.timeouts);
        let helps = [
            (refusals.out_of_memory, "give the server more memory, or use fewer --keys"),
            (
                refusals.too_large,
                "use a smaller --value-size, or let the server accept larger values",
            ),
            (refusals.not_understood, "name the server's protocol with --protocol"),
            (refusals.not_allowed, "kvblaster cannot log in: use a server that needs no password"),
            (set.timeouts - cut_off, "a longer --timeout or fewer --connections may help"),
            (
                cut_off,
                "check whether the server accepts this number of --connections, and values of this \
                 size",
            ),
            (refusals.other + set.not_done, "the server's log may say more"),
        ];
        helps.iter().rev().max_by_key(|(count, _)| *count).map_or("", |(_, help)| help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(keys: u64, refused: &[(&[u8], u64)], late: u64, cut_off: u64) -> PopulateCounts {
        let mut tally = Tally::new(0);
        (0..keys).for_each(|_| tally.answered(Verb::Set, false, 0, 0, 1));
        for (words, count) in refused {
            for _ in 0..*count {
                tally.answered(Verb::Set, true, 0, 0, 1);
                tally.refusals.count(words);
            }
        }
        (0..late + cut_off).for_each(|_| tally.timed_out(Verb::Set));
        tally.cut_off = cut_off;
        let mut stored = PopulateCounts::default();
        stored.add(&tally);
        stored
    }

    #[test]
    fn what_is_stored_needs_no_words() {
        let all = stored(7, &[], 0, 0);
        assert_eq!((all.keys(), all.lacking(), all.description()), (7, 0, None));
    }

    #[test]
    fn each_kind_of_failure_is_counted_and_the_first_words_are_told() {
        let full: &[u8] = b"SERVER_ERROR out of memory storing object";
        let large: &[u8] = b"SERVER_ERROR object too large for cache";
        let some = stored(80, &[(large, 4), (full, 9)], 5, 2);
        assert_eq!((some.keys(), some.lacking()), (80, 20));
        let expected = "20 of 100 keys could not be stored: 9 refused, out of memory; 4 refused, \
                        too large; 5 not answered in time; 2 lost because their connections \
                        closed (the first refusal: SERVER_ERROR object too large for cache)";
        assert_eq!(some.description().as_deref(), Some(expected));
        assert!(some.advice().contains("more memory"), "{}", some.advice());
        let mut two = stored(1, &[(b"NOAUTH x", 3)], 0, 0);
        two.add(&stored(0, &[], 0, 1).tally);
        assert!(two.description().unwrap().starts_with("4 of 5 keys"), "{:?}", two.description());
        assert!(two.advice().contains("log in"), "{}", two.advice());
    }
}
