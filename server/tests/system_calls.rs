//! Counts system calls: a column makes at most one read and one write per turn of a connection or
//! burst of datagrams, and one wait per loop.
//!
//! Where: an in-process server, whose columns count their system calls.
//! Invariant: the server makes no more system calls than the requests need.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use hypostyle::run::Server;
use inprocess::{answer, connect, datagrams, frame, settings, start};
use net::{Calls, Epoll, Inbox, Interest, Outbox, SLOT_BYTES_MAX, Sizes, Timeout};
use protocol::udp::Header;
use testing::PATIENCE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    waits: u64,
    reads: u64,
    writes: u64,
    others: u64,
}

fn counts(server: &Server) -> Counts {
    let mut sum = Counts { waits: 0, reads: 0, writes: 0, others: 0 };
    for calls in server.calls() {
        sum.waits += calls.waits.get();
        sum.reads += calls.reads.get();
        sum.writes += calls.writes.get();
        sum.others += calls.controls.get() + calls.accepts.get();
    }
    sum
}

/// Counts the system calls for `batches` batches of `batch` equal requests.
fn cost(batches: u64, batch: usize, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) -> Counts {
    let mut settings = settings(1);
    settings.cas = false; // A binary answer would contain a CAS unique, which varies.
    settings.columns.requests_per_event = 500;
    let server = start(settings);
    let mut client = connect(&server);
    client.ask("set hit 0 0 5\r\nvalue\r\n", "STORED\r\n");
    let mut client = connect(&server);
    let (requests, replies) = (request.as_ref().repeat(batch), reply.as_ref().repeat(batch));
    client.ask(request, reply);
    let before = counts(&server);
    for _ in 0..batches {
        client.ask(&requests, &replies);
    }
    let after = counts(&server);
    server.stop();
    Counts {
        waits: after.waits - before.waits,
        reads: after.reads - before.reads,
        writes: after.writes - before.writes,
        others: after.others - before.others,
    }
}

/// Each batch must take one read, one write and one wait. A few more waits are allowed for the
/// ticks of the clock and for the store's background work.
fn check(counts: Counts, batches: u64) {
    assert_eq!((counts.reads, counts.writes, counts.others), (batches, batches, 0), "{counts:?}");
    assert!(counts.waits <= batches + batches / 10 + 10, "{counts:?}");
}

#[test]
fn a_get_takes_one_read_and_one_write() {
    let hit = "VALUE hit 0 5\r\nvalue\r\nEND\r\n";
    check(cost(2000, 1, "get hit\r\n", hit), 2000);
    check(cost(2000, 1, "get miss\r\n", "END\r\n"), 2000);
    check(cost(2000, 1, "set hit 0 0 5\r\nvalue\r\n", "STORED\r\n"), 2000);
}

#[test]
fn thirty_two_pipelined_requests_of_any_protocol_take_one_read_and_one_write() {
    let hit = "VALUE hit 0 5\r\nvalue\r\nEND\r\n";
    check(cost(500, 32, "get hit\r\n", hit), 500);
    check(cost(500, 32, "set hit 0 0 5\r\nvalue\r\n", "STORED\r\n"), 500);
    check(cost(500, 32, "mg hit s v\r\n", "VA 5 s5\r\nvalue\r\n"), 500);
    let (get, set, flags) = (0x00, 0x01, [0; 4]);
    check(cost(500, 32, frame(get, b"", "hit", ""), answer(get, &flags, "value")), 500);
    let stored = frame(set, &[0; 8], "hit", "value");
    check(cost(500, 32, stored, answer(set, b"", "")), 500);
}

#[test]
fn a_thousand_gets_in_bursts_of_datagrams_take_at_most_fifty_calls() {
    const BURSTS: u64 = 500;
    let mut settings = settings(1);
    settings.datagrams = datagrams::at("127.0.0.1");
    let server = start(settings);
    connect(&server).ask("set hit 0 0 5\r\nvalue\r\n", "STORED\r\n");
    let client = net::Datagrams::connect(server.datagram_addresses()[0], Sizes::default()).unwrap();
    let (own, mut epoll) = (Calls::default(), Epoll::new(1).unwrap());
    epoll.add(&client, 1, Interest::Read, &own).unwrap();
    let (mut outbox, mut inbox) = (Outbox::new(1, 1, true), Inbox::new(64, SLOT_BYTES_MAX));
    let request = |id: u16| [&Header::request(id, 0).bytes()[..], b"get hit\r\n"].concat();
    let burst: Vec<u8> = (0..64).flat_map(request).collect();
    let before = counts(&server);
    for _ in 0..BURSTS {
        let mut batch = outbox.open();
        assert!(batch.add_several(None, &burst, burst.len() / 64));
        assert_eq!(batch.post(&client, &own).sent, 64);
        let mut answered = 0..64;
        while !answered.is_empty() {
            assert_eq!(epoll.wait(Timeout::Within(PATIENCE), &own).unwrap().count(), 1);
            while client.receive(&mut inbox, &own).datagrams > 0 {
                for datagram in inbox.datagrams() {
                    let (header, reply) = Header::read(datagram.bytes).unwrap();
                    assert_eq!(Some(header.id), answered.next());
                    assert_eq!(reply, b"VALUE hit 0 5\r\nvalue\r\nEND\r\n");
                }
            }
        }
    }
    let after = counts(&server);
    server.stop();
    let (reads, writes) = (after.reads - before.reads, after.writes - before.writes);
    // The server may also close the connection of the setup, which takes one read.
    assert!(reads <= BURSTS + 1 && writes <= BURSTS, "{before:?}, {after:?}");
    let calls = reads + writes + after.waits - before.waits + after.others - before.others;
    assert!(calls * 1000 <= 50 * 64 * BURSTS, "{before:?}, {after:?}");
}

#[test]
fn a_column_with_nothing_to_do_sleeps() {
    let server = start(settings(2));
    let mut client = connect(&server);
    client.ask("version\r\n", "VERSION 1.6.45\r\n");
    // A server that does not sleep would count many waits while another server is used.
    let busy = start(settings(1));
    let mut other = connect(&busy);
    let before = counts(&server);
    for _ in 0..20_000 {
        other.ask("version\r\n", "VERSION 1.6.45\r\n");
    }
    let waits = counts(&server).waits - before.waits;
    assert!(waits < 200, "{waits} waits with nothing to do");
    // Each request takes one read and one write. The statistic includes only complete loops.
    let reported = other.stats("columns")["columns:0:system_calls"].parse().unwrap();
    assert!(
        (2 * 20_000..=busy.calls().map(Calls::sum).sum()).contains(&reported),
        "{reported} system calls"
    );
    busy.stop();
    server.stop();
}
