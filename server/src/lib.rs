//! The server: columns over the store.
pub mod clock;
pub mod execute;
pub mod out;
pub mod settings;
pub mod shared;
pub mod stats;
