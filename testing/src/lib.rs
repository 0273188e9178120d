//! What tests and benches of several crates need: numbers drawn from a seed, and an allocator that
//! counts.
//!
//! Where: beside every path; a dev-dependency, in nothing that is shipped.
//! Invariant: nothing here knows another crate of the tree.

pub mod allocations;
pub mod random;

pub use random::Random;
