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
        // The standard library's hasher is seeded by the system.
        let random = RandomState::new().build_hasher().finish();
        Self { secrets: RapidSecrets::seed(random) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_nano_inline::<true, false>(key, &self.secrets)
    }
}
