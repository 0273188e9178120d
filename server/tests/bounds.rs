//! Bounds on the cost of a datagram: its requests, its answer, and the memory that it takes.
//!
//! Where: an in-process server, and datagrams on loopback, where a sender could forge its address.
//! Invariant: a datagram gets one turn and an answer of bounded length. A command that is not
//! allowed over UDP is refused and counted.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use columns::limits::{AMPLIFIED_BYTES_SECOND_MAX, KEYS_TURN_MAX, MESSAGE_REQUESTS_MAX};
use hypostyle::limits::{DETAIL_VALUE_BYTES_MAX, UDP_REPLY_OPEN_BYTES_MAX};
use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::datagrams::{self, Client};
use inprocess::{answer, connect, frame, start};
use protocol::binary::HEADER_BYTES;
use testing::wait_until;

fn settings(columns: usize, host: &str) -> Settings {
    Settings { datagrams: datagrams::at(host), ..inprocess::settings(columns) }
}

const STAT: u8 = 0x10;

fn store(server: &Server, lengths: &[usize]) {
    let mut stream = connect(server);
    for (number, bytes) in lengths.iter().enumerate() {
        let value = "v".repeat(*bytes);
        stream.ask(format!("set k{number} 0 0 {bytes}\r\n{value}\r\n"), "STORED\r\n");
    }
}

#[test]
fn operators_are_obeyed_over_udp_only_where_they_are_to_be() {
    let words = [
        "flush_all",
        "verbosity 0",
        "cache_memlimit 64",
        "lru tune 10 25 0.1 2.0",
        "lru_crawler disable",
        "slabs automove 1",
        "extstore max_sleep 1",
        "stats detail on",
        "stats reset",
    ];
    let server = start(settings(1, "127.0.0.1"));
    let (mut stream, mut client) = (connect(&server), Client::of(&server));
    stream.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    for word in words {
        let refused = "SERVER_ERROR obeyed over UDP only with -o udp_admin\r\n";
        client.ask(format!("{word}\r\n"), refused);
    }
    client.ask("shutdown\r\n", "SERVER_ERROR obeyed over UDP only with -o udp_admin\r\n");
    client.send(frame(0x08, b"", "", ""));
    assert!(client.receive().0.ends_with(b"Obeyed over UDP only with -o udp_admin"));
    client.ask("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(stream.stat("udp_refused"), words.len() as u64 + 2);
    assert_eq!(stream.stats("settings")["detail_enabled"], "no");
    server.stop();

    let server = start(Settings { udp_admin: true, ..settings(1, "127.0.0.1") });
    let mut client = Client::of(&server);
    for word in words {
        client.send(format!("{word}\r\n"));
        let (reply, _) = client.receive();
        let reply = String::from_utf8_lossy(&reply).into_owned();
        assert!(["OK\r\n", "RESET\r\n"].contains(&&*reply), "{word}: {reply}");
    }
    server.stop();
}

#[test]
fn what_takes_several_turns_is_refused_by_its_name() {
    let server = start(Settings { udp_admin: true, sizes: true, ..settings(1, "127.0.0.1") });
    let (mut stream, mut client) = (connect(&server), Client::of(&server));
    let words = [
        "watch fetchers",
        "lru_crawler metadump all",
        "lru_crawler mgdump all",
        "stats conns",
        "stats cachedump 1 0",
        "stats sizes",
        "stats prefixes",
        "stats detail dump",
    ];
    for word in words {
        client.ask(format!("{word}\r\n"), "SERVER_ERROR answered over connections only\r\n");
    }
    client.send(frame(STAT, b"", "detail dump", ""));
    assert!(client.receive().0.ends_with(b"Answered over connections only"));
    assert_eq!(stream.stat("udp_refused"), words.len() as u64 + 1);
    assert_eq!(stream.stat("udp_replies_too_long"), 0);
    // The refused requests have started no dump; otherwise a new dump would be answered with BUSY.
    for _ in 0..8 {
        stream.ask("lru_crawler metadump 2\r\n", "OK\r\nEND\r\n");
    }
    server.stop();
}

#[test]
fn who_asks_of_sockets_and_goes_leaves_nothing_behind() {
    let server = start(settings(2, "127.0.0.1"));
    // More clients request a list of sockets than the server serves at a time, and disconnect.
    for _ in 0..40 {
        let gone: Vec<_> = (0..16).map(|_| connect(&server)).collect();
        for mut client in gone {
            client.send("stats conns\r\n");
        }
    }
    let mut stream = connect(&server);
    for _ in 0..20 {
        assert!(stream.stats("conns").len() > 4, "a client that stays gets its answer");
    }
    wait_until("the end of the closed connections", || stream.stat("curr_connections") <= 3);
    server.stop();
}

#[test]
fn more_may_ask_of_sockets_than_are_answered_at_a_time() {
    let server = start(settings(2, "127.0.0.1"));
    let mut clients: Vec<_> = (0..200).map(|_| connect(&server)).collect();
    clients.iter_mut().for_each(|client| client.send("stats conns\r\nmn\r\n"));
    for client in &mut clients {
        while client.line() != "MN" {}
    }
    server.stop();
}

#[test]
fn a_message_asks_for_no_more_than_a_turn_does() {
    let server = start(settings(1, "127.0.0.1"));
    let (mut stream, mut client) = (connect(&server), Client::of(&server));
    stream.ask("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let most = usize::try_from(MESSAGE_REQUESTS_MAX).unwrap();
    let spent = "SERVER_ERROR message asks for more than 1024 requests or 2048 keys\r\n";
    client.ask("get none\r\n".repeat(most), "END\r\n".repeat(most));
    client.ask("get none\r\n".repeat(most + 1), "END\r\n".repeat(most) + spent);
    client.ask(
        "incr k 1\r\n".repeat(6000),
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".repeat(most) + spent,
    );
    client.ask("mg none\r\n".repeat(3000), "EN\r\n".repeat(most) + spent);
    // One `stats` counts as several requests.
    client.send("stats slabs\r\n".repeat(1000));
    let (reply, _) = client.receive();
    let ends = reply.windows(5).filter(|bytes| bytes == b"END\r\n").count();
    assert!(ends == 21 && reply.ends_with(spent.as_bytes()), "{ends}");
    let keys = usize::try_from(KEYS_TURN_MAX).unwrap();
    client.ask(format!("get{}\r\n", " x".repeat(keys)), "END\r\n");
    client.ask(format!("get{}\r\n", " x".repeat(keys + 2)), spent);
    let hits = "VALUE k 0 1\r\nv\r\n".repeat(keys);
    client.ask(format!("get{}\r\n", " k".repeat(20_000)), hits + spent);
    client.send(frame(0, b"", "none", "").repeat(most + 1));
    let (reply, _) = client.receive();
    assert!(reply.ends_with(b"Message asks for more than 1024 requests"), "{}", reply.len());
    client.send_parts("get none\r\n".repeat(6000).as_bytes(), 1000, |_| {});
    assert_eq!(client.receive().0, ("END\r\n".repeat(most) + spent).as_bytes());
    assert_eq!(stream.stat("udp_dropped_work"), 8);
    client.ask("get none\r\n", "END\r\n");
    server.stop();
}

fn count_prefixes(server: &Server, prefixes: usize, bytes: usize) {
    let mut stream = connect(server);
    stream.ask("stats detail on\r\n", "OK\r\n");
    for first in (0..prefixes).step_by(50) {
        let keys = (first..(first + 50).min(prefixes)).map(|at| format!(" {at:0>bytes$}:k"));
        stream.ask(format!("get{}\r\n", keys.collect::<String>()), "END\r\n");
    }
}

/// Requests statistics by a binary STAT. Returns the status and the body of the first reply.
fn binary_stat(stream: &mut inprocess::Client, key: &str) -> (u16, Vec<u8>) {
    use std::io::Read;
    stream.send(frame(STAT, b"", key, ""));
    let mut header = [0; HEADER_BYTES];
    stream.0.read_exact(&mut header).unwrap();
    let bytes = u32::from_be_bytes(header[8..12].try_into().unwrap());
    let mut body = vec![0; usize::try_from(bytes).unwrap()];
    stream.0.read_exact(&mut body).unwrap();
    let status = u16::from_be_bytes([header[6], header[7]]);
    if status == 0 {
        // An empty reply ends the statistics.
        stream.expect(answer(STAT, b"", ""));
    }
    (status, body)
}

#[test]
fn prefixes_in_binary_come_in_many_turns_and_in_bounded_memory() {
    let server = start(settings(1, "127.0.0.1"));
    let held = |stream: &mut inprocess::Client| -> u64 {
        stream.stats("memory")["response_obj_bytes"].parse().unwrap()
    };
    let mut stream = connect(&server);
    let before = held(&mut stream);
    count_prefixes(&server, 5000, 60);
    let (status, body) = binary_stat(&mut connect(&server), "detail dump");
    let lines = String::from_utf8(body).unwrap();
    assert_eq!(status, 0);
    assert_eq!(lines.matches("PREFIX 0").count(), 5000, "{}", lines.len());
    assert!(lines.len() > 400_000 && lines.ends_with("END\r\n"));
    // One binary answer cannot hold the prefixes that the server now counts.
    count_prefixes(&server, 30_000, 240);
    let (status, body) = binary_stat(&mut connect(&server), "detail dump");
    assert_eq!((status, &body[..]), (3, &b"Prefixes take more than 1048576 bytes"[..]));
    let dumped = stream.stats("memory");
    let prefix_bytes: usize = dumped["prefix_bytes"].parse().unwrap();
    assert!(prefix_bytes > DETAIL_VALUE_BYTES_MAX && prefix_bytes <= 8 << 20, "{prefix_bytes}");
    assert!(stream.stats("store")["prefixes_left_out"].parse::<u64>().unwrap() > 0);
    stream.send("stats detail dump\r\n");
    let mut lines = 0;
    while stream.line() != "END" {
        lines += 1;
    }
    assert!(lines > 10_000, "{lines} lines");
    let after = held(&mut stream);
    assert!(after <= before + (64 << 10), "{before} bytes of replies became {after}");
    server.stop();
}

#[test]
fn a_column_gives_back_what_a_long_answer_has_taken() {
    let server = start(Settings { udp_reply_max: Some(8 << 20), ..settings(1, "127.0.0.1") });
    store(&server, &[1000]);
    let mut stream = connect(&server);
    let held = |stream: &mut inprocess::Client| {
        stream.stats("memory")["response_obj_bytes"].parse::<u64>().unwrap()
    };
    let before = held(&mut stream);
    let mut client = Client::of(&server);
    client.send(format!("get{}\r\n", " k0".repeat(2000)));
    wait_until("an answer of two megabytes", || stream.stat("udp_sent") > 1000);
    wait_until("the release of its memory", || held(&mut stream) <= before + 4096);
    server.stop();
}

#[test]
fn where_anybody_may_ask_long_answers_are_few() {
    let open = start(settings(1, "0.0.0.0"));
    let address = ([127, 0, 0, 1], open.datagram_addresses()[0].port()).into();
    // The clock stands still, so that all requests fall within one second.
    open.shared().columns.plant_clock(5000);
    store(&open, &[30_000, 70_000, 20]);
    let (mut stream, mut client) = (connect(&open), Client::to(address));
    assert_eq!(stream.stats("settings")["udp_reply_max"], UDP_REPLY_OPEN_BYTES_MAX.to_string());
    client.ask("get k1\r\n", "SERVER_ERROR reply is longer than udp_reply_max\r\n");
    let share = usize::try_from(AMPLIFIED_BYTES_SECOND_MAX).unwrap();
    let mut answers = 0;
    while stream.stat("udp_dropped_amplified") == 0 {
        let id = client.send("get k0\r\n");
        // Datagrams are answered in order, so the answer to `mn` follows the whole answer to `id`.
        client.send("mn\r\n");
        let mut buffer = [0; 2000];
        loop {
            let bytes = client.socket.recv(&mut buffer).unwrap();
            match u16::from_be_bytes([buffer[0], buffer[1]]) {
                received if received == id => answers += usize::from(buffer[3] == 0 && bytes > 0),
                _ => break,
            }
        }
    }
    assert_eq!(answers, share.div_ceil(30_000 + 28 - 3 * 8));
    // Short answers are not limited, and another network has a share of its own.
    for _ in 0..100 {
        client.ask("get k2 none none none\r\n", "VALUE k2 0 20\r\nvvvvvvvvvvvvvvvvvvvv\r\nEND\r\n");
    }
    let mut other = Client::at("127.1.2.3".parse().unwrap(), address);
    other.send("get k0\r\n");
    assert!(other.receive().1 > 20);
    open.shared().columns.plant_clock(6000);
    stream.ask("mn\r\n", "MN\r\n");
    client.send("get k0\r\n");
    assert!(client.receive().1 > 20, "the next second has its own share");
    open.stop();
}

#[test]
fn where_networks_are_named_answers_are_as_long_as_before() {
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    let server = start(Settings { udp_allow: allow, ..settings(1, "0.0.0.0") });
    let address = ([127, 0, 0, 1], server.datagram_addresses()[0].port()).into();
    store(&server, &[30_000]);
    let (mut stream, mut client) = (connect(&server), Client::to(address));
    assert_eq!(stream.stats("settings")["udp_reply_max"], (1 << 20).to_string());
    for _ in 0..60 {
        client.send("get k0\r\n");
        assert!(client.receive().1 > 20);
    }
    assert_eq!(stream.stat("udp_dropped_amplified"), 0);
    server.stop();
}

#[test]
fn parts_wait_no_longer_where_nothing_more_comes() {
    let server = start(Settings { steal: false, ..settings(3, "127.0.0.1") });
    let mut client = Client::of(&server);
    for flow in 1..=3 {
        // Each column receives the first part of a message of two parts, and no other datagram.
        let header = protocol::udp::Header { id: 7, number: 0, total: 2, flow };
        let datagram = [&header.bytes()[..], &[b'x'; 900]].concat();
        client.socket.send_to(&datagram, client.server).unwrap();
    }
    let counted = |name: fn(&columns::counters::Counters) -> u64| -> u64 {
        server.shared().columns.counters.iter().map(|column| name(column)).sum()
    };
    wait_until("receipt of the parts", || counted(|column| column.udp_received.get()) == 3);
    let is_dropped = || counted(|column| column.udp_dropped_incomplete.get()) == 3;
    wait_until("the drop of the parts", is_dropped);
    client.expect_silence();
    server.stop();
}
