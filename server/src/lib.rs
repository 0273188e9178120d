//! The server: columns over the store.
