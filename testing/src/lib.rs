//! Tools for tests and benches of several crates: numbers drawn from a seed, an allocator that
//! counts, network namespaces, schedules of threads, and a test's surroundings.
//!
//! Where: beside every path; a dev-dependency, in nothing that is shipped.
//! Invariant: nothing here depends on another crate of the tree.

pub mod allocations;
mod around;
pub mod forged;
pub mod namespace;
pub mod random;
#[cfg(shuttle)]
pub mod schedules;

pub use around::{is_alive, piped, skip};
pub use random::Random;
