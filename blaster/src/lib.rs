//! kvblaster: what caches do under work, measured. Today: offline simulation of eviction.
//!
//! Where: beside the server; it uses the store as a library.
//! Invariant: everything is determined by the command line: no clock, no random seed from outside.
//! Source: the paper's sections 5 and 6, whose load generator is called KV-Blaster.

pub mod cache;
pub mod drive;
pub mod engine;
pub mod flags;
pub mod line;
pub mod live;
#[cfg(test)]
mod made;
pub mod measure;
pub mod reference;
pub mod reflect;
pub mod report;
pub mod result;
pub mod search;
pub mod simulate;
pub mod sizes;
pub mod target;
pub mod trace;
pub mod wire;
pub mod workload;
