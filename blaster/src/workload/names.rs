//! The bytes of keys and values, computed from a key's number alone.
//!
//! Where: while a request is encoded, and where an answer is verified.
//! Invariant: two numbers never have the same name.

use super::Workload;
use std::sync::Arc;

/// Names and values. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Names {
    workload: Arc<Workload>,
}

impl Names {
    /// The names of a workload's keys.
    #[must_use]
    pub fn new(workload: &Arc<Workload>, _seed: u64) -> Names {
        Names { workload: Arc::clone(workload) }
    }

    /// Appends a key's name: 1 to 250 bytes from 0x21 to 0x7e.
    pub fn key(&self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("key-{key:016}").as_bytes());
    }

    /// Appends the value of `bytes` bytes that the key has.
    pub fn value(&self, key: u64, bytes: u32, out: &mut Vec<u8>) {
        let letter = b'a' + u8::try_from(key % 26).unwrap_or(0);
        out.extend(std::iter::repeat_n(letter, bytes as usize));
    }

    /// Is this the value of its length that the key has?
    #[must_use]
    pub fn verify(&self, key: u64, value: &[u8]) -> bool {
        let mut expected = Vec::new();
        self.value(key, u32::try_from(value.len()).unwrap_or(u32::MAX), &mut expected);
        expected == value
    }

    /// The size of the key's value that filling the cache writes.
    #[must_use]
    pub fn value_bytes(&self, _key: u64) -> u32 {
        self.workload.value_bytes
    }
}
