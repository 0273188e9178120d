//! The server: the executor of all commands, the command line, and statistics.
//!
//! Where: uses `columns`, `net`, `protocol` and `store`. First, `start` turns the command line into
//! settings and prepares the process; `machine` tells which processors and how much memory the
//! process may use. Then `run` opens the listeners and starts the columns, which share the state in
//! `shared`. The columns pass each request to `execute`, which calls the store and writes the
//! reply. A command whose answer takes several turns becomes an `errand`; `stats` shows the counts
//! of all these modules. `admin` shows
//! the same counts over HTTP.
//! Invariant: the execution of a request does not allocate, block or log.

// Once, before the first request.
pub mod limits;
pub mod machine;
pub mod run;
pub mod start;

// For each request.
pub mod clock;
pub mod execute;
pub mod shared;

// For operators.
mod admin;

// For a request that asks about the server, or whose answer takes several turns.
mod errand;
pub mod stats;

#[cfg(all(test, shuttle))]
mod under_shuttle;
