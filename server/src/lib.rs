//! The server: columns over the store.
pub mod clock;
pub mod cpus;
pub mod execute;
pub mod flags;
pub mod limits;
pub mod out;
pub mod process;
pub mod settings;
pub mod shared;
pub mod stats;
