//! The memory of a store: the region of segments, the frames of large values, the arena for values
//! and packets, and quiescence, which tells when memory may be reused. Also atomics, counters,
//! short texts and storage verbs, which other crates of the server share.
//!
//! Where: used by the store, which decides where items are placed.
//! Invariant: memory has one owner at a time, and is reused only when nobody can still read it.
//! Source: the KV-Cache paper, section 4.1.3 (slabs, per-core caches). The segments are slabs.

pub mod arena;
mod chains;
pub mod counters;
pub mod frames;
pub mod limit;
pub mod map;
pub mod nodes;
pub mod plant;
pub mod quiescence;
pub mod random;
pub mod region;
pub mod segments;
pub mod short;
pub mod sync;
mod vacant;
pub mod verb;
pub mod words;

/// Prefetches the cache line that contains address `at`, which need not be mapped.
#[inline]
#[allow(unsafe_code, reason = "a prefetch instruction")]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch instruction changes no register and no memory, and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
