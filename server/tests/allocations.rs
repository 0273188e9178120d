//! Columns do not allocate per request.
//!
//! Where: an in-process server over a counting allocator.
//! Invariant: after a warm-up, the server's threads allocate nothing for requests of common kinds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::time::Duration;

use columns::settings::Migrate;
use hypostyle::start::settings::{Port, Settings, Xdp};
use inprocess::{Client, answer, connect, datagrams, frame, settings, start};
use protocol::udp::Header;
use testing::allocations::{self, Counting};
use testing::namespace::{Veth, WIRE, pair};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BURST: usize = 8;

/// After this time an unanswered datagram counts as lost and is sent again. A test may send at most
/// `RESENT_MAX` datagrams again.
const RESEND_AFTER: Duration = Duration::from_secs(5);
const RESENT_MAX: usize = 2 * BURST;

const REQUESTS: usize = 10_000;

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
    settings.cas = false; // A binary answer would contain a CAS unique, which varies.
    settings.datagrams = datagrams::at("127.0.0.1");
    // Each incomplete request needs a buffer, which is reused later. Stealing could leave more
    // requests incomplete at once than the warm-up did.
    settings.steal = false;
    // A connection that migrates keeps its buffer, so its old column would allocate a new one.
    settings.columns.migrate = Migrate::Never;
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
        (text_set.as_str(), "STORED\r\n"),
        ("get hit\r\n", &hit),
        ("get hit miss hit\r\n", &many),
        ("mg hit s t\r\n", "HD s500 t-1\r\n"),
    ];
    messages_do_not_allocate(&mut datagrams::Client::of(&server), &mut text, &messages);
    server.stop();
    past_the_kernel_messages_do_not_allocate(&messages);
}

/// This is no `#[test]`, because it would count the allocations of tests that run at the same time.
fn past_the_kernel_messages_do_not_allocate(messages: &[(&str, &str)]) {
    let Some([near, far]) = pair(Veth::default()) else { return };
    let mut settings = Settings { cas: false, xdp: Some(Xdp::of(WIRE)), ..settings(1) };
    settings.datagrams = datagrams::at("0.0.0.0");
    settings.udp_allow = datagrams::everybody();
    // If the system chose the port, it might choose the client's port in the other namespace. The
    // server does not answer a sender whose port is the server's own.
    settings.datagrams[0].port = Port::Number(11211);
    let server = far.on(|| start(settings));
    // Once a second the server checks the interface and allocates, unless the clock is stopped.
    server.shared().columns.plant_clock(1);
    let mut stream = far.on(|| connect(&server));
    let there = (far.v4, server.datagram_addresses()[0].port()).into();
    let mut client = near.on(|| datagrams::Client::at(near.v4.into(), there));
    let before = far.counter("Udp", "InDatagrams");
    messages_do_not_allocate(&mut client, &mut stream, messages);
    assert_eq!(far.counter("Udp", "InDatagrams"), before, "datagrams came by the kernel");
    server.stop();
}

fn messages_do_not_allocate(
    client: &mut datagrams::Client,
    stream: &mut Client,
    messages: &[(&str, &str)],
) {
    client.socket.set_read_timeout(Some(RESEND_AFTER)).unwrap();
    let mut resent = 0;
    for (request, reply) in messages {
        for parts in [1, 3] {
            let mut bursts = |count| {
                for _ in 0..count {
                    burst(client, (request.as_bytes(), parts), reply.as_bytes(), |now| {
                        resent += now;
                        assert!(resent <= RESENT_MAX, "{resent} are lost: {:?}", stream.stats(""));
                    });
                }
            };
            bursts(100);
            let (allocations, first) = allocations::count(|| bursts(500));
            let shown = request[..request.len().min(40)].escape_debug();
            assert_eq!(
                allocations, 0,
                "{shown} in {parts} datagrams: allocations in 500 bursts; the first:\n{first}"
            );
        }
    }
}

/// Sends `request` `BURST` times, each time in `parts` datagrams. Sends unanswered requests again
/// until all are answered. Calls `tell` with the number of requests sent again.
fn burst(
    client: &mut datagrams::Client,
    (request, parts): (&[u8], usize),
    reply: &[u8],
    mut tell: impl FnMut(usize),
) {
    let send = |client: &mut datagrams::Client| {
        client.send_parts(request, request.len().div_ceil(parts), |_| {});
        Some(client.id)
    };
    let (mut unanswered, mut datagram) = ([(); BURST].map(|()| send(client)), [0; 2000]);
    while unanswered.iter().any(Option::is_some) {
        let Ok(bytes) = datagrams::uninterrupted(|| client.socket.recv(&mut datagram)) else {
            tell(unanswered.iter().flatten().count());
            unanswered = unanswered.map(|it| it.and_then(|_| send(client)));
            continue;
        };
        let (header, got) = Header::read(&datagram[..bytes]).unwrap();
        assert!(got == reply, "{}", got.escape_ascii());
        // A late answer may belong to a request that has been answered already.
        if let Some(answered) = unanswered.iter_mut().find(|id| **id == Some(header.id)) {
            *answered = None;
        }
    }
}

fn does_not_allocate(client: &mut Client, request: &[u8], reply: &[u8]) {
    drive(client, request, reply, 100);
    drive(client, request, reply, 1);
    let (allocations, first) = allocations::count(|| {
        drive(client, request, reply, 1);
        drive(client, request, reply, 32);
        drive(client, request, reply, 100);
    });
    let shown = request[..request.len().min(40)].escape_ascii();
    assert_eq!(
        allocations,
        0,
        "{shown}: allocations in {} requests; the first:\n{first}",
        3 * REQUESTS
    );
}
