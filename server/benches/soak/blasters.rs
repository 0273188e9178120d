//! kvblaster with `--verify`, round after round, one for each protocol at a time.
//!
//! Where: beside the other actors, on the server where not everything fits.
//! Invariant: all rounds make the values of a key alike, so that each verifies what the others have
//! set; a value that is not what was set is a fault, and so is an answer that makes no sense.

use blaster::measure::Tally;

use crate::measure::wire::Speech;
use crate::measure::{Outcome, driven, fail};
use crate::site::{Bell, Deeds, Site};
use testing::random::{Random, hash};

/// Lengths of values; each has keys of its own. Those of the last fit no datagram.
const SIZES: [&str; 5] = ["200", "1-100", "1-3000", "3000-8000", "20000-60000"];
/// Keys of values of a few kilobytes: several times what the server holds.
const KEYS: u32 = 100_000;
const KEYS_OF_LARGE: u32 = 8000;
const SECONDS_EACH: u32 = 20;

pub(crate) struct Blaster<'s> {
    pub(crate) site: &'s Site<'s>,
    pub(crate) speech: Speech,
    /// Before the address: over UDP, or nothing.
    pub(crate) scheme: &'static str,
    pub(crate) seed: u64,
    pub(crate) rate_per_s: u32,
}

impl Blaster<'_> {
    /// Round after round until it is over.
    pub(crate) fn run(&self, bell: &Bell, deeds: &Deeds) -> Outcome<String> {
        let mut random = Random::new(hash(self.seed, 1000 + self.speech as u64));
        let (mut rounds, mut hits, mut misses, mut refused, mut unbegun) = (0, 0, 0, 0, 0);
        while bell.goes_on() {
            let tally = match self.round(&mut random) {
                // It gives up on a server that it does not reach in three seconds.
                Err(_) if self.site.far.is_some() => {
                    unbegun += 1;
                    continue;
                }
                round => round?,
            };
            let total = tally.total();
            if total.corrupt > 0 || tally.broken > 0 {
                let (corrupt, broken) = (total.corrupt, tally.broken);
                return fail(format!("{corrupt} wrong values, {broken} answers without sense"));
            }
            deeds.add(total.answered);
            (rounds, hits, misses) = (rounds + 1, hits + total.hits, misses + total.misses);
            refused += total.errors;
        }
        if hits == 0 {
            return fail(format!("nothing to verify in {rounds} rounds, {unbegun} not begun"));
        }
        Ok(format!(
            "{rounds} rounds, {unbegun} not begun, {hits} values verified, {misses} misses, \
             {refused} refused"
        ))
    }

    /// What kvblaster saw in one round.
    fn round(&self, random: &mut Random) -> Outcome<Tally> {
        let is_stream = self.scheme.is_empty();
        let sizes = SIZES.len() - usize::from(!is_stream);
        let size = random.number(u32::try_from(sizes)?) as usize;
        let is_large = size + 1 == SIZES.len();
        let keys = if is_large { KEYS_OF_LARGE } else { KEYS };
        let rate = if is_large { self.rate_per_s / 10 + 1 } else { self.rate_per_s };
        let batch = if random.number(2) == 0 { 1 } else { 5 };
        let ttl = if random.number(3) == 0 { 1 + random.number(20) } else { 0 };
        // Datagrams may be lost. An answer that comes later than that is one to nothing.
        let (timeout, churn) = if is_stream { ("60s", "--churn 500") } else { ("20s", "") };
        let ttl = if ttl > 0 { format!("--ttl {ttl}") } else { String::new() };
        let words = format!(
            "--verify --no-populate --timeout {timeout} --protocol {} --seed {} \
             --keys {keys} --value-size {} --key-prefix blaster-{size}- --batch {batch} \
             --mix get=6,set=3,delete=1 --connections 8 {churn} --rate {rate} \
             --schedule 0s+1x{SECONDS_EACH}s {ttl} {}{}",
            self.speech.name(),
            self.seed,
            SIZES[size],
            self.scheme,
            self.site.address(),
        );
        Ok(driven::run(&words)?.tally)
    }
}
