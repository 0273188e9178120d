//! kvblaster measures caches under work: load on real servers, and eviction offline.
//!
//! ```text
//!   workload -> target -> wire -> line -> drive -> measure -> search -> result -> report
//! ```
//!
//! Where: beside the server, as its client; the crate `simulate` does the simulating.
//! Invariant: the command line and its seed determine the requests; only their timing and the
//! answers vary.
//! Source: the paper's sections 5 and 6, whose load generator is called KV-Blaster.

pub mod axis;
mod bag;
pub mod drive;
pub mod exit;
pub mod flags;
pub mod launch;
pub mod letters;
pub mod line;
pub mod measure;
pub mod packets;
pub mod reflect;
pub mod report;
pub mod result;
pub mod run;
pub mod search;
pub mod simulate;
pub mod size;
pub mod steer;
pub mod target;
pub mod wire;
mod words;
pub mod workload;
