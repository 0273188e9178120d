//! Columns do not allocate per request.
//!
//! Where: a counting allocator under an in-process server.
//! Invariant: after a warm-up, requests of every hot kind leave the count of all threads but the
//! test's own where it was.
#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use inprocess::{Client, answer, connect, frame, settings, start};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// True on the test's threads, whose allocations do not count.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !OURS.try_with(Cell::get).unwrap_or(true) {
        // Relaxed: read only after the answers that came later were received over a socket.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to `System` as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(memory, layout, bytes) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many requests of each kind are sent.
const REQUESTS: usize = 10_000;

/// Sends `request` `REQUESTS` times, `batch` at a time, and checks that each is answered `reply`.
fn drive(client: &mut Client, request: &[u8], reply: &[u8], batch: usize) {
    let (requests, replies) = (request.repeat(batch), reply.repeat(batch));
    for _ in 0..REQUESTS / batch {
        client.ask(&requests, &replies);
    }
}

#[test]
fn a_column_does_not_allocate_per_request() {
    OURS.set(true);
    let mut settings = settings(2);
    settings.cas = false; // a binary answer shows the unique
    let server = start(settings);
    let (mut text, mut binary) = (connect(&server), connect(&server));
    let value = "v".repeat(500);
    let set = format!("set hit 5 0 500\r\n{value}\r\n");
    let hit = format!("VALUE hit 5 500\r\n{value}\r\nEND\r\n");
    let many_hits = format!("get hit miss hit\r\n{}", "");
    let many = format!("VALUE hit 5 500\r\n{value}\r\nVALUE hit 5 500\r\n{value}\r\nEND\r\n");
    let lines: [(&str, &str); 10] = [
        (&set, "STORED\r\n"),
        ("get hit\r\n", &hit),
        ("get miss\r\n", "END\r\n"),
        (&many_hits, &many),
        ("touch hit 0\r\n", "TOUCHED\r\n"),
        ("delete miss\r\n", "NOT_FOUND\r\n"),
        ("mg hit s t\r\n", "HD s500 t-1\r\n"),
        ("ms meta 2 F5\r\nhi\r\n", "HD\r\n"),
        ("ma meta\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("verbosity 0 noreply\r\nversion\r\n", "VERSION 1.6.45\r\n"),
    ];
    for (request, reply) in lines {
        does_not_allocate(&mut text, request.as_bytes(), reply.as_bytes());
    }
    let (get, getq, set, noop, delta) = (0x00, 0x09, 0x01, 0x0a, 0x05);
    let quiet_miss = [frame(getq, b"", "miss", ""), frame(noop, b"", "", "")].concat();
    let frames = [
        (frame(set, &[0, 0, 0, 5, 0, 0, 0, 0], "hit", &value), answer(set, b"", "")),
        (frame(get, b"", "hit", ""), answer(get, &[0, 0, 0, 5], &value)),
        (frame(delta, &[0; 20], "number", ""), answer(delta, b"", "\0\0\0\0\0\0\0\0")),
        (quiet_miss, answer(noop, b"", "")),
    ];
    for (request, reply) in &frames {
        does_not_allocate(&mut binary, request, reply);
    }
    server.stop();
}

fn does_not_allocate(client: &mut Client, request: &[u8], reply: &[u8]) {
    drive(client, request, reply, 100);
    drive(client, request, reply, 1);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    drive(client, request, reply, 1);
    drive(client, request, reply, 32);
    drive(client, request, reply, 100);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let shown = request[..request.len().min(40)].escape_ascii();
    assert_eq!(allocations, 0, "{shown}: allocations in {} requests", 3 * REQUESTS);
}
