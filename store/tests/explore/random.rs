//! Numbers drawn from a seed.
//!
//! Invariant: the same seed, the same numbers.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, below: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(below)) >> 64).unwrap_or(0)
    }

    pub(crate) fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.below(below as u64)).unwrap_or(0)
    }

    pub(crate) fn number(&mut self, below: u32) -> u32 {
        u32::try_from(self.below(below.into())).unwrap_or(0)
    }

    /// True in one case of so many.
    pub(crate) fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }
}
