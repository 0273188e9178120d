//! The text protocol: lines.
//!
//! Where: `write` says what requests came to.
//! Invariant: none beyond its parts'.
//! Source: memcached's `protocol.txt`.

pub mod write;
