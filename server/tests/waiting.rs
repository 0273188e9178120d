//! A request that needs memory waits until memory is free, and all later requests of its connection
//! wait too. The column serves other connections, and later answers the waiting requests in order.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test")]
#![cfg(debug_assertions)]

#[path = "inprocess/mod.rs"]
mod inprocess;

use std::io::ErrorKind;
use std::io::Read;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;

use columns::limits::{DATAGRAM_WAIT_MS_MAX, LOOP_MS_MAX, PARTS_MAX, PARTS_WAIT_MS_MAX};
use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::{Client, connect, datagrams, settings, start};
use protocol::udp::{HEADER_BYTES, Header};
use store::Store;
use testing::{PATIENCE, wait_until};

/// After at most this number of answered SETs, a SET must wait.
const SETS_MAX: u32 = 40_000;
/// A request that still waits after this number of loops waits because memory is short.
const LOOPS: usize = 200;
/// The columns' clocks stand still at this time.
const NOON_MS: u64 = 3_600_000;

/// Starts a server of one column whose store is stalled and frees no memory. The clock is stopped,
/// so that no request is refused for waiting too long.
fn stalled() -> (Server, Arc<Store>) {
    let datagrams = datagrams::at("127.0.0.1");
    let settings = Settings { memory_bytes: 8 << 20, datagrams, ..settings(1) };
    let server = start(settings);
    server.shared().columns.plant_clock(NOON_MS);
    let store = Arc::clone(&server.shared().store);
    store.plant_stall(true);
    (server, store)
}

fn set(key: u32) -> String {
    format!("set fill{key} 0 0 700\r\n{}\r\n", "v".repeat(700))
}

fn is_silent(client: &mut Client) -> bool {
    client.0.set_nonblocking(true).unwrap();
    let peeked = client.0.peek(&mut [0]);
    client.0.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn awaiting_room(server: &Server) -> u64 {
    server.shared().columns.counters[0].awaiting_room.get()
}

/// Sends SETs of new keys until a SET waits, and returns the number of this SET's key.
fn fill(server: &Server, client: &mut Client, other: &mut Client) -> u32 {
    for key in 0..SETS_MAX {
        client.send(set(key));
        wait_until("an answer, or a wait", || !is_silent(client) || awaiting_room(server) > 0);
        // A SET may also wait a few loops for evictions, or for the thread that takes memory ahead
        // of need. The evictions may give more work to this thread.
        let store = &server.shared().store;
        let is_populated = || !store.wants_to_populate() && !store.has_segment_in_hand();
        while is_silent(client) {
            wait_until("memory ahead", is_populated);
            (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
            if is_populated() {
                break;
            }
        }
        if is_silent(client) {
            return key;
        }
        client.expect("STORED\r\n");
    }
    panic!("memory is bounded");
}

#[test]
fn while_one_connections_request_waits_the_others_are_answered_and_it_is_in_its_order() {
    let (server, store) = stalled();
    let (mut waits, mut other) = (connect(&server), connect(&server));
    let key = fill(&server, &mut waits, &mut other);
    // All later requests of the connection wait too, whatever their kind.
    waits.send("mn\r\nget fill0 none\r\nset quiet 0 0 9000 noreply\r\n");
    waits.send("q".repeat(9000));
    waits.send("\r\nmg quiet s\r\ntouch fill1 900\r\nmn\r\n");
    for _ in 0..100 {
        other.ask("mn\r\n", "MN\r\n");
        other.ask("get none\r\n", "END\r\n");
    }
    assert!(is_silent(&mut waits), "no request overtakes the waiting one");
    let before = other.stat("cmd_set");
    assert!(is_silent(&mut waits));
    assert_eq!(other.stat("cmd_set"), before, "a waiting request is not counted");
    store.plant_stall(false);
    waits.expect("STORED\r\nMN\r\n");
    let mut line = waits.line();
    if line.starts_with("VALUE fill0") {
        assert_eq!(waits.line().len(), 700);
        line = waits.line();
    }
    assert_eq!(line, "END");
    waits.expect("HD s9000\r\n");
    let touched = waits.line();
    assert!(["TOUCHED", "NOT_FOUND"].contains(&&*touched), "{touched}");
    waits.expect("MN\r\n");
    other.ask(format!("mg fill{key} s\r\n"), "HD s700\r\n");
    server.stop();
}

#[test]
fn a_large_value_waits_for_its_place_and_binary_and_meta_requests_do_too() {
    let (server, store) = stalled();
    let mut filler = connect(&server);
    let mut clients: Vec<Client> = (0..4).map(|_| connect(&server)).collect();
    let mut other = connect(&server);
    // All bytes of the value except one arrive before memory is short.
    let value = "l".repeat(300_000);
    clients[0].send(format!("set large 0 0 {}\r\n{}", value.len(), &value[1..]));
    let there = fill(&server, &mut filler, &mut other) - 1;
    clients[0].send(&value[..1]);
    clients[0].send("\r\nmn\r\n");
    clients[1].send(format!("ms meta 9000 q\r\n{}\r\nmn\r\n", "m".repeat(9000)));
    clients[2].send(inprocess::frame(0x11, &[0; 8], "setq", &"b".repeat(9000)));
    clients[2].send(inprocess::frame(0x0a, &[], "", ""));
    clients[3].send(format!("append fill{there} 0 0 9000\r\n{}\r\nmn\r\n", "a".repeat(9000)));
    wait_until("five waiting requests", || awaiting_room(&server) == 5);
    for _ in 0..100 {
        other.ask("mn\r\n", "MN\r\n");
    }
    for (at, client) in clients.iter_mut().enumerate() {
        assert!(is_silent(client), "client {at} waits");
    }
    store.plant_stall(false);
    clients[0].expect("STORED\r\nMN\r\n");
    clients[1].expect("MN\r\n");
    clients[2].expect(inprocess::answer(0x0a, &[], ""));
    let appended = clients[3].line();
    assert!(["STORED", "NOT_STORED"].contains(&&*appended), "{appended}");
    clients[3].expect("MN\r\n");
    other.ask("mg large s\r\n", "HD s300000\r\n");
    other.ask("mg meta s\r\n", "HD s9000\r\n");
    other.ask("mg setq s\r\n", "HD s9000\r\n");
    server.stop();
}

/// A request is refused after waiting for two seconds in which its column ran. The next request
/// then waits for two seconds too, during which its key keeps the old value.
#[test]
fn what_has_waited_for_too_long_is_refused_and_a_refused_set_leaves_no_old_value() {
    let (server, _store) = stalled();
    let (mut filler, mut waits, mut looks) = (connect(&server), connect(&server), connect(&server));
    let old = format!("fill{}", fill(&server, &mut filler, &mut looks) - 1);
    let value = "o".repeat(9000);
    waits.send(format!("set new 0 0 9000\r\n{value}\r\nset {old} 0 0 9000\r\n{value}\r\n"));
    wait_until("two waiting requests", || awaiting_room(&server) == 2);
    let mut now_ms = NOON_MS + 600_000;
    let clock = &server.shared().columns;
    clock.plant_clock(now_ms);
    for _ in 0..20 {
        looks.ask(format!("mg {old} s\r\n"), "HD s700\r\n");
    }
    assert!(is_silent(&mut waits), "time without a loop does not count");
    let mut pass = |client: &mut Client, held: &str| {
        let mut looked = 0;
        loop {
            // Between two replies the column runs a whole loop at the planted time.
            (0..2).for_each(|_| looks.ask("mn\r\n", "MN\r\n"));
            if !is_silent(client) {
                break;
            }
            looks.ask(format!("mg {old} s\r\n"), held);
            now_ms += 40;
            clock.plant_clock(now_ms);
            looked += 1;
        }
        client.expect("SERVER_ERROR out of memory storing object\r\n");
        looked
    };
    let first = pass(&mut waits, "HD s700\r\n");
    let second = pass(&mut waits, "HD s700\r\n");
    assert!(first > 40 && second > 40, "refused after {first} and {second} steps of 40 ms");
    looks.ask(format!("mg {old} s\r\n"), "EN\r\n");
    server.stop();
}

/// The busy clients' requests exceed half of the bytes that connections may hold. No client counts
/// as stalled for the time in which the column did not run.
#[test]
fn a_column_that_had_no_processor_closes_nobody() {
    const CLIENTS: usize = 400;
    let settings = Settings { memory_bytes: 64 << 20, ..settings(1) };
    let server = start(settings);
    server.shared().columns.plant_clock(NOON_MS);
    let requests = b"get absent\r\n".repeat(5000);
    let mut busy: Vec<Client> = (0..CLIENTS).map(|_| connect(&server)).collect();
    busy.iter_mut().for_each(|client| client.send(&requests));
    let replies = "END\r\n".repeat(50);
    for away in 1..=100 {
        server.shared().columns.plant_clock(NOON_MS + away * 2_500);
        for client in &mut busy {
            client.expect(&replies);
        }
    }
    server.stop();
}

#[test]
fn a_connection_that_waits_and_goes_away_holds_nobody_up() {
    let (server, store) = stalled();
    let (mut waits, mut other) = (connect(&server), connect(&server));
    let key = fill(&server, &mut waits, &mut other);
    drop(waits);
    other.ask("mn\r\n", "MN\r\n");
    store.plant_stall(false);
    other.ask(set(key + 1), "STORED\r\n");
    server.stop();
    let _ = other.0.read(&mut [0]);
}

#[test]
fn a_datagram_waits_with_those_behind_it() {
    let (server, store) = stalled();
    let (mut waits, mut other) = (connect(&server), connect(&server));
    fill(&server, &mut waits, &mut other);
    let mut client = datagrams::Client::of(&server);
    client.ask("get none\r\n", "END\r\n");
    let first = client.send(set(1_000_000));
    let second = client.send("get none\r\nmn\r\n");
    // A request cannot wait if earlier requests of its message have been executed.
    client.send(format!("mn\r\n{}mn\r\n", set(1_000_001)));
    (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
    assert!(client.is_silent());
    let received = other.stat("udp_received");
    assert!((2..=4).contains(&received), "{received} datagrams received while the first waits");
    store.plant_stall(false);
    client.expect(first, "STORED\r\n");
    client.expect(second, "END\r\nMN\r\n");
    let (third, _) = client.receive();
    assert!(third.starts_with(b"MN\r\n") && third.ends_with(b"MN\r\n"));
    server.stop();
}

/// The server receives later datagrams together with the waiting datagram, and joins their parts.
#[test]
fn parts_behind_a_datagram_that_waits_are_not_executed_before_it_and_not_lost() {
    let (server, store) = stalled();
    let (mut waits, mut other) = (connect(&server), connect(&server));
    fill(&server, &mut waits, &mut other);
    let mut client = datagrams::Client::of(&server);
    // One read receives several datagrams if all but the last have the same length.
    let first = set(1_000_000);
    let first = [&Header::request(1, 0).bytes()[..], first.as_bytes()].concat();
    let payload_bytes = first.len() - HEADER_BYTES;
    let asks = format!("{}mg fill1000000 s\r\n", "mn\r\n".repeat(payload_bytes / 4 - 2));
    let (head, tail) = asks.as_bytes().split_at(payload_bytes);
    let part = |id, number, total, bytes: &[u8]| {
        [&Header { id, number, total, flow: 0 }.bytes()[..], bytes].concat()
    };
    let many = u16::try_from(PARTS_MAX).unwrap() + 1;
    let too_long = part(3, 0, many, head);
    let burst = [part(2, 0, 2, head), first, too_long, part(2, 1, 2, tail)];
    let socket = net::Datagrams::connect(client.server, net::Sizes::default()).unwrap();
    let (calls, mut outbox) = (net::Calls::default(), net::Outbox::new(8, 8, true));
    let mut batch = outbox.open();
    burst.iter().for_each(|datagram| assert!(batch.add(None, b"", [&datagram[..]])));
    assert_eq!(batch.post(&socket, &calls).sent, burst.len());
    assert_eq!(calls.writes.get(), 1, "one call sends the burst");
    client.socket = UdpSocket::from(socket.as_fd().try_clone_to_owned().unwrap());
    client.socket.set_nonblocking(false).unwrap();
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
    assert!(client.is_silent());
    store.plant_stall(false);
    client.expect(1, "STORED\r\n");
    client.expect(3, "SERVER_ERROR request is longer than 65536 bytes or 128 datagrams\r\n");
    let replies = asks.replace("mn", "MN").replace("mg fill1000000 s", "HD s700");
    client.expect(2, replies);
    for step in 0..=PARTS_WAIT_MS_MAX / LOOP_MS_MAX {
        server.shared().columns.plant_clock(NOON_MS + step * LOOP_MS_MAX);
        (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
    }
    assert_eq!(other.stat("udp_dropped_incomplete"), 0);
    server.stop();
}

#[test]
fn a_datagram_that_has_waited_too_long_is_refused_and_the_next_one_waits_anew() {
    let (server, store) = stalled();
    let (mut waits, mut other) = (connect(&server), connect(&server));
    fill(&server, &mut waits, &mut other);
    let mut client = datagrams::Client::of(&server);
    let ids = [client.send(set(1_000_000)), client.send(set(1_000_001))];
    (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
    let refused = "SERVER_ERROR out of memory storing object\r\n";
    for (step, id) in (1..).zip(ids) {
        // Each step is `DATAGRAM_WAIT_MS_MAX`, the longest wait of a datagram, or `LOOP_MS_MAX`,
        // the most time that a column counts for one loop, whichever is larger.
        server.shared().columns.plant_clock(NOON_MS + step * LOOP_MS_MAX.max(DATAGRAM_WAIT_MS_MAX));
        (0..LOOPS).for_each(|_| other.ask("mn\r\n", "MN\r\n"));
        client.expect(id, refused);
        assert!(client.is_silent());
    }
    store.plant_stall(false);
    client.ask("get none\r\n", "END\r\n");
    server.stop();
}
