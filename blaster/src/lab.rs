//! `kvblaster lab`: repeats published measurements of caches, against several servers.
//!
//! ```text
//! experiment (TOML) -> points -> servers, link -> measure -> record -> claims -> report
//! ```
//!
//! Where: a verb of kvblaster; each measurement is a `run` or a `capacity`.
//! Invariant: an experiment is data, and adding one adds a file. If a machine cannot make a
//! measurement, the report has a row that says so.
//! Source: the documents that `experiment::Document` lists.

pub mod card;
pub mod claims;
pub mod experiment;
pub mod figures;
pub mod flags;
pub mod library;
pub mod link;
pub mod measure;
mod namespace;
pub mod points;
pub mod profile;
mod proxy;
pub mod record;
pub mod report;
mod resident;
pub mod rounds;
pub mod servers;
mod simulated;
pub mod tuning;
