//! kvblaster with `--verify`, round after round, one process for each protocol at a time.
//!
//! Where: beside the other actors, on the server where not everything fits.
//! Invariant: all rounds make the values of a key alike, so that each verifies what the others have
//! set; a value that is not what was set is a fault, and so is an answer that makes no sense.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::measure::random::{Random, hash};
use crate::measure::{Outcome, fail};
use crate::site::{Bell, Deeds, Site};
use crate::wire::Speech;

/// Lengths of values; each has keys of its own.
const SIZES: [&str; 4] = ["200", "1-100", "1-3000", "20000-60000"];
/// Keys of values of a few kilobytes: several times what the server holds.
const KEYS: u32 = 100_000;
const KEYS_OF_LARGE: u32 = 8000;
const SECONDS_EACH: u32 = 20;

pub(crate) struct Blaster<'s> {
    pub(crate) site: &'s Site,
    pub(crate) program: &'s Path,
    pub(crate) speech: Speech,
    pub(crate) seed: u64,
    pub(crate) rate_per_s: u32,
}

impl Blaster<'_> {
    /// Round after round until it is over.
    pub(crate) fn run(&self, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
        let mut random = Random::new(hash(self.seed, 1000 + self.speech as u64));
        let (mut rounds, mut hits, mut misses, mut refused) = (0, 0, 0, 0);
        while bell.goes_on() {
            let told = self.round(&mut random)?;
            let tally = &told["merged"]["tally"];
            let sum = |name: &str| -> u64 {
                let verbs = tally["verbs"].as_object().into_iter().flatten();
                verbs.filter_map(|(_, verb)| verb[name].as_u64()).sum()
            };
            let (corrupt, broken) = (sum("corrupt"), tally["broken"].as_u64());
            if corrupt > 0 || broken != Some(0) {
                return fail(format!("{corrupt} wrong values, {broken:?} answers without sense"));
            }
            deeds.add(sum("answered"));
            (rounds, hits, misses) = (rounds + 1, hits + sum("hits"), misses + sum("misses"));
            refused += sum("errors");
        }
        if hits == 0 {
            return fail(format!("nothing to verify in {rounds} rounds"));
        }
        Ok(format!("{rounds} rounds, {hits} values verified, {misses} misses, {refused} refused"))
    }

    /// What kvblaster tells of one round.
    fn round(&self, random: &mut Random) -> Outcome<Value> {
        let size = random.below(u32::try_from(SIZES.len())?) as usize;
        let is_large = size + 1 == SIZES.len();
        let keys = if is_large { KEYS_OF_LARGE } else { KEYS };
        let rate = if is_large { self.rate_per_s / 10 + 1 } else { self.rate_per_s };
        let batch = if random.below(2) == 0 { 1 } else { 5 };
        let ttl = if random.below(3) == 0 { 1 + random.below(20) } else { 0 };
        let mut command = Command::new(self.program);
        command.args(["run", "--quiet", "--json", "--verify", "--no-populate", "--timeout", "60s"]);
        command.args(["--protocol", self.speech.name(), "--seed", &self.seed.to_string()]);
        command.args(["--keys", &keys.to_string(), "--value-size", SIZES[size]]);
        command.args(["--key-prefix", &format!("blaster-{size}-")]);
        command.args(["--mix", "get=6,set=3,delete=1", "--batch", &batch.to_string()]);
        command.args(["--connections", "8", "--churn", "500", "--rate", &rate.to_string()]);
        command.args(["--schedule", &format!("0s+1x{SECONDS_EACH}s")]);
        if ttl > 0 {
            command.args(["--ttl", &ttl.to_string()]);
        }
        command.arg(self.site.address().to_string());
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|why| format!("{}: {why}", self.program.display()))?;
        match serde_json::from_slice(&output.stdout) {
            Ok(told) => Ok(told),
            Err(_) => {
                let words = String::from_utf8_lossy(&output.stderr);
                fail(format!("kvblaster {}: {}", output.status, words.trim_end()))
            }
        }
    }
}
