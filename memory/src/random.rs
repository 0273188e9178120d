//! A random number generator for each column.
//!
//! Where: used when a column makes room in the store or chooses rounds of its loop for sampling.
//! Invariant: different columns draw different sequences. The numbers are predictable.
//! Source: G. Marsaglia, *Xorshift RNGs*.

/// The random number generator of one column.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the generator of column `id`.
    #[must_use]
    pub fn new(id: usize) -> Self {
        // The state must not be 0, because every draw would then be 0. The product is not 0,
        // because the factor is odd and `id + 1` is not 0.
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(id as u64 + 1))
    }

    /// Draws a number less than `below`.
    pub fn below(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(((self.0 >> 32) * u64::from(below)) >> 32).unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_below_is_drawn_and_two_columns_draw_others() {
        let draw = |id| {
            let mut random = Random::new(id);
            (0..200).map(|_| random.below(7)).collect::<Vec<u32>>()
        };
        let [one, other] = [0, 1].map(draw);
        assert!((0..7).all(|number| one.contains(&number)), "{one:?}");
        assert!(one.iter().all(|&number| number < 7) && one != other, "{one:?}");
        assert_eq!(Random::new(3).below(1), 0);
    }
}
