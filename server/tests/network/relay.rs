//! Datagrams that a network loses, duplicates and reorders.
//!
//! ```text
//! requests -> parts -> relay: lost, doubled, late -> server -> answers, part by part as they left
//!                       |-> model: what arrives, put together and executed -> answers expected
//! ```
//!
//! Where: between a few clients on one machine and a server of one column, which executes in order.
//! Invariant: each datagram of an answer equals, byte for byte, the next datagram that its client
//! expects. The server counts exactly the datagrams that the relay passed on.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::senders::sent_and_received;
use super::{Network, Veth, WAYS, Way, datagrams, everywhere, hit};
use crate::model::{Model, Outcome};
use columns::limits::{LOOP_MS_MAX, PARTS_WAIT_MS_MAX};
use hypostyle::start::settings::{Port, Settings, ZeroCopy};
use protocol::udp::{ANSWER_BYTES_MAX, HEADER_BYTES, Header};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use testing::{PATIENCE, Random};

const CLIENTS: usize = 3;
const REQUESTS: u16 = 3000;
/// Number of a client's consecutive requests whose datagrams the relay reorders together.
const TOGETHER: u16 = 12;
/// The environment variable that sets the duration of the test over AF_XDP, in minutes.
const MINUTES: &str = "HYPOSTYLE_LOSS_MINUTES";
const NOON_MS: u64 = 3_600_000;

struct Relay {
    random: Random,
    lost: u64,
    doubled: u64,
    late: u64,
}

impl Relay {
    /// Returns the datagrams that pass the relay, in order of arrival.
    fn pass<T: Clone>(&mut self, sent: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut arrives = Vec::new();
        for (at, datagram) in (0..).zip(sent) {
            let copies = match self.random.below(100) {
                0..4 => 0,
                4..8 => 2,
                _ => 1,
            };
            self.lost += u64::from(copies == 0);
            self.doubled += u64::from(copies == 2);
            for _ in 0..copies {
                let late = if self.random.one_in(5) { self.random.below(20) } else { 0 };
                self.late += u64::from(late > 0);
                arrives.push((at + late, datagram.clone()));
            }
        }
        arrives.sort_by_key(|(when, _)| *when);
        arrives.into_iter().map(|(_, datagram)| datagram).collect()
    }
}

/// Makes a random request. The value of a `set` repeats `number`.
fn request(random: &mut Random, number: u16) -> String {
    let key = random.below(8);
    let bytes = random.pick(&[0, 1, 30, 700, 1380, 1400, 5000, 20_000]);
    let value: String = format!("{number},").chars().cycle().take(bytes).collect();
    match random.below(10) {
        0..4 => format!("set k{key} 0 0 {bytes}\r\n{value}\r\n"),
        4..8 => format!("get k{key}\r\n"),
        8 => "incr n 1\r\n".to_owned(),
        _ => format!("get k{key}\r\nmn\r\nappend k{key} 0 0 1\r\n+\r\n"),
    }
}

#[derive(Default)]
struct Store {
    values: BTreeMap<String, String>,
    number: u64,
}

impl Store {
    fn execute(&mut self, mut message: &str) -> String {
        let mut replies = String::new();
        while let Some((line, rest)) = message.split_once("\r\n") {
            let words: Vec<&str> = line.split(' ').collect();
            message = rest;
            let mut value = "";
            if let ["set" | "append", .., bytes] = words[..] {
                let bytes: usize = bytes.parse().unwrap();
                value = &message[..bytes];
                message = &message[bytes + 2..];
            }
            replies += &match words[..] {
                ["get", key] => self.values.get(key).map_or("END\r\n".into(), |it| hit(key, it)),
                ["mn"] => "MN\r\n".to_owned(),
                ["incr", ..] => {
                    self.number += 1;
                    format!("{}\r\n", self.number)
                }
                ["set", key, ..] => {
                    self.values.insert(key.to_owned(), value.to_owned());
                    "STORED\r\n".to_owned()
                }
                ["append", key, ..] => match self.values.get_mut(key) {
                    Some(had) => {
                        *had += value;
                        "STORED\r\n".to_owned()
                    }
                    None => "NOT_STORED\r\n".to_owned(),
                },
                _ => panic!("{line}"),
            };
        }
        replies
    }
}

#[derive(Default)]
struct Expected {
    parts: Model,
    store: Store,
    answers: [VecDeque<Vec<u8>>; CLIENTS],
    ignored: u64,
    evicted: u64,
}

impl Expected {
    fn arrive(&mut self, client: usize, from: SocketAddr, datagram: &[u8]) {
        let (header, bytes) = Header::read(datagram).unwrap();
        let mut whole = bytes.to_vec();
        if header.total > 1 {
            let (outcome, evicted) = self.parts.add(from, header, bytes, NOON_MS);
            self.evicted += evicted;
            match outcome {
                Outcome::Waits => return,
                Outcome::Ignored => {
                    self.ignored += 1;
                    return;
                }
                Outcome::TooLong => panic!("no request is too long"),
                Outcome::Whole(bytes) => whole = bytes,
            }
            self.parts.finish(from, header.id);
        }
        let reply = self.store.execute(std::str::from_utf8(&whole).unwrap());
        let parts: Vec<&[u8]> = reply.as_bytes().chunks(ANSWER_BYTES_MAX - HEADER_BYTES).collect();
        let total = u16::try_from(parts.len()).unwrap();
        for (number, part) in (0..).zip(parts) {
            let head = Header { number, total, flow: 0, ..header }.bytes();
            self.answers[client].push_back([&head[..], part].concat());
        }
    }
}

/// Receives all expected answers, and returns the number of their datagrams.
fn receive(sockets: &[UdpSocket], expected: &mut Expected) -> u64 {
    let (mut buffer, mut count) = ([0; 65_536], 0);
    for (socket, answers) in sockets.iter().zip(&mut expected.answers) {
        for answer in answers.drain(..) {
            let bytes = datagrams::uninterrupted(|| socket.recv(&mut buffer)).unwrap();
            let (got, wanted) = (&buffer[..bytes], &answer[..]);
            let shown = |bytes: &[u8]| bytes[..bytes.len().min(60)].escape_ascii().to_string();
            assert!(got == wanted, "{} instead of {}", shown(got), shown(wanted));
            count += 1;
        }
    }
    count
}

/// Sends each client's requests through the relay, and receives the expected answers. Returns the
/// numbers of datagrams that the server received and sent.
fn exchange(
    network: &Network,
    is_v6: bool,
    relay: &mut Relay,
    expected: &mut Expected,
) -> (u64, u64) {
    let clients: Vec<datagrams::Client> = (0..CLIENTS).map(|_| network.client(is_v6)).collect();
    let server = clients[0].server;
    let sockets: Vec<UdpSocket> = clients.into_iter().map(|client| client.socket).collect();
    let addresses = [0, 1, 2].map(|at: usize| sockets[at].local_addr().unwrap());
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Nothing is read before all requests are sent, so the buffer must hold all answers.
        set_socket_recv_buffer_size_force(socket, 8 << 20).unwrap();
    }
    let (mut received, mut sent) = (0, 0);
    for first in (0..REQUESTS).step_by(TOGETHER.into()) {
        let mut datagrams = Vec::new();
        for id in first..first + TOGETHER {
            // All clients use the same request ids.
            for client in 0..CLIENTS {
                let text = request(&mut relay.random, id);
                let parts: Vec<&[u8]> = text.as_bytes().chunks(1000).collect();
                let total = u16::try_from(parts.len()).unwrap();
                for (number, part) in (0..).zip(parts) {
                    let head = Header { id, number, total, flow: 0 }.bytes();
                    datagrams.push((client, [&head[..], part].concat()));
                }
            }
        }
        for (client, datagram) in relay.pass(datagrams) {
            sockets[client].send_to(&datagram, server).unwrap();
            expected.arrive(client, addresses[client], &datagram);
            received += 1;
        }
        sent += receive(&sockets, expected);
    }
    (received, sent)
}

/// Pins this thread, because datagrams sent from several CPUs may arrive out of order.
fn stay_on_this_processor() {
    let mut processors = CpuSet::new();
    processors.set(sched_getcpu());
    sched_setaffinity(None, &processors).unwrap();
}

#[test]
fn what_arrives_is_answered_whatever_is_lost_doubled_or_late() {
    WAYS.into_iter().for_each(|way| answers_what_arrives(way, ZeroCopy::Off));
}

#[test]
fn what_arrives_is_answered_where_values_stay_in_the_packets_that_brought_them() {
    answers_what_arrives(Way::Xdp, ZeroCopy::Full);
}

/// Runs an exchange over IPv4 and over IPv6. Over AF_XDP, repeats both for the time in `MINUTES`.
fn answers_what_arrives(way: Way, zero_copy: ZeroCopy) {
    let settings = everywhere(Port::Number(11211), way);
    let settings = Settings { zero_copy, zero_copy_bytes_min: 1, ..settings };
    let Some(mut network) = Network::of(Veth::default(), settings) else { return };
    let chunks_free = network.row("memory", "arena_free_bytes");
    let before = sent_and_received(&network.far);
    network.server.shared().columns.plant_clock(NOON_MS);
    network.stream.ask("set n 0 0 1\r\n0\r\n", "STORED\r\n");
    let mut expected = Expected::default();
    let mut relay = Relay { random: Random::new(20), lost: 0, doubled: 0, late: 0 };
    let (mut received, mut sent) = (0, 0);
    stay_on_this_processor();
    let minutes = std::env::var(MINUTES).map_or(0, |minutes| minutes.parse::<u64>().unwrap());
    let minutes = if way == Way::Xdp { minutes } else { 0 };
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    for round in 0.. {
        if round >= 2 && Instant::now() >= until {
            break;
        }
        let (arrived, answered) = exchange(&network, round % 2 == 1, &mut relay, &mut expected);
        (received, sent) = (received + arrived, sent + answered);
        if minutes > 0 && round % 100 == 0 {
            let Relay { lost, doubled, late, .. } = relay;
            let (lost, report) =
                (format!("{lost} lost, {doubled} twice, {late} late"), &mut io::stderr());
            writeln!(report, "{received} received, {sent} sent; {lost}").unwrap();
        }
    }
    let Relay { lost, doubled, late, .. } = relay;
    assert!(lost > 1000 && doubled > 1000 && late > 5000, "{lost} {doubled} {late}");
    // Let the clock advance until every incomplete message is too old and dropped.
    for step in 0..=PARTS_WAIT_MS_MAX / LOOP_MS_MAX {
        network.server.shared().columns.plant_clock(NOON_MS + step * LOOP_MS_MAX);
        (0..2).for_each(|_| network.stream.ask("mn\r\n", "MN\r\n"));
    }
    network.client(false).ask("mn\r\n", "MN\r\n");
    (received, sent) = (received + 1, sent + 1);
    let incomplete = expected.evicted + expected.parts.drop_late(NOON_MS + PARTS_WAIT_MS_MAX);
    assert!(incomplete > 1000, "{incomplete}");
    let counts = [
        ("udp_received", received),
        ("udp_sent", sent),
        ("udp_unsent", 0),
        ("udp_dropped_frame", expected.ignored),
        ("udp_dropped_incomplete", incomplete),
        ("udp_dropped_answer", 0),
        ("udp_dropped_sender", 0),
        ("udp_dropped_length", 0),
    ];
    assert_eq!(counts.map(|(name, _)| (name, network.count(name))), counts);
    assert_eq!(network.near.counter("Udp", "RcvbufErrors"), 0);
    let by_the_kernel = if way == Way::Sockets { received } else { 0 };
    assert_eq!(sent_and_received(&network.far).1 - before.1, by_the_kernel, "{way:?}");
    let kept = network.row("store", "arena_kept_bytes");
    assert_eq!(kept > 1_000_000, zero_copy == ZeroCopy::Full, "{kept} bytes");
    network.stream.ask("flush_all\r\n", "OK\r\n");
    network.await_free_chunks(chunks_free);
    network.server.stop();
}
