//! The hash that places keys in the index.
//!
//! Where: first step of every operation.
//! Invariant: secrets are random per store, so that nobody outside can choose keys that collide (a
//! seed alone would not do: rapidhash's documentation warns of it).
//! Source: rapidhash v3 "nano", the one for keys of about 48 bytes: longer ones cost little more.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use std::hash::{BuildHasher, Hasher, RandomState};

/// A store's own hash function.
#[derive(Debug)]
pub(crate) struct KeyHash {
    secrets: RapidSecrets,
}

impl KeyHash {
    pub(crate) fn new() -> Self {
        // The standard library's hasher is seeded by the system. A schedule that is to be explored
        // again meets the same collisions again.
        let random = if cfg!(shuttle) { 1 } else { RandomState::new().build_hasher().finish() };
        Self { secrets: RapidSecrets::seed(random) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        match key.len() {
            17..=48 => self.hash_usual(key),
            _ => self.hash_any(key),
        }
    }

    /// The same as `hash_any`, of 17 to 48 bytes, as most keys have, where it is called.
    #[inline(always)]
    fn hash_usual(&self, key: &[u8]) -> u64 {
        let RapidSecrets { seed, secrets } = &self.secrets;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&key[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let bytes = key.len();
        let mut seed = fold(word(0) ^ secrets[2], word(8) ^ seed);
        if bytes > 32 {
            seed = fold(word(16) ^ secrets[2], word(24) ^ seed);
        }
        let length = bytes as u64;
        let last = [word(bytes - 16) ^ length ^ secrets[1], word(bytes - 8) ^ seed];
        let (low, high) = multiply(last[0], last[1]);
        fold(low ^ 0xaaaa_aaaa_aaaa_aaaa, high ^ secrets[1] ^ length)
    }

    #[inline(never)]
    fn hash_any(&self, key: &[u8]) -> u64 {
        rapidhash_v3_nano_inline::<true, false>(key, &self.secrets)
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
fn multiply(one: u64, other: u64) -> (u64, u64) {
    let product = u128::from(one) * u128::from(other);
    (product as u64, (product >> 64) as u64)
}

#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let (low, high) = multiply(one, other);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_have_the_library_s_hash() {
        let hash = KeyHash::new();
        let bytes: Vec<u8> = (0..=255).map(|byte: u8| byte.wrapping_mul(151)).collect();
        for len in 0..=250 {
            let key = &bytes[..len];
            let due = rapidhash_v3_nano_inline::<true, false>(key, &hash.secrets);
            assert_eq!(hash.hash(key), due, "{len} bytes");
        }
    }
}
