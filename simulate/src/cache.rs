//! What every simulated cache does: answer for keys, and stay within its budget.
//!
//! Where: between a trace and the policies. Invariant: `live_bytes` never exceeds the capacity a
//! cache was made with. Keys are dense numbers, so that per-key state is an array.

/// A cache that is refilled on a miss: what is asked for and not there is put in.
pub trait Cache {
    /// A request for `key`. With `rewrites`, a hit stores the value anew, as a client's SET does.
    /// True: a hit.
    fn request(&mut self, key: u32, rewrites: bool) -> bool;

    /// Bytes of the items in it.
    fn live_bytes(&self) -> u64;
}

/// What a cache is made for.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'w> {
    /// The bytes of each key's item; as many as there are keys.
    pub item_bytes: &'w [u32],
    /// What it may hold.
    pub capacity_bytes: u64,
}

impl Shape<'_> {
    /// The bytes of a key's item.
    #[must_use]
    pub fn bytes_of(&self, key: u32) -> u64 {
        u64::from(self.item_bytes[key as usize])
    }

    /// Can the item be kept at all?
    #[must_use]
    pub fn fits(&self, key: u32) -> bool {
        self.bytes_of(key) <= self.capacity_bytes
    }

    /// The number of keys.
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
