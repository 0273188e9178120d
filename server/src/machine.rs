//! The machine, as far as this process may use it: processors, NUMA nodes, memory.
//!
//! Where: read once, while the server starts.
//! Invariant: the limits of the process's control groups are kept.

pub mod cpus;
mod groups;
pub(crate) mod numa;
pub mod ram;
