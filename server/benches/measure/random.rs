//! Numbers that look random and are the same in every run.
//!
//! Where: keys, their order, and what is drawn for each.
//! Invariant: the same seed gives the same numbers; `hash` depends on its two arguments alone.
//! Source: xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators,
//! scrambled" (2016); splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators" (2014).

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Each `seed` another sequence.
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: hash(seed, 0) | 1 }
    }

    /// The next number.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// The next number, below `end`.
    #[inline]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(end)) >> 32).unwrap_or(0)
    }

    /// The next number, at least 0 and below 1.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next())
    }
}

/// A number for `id` that looks random; each `salt` another one.
#[inline]
pub(crate) fn hash(id: u64, salt: u64) -> u64 {
    let mut mixed = id.wrapping_add(salt.wrapping_mul(0xD1B5_4A32_D192_ED03));
    mixed = mixed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A random number's upper 53 bits as a number at least 0 and below 1.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 has")]
pub(crate) fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
