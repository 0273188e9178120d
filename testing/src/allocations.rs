//! Counts the allocations of a test's threads.
//!
//! Where: in tests that run a server or a load generator in their own process. `Counting` is the
//! global allocator of such a test program.
//! Invariant: each call that allocates or reallocates is counted once. Calls by a thread that has
//! called `leave_this_thread_out` are not counted.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An allocator that counts its calls and passes each call to the system's allocator.
#[derive(Debug)]
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The backtrace of the first allocation during the last call of `count`.
static FIRST: Mutex<Option<Backtrace>> = Mutex::new(None);

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. Returns the number of allocations meanwhile, and the backtrace of the first
/// allocation. The allocations of another thread are counted exactly if `work` joins that thread,
/// or receives an answer that the thread sent over a socket.
pub fn count(work: impl FnOnce()) -> (u64, String) {
    // Relaxed, paired with `add`. If `work` joins a thread or waits for the thread's answer, the
    // second load sees the thread's increments.
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
    // If an ending thread has already destroyed `IS_LEFT_OUT`, its allocations are not counted.
    if IS_LEFT_OUT.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed); // paired with the loads in `count`
    if IS_WATCHED.swap(false, Ordering::Relaxed) {
        // The allocations that `force_capture` makes must not be counted.
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
        // SAFETY: `System` requires only what this function requires of its caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add();
        // SAFETY: `System` requires only what this function requires of its caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add();
        // SAFETY: `System` requires only what this function requires of its caller.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `System` requires only what this function requires of its caller.
        unsafe { System.dealloc(memory, layout) }
    }
}
