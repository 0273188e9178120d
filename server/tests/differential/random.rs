//! Random numbers and choices from a seed, the same on every machine.
//!
//! Path: none, test data. Invariant: what is drawn depends on the seed and on the draws before.
//! Source: SplitMix64 (Steele, Lea, Flood 2014).

pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(u64::try_from(limit).unwrap())).unwrap()
    }

    /// True once in `of` draws.
    pub(crate) fn once(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// One of these, each as often as its share says.
    pub(crate) fn share<T: Copy>(&mut self, shares: &[(T, u64)]) -> T {
        let mut rest = self.below(shares.iter().map(|(_, share)| share).sum());
        for &(one, share) in shares {
            if rest < share {
                return one;
            }
            rest -= share;
        }
        shares[0].0
    }

    pub(crate) fn shuffle<T>(&mut self, these: &mut [T]) {
        for last in (1..these.len()).rev() {
            these.swap(last, self.index(last + 1));
        }
    }

    /// Any bytes, line ends and zeros included; the first is a letter, so that memcached's
    /// reading of numbers never runs past the value's end.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        const ALPHABET: &[u8; 16] = b"abcdefgXYZ09\r\n\0 ";
        let mut random = self.next() | 1;
        let mut value = Vec::with_capacity(count);
        for index in 0..count {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let letters = if index == 0 { 7 } else { 16 };
            value.push(ALPHABET[usize::from(random.to_le_bytes()[3]) % letters]);
        }
        value
    }
}
