//! The text protocol: lines.
//!
//! Where: `write` says what requests came to; `head` says again what stands before a value.
//! Invariant: none beyond its parts'.
//! Source: memcached's `protocol.txt`.

pub mod head;
pub mod write;
