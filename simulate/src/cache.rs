//! The interface of a simulated cache, which answers requests for keys within a budget of bytes.
//!
//! Where: between a trace and the policies. Invariant: `live_bytes` never exceeds the capacity with
//! which a cache was made. Keys are numbers without gaps, so that they can index arrays.

/// A cache that is filled on a miss: a requested key that is not found is stored.
pub trait Cache {
    /// Requests `key`, and returns true on a hit. If `rewrites`, a hit stores the value again.
    fn request(&mut self, key: u32, rewrites: bool) -> bool;

    /// Bytes of the items in the cache.
    fn live_bytes(&self) -> u64;
}

/// The items and the capacity for which a cache is made.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'w> {
    /// The size in bytes of each key's item, indexed by key.
    pub item_bytes: &'w [u32],
    /// The maximum number of bytes in the cache.
    pub capacity_bytes: u64,
}

impl Shape<'_> {
    /// Returns the size in bytes of a key's item.
    #[must_use]
    pub fn bytes_of(&self, key: u32) -> u64 {
        u64::from(self.item_bytes[key as usize])
    }

    /// True if the key's item is not larger than the cache.
    #[must_use]
    pub fn fits(&self, key: u32) -> bool {
        self.bytes_of(key) <= self.capacity_bytes
    }

    /// Number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.item_bytes.len()
    }

    /// The mean size of the keys' items, at least 1.
    #[must_use]
    pub fn mean_bytes(&self) -> u64 {
        let sum: u64 = self.item_bytes.iter().map(|bytes| u64::from(*bytes)).sum();
        (sum / (self.keys() as u64).max(1)).max(1)
    }
}
