//! How often the threads of a test allocate.
//!
//! Where: under a test that drives a server or a generator in its own process; the test names
//! `Counting` its global allocator.
//! Invariant: each call of the allocator that gives memory is counted once, but for those of
//! threads that asked to be left out.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, and a count of its calls.
#[derive(Debug)]
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Allocations so far. Exact for a thread that has been joined, or has answered over a socket.
#[must_use]
pub fn count() -> u64 {
    // Relaxed, paired with the addition in `add`: what the test waited for orders the two.
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Allocations of the calling thread do not count from now on.
pub fn leave_this_thread_out() {
    IS_LEFT_OUT.set(true);
}

fn add() {
    // A thread that ends has no such variable any more: what it frees and takes then is its own.
    if !IS_LEFT_OUT.try_with(Cell::get).unwrap_or(true) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed); // as in `count`
    }
}

// SAFETY: every call is passed on to `System` as it is.
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
