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

pub(crate) mod card;
mod check;
pub(crate) mod claims;
mod command_line;
pub(crate) mod estimate;
pub(crate) mod experiment;
pub mod figures;
pub(crate) mod flags;
mod installed;
pub mod library;
pub(crate) mod link;
pub(crate) mod measure;
mod namespace;
pub(crate) mod points;
pub(crate) mod profile;
mod proxy;
pub mod record;
pub(crate) mod report;
mod resident;
pub(crate) mod rounds;
pub(crate) mod servers;
mod simulated;
pub(crate) mod tuning;
mod verbs;
