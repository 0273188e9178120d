//! Keys and their hashes, which place them in the index.
//!
//! Where: every operation first hashes its key. A batch first hashes and prefetches all its keys.
//! Invariant: each store has random secrets, so that no client can choose keys whose hashes
//! collide; a random seed alone would not prevent collisions (rapidhash's documentation).
//! Source: rapidhash v3 "nano", made for keys up to 48 bytes; longer keys cost little more.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use std::hash::{BuildHasher, Hasher, RandomState};

/// The name of the hash function.
pub const HASH_NAME: &str = "rapidhash";

#[derive(Clone, Copy)]
pub(crate) struct Key<'k> {
    pub(crate) bytes: &'k [u8],
    pub(crate) hash: u64,
}

/// The hash of a key. The key's line of the index may have been prefetched.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchedHash(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct KeyHash {
    secrets: RapidSecrets,
}

impl KeyHash {
    pub(crate) fn new() -> Self {
        // The system seeds the standard library's hasher. Under shuttle the seed is fixed, so that
        // the same keys collide when a schedule is replayed.
        Self::seeded(if cfg!(shuttle) { 1 } else { RandomState::new().build_hasher().finish() })
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        Self { secrets: RapidSecrets::seed(seed) }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        match key.len() {
            17..=48 => self.hash_usual(key),
            _ => self.hash_any(key),
        }
    }

    /// Like `hash_any`, but inlined, and only for keys of the usual lengths, 17 to 48 bytes.
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
    use std::collections::HashSet;

    /// Makes keys with the same hash: each begins with a secret, so that a factor in `fold` is 0.
    fn colliding(hash: &KeyHash, count: u64) -> Vec<[u8; 32]> {
        let key = |nth: u64| {
            let mut key = [b'k'; 32];
            key[..8].copy_from_slice(&hash.secrets.secrets[2].to_le_bytes());
            key[8..16].copy_from_slice(&nth.to_le_bytes());
            key
        };
        (0..count).map(key).collect()
    }

    fn hashes(hash: &KeyHash, keys: &[[u8; 32]]) -> HashSet<u64> {
        keys.iter().map(|key| hash.hash(key)).collect()
    }

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

    #[test]
    #[cfg(not(shuttle))]
    fn keys_that_collide_in_one_store_do_not_in_another() {
        let one = KeyHash::new();
        let keys = colliding(&one, 1000);
        assert_eq!(hashes(&one, &keys).len(), 1);
        for other in [KeyHash::new(), std::thread::spawn(KeyHash::new).join().expect("hashes")] {
            assert_eq!(hashes(&other, &keys).len(), 1000);
            // The hashes do not cluster: each tenth of their range has about 100 of them.
            let mut tenths = [0; 10];
            keys.iter().for_each(|key| {
                let tenth = (u128::from(other.hash(key)) * 10) >> 64;
                tenths[usize::try_from(tenth).unwrap_or(0)] += 1;
            });
            assert!(tenths.iter().all(|keys| (50..150).contains(keys)), "{tenths:?}");
        }
    }

    #[test]
    #[cfg(not(any(loom, shuttle)))]
    fn a_flood_of_keys_that_collide_is_kept_found_and_told() {
        use crate::{Body, Column, Config, Put, Store, Value, Verb};
        let config = Config {
            memory_bytes: 8 << 20,
            item_bytes_max: 1 << 10,
            columns: 1,
            eviction: Some(crate::policy::Eviction::default()),
            cas: true,
            now: 1,
        };
        let store = Store::new(&config).expect("address space");
        let mut column = store.column();
        let (keys, usual) = (colliding(&store.hash, 1000), store.stats().hash_overflow_bytes);
        let mut put = |key: &[u8]| {
            column.put(&Put::new(Verb::Set, key), Body::Bytes(key)).expect("room");
        };
        for (nth, key) in (0_u32..).zip(&keys) {
            put(key);
            put(&nth.to_le_bytes());
        }
        let is_there = |column: &mut Column, key: &[u8]| {
            column
                .get(key)
                .is_some_and(|hit| matches!(hit.value, Value::Log(value) if value == key))
        };
        assert!(keys.iter().all(|key| is_there(&mut column, key)));
        assert!((0_u32..1000).all(|nth| is_there(&mut column, &nth.to_le_bytes())));
        let stats = store.stats();
        assert_eq!((stats.curr_items, stats.evictions), (2000, 0));
        // Two lines of the group hold 16 colliding keys, and each overflow line holds seven more.
        let lines = (1000 - 16) / 7;
        assert!(stats.hash_overflow_bytes >= usual + lines * 64, "{stats:?}");
        for key in keys.iter().step_by(2) {
            assert!(column.delete(key));
        }
        let left = keys.iter().map(|key| is_there(&mut column, key));
        assert!(left.eq([false, true].into_iter().cycle().take(1000)));
    }

    #[test]
    #[cfg(not(shuttle))]
    fn every_store_has_secrets_of_its_own() {
        let mut all = HashSet::new();
        let mut more = |hashes: Vec<KeyHash>| {
            for hash in hashes {
                let RapidSecrets { seed, secrets } = hash.secrets;
                assert!(all.insert(seed), "a seed again");
                assert!(secrets.iter().all(|secret| all.insert(*secret)), "a secret again");
            }
        };
        let some = || (0..100).map(|_| KeyHash::new()).collect();
        more(some());
        more(std::thread::spawn(some).join().expect("seeds"));
    }
}
