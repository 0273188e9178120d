//! Random numbers from a seed.
//!
//! Where: used by tests and benches.
//! Invariant: the same seed gives the same numbers on every machine.
//! Source: SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.

/// The number that is added to the state before each draw.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Draws the next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "there is no end to iterate to")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// Draws a number below `end`. Returns 0 if `end` is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// Draws a number below `end`.
    #[inline]
    pub fn number(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(end.into())).unwrap_or(0)
    }

    /// Draws a number below `end`.
    #[inline]
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// Draws a number that is at least 0 and below 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// Returns true in one of `cases` calls on average.
    #[inline]
    pub fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    /// Returns an element of `from`. All elements have the same probability.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())].clone()
    }

    /// Returns a value from `shares`, which lists values and their shares. A value's probability is
    /// proportional to the value's share. The sum of the shares must be above 0.
    pub fn share<T: Copy>(&mut self, shares: &[(T, u64)]) -> T {
        let mut rest = self.below(shares.iter().map(|(_, share)| share).sum());
        for &(one, share) in shares {
            if rest < share {
                return one;
            }
            rest -= share;
        }
        shares[0].0
    }

    /// Shuffles the elements of `these`.
    pub fn shuffle<T>(&mut self, these: &mut [T]) {
        for last in (1..these.len()).rev() {
            these.swap(last, self.index(last + 1));
        }
    }
}

/// A pseudorandom number that depends only on `id` and `salt`.
#[inline]
#[must_use]
pub fn hash(id: u64, salt: u64) -> u64 {
    mixed(id.wrapping_add(salt.wrapping_mul(0xd1b5_4a32_d192_ed03)).wrapping_add(STEP))
}

/// Returns the upper 53 bits of `number`, divided by 2^53. The result is at least 0 and below 1.
#[inline]
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 has")]
pub fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!(published, [random.next(), random.next()]);
    }

    #[test]
    fn each_number_below_the_end_comes_as_often() {
        let (mut random, mut seen) = (Random::new(1), [0; 7]);
        (0..70_000).for_each(|_| seen[random.index(7)] += 1);
        assert!(seen.iter().all(|count| (9_500..10_500).contains(count)), "{seen:?}");
        assert_eq!(random.share(&[('a', 0), ('b', 3)]), 'b');
    }
}
