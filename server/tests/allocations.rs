//! Columns do not allocate per request.
//!
//! Where: an in-process server over a counting allocator.
//! Invariant: after a warm-up, requests of every common kind allocate on no thread but the test's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use hypostyle::run::Server;
use inprocess::{Client, answer, connect, datagrams, frame, settings, start};
use testing::allocations::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Messages that are sent before their answers are read.
const BURST: usize = 8;

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
    allocations::leave_this_thread_out();
    let mut settings = settings(2);
    settings.cas = false; // a binary answer shows the unique
    settings.datagrams = datagrams::at("127.0.0.1");
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
    let text_set = set.clone();
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
    let messages = [
        ("get hit\r\n", hit.as_str()),
        ("get hit miss hit\r\n", &many),
        (&text_set, "STORED\r\n"),
        ("mg hit s t\r\n", "HD s500 t-1\r\n"),
    ];
    for (request, reply) in messages {
        messages_do_not_allocate(&server, request.as_bytes(), reply.as_bytes(), 1);
        messages_do_not_allocate(&server, request.as_bytes(), reply.as_bytes(), 3);
    }
    server.stop();
}

/// Sends `request` in so many `parts`, by bursts, as often as it takes to see an allocation.
fn messages_do_not_allocate(server: &Server, request: &[u8], reply: &[u8], parts: usize) {
    let mut client = datagrams::Client::of(server);
    let mut burst = || {
        let ids = [(); BURST].map(|()| {
            client.send_parts(request, request.len().div_ceil(parts), |_| {});
            client.id
        });
        ids.into_iter().for_each(|id| client.expect(id, reply));
    };
    (0..100).for_each(|_| burst());
    let before = allocations::count();
    (0..500).for_each(|_| burst());
    let allocations = allocations::count() - before;
    let shown = request[..request.len().min(40)].escape_ascii();
    assert_eq!(allocations, 0, "{shown} in {parts} datagrams: allocations in 500 bursts");
}

fn does_not_allocate(client: &mut Client, request: &[u8], reply: &[u8]) {
    drive(client, request, reply, 100);
    drive(client, request, reply, 1);
    let before = allocations::count();
    drive(client, request, reply, 1);
    drive(client, request, reply, 32);
    drive(client, request, reply, 100);
    let allocations = allocations::count() - before;
    let shown = request[..request.len().min(40)].escape_ascii();
    assert_eq!(allocations, 0, "{shown}: allocations in {} requests", 3 * REQUESTS);
}
