//! Tools for tests and benches of several crates: random numbers from a seed, an allocator that
//! counts its calls, counts of instructions, network namespaces, random schedules of threads,
//! skipping of tests, runs of programs, waiting, and folders.
//!
//! Where: a dev-dependency of the other crates; no shipped program contains this crate.
//! Invariant: this crate depends on no other crate of the tree.

pub mod allocations;
mod around;
pub mod callgrind;
pub mod forged;
pub mod namespace;
pub mod random;
#[cfg(shuttle)]
pub mod schedules;

pub use around::{Folder, KillOnDrop, PATIENCE, await_some, is_alive, piped, skip, wait_until};
pub use random::Random;
