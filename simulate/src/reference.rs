//! Small models of other caches' policies, one file each, with which our policies are compared.
//!
//! Where: `contestant` makes these models. Invariant: a model evicts single items, not segments.

mod arc;
mod belady;
mod clock;
mod lirs;
mod lists;
mod lru;
mod memcached;
mod sieve;

pub use arc::Arc;
pub use belady::Belady;
pub use clock::Clock;
pub use lirs::Lirs;
pub use lru::Lru;
pub use memcached::Memcached;
pub use sieve::Sieve;

#[cfg(test)]
mod tests;
