//! Random numbers: seeded hashes, fractions, and a shuffled order that needs no memory.
//!
//! Where: used by all distributions. Invariant: the same seed gives the same numbers everywhere.
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014 (`mix`);
//! Black and Rogaway, "Ciphers with arbitrary finite domains", 2002 (cycle walking).

use simulate::sizes::mix;

pub(crate) fn hash(seed: u64, number: u64) -> u64 {
    mix(number ^ seed)
}

/// Derives a seed for one usage, so that random numbers of different usages are independent.
pub(crate) fn seed_for(seed: u64, usage: u64) -> u64 {
    mix(mix(seed) ^ usage)
}

/// Maps 64 random bits to a fraction between 0 and 1, both excluded.
pub(crate) fn fraction(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// Maps 64 random bits to a number below `end`, or to 0 if `end` is 0.
#[inline]
pub(crate) fn below(bits: u64, end: u64) -> u64 {
    ((u128::from(bits) * u128::from(end)) >> 64) as u64
}

pub(crate) mod usage {
    pub(crate) const SHUFFLE: u64 = 1;
    pub(crate) const KEY_SIZE: u64 = 2;
    pub(crate) const VALUE_SIZE: u64 = 3;
    pub(crate) const VALUE: u64 = 4;
    pub(crate) const POOL: u64 = 5;
    pub(crate) const REQUEST: u64 = 6;
    pub(crate) const GAP: u64 = 7;
    pub(crate) const TTL: u64 = 8;
}

/// Number of rounds of a shuffle. With fewer rounds, neighbours would stay near each other.
const ROUNDS: usize = 3;

/// A permutation of the numbers below `end`. The permutation is computed, because a table of it
/// would exceed the cache and might exceed the memory.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    end: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); ROUNDS],
}

impl Shuffle {
    /// Returns the permutation that a seed determines. `end` is at most 2^63.
    pub(crate) fn new(end: u64, seed: u64) -> Shuffle {
        let bits = u64::BITS - end.saturating_sub(1).leading_zeros();
        let mask = (1_u64 << bits.min(63)) - 1;
        let round = |n: u64| (seed_for(seed, 2 * n) | 1, seed_for(seed, 2 * n + 1));
        Shuffle { end, mask, shift: (bits / 2).max(1), rounds: [0, 1, 2].map(round) }
    }

    pub(crate) fn none(end: u64) -> Shuffle {
        Shuffle { end, mask: u64::MAX, shift: 63, rounds: [(1, 0); ROUNDS] }
    }

    /// Returns the number at `place`, which must be below `end`.
    pub(crate) fn at(&self, place: u64) -> u64 {
        debug_assert!(place < self.end);
        let mut number = place;
        // Each round is a bijection of the numbers from 0 to the mask: it multiplies by an odd
        // number, adds a constant, and XORs the high bits into the low bits. If the result is not
        // below `end`, all rounds are repeated. The loop ends, because a repeated bijection returns
        // to its first number, `place`, which is below `end`. The mask is less than twice `end`, so
        // on average the rounds are run at most twice.
        loop {
            for (factor, addend) in self.rounds {
                number = number.wrapping_mul(factor).wrapping_add(addend) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.end || self.end == 0 {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_has_every_number_once() {
        for end in [1, 2, 3, 5, 64, 65, 1000, 4095, 10_000, 65_537] {
            let shuffle = Shuffle::new(end, 7);
            let mut seen = vec![false; usize::try_from(end).unwrap()];
            for place in 0..end {
                let at = usize::try_from(shuffle.at(place)).unwrap();
                assert!(!std::mem::replace(&mut seen[at], true), "{at} of {end} twice");
            }
        }
        assert!([0, 1, 6, 999].iter().all(|place| Shuffle::none(1000).at(*place) == *place));
        assert_eq!(Shuffle::new(1 << 40, 1).end, 1 << 40);
        assert!(Shuffle::new(1 << 40, 1).at((1 << 40) - 1) < 1 << 40);
    }

    #[test]
    fn a_shuffle_leaves_nothing_in_its_place_and_differs_by_seed() {
        let end = 100_000;
        let (one, other) = (Shuffle::new(end, 1), Shuffle::new(end, 2));
        let same = (0..end).filter(|place| one.at(*place) == other.at(*place)).count();
        assert!(same < 20, "{same} places are equal");
        // Neighbours are as far apart as two random places: on average a third of the range.
        let distance = |place| one.at(place).abs_diff(one.at(place + 1));
        let mean = (0..end - 1).map(distance).sum::<u64>() / (end - 1);
        assert!((30_000..37_000).contains(&mean), "{mean}");
        // The numbers at the first tenth of the places are spread over all tenths of the range.
        let mut tenths = [0; 10];
        (0..end / 10)
            .for_each(|place| tenths[usize::try_from(one.at(place) / 10_000).unwrap()] += 1);
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn fractions_and_bounds() {
        assert!(fraction(0) > 0.0 && fraction(u64::MAX) < 1.0);
        assert_eq!((below(u64::MAX, 10), below(0, 10), below(u64::MAX, 0)), (9, 0, 0));
    }
}
