//! Keys and their hashes, which place them in the index.
//!
//! Where: the first step of every operation; a batch has the hashes of its keys made first, and
//! brings near what their lookups will read.
//! Invariant: secrets are random per store, so that nobody outside can choose keys that collide (a
//! seed alone would not do: rapidhash's documentation warns of it).
//! Source: rapidhash v3 "nano", the one for keys of about 48 bytes: longer ones cost little more.

use crate::column::Column;
use crate::handle::View;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The name of the function.
pub const HASH_NAME: &str = "rapidhash";

/// A key and its hash.
#[derive(Clone, Copy)]
pub(crate) struct Key<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: u64,
}

/// The hash of a key, whose line of the index may be on its way.
#[derive(Clone, Copy, Debug)]
pub struct Prefetched(pub(crate) u64);

/// Bytes of a cache line.
const LINE_BYTES: u64 = 64;

impl Column {
    /// The hash of `key`.
    #[inline]
    #[must_use]
    pub fn hashed(&self, key: &[u8]) -> Prefetched {
        Prefetched(self.handle.store.hash.hash(key))
    }

    /// The hash of `key`, whose line of the index is brought near. The hash is to be given to
    /// `prefetch_item` after this has been called for the batch's other keys.
    #[inline]
    #[must_use]
    pub fn prefetch(&self, key: &[u8]) -> Prefetched {
        let hash = self.hashed(key);
        self.handle.store.index.prefetch(hash.0);
        hash
    }

    /// Brings near the item that a lookup of the same key reads next.
    #[inline]
    pub fn prefetch_item(&self, key: Prefetched) {
        let region = &self.handle.store.memory().region;
        if let Some(found) = self.handle.store.index.likely(key.0) {
            let loc = found.slot.loc();
            (0..3).for_each(|line| region.prefetch(loc + line * LINE_BYTES));
        }
    }
}

impl View<'_> {
    #[inline]
    pub(crate) fn key<'k>(self, bytes: &'k [u8]) -> Key<'k> {
        Key { bytes, hash: self.hash.hash(bytes) }
    }
}

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

    /// As `hash_any`, for keys of 17 to 48 bytes, which most keys have; inlined.
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
