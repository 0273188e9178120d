//! kvblaster measures caches: it puts load on real servers, and simulates eviction offline.
//!
//! ```text
//! flags       the command line: the plan of a run, or of another verb
//! run         workload -> target -> wire -> line -> drive -> measure -> search -> result -> report
//! size, lab   start servers by `launch`, and repeat runs; simulate needs no server
//! reflect     a server that stores nothing; it shows the limits of the others
//! words, plot texts, numbers and plots for people
//! ```
//!
//! Where: a client of the servers. The crate `simulate` replays traces against eviction policies.
//! Invariant: the command line and its seed determine the requests. Two runs of the same command
//! differ only in times and answers.
//! Source: the KV-Cache paper, sections 5 and 6, whose load generator is called KV-Blaster.

pub mod drive;
pub mod flags;
pub mod lab;
pub mod launch;
mod line;
pub mod measure;
mod plot;
pub mod reflect;
mod report;
pub mod result;
pub mod run;
pub mod search;
pub mod simulate;
mod size;
pub mod target;
pub mod wire;
mod words;
pub mod workload;
