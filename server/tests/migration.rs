//! Connections that migrate between columns.
//!
//! Where: an in-process server of several columns, where every connection migrates after each turn,
//! or where one column has all the load.
//! Invariant: each request of a connection is answered once, in order and byte for byte correctly,
//! whichever column answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;
mod live;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use columns::counters::Sums;
use columns::limits::{SPARES_LARGE_MAX, SPARES_SMALL_MAX, TURNS_AHEAD};
use columns::settings::Migrate;
use hypostyle::run::Server;
use hypostyle::shared::requests::Counters;
use hypostyle::start::settings::Settings;
use inprocess::{Client, answer, connect, frame, settings_where, start};
use testing::{PATIENCE, Random, wait_until};

/// With more than two columns, a connection may migrate on to a third column.
const COLUMNS: usize = 3;
/// Number of clients. Each client runs `ROUNDS` rounds.
const CLIENTS: u64 = 8;
const ROUNDS: u32 = 60;
/// Maximum number of requests that a client sends before it reads the replies.
const PIPELINED_MAX: u32 = 60;
const KEYS: u32 = 12;
/// Maximum number of receive and spare buffers that all columns together hold while they are idle.
const SPARES: u64 = (COLUMNS * (TURNS_AHEAD + SPARES_SMALL_MAX + SPARES_LARGE_MAX)) as u64;
const VERSION: &str = "VERSION 1.6.45\r\n";

fn migrating_each_turn() -> Settings {
    let moving = settings_where(COLUMNS, |columns| columns.migrate = Migrate::AtEachTurn);
    Settings { cas: false, ..moving }
}

fn columns(server: &Server) -> Vec<Sums> {
    server.shared().columns.counters.iter().map(|column| Sums::of(column)).collect()
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

fn tcp(server: &Server) -> Box<dyn Stream> {
    Box::new(connect(server).0)
}

fn unix(path: &Path) -> Box<dyn Stream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

struct CheckedClient {
    stream: Box<dyn Stream>,
    number: u64,
    random: Random,
    values: Vec<Option<String>>,
}

impl CheckedClient {
    fn new(stream: Box<dyn Stream>, number: u64) -> CheckedClient {
        let values = vec![None; KEYS as usize];
        CheckedClient { stream, number, random: Random::new(number), values }
    }

    /// Makes a value that begins with the client's number and ends in a checksum.
    fn value(&mut self, key: u32) -> String {
        let bytes = match self.random.number(40) {
            0 => 90_000, // Too long for the log: received straight into the store.
            1..4 => 9000,
            _ => 1 + self.random.number(300),
        };
        let salt = self.random.next();
        let body = format!("{}:{key}:{salt:x};", self.number).repeat(1 + bytes as usize / 20);
        let sum = body.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        format!("{body}{sum:x}")
    }

    fn request(&mut self, is_binary: bool) -> (Vec<u8>, Vec<u8>) {
        let at = self.random.number(KEYS);
        let key = format!("client{}-{at}", self.number);
        let choice = self.random.number(6);
        let known = self.values[at as usize].clone();
        if choice < 2 {
            let value = self.value(at);
            self.values[at as usize] = Some(value.clone());
            let (bytes, zeros) = (value.len(), [0; 8]);
            return match (is_binary, choice) {
                (true, _) => (frame(0x01, &zeros, &key, &value), answer(0x01, b"", "")),
                (_, 0) => (line(&format!("set {key} 0 0 {bytes}\r\n{value}")), line("STORED")),
                _ => (line(&format!("ms {key} {bytes}\r\n{value}")), line("HD")),
            };
        }
        let miss = {
            let mut miss = answer(0x00, b"", "Not found");
            miss[7] = 1; // The status.
            miss
        };
        match (is_binary, choice, known) {
            (true, _, Some(value)) => (frame(0, b"", &key, ""), answer(0, &[0; 4], &value)),
            (true, _, None) => (frame(0x00, b"", &key, ""), miss),
            (_, 2, Some(value)) => {
                (line(&format!("mg {key} v")), line(&format!("VA {}\r\n{value}", value.len())))
            }
            (_, 2, None) => (line(&format!("mg {key} v")), line("EN")),
            (_, 3, _) => (line("no such command"), line("ERROR")),
            (_, _, Some(value)) => {
                let head = format!("VALUE {key} 0 {}\r\n", value.len());
                (line(&format!("get {key} none")), line(&format!("{head}{value}\r\nEND")))
            }
            (_, _, None) => (line(&format!("get none {key}")), line("END")),
        }
    }

    fn round(&mut self) {
        let (mut sent, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..1 + self.random.number(PIPELINED_MAX) {
            let (request, reply) = self.request(self.number % 3 == 2);
            sent.extend(request);
            expected.extend(reply);
        }
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let most = if self.random.number(3) == 0 { 20 } else { 3000 };
            let (piece, behind) = rest.split_at(rest.len().min(1 + self.random.index(most)));
            self.stream.write_all(piece).unwrap();
            rest = behind;
        }
        let (mut got, mut at) = (vec![0; expected.len()], 0);
        while at < got.len() {
            match self.stream.read(&mut got[at..]) {
                Ok(0) => panic!("client {}: closed", self.number),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("client {}: {error}", self.number),
            }
            let differs = (0..at).find(|&byte| got[byte] != expected[byte]);
            if let Some(byte) = differs {
                let shown = |all: &[u8]| {
                    all[byte.saturating_sub(20)..at.min(byte + 60)].escape_ascii().to_string()
                };
                panic!("byte {byte}: {} instead of {}", shown(&got), shown(&expected));
            }
        }
    }
}

fn line(text: &str) -> Vec<u8> {
    format!("{text}\r\n").into_bytes()
}

fn drive(streams: impl Iterator<Item = Box<dyn Stream>>) -> Vec<CheckedClient> {
    let through = |mut client: CheckedClient| {
        (0..ROUNDS).for_each(|_| client.round());
        client
    };
    let threads: Vec<_> = (0..)
        .zip(streams)
        .map(|(number, stream)| thread::spawn(move || through(CheckedClient::new(stream, number))))
        .collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

/// Asserts that another column has taken each connection that a column gave away, that enough
/// connections have migrated, and that each connection belongs to one column.
fn all_have_moved(server: &Server, connections: u64) {
    let sum = |of: fn(&Sums) -> u64| columns(server).iter().map(of).sum::<u64>();
    wait_until("all is counted", || {
        let is_told = sum(|it| it.connections) == connections;
        is_told && sum(|it| it.migrations_given) == sum(|it| it.migrations_taken)
    });
    let taken = sum(|it| it.migrations_taken);
    assert!(taken >= CLIENTS * u64::from(ROUNDS), "{taken} migrations");
    let has_executed = |it: &Arc<Counters>| it.get_hits.get() + it.get_misses.get() > 0;
    assert!(server.shared().requests.iter().all(has_executed), "{:?}", columns(server));
    assert_eq!(u64::from(server.shared().columns.connections.load(Ordering::Relaxed)), connections);
}

#[test]
fn what_moves_after_each_turn_is_answered_byte_for_byte() {
    let server = start(migrating_each_turn());
    let clients = drive((0..CLIENTS).map(|_| tcp(&server)));
    all_have_moved(&server, CLIENTS);
    drop(clients);
    wait_until("all closed", || server.shared().columns.connections.load(Ordering::Relaxed) == 0);
    server.stop();
}

/// A turn executes one pipelined request, so a connection is idle only after its last request.
#[test]
fn what_never_rests_moves_after_each_turn_as_well() {
    const REQUESTS: u64 = 1000;
    let mut settings = migrating_each_turn();
    settings.columns.requests_per_event = 1;
    let server = start(settings);
    let mut requests = String::new();
    let mut replies = String::new();
    for number in 0..REQUESTS / 2 {
        requests += &format!("set k 0 0 3\r\n{number:03}\r\nget k\r\n");
        replies += &format!("STORED\r\nVALUE k 0 3\r\n{number:03}\r\nEND\r\n");
    }
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&server)).collect();
    // The clients share one key and run one after the other, so each client knows the key's value.
    for client in &mut clients {
        client.ask(&requests, &replies);
    }
    // Fewer moves suffice: a write may arrive in pieces, between which the connection is idle.
    let taken = || server.shared().sums().columns.migrations_taken;
    wait_until("moves", || taken() >= CLIENTS * REQUESTS * 9 / 10);
    clients.iter_mut().for_each(|client| client.ask("version\r\n", VERSION));
    drop(clients);
    wait_until("all closed", || server.shared().columns.connections.load(Ordering::Relaxed) == 0);
    // When a connection ends, its current column frees the connection's buffers.
    wait_until("free buffers", || server.shared().sums().columns.read_buf_count <= SPARES);
    server.stop();
}

#[test]
fn what_moves_over_unix_sockets_is_answered_byte_for_byte() {
    let path = std::env::temp_dir().join(format!("hypostyle-moves-{}", std::process::id()));
    let server = start(Settings { unix_path: Some(path.clone()), ..migrating_each_turn() });
    let clients = drive((0..CLIENTS).map(|_| unix(&path)));
    all_have_moved(&server, CLIENTS);
    drop(clients);
    server.stop();
}

#[test]
fn clients_that_go_while_they_move_leave_nothing() {
    let server = start(migrating_each_turn());
    let address = server.addresses()[0];
    let go = move |seed| {
        let mut random = Random::new(seed);
        for _ in 0..300 {
            let mut stream = TcpStream::connect(address).unwrap();
            for _ in 0..random.number(4) {
                let text = b"version\r\nset k 0 0 5\r\nabcde\r\nget k\r\n";
                // The server may have closed the connection already.
                let _ = stream.write_all(&text[..random.index(text.len() + 1)]);
                if random.number(2) == 0 {
                    let _ = stream.set_read_timeout(Some(Duration::from_micros(200)));
                    let _ = stream.read(&mut [0; 100]);
                }
            }
            if random.number(3) == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|seed| thread::spawn(move || go(seed))).collect();
    threads.into_iter().for_each(|it| it.join().unwrap());
    wait_until("all closed", || server.shared().columns.connections.load(Ordering::Relaxed) == 0);
    wait_until("columns without connections", || {
        columns(&server).iter().all(|it| it.connections == 0)
    });
    assert!(server.shared().sums().columns.migrations_taken > 0);
    server.stop();
}

#[test]
fn a_connection_that_moved_is_closed_when_it_has_been_idle() {
    let mut settings = migrating_each_turn();
    settings.columns.idle_seconds_max = 5;
    let server = start(settings);
    let shared = server.shared();
    shared.columns.plant_clock(1000);
    let (mut busy, mut idle) = (connect(&server), connect(&server));
    (0..10).for_each(|_| idle.ask("version\r\n", VERSION));
    for second in 2..7 {
        // A busy connection never counts as idle, whichever column serves the connection.
        shared.columns.plant_clock(second * 1000);
        (0..10).for_each(|_| busy.ask("version\r\n", VERSION));
    }
    assert_eq!(shared.sums().columns.idle_kicks, 0);
    shared.columns.plant_clock(8000);
    idle.expect_end();
    busy.ask("version\r\n", VERSION);
    assert_eq!(shared.sums().columns.idle_kicks, 1);
    server.stop();
}

#[test]
fn a_server_that_stops_while_connections_move_closes_each() {
    for seed in 0..20 {
        let server = start(migrating_each_turn());
        let over = AtomicBool::new(false);
        let clients: Vec<Client> = (0..CLIENTS).map(|_| connect(&server)).collect();
        thread::scope(|scope| {
            for mut client in clients {
                let over = &over;
                scope.spawn(move || {
                    while client.try_send("version\r\n") {
                        let mut reply = [0; VERSION.len()];
                        if client.0.read_exact(&mut reply).is_err() {
                            break;
                        }
                        assert!(reply == *VERSION.as_bytes());
                    }
                    // If a column kept the descriptor, `rest` would not see the connection end.
                    client.rest();
                    assert!(
                        over.load(Ordering::Relaxed),
                        "a connection was closed before the server stopped"
                    );
                });
            }
            let enough = 50 * (seed + 1);
            wait_until("moves", || server.shared().sums().columns.migrations_taken >= enough);
            over.store(true, Ordering::Relaxed);
            server.stop();
        });
    }
}

#[test]
fn a_server_that_ends_gracefully_while_connections_move_answers_what_has_come() {
    for _ in 0..20 {
        let server = start(migrating_each_turn());
        let mut clients: Vec<Client> = (0..3 * CLIENTS).map(|_| connect(&server)).collect();
        clients.iter_mut().for_each(|client| client.ask("version\r\n", VERSION));
        // At the graceful end some connections are between two columns, some have unanswered
        // requests, and some have received their answers.
        clients.iter_mut().for_each(|client| client.send("version\r\nversion\r\n"));
        let shared = Arc::clone(server.shared());
        server.stop_gracefully();
        for client in &mut clients {
            client.expect(VERSION.repeat(2));
            client.expect_end();
        }
        let Sums { migrations_given, migrations_taken, .. } = shared.sums().columns;
        assert_eq!(migrations_given, migrations_taken);
    }
}

#[test]
fn who_waits_for_something_stays_where_it_is() {
    let server = start(migrating_each_turn());
    let mut watcher = connect(&server);
    watcher.ask("watch mutations\r\n", "OK\r\n");
    let (mut half, mut other) = (connect(&server), connect(&server));
    half.send("set half 0 0 10\r\nabc");
    for _ in 0..20 {
        other.ask("set other 0 0 1\r\nx\r\n", "STORED\r\n");
    }
    assert!(watcher.line().contains("key=other"));
    half.expect_after("defghij\r\n", "STORED\r\n");
    let taken = || server.shared().sums().columns.migrations_taken;
    // A reply is sent before the connection migrates, so the count may be late.
    wait_until("a migration at each turn", || taken() >= 20);
    assert!(taken() <= 24, "{}: waiting connections have migrated as well", taken());
    server.stop();
}

impl Client {
    fn expect_after(&mut self, rest: &str, reply: &str) {
        self.send(rest);
        self.expect(reply);
    }
}

fn of_first_column(server: &Server) -> Client {
    let accepted = || server.shared().columns.counters[0].total_connections.get();
    loop {
        let before = accepted();
        let mut client = connect(server);
        client.ask("version\r\n", VERSION);
        if accepted() > before {
            return client;
        }
    }
}

/// Loads the first of two columns until `done` returns true. A request takes the server longer than
/// its client. If `ahead` is set, each client always has requests in flight.
fn load_first(server: &Server, clients: usize, ahead: bool, done: impl Fn() -> bool + Sync) {
    let clients: Vec<Client> = (0..clients).map(|_| of_first_column(server)).collect();
    let request = format!("get{}\r\n", " none".repeat(400)).repeat(8);
    let until = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        for mut client in clients {
            let (done, request) = (&done, &request);
            scope.spawn(move || {
                let replies = "END\r\n".repeat(8);
                // With `ahead`, more bytes of requests are in flight than one turn reads.
                let rounds_ahead = if ahead { 20 } else { 0 };
                (0..rounds_ahead).for_each(|_| client.send(request));
                while !done() {
                    assert!(Instant::now() < until, "{:?}", columns(server));
                    client.ask(request, &replies);
                }
                client.expect(replies.repeat(rounds_ahead));
            });
        }
    });
}

#[test]
fn an_idle_column_takes_connections_from_a_saturated_one() {
    // The idle column polls in the second case, and sleeps in the other two. In the third case no
    // connection is idle.
    for (busy_poll_us, ahead) in [(0, false), (1_000_000, false), (0, true)] {
        let server = start(settings_where(2, |columns| columns.busy_poll_us = busy_poll_us));
        let has_helped = || {
            let second = server.shared().of_columns().nth(1).unwrap();
            second.columns.migrations_taken > 0 && second.requests.gets() > 1000
        };
        load_first(&server, 6, ahead, has_helped);
        // Some connections may still be between the two columns when the last reply arrives.
        let (given, taken) = (|it: &Sums| it.migrations_given, |it: &Sums| it.migrations_taken);
        let is_counted = || given(&columns(&server)[0]) == taken(&columns(&server)[1]);
        wait_until("all is counted", is_counted);
        let [first, second] = columns(&server)[..] else { panic!("two columns") };
        assert!((1..6).contains(&first.migrations_given), "{first:?}");
        assert_eq!((first.migrations_taken, second.migrations_given), (0, 0));
        server.stop();
    }
}

#[test]
fn without_another_column_or_told_not_to_nothing_moves() {
    for (columns, migrate) in [(1, Migrate::AtEachTurn), (2, Migrate::Never)] {
        let server = start(settings_where(columns, |columns| columns.migrate = migrate));
        let mut client = connect(&server);
        (0..100).for_each(|_| client.ask("version\r\n", VERSION));
        let sums = server.shared().sums().columns;
        assert_eq!((sums.migrations_given, sums.migrations_taken), (0, 0));
        server.stop();
    }
}

#[test]
fn stats_columns_tells_who_gave_and_who_took() {
    let server = start(migrating_each_turn());
    let mut client = connect(&server);
    (0..50).for_each(|_| client.ask("version\r\n", VERSION));
    let rows = client.stats("columns");
    let sum = |name: &str| {
        let of_column = |column| rows[&format!("columns:{column}:{name}")].parse::<u64>().unwrap();
        (0..COLUMNS).map(of_column).sum::<u64>()
    };
    assert_eq!(sum("migrations_taken"), 50);
    // The column that gives a connection may count the migration later than the column that takes.
    assert!((49..=50).contains(&sum("migrations_given")), "{rows:?}");
    server.stop();
}

#[test]
fn a_server_asked_by_the_environment_moves_connections_after_each_turn() {
    let server = live::Server::migrating_each_turn(&["-t", "3"]);
    let mut client = Client::to(server.address());
    (0..50).for_each(|_| client.ask("version\r\n", VERSION));
    let rows = client.stats("columns");
    let given = |column: usize| rows[&format!("columns:{column}:migrations_given")].clone();
    assert!((0..3).all(|column| given(column).parse::<u64>().unwrap() > 10), "{rows:?}");
}
