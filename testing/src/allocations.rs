//! Counts the allocations of a test's threads.
//!
//! Where: under a test that drives a server or a generator in its own process, with `Counting` as
//! its global allocator.
//! Invariant: each call that allocates or reallocates is counted once, except those of threads that
//! called `leave_this_thread_out`.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The system's allocator, and a count of its calls.
#[derive(Debug)]
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The origin of the first allocation since the last call of `count` began.
static FIRST: Mutex<Option<Backtrace>> = Mutex::new(None);

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Returns the number of allocations during `work`, and the origin of the first one. The number is
/// exact for a thread that `work` joined, or whose answer it received over a socket.
pub fn count(work: impl FnOnce()) -> (u64, String) {
    // Relaxed, paired with `add`; the joins and answers that the test awaits order the accesses.
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    IS_WATCHED.store(true, Ordering::Relaxed);
    work();
    IS_WATCHED.store(false, Ordering::Relaxed);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let first = FIRST.lock().ok().and_then(|mut first| first.take());
    (allocations, first.map(|it| it.to_string()).unwrap_or_default())
}

/// Leaves the calling thread's allocations out of the count from now on.
pub fn leave_this_thread_out() {
    IS_LEFT_OUT.set(true);
}

fn add() {
    // A thread that ends has destroyed this variable; its allocations are no longer counted.
    if IS_LEFT_OUT.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed); // as in `count`
    if IS_WATCHED.swap(false, Ordering::Relaxed) {
        // The capture allocates too, and must not be counted.
        IS_LEFT_OUT.set(true);
        if let Ok(mut first) = FIRST.lock() {
            *first = Some(Backtrace::force_capture());
        }
        IS_LEFT_OUT.set(false);
    }
}

// SAFETY: every call is passed unchanged to `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}
