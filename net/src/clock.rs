//! Two clocks: the system's monotonic clock, and the processor time of a thread.
//!
//! Where: the server and the load generator measure times with these clocks.
//! Invariant: neither clock goes back; both count nanoseconds.
//! Source: clock_gettime(2).
#![allow(
    unsafe_code,
    reason = "rustix finds the vdso by itself, in a way that crashes under valgrind; libc's works"
)]

/// Reads the clock of `Instant::now`, in nanoseconds. `Instant::now` executes ten times as many
/// instructions.
#[inline]
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The processor time of the calling thread, in nanoseconds.
#[must_use]
pub fn thread_time_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to `time`, a local variable to which nothing else refers. The
    // call cannot fail: Linux has both clocks.
    let _always_zero = unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_clock_is_that_of_instants_and_a_thread_that_works_takes_time() {
        let (outer, first) = (Instant::now(), monotonic_ns());
        let inner = Instant::now();
        let start = thread_time_ns();
        while thread_time_ns() < start + 1_000_000 {}
        let least = inner.elapsed();
        let passed = Duration::from_nanos(monotonic_ns() - first);
        assert!(least <= passed && passed <= outer.elapsed(), "{least:?} {passed:?}");
    }
}
