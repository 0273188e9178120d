//! Every byte lives here: the region, its segments, frames for large values, and quiescence.
//!
//! Where: below the store, which decides what lies where; nothing here knows a key.
//! Invariant: memory is handed out once at a time, and reused only when nobody can still be reading
//! it.
//! Source: the paper's section 4.1.3 (huge-page slabs, per-core caches), with segments in place of
//! slabs.

pub mod frames;
pub mod limit;
pub mod map;
pub mod plant;
pub mod quiescence;
pub mod region;
pub mod segments;
pub mod sync;
pub mod words;

/// Asks the processor to bring the line at `at` near; any address will do.
#[inline]
#[allow(unsafe_code, reason = "a prefetch instruction")]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing architecturally and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
