//! Columns: pinned threads, each of which receives requests, has them executed, and sends the
//! answers.
//!
//! Where: between `net`, which moves bytes, and an [`executor`], which answers requests. A request
//! passes through `column` (the loop), `connection` or `datagram` (which receive the request),
//! `batch` (which has requests executed), and `out` (where the reply waits until it is sent).
//! Invariant: one thread receives, executes and answers a request. On this path no code allocates,
//! blocks or logs. The crate knows no command and no option of the server.
//! Source: the KV-Cache paper, section 4.2 (columns).

mod column;
mod connection;
#[cfg(test)]
mod storeless;

pub mod batch;
pub mod budget;
pub mod counters;
pub mod datagram;
pub mod datapath;
pub mod executor;
pub mod input;
pub mod limits;
pub mod out;
pub mod pages;
pub mod settings;
pub mod shared;
pub mod stream;
pub mod turn;

pub use column::{
    Column, ColumnListener, End, Migration, Neighbour, Parts, Statuses, Stealing, Timers,
    coarse_now,
};
pub use executor::Executor;

/// Makes a store of `memory_mb` megabytes.
#[cfg(test)]
fn store_of(memory_mb: usize) -> std::sync::Arc<store::Store> {
    let config = store::Config {
        memory_bytes: memory_mb << 20,
        item_bytes_max: 1 << 20,
        columns: 2,
        eviction: Some(store::policy::Eviction::default()),
        cas: true,
        now: 62,
    };
    store::Store::new(&config).unwrap()
}
