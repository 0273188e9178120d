//! The server: columns over the store, and all that an operator sees.
//!
//! Where: composes `net`, `protocol` and `store`. A packet's path through it: `run` and `listen`
//! open the doors, `column` loops, `connection` receives, `execute` carries out, `out` sends.
//! Invariant: a request is received, executed and answered by one thread; nothing on that path
//! allocates, blocks or logs.

mod ahead;
mod column;
mod connection;

pub mod clock;
pub mod cpus;
pub mod execute;
pub mod flags;
pub mod limits;
pub mod listen;
pub mod out;
pub mod pid_file;
pub mod port_file;
pub mod process;
pub mod run;
pub mod settings;
pub mod shared;
pub mod stats;
