//! The limit on the length of a key.
//!
//! Where: every parser checks keys.
//! Invariant: none.
//! Source: memcached's `KEY_MAX_LENGTH`.

/// Longest key.
pub const KEY_BYTES_MAX: usize = 250;
