//! kvblaster measures caches: it puts load on real servers, and simulates eviction offline.
//!
//! ```text
//!   workload -> target -> wire -> line -> drive -> measure -> search -> result -> report
//! ```
//!
//! Where: a client of the servers. The crate `simulate` replays traces against eviction policies.
//! Invariant: the command line and its seed determine the requests. Two runs of the same command
//! differ only in times and answers.
//! Source: the KV-Cache paper, sections 5 and 6, whose load generator is called KV-Blaster.

pub mod axis;
mod datagram_batch;
pub mod drive;
pub mod exit;
pub mod flags;
pub mod lab;
pub mod launch;
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
pub mod text_plot;
pub mod wire;
mod words;
pub mod workload;
