//! Rounds of kvblaster with `--verify`, by one actor for each protocol.
//!
//! Where: beside the other actors, on the server whose memory does not hold all items.
//! Invariant: all rounds derive a key's value in the same way, so that each round can verify values
//! that other rounds set. A value that was never set is a fault, and so is an answer that violates
//! the protocol.

use blaster::measure::Tally;

use crate::measure::wire::Protocol;
use crate::measure::{Outcome, driven, fail};
use crate::site::{Progress, RunControl, Site};
use testing::random::{Random, hash};

/// Ranges of value lengths, each with its own keys. Values of the last range are too long for UDP.
const SIZES: [&str; 5] = ["200", "1-100", "1-3000", "3000-8000", "20000-60000"];
/// With values of a few kilobytes, this number of items takes several times the server's memory.
const KEYS: u32 = 100_000;
const KEYS_OF_LARGE: u32 = 8000;
const SECONDS_EACH: u32 = 20;

pub(crate) struct Blaster<'s> {
    pub(crate) site: &'s Site<'s>,
    pub(crate) protocol: Protocol,
    /// `udp://`, or empty for TCP.
    pub(crate) scheme: &'static str,
    pub(crate) seed: u64,
    pub(crate) rate_per_s: u32,
}

impl Blaster<'_> {
    pub(crate) fn run(&self, control: &RunControl, progress: &Progress) -> Outcome<String> {
        let mut random = Random::new(hash(self.seed, 1000 + self.protocol as u64));
        let (mut rounds, mut hits, mut misses, mut refused, mut unbegun) = (0, 0, 0, 0, 0);
        while control.is_running() {
            let tally = match self.round(&mut random) {
                // The link may be down: kvblaster fails if it cannot connect within three seconds.
                Err(_) if self.site.far.is_some() => {
                    unbegun += 1;
                    continue;
                }
                round => round?,
            };
            let total = tally.total();
            if total.corrupt > 0 || tally.broken > 0 {
                let (corrupt, broken) = (total.corrupt, tally.broken);
                return fail(format!("{corrupt} wrong values, {broken} invalid answers"));
            }
            progress.add(total.answered);
            (rounds, hits, misses) = (rounds + 1, hits + total.hits, misses + total.misses);
            refused += total.errors;
        }
        if hits == 0 {
            return fail(format!(
                "no value was verified in {rounds} rounds; {unbegun} more rounds did not begin"
            ));
        }
        Ok(format!(
            "{rounds} rounds, {unbegun} more did not begin, {hits} values verified, {misses} \
             misses, {refused} requests refused"
        ))
    }

    fn round(&self, random: &mut Random) -> Outcome<Tally> {
        let is_stream = self.scheme.is_empty();
        let sizes = SIZES.len() - usize::from(!is_stream);
        let size = random.number(u32::try_from(sizes)?) as usize;
        let is_large = size + 1 == SIZES.len();
        let keys = if is_large { KEYS_OF_LARGE } else { KEYS };
        let rate = if is_large { self.rate_per_s / 10 + 1 } else { self.rate_per_s };
        let batch = if random.number(2) == 0 { 1 } else { 5 };
        let ttl = if random.number(3) == 0 { 1 + random.number(20) } else { 0 };
        // An answer after the timeout would match no request, so the timeout is long even over UDP.
        let (timeout, churn) = if is_stream { ("60s", "--churn 500") } else { ("20s", "") };
        let ttl = if ttl > 0 { format!("--ttl {ttl}") } else { String::new() };
        let words = format!(
            "--verify --no-populate --timeout {timeout} --protocol {} --seed {} \
             --keys {keys} --value-size {} --key-prefix blaster-{size}- --batch {batch} \
             --mix get=6,set=3,delete=1 --connections 8 {churn} --rate {rate} \
             --schedule 0s+1x{SECONDS_EACH}s {ttl} {}{}",
            self.protocol.name(),
            self.seed,
            SIZES[size],
            self.scheme,
            self.site.address(),
        );
        Ok(driven::run(&words)?.tally)
    }
}
