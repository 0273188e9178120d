//! Simulates caches: computes the hit ratios of given requests by eviction policy and cache size.
//!
//! ```text
//!                                        +-> Engine, with the store's own decisions
//!   files -> Trace -> jobs::run -> Cache +-> references: LRU, ARC, Belady, ...
//!                                        +-> the real store
//!   any Request iterator -> stream::run ---> the real store, on a virtual clock
//! ```
//!
//! [`jobs`] replays traces of keys against many policies and sizes: each key has one size, a missed
//! key is stored, and no item expires. [`stream`] sends requests from any iterator to the real
//! store; each request has a key, sizes, a TTL, an operation and a time. The store's clock shows
//! the time of the request, so a simulated hour takes only the time in which the store executes the
//! hour's requests. This example compares the hit ratios at two memory sizes:
//!
//! ```
//! use simulate::sizes::{Size, mix};
//! use simulate::stream::{Operation, Request, curve};
//! use simulate::{Eviction, MakeError};
//!
//! let requests = || (0..20_000_u64).map(|at| Request {
//!     key: mix(at) % 3000,
//!     size: Size { key: 20, value: 1000 },
//!     ttl_s: 60,
//!     operation: Operation::Fetch,
//!     at_ns: at * 1_000_000,
//! });
//! let memory_bytes = [1 << 20, 4 << 20];
//! let counted_ns = 10_000_000_000..20_000_000_000;
//! let by_size = curve(&memory_bytes, Eviction::default(), 2, counted_ns, requests)?;
//! assert!(by_size[0].hit_ratio() < by_size[1].hit_ratio());
//! # Ok::<(), MakeError>(())
//! ```
//!
//! Where: this crate uses the server's store; `kvblaster simulate` is this crate's command line.
//! Invariant: no network, no clock, no randomness except the store's hash. The same requests give
//! the same misses, but the misses in the real store vary a little with the hash.

pub mod cache;
pub mod contestant;
pub mod engine;
pub mod jobs;
pub mod live;
#[cfg(test)]
mod made;
pub mod reference;
pub mod size;
pub mod sizes;
mod spread;
pub mod stream;
pub mod trace;
pub mod unpacked;

pub use store::policy::Eviction;
pub use store::{MakeError, Stats, Store};
