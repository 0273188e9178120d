//! The server: the executor of all commands, the command line, and statistics.
//!
//! Where: uses `columns`, `net`, `protocol` and `store`. `run` starts the server, `listen` opens
//! its listeners. Columns pass requests to `execute`, which calls the store and writes the replies.
//! Invariant: the execution of a request does not allocate, block or log.

mod ahead;
mod errand;
mod groups;
mod numa;
mod prefixes;
mod replace;
mod sampled;
mod statm;

pub mod bypass;
pub mod clock;
pub mod cpus;
pub mod execute;
pub mod flags;
pub mod limits;
pub mod listen;
pub mod pid_file;
pub mod port_file;
pub mod process;
pub mod ram;
pub mod requests;
pub mod run;
pub mod settings;
pub mod shared;
pub mod stats;
#[cfg(all(test, shuttle))]
mod under_shuttle;
mod watch;
