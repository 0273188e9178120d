//! Tools for tests and benches of several crates: random numbers from a seed, an allocator that
//! counts, network namespaces, schedules of threads, skipping of tests, and runs of programs.
//!
//! Where: a dev-dependency of the other crates; no shipped program contains it.
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
