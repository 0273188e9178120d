//! `kvblaster lab`: repeats published measurements of caches, against several servers.
//!
//! ```text
//! experiment (TOML) -> points -> servers, link -> measure -> record -> claims -> report
//! ```
//!
//! Where: a verb of kvblaster. Each measurement is a `run`, a `capacity` or a `simulate`.
//! Invariant: an experiment is a TOML file, so that a new experiment needs no new code. If a
//! machine cannot measure a point, the report gives the reason.
//! Source: the documents that `experiment::Document` lists.

pub mod card;
mod check;
pub mod claims;
mod command_line;
pub mod estimate;
pub mod experiment;
pub mod figures;
pub mod flags;
mod installed;
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
mod verbs;
