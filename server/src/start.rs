//! The start of a server: the command line, the settings, and the process.
//!
//! Where: `main` calls `flags::parse`, then the functions of `process`, before any thread starts.
//! Invariant: a column finds the settings complete and checked.

pub mod flags;
pub mod notify;
pub mod pid_file;
pub mod port_file;
pub mod process;
mod replace;
pub mod settings;
