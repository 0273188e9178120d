//! The mix of verbs, and the choice of the next request's verb.
//!
//! Where: `stream` draws the verb of a request before its keys.
//! Invariant: a mix gives the verbs' shares of all keys, so a multiget of 48 keys counts 48 times.
//! Source: the KV-Cache paper, table 2 (`Drawn`); memtier_benchmark, the OpenOnload test (`Dealt`).

use super::files::Files;
use super::grammar::number;
use super::histogram::Histogram;
use super::limits::WorkloadError;
use super::request::{VERBS, Verb};
use std::fmt;

const WEIGHT_MAX: f64 = 1e12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mix(pub(crate) [f64; VERBS.len()]);

impl Mix {
    /// Parses weights such as `get=9,set=1`, or `file:PATH`, the name of a file of rows such as
    /// `get 9`.
    pub(crate) fn parse(text: &str, files: &Files<'_>) -> Result<Mix, WorkloadError> {
        let wrong = |why: String| WorkloadError(format!("mix: {text}: {why}"));
        let mut mix = Mix([0.0; VERBS.len()]);
        if let Some(path) = text.strip_prefix("file:") {
            let histogram = Histogram::read(files, &files.path(path), "mix")?;
            for (word, weight) in histogram.words() {
                mix.add(word, weight).map_err(wrong)?;
            }
        } else {
            for pair in text.split(',') {
                let (word, weight) = pair.split_once('=').unwrap_or((pair, "1"));
                let weight = number(weight).filter(|weight| (0.0..=WEIGHT_MAX).contains(weight));
                let why = || wrong(format!("{pair}: a weight must be 0 to {WEIGHT_MAX:e}"));
                let weight = weight.ok_or_else(why)?;
                mix.add(word, weight).map_err(wrong)?;
            }
        }
        if mix.0.iter().all(|weight| *weight == 0.0) {
            return Err(wrong("no weight is above 0".to_owned()));
        }
        Ok(mix)
    }

    fn add(&mut self, word: &str, weight: f64) -> Result<(), String> {
        let verb = VERBS.iter().find(|verb| verb.name() == word.trim());
        let names = VERBS.map(Verb::name).join(", ");
        let verb = verb.ok_or_else(|| format!("{word} is none of {names}"))?;
        self.0[*verb as usize] += weight;
        Ok(())
    }

    /// The share of each verb in the requests, if a GET has `batch_mean` keys on average.
    pub(crate) fn shares(&self, batch_mean: f64) -> [f64; VERBS.len()] {
        let mut shares = self.0;
        shares[Verb::Get as usize] /= batch_mean.max(1.0);
        let sum: f64 = shares.iter().sum();
        shares.map(|share| share / sum)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = VERBS.iter().zip(self.0).filter(|(_, weight)| *weight > 0.0);
        let pairs: Vec<_> =
            some.map(|(verb, weight)| format!("{}={weight}", verb.name())).collect();
        out.write_str(&pairs.join(","))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum VerbSampler {
    /// Verbs are drawn at random. Each verb has a range of 32-bit numbers; the array has the ends
    /// of these ranges.
    Drawn([u64; VERBS.len()]),
    /// Verbs take turns, as evenly as shares allow. For each request, `behind` of every verb grows
    /// by the verb's share; the verb with the greatest `behind` is chosen, and its `behind` falls
    /// by 1.
    Dealt { behind: [f64; VERBS.len()], shares: [f64; VERBS.len()] },
}

impl VerbSampler {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sums of shares of 1, times 2^32"
    )]
    pub(crate) fn new(shares: [f64; VERBS.len()], is_dealt: bool) -> VerbSampler {
        if is_dealt {
            return VerbSampler::Dealt { behind: [0.0; VERBS.len()], shares };
        }
        let mut sum = 0.0;
        let mut limits = shares.map(|share| {
            sum += share;
            (sum * 2_f64.powi(32)).round() as u64
        });
        // Rounding must not leave numbers below 2^32 that belong to no verb.
        if let Some(last) = shares.iter().rposition(|share| *share > 0.0) {
            limits[last..].fill(1 << 32);
        }
        VerbSampler::Drawn(limits)
    }

    /// Chooses the next verb. `bits` are random bits; `Drawn` uses the upper 32 bits.
    #[inline(always)]
    pub(crate) fn next(&mut self, bits: u64) -> Verb {
        match self {
            // GET is the most frequent verb, so it is compared first.
            VerbSampler::Drawn(limits) if bits >> 32 < limits[0] => VERBS[0],
            VerbSampler::Drawn(limits) => {
                let at = limits.iter().position(|limit| bits >> 32 < *limit);
                at.map_or(Verb::Get, |at| VERBS[at])
            }
            VerbSampler::Dealt { behind, shares } => {
                let mut first = 0;
                for at in 0..VERBS.len() {
                    behind[at] += shares[at];
                    if behind[at] > behind[first] {
                        first = at;
                    }
                }
                behind[first] -= 1.0;
                VERBS[first]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str, batch_mean: f64, is_dealt: bool, draws: u64) -> [u64; VERBS.len()] {
        let mix = Mix::parse(text, &Files::here("")).unwrap();
        let mut choice = VerbSampler::new(mix.shares(batch_mean), is_dealt);
        let mut counts = [0; VERBS.len()];
        (0..draws).for_each(|n| counts[choice.next(simulate::sizes::mix(n)) as usize] += 1);
        counts
    }

    #[test]
    fn verbs_are_drawn_by_their_shares() {
        let drawn = counts("get=70,set=25,delete=5", 1.0, false, 1_000_000);
        for (count, share) in drawn.iter().zip([70, 25, 5, 0, 0, 0]) {
            assert!(count.abs_diff(share * 10_000) < 2_000, "{drawn:?}");
        }
        assert_eq!(counts("append", 1.0, false, 1000), [0, 0, 0, 1000, 0, 0]);
    }

    #[test]
    fn dealt_verbs_come_in_turn() {
        assert_eq!(counts("get=9,set=1", 1.0, true, 1000), [900, 100, 0, 0, 0, 0]);
        let mix = Mix::parse("get=9,set=1", &Files::here("")).unwrap();
        // After each GET of 48 keys, there are 5 or 6 SETs.
        let mut choice = VerbSampler::new(mix.shares(48.0), true);
        let verbs: Vec<Verb> = (0..1900).map(|_| choice.next(0)).collect();
        let runs: Vec<usize> = verbs.split(|verb| *verb == Verb::Get).map(<[_]>::len).collect();
        assert_eq!(runs.len(), 301);
        assert!(runs[1..300].iter().all(|run| [5, 6].contains(run)), "{runs:?}");
    }

    #[test]
    fn a_mix_is_printed_as_it_is_read() {
        for text in ["get=9,set=1", "get=70.5,set=25,delete=4.5", "set=1,add=2,replace=0.5"] {
            assert_eq!(Mix::parse(text, &Files::here("")).unwrap().to_string(), text);
        }
        for text in ["", "get=0", "put=1", "get=-1", "get=x", "get=1,,set=2", "get=inf"] {
            let error = Mix::parse(text, &Files::here("")).unwrap_err().to_string();
            assert!(error.starts_with(&format!("mix: {text}: ")), "{error}");
        }
    }
}
