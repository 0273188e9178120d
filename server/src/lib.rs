//! The server: columns over the store.
pub mod settings;
pub mod shared;
pub mod stats;
