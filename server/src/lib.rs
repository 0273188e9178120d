//! The server: columns that share one store, the command line, and statistics.
//!
//! Where: uses `net`, `protocol` and `store`. `run` starts the server, `listen` opens its
//! listeners. A request passes through `column` (the loop), `connection` or `datagram` (which
//! receive the request), `execute`, and `out` (where the reply waits until it is sent).
//! Invariant: one thread receives, executes and answers a request. On this path no code allocates,
//! blocks or logs.

mod ahead;
mod column;
mod connection;
mod errand;
mod groups;
mod numa;
mod prefixes;
mod replace;
mod sampled;

pub mod bypass;
pub mod clock;
pub mod cpus;
pub mod datagram;
pub mod datapath;
pub mod execute;
pub mod flags;
pub mod limits;
pub mod listen;
pub mod out;
pub mod pid_file;
pub mod port_file;
pub mod process;
pub mod ram;
pub mod run;
pub mod settings;
pub mod shared;
pub mod stats;
pub mod turn;
#[cfg(all(test, shuttle))]
mod under_shuttle;
mod watch;
