//! The atomic types of all lock-free code. With `--cfg loom`, these are loom's types.
//! With `--cfg shuttle`, a scheduler chooses the next thread at each access to the types.
//! Otherwise these are the standard library's types.
//!
//! Where: used by this crate, the store, the queues of network interfaces and the data that columns
//! share, so that loom and shuttle test the shipped source.
//! Invariant: no file with lock-free code uses `std::sync::atomic` directly.

pub mod mailbox;
#[cfg(shuttle)]
pub mod watched;

use std::sync::TryLockError;

#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(loom)]
pub use loom::{hint::spin_loop, sync::Mutex, sync::MutexGuard, thread::yield_now};

#[cfg(shuttle)]
pub use shuttle::{hint::spin_loop, sync::Mutex, sync::MutexGuard, thread::yield_now};
#[cfg(shuttle)]
pub use watched::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(not(any(loom, shuttle)))]
pub use std::hint::spin_loop;
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{sync::Mutex, sync::MutexGuard, thread::yield_now};

/// After this number of rounds, a waiting thread yields: other threads may need the processor.
const SPINS_MAX: u32 = 64;

/// Waits a moment for another thread. A waiting loop passes the same `rounds`, which begins at 0.
#[inline]
pub fn wait_a_little(rounds: &mut u32) {
    *rounds += 1;
    if rounds.is_multiple_of(SPINS_MAX) {
        yield_now();
    } else {
        spin_loop();
    }
}

/// Locks a mutex that no thread holds for long. Retries until the mutex is free, without sleeping.
pub fn lock_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut rounds = 0;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => wait_a_little(&mut rounds),
        }
    }
}

/// Announces an access to the `bytes` bytes at address `at` that uses no atomic type. With shuttle,
/// another thread may run before this call returns.
#[inline(always)]
pub fn plain_access(at: *const u8, bytes: usize, is_write: bool) {
    #[cfg(shuttle)]
    watched::access(at.addr(), bytes, is_write);
    #[cfg(not(shuttle))]
    let _ = (at, bytes, is_write);
}

/// A value on its own cache line, so that writes to neighbouring values do not slow it down.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`. Only one thread may add: of two additions at the same time, one would be lost.
    #[inline]
    pub fn add(&self, more: u64) {
        #[cfg(all(plant, not(any(loom, shuttle))))]
        if crate::plant::is(crate::plant::Fault::CounterWrittenPlainly) {
            return crate::plant::write_plainly(&self.0, self.get().wrapping_add(more));
        }
        // Relaxed, paired with the load in `get`: one thread writes the number.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Subtracts `less`. Wraps below 0: only the sum of all columns' counters has a meaning.
    #[inline]
    pub fn sub(&self, less: u64) {
        self.add(less.wrapping_neg());
    }

    /// Sets the number. Only the thread that adds may call this function.
    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed); // as in `add`
    }

    /// Reads the number.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed) // as in `add`
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_one_thread_is_read_by_another_while_it_grows() {
        const CHANGES: usize = 100;
        let (counter, is_over) = (Counter::default(), AtomicBool::new(false));
        let written = std::thread::scope(|scope| {
            // Relaxed in all places, so that the flag does not order the accesses to the counter.
            let writer = scope.spawn(|| {
                let mut written = 0;
                while !is_over.load(Ordering::Relaxed) {
                    counter.add(1);
                    written += 1;
                }
                written
            });
            let (mut seen, mut changes) = (0, 0);
            while changes < CHANGES {
                let now = counter.get();
                assert!(now >= seen, "{now} behind {seen}");
                changes += usize::from(now > seen);
                seen = now;
                yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert_eq!(counter.get(), written);
        counter.sub(written - 7);
        assert_eq!(counter.get(), 7);
        counter.set(5);
        counter.sub(6);
        assert_eq!(counter.get(), u64::MAX, "another thread's counter completes the gauge");
    }
}
