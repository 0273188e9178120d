//! What tests and benches of several crates need: numbers drawn from a seed, an allocator that
//! counts, network namespaces, schedules of threads, and what is around a test.
//!
//! Where: beside every path; a dev-dependency, in nothing that is shipped.
//! Invariant: nothing here knows another crate of the tree.

pub mod allocations;
mod around;
pub mod forged;
pub mod namespace;
pub mod random;
#[cfg(shuttle)]
pub mod schedules;

pub use around::{is_alive, piped, skip};
pub use random::Random;
