//! Large values that are overwritten and evicted while replies with them are being sent.
//!
//! Where: an in-process server, which sends values directly from the store's frames.
//! Invariant: each value in a reply is, byte for byte, a value that a client has set.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(debug_assertions)]

mod inprocess;
mod live;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use hypostyle::run::Server;
use hypostyle::start::settings::Settings;
use inprocess::{datagrams, settings, start};
use protocol::udp::Header;
use testing::random::hash;
use testing::{PATIENCE, Random};

const REPLIES: u32 = 100;
/// Length of a value: just below the limits of an item and of a reply over UDP.
const VALUE_BYTES: usize = 1_000_000;
const KEYS: usize = 4;
const VERSIONS: u64 = 2;
/// The columns' clocks stand still at this time, so that no reader counts as stalled.
const NOON_MS: u64 = 3_600_000;

/// Returns a value that begins with its version and differs for each key and version.
fn value(key: u32, version: u64) -> Vec<u8> {
    let mut random = Random::new(hash(version, key.into()));
    let mut value = version.to_be_bytes().to_vec();
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value
}

/// Returns the version with which `got` begins; `got` must be the value of that version.
fn version_of(key: u32, got: &[u8]) -> u64 {
    let version = u64::from_be_bytes(*got.first_chunk().unwrap());
    let wanted = value(key, version);
    let differs = wanted.iter().zip(got).position(|(wanted, got)| wanted != got);
    assert!(got == wanted, "key {key}: version {version} differs from byte {differs:?} on");
    version
}

struct Stream<S>(BufReader<S>);

impl<S: Read + Write> Stream<S> {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        self.send(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
        self.send(value);
        self.send(b"\r\n");
        assert_eq!(self.line(), "STORED\r\n");
    }

    fn version(&mut self, key: u32) -> Option<u64> {
        let head = self.line();
        if head == "END\r\n" {
            return None;
        }
        assert_eq!(head, format!("VALUE k{key} 0 {VALUE_BYTES}\r\n"));
        let mut got = vec![0; VALUE_BYTES];
        self.0.read_exact(&mut got).unwrap();
        assert_eq!((self.line(), self.line()), ("\r\n".to_owned(), "END\r\n".to_owned()));
        Some(version_of(key, &got))
    }

    fn stat(&mut self, name: &str) -> u64 {
        self.send(b"stats\r\n");
        let mut found = None;
        loop {
            let line = self.line();
            if line == "END\r\n" {
                return found.unwrap();
            }
            let value = line.strip_prefix(&format!("STAT {name} "));
            found = found.or(value.map(|value| value.trim().parse().unwrap()));
        }
    }
}

/// The clients read nothing until all values are overwritten and evicted. They use Unix sockets,
/// which buffer little; TCP might buffer a megabyte.
#[test]
fn a_hundred_replies_that_wait_are_whole_though_their_values_are_gone() {
    let path = std::env::temp_dir().join(format!("hypostyle-large-{}", std::process::id()));
    // Replies may hold up to half of this memory. A hundred values take less than half.
    let memory_bytes = 256 << 20;
    let server = start(Settings { unix_path: Some(path.clone()), memory_bytes, ..settings(1) });
    server.shared().columns.plant_clock(NOON_MS);
    let open = || {
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Stream(BufReader::new(stream))
    };
    let mut writer = open();
    for key in 0..REPLIES {
        writer.set(&format!("k{key}"), &value(key, 0));
    }
    let mut readers: Vec<Stream<UnixStream>> = (0..REPLIES).map(|_| open()).collect();
    for (key, reader) in (0..).zip(&mut readers) {
        reader.send(format!("get k{key}\r\n").as_bytes());
        // The server has begun the reply, and keeps the part that does not fit in the socket.
        assert!(!reader.0.fill_buf().unwrap().is_empty());
    }
    for version in 1..=VERSIONS {
        for key in 0..REPLIES {
            writer.set(&format!("k{key}"), &value(key, version));
        }
    }
    let other = vec![b'o'; VALUE_BYTES];
    for key in 0..3 * REPLIES {
        writer.set(&format!("other{key}"), &other);
    }
    assert!(writer.stat("evictions") > u64::from(REPLIES));
    for (key, reader) in (0..).zip(&mut readers) {
        assert_eq!(reader.version(key), Some(0), "the version at the time of the request");
        reader.send(format!("get k{key}\r\n").as_bytes());
        assert!(matches!(reader.version(key), None | Some(VERSIONS)), "the last version");
    }
    server.stop();
}

/// Requests values until a hundred have arrived, fifty of them in another version than before.
fn ask_by_datagrams(server: &Server, column: u16, values: &[[Vec<u8>; KEYS]]) {
    let mut client = datagrams::Client::of(server);
    assert!(live::messages::keep_megabytes(&client.socket));
    let (mut last, mut whole, mut changed) = ([None; KEYS], 0, 0);
    let until = Instant::now() + PATIENCE;
    for (id, key) in (0..u16::MAX).zip((0..KEYS).cycle()) {
        if whole >= REPLIES && changed >= REPLIES / 2 {
            return;
        }
        assert!(Instant::now() < until, "{whole} replies, {changed} of them changed");
        let header = Header::request(id, column + 1).bytes();
        let datagram = [&header[..], format!("get k{key}\r\n").as_bytes()].concat();
        client.socket.send_to(&datagram, client.server).unwrap();
        let (reply, _) = client.receive_of(id);
        if reply == b"END\r\n" {
            continue;
        }
        let head = format!("VALUE k{key} 0 {VALUE_BYTES}\r\n");
        let rest = reply.strip_prefix(head.as_bytes()).unwrap();
        let got = rest.strip_suffix(b"\r\nEND\r\n").unwrap();
        let version = values.iter().position(|values| values[key] == got);
        assert!(version.is_some(), "key {key}: {} bytes of no version", got.len());
        whole += 1;
        changed += u32::from(std::mem::replace(&mut last[key], version) != version);
    }
    panic!("{whole} replies, {changed} of them changed");
}

#[test]
fn a_hundred_replies_by_datagrams_are_whole_while_their_values_change_and_go() {
    let datagrams = datagrams::at("127.0.0.1");
    let server = start(Settings { memory_bytes: 32 << 20, datagrams, ..settings(2) });
    if !live::messages::keep_megabytes(&datagrams::Client::of(&server).socket) {
        server.stop();
        return testing::skip("no privilege for a socket's buffer of four megabytes");
    }
    let keys = [0, 1, 2, 3];
    let values: Vec<[Vec<u8>; KEYS]> =
        (0..10).map(|version| keys.map(|key| value(key, version))).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let stream = TcpStream::connect(server.addresses()[0]).unwrap();
            let mut writer = Stream(BufReader::new(stream));
            // Relaxed, paired with the store below: the flag orders no other memory access.
            let is_going_on = || !is_over.load(Ordering::Relaxed);
            for (round, values) in values.iter().cycle().enumerate().take_while(|_| is_going_on()) {
                for (key, value) in values.iter().enumerate() {
                    writer.set(&format!("k{key}"), value);
                }
                writer.set(&format!("other{round}"), &values[0]);
            }
            writer.stat("evictions")
        });
        let ask = |column| {
            let (server, values) = (&server, &values);
            scope.spawn(move || ask_by_datagrams(server, column, values)).join()
        };
        let outcomes = [0, 1, 0, 1].map(ask);
        is_over.store(true, Ordering::Relaxed); // The flag orders nothing.
        let evictions = writer.join().unwrap();
        outcomes.into_iter().for_each(|one| one.unwrap());
        assert!(evictions > 0);
    });
    server.stop();
}
