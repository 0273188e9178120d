//! Values that are sent directly from the log, while they are overwritten and evicted.
//!
//! Where: an in-process server of two columns, which send long values directly from the log.
//! Invariant: each value in a reply is, byte for byte, a value that a client has set. Replies come
//! in the order of their requests, whatever other requests the same turn executes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod inprocess;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

use hypostyle::start::settings::Settings;
use inprocess::{settings, start};
use testing::random::hash;
use testing::{PATIENCE, Random};

/// Number of clients. Each client has keys of its own, and all clients share some further keys.
const CLIENTS: u64 = 4;
/// Number of rounds of a client. In each round a client sends `REQUESTS` requests at once.
const ROUNDS: u64 = 2000;
const REQUESTS: u64 = 16;
/// Number of keys of a client. The keys from `OWN_KEYS` on are shared by all clients.
const KEYS: u64 = 12;
const OWN_KEYS: usize = 8;
/// This memory is small enough to be filled several times, so that segments are reused.
const MEMORY_BYTES: usize = 128 << 20;

/// Returns a value that differs for each key and version, and that is sent from the log.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = Random::new(hash(version, key));
    let mut value = version.to_be_bytes().to_vec();
    let bytes = 8192 + random.next() % 8000;
    while (value.len() as u64) < bytes {
        value.extend_from_slice(&random.next().to_le_bytes());
    }
    value
}

enum Wanted {
    Line(&'static str),
    /// The key, and the value's version if no other client sets the key.
    Value(u64, Option<u64>),
}

fn own(of: u64) -> Option<usize> {
    usize::try_from(of).ok().filter(|of| *of < OWN_KEYS)
}

struct Client {
    stream: BufReader<TcpStream>,
    random: Random,
    number: u64,
    versions: [u64; OWN_KEYS],
}

impl Client {
    fn key(&self, of: u64) -> u64 {
        if own(of).is_some() { (self.number + 1) * 100 + of } else { of }
    }

    fn round(&mut self, round: u64) {
        let (mut sent, mut wanted) = (Vec::new(), Vec::new());
        for request in 0..REQUESTS {
            let of = self.random.next() % KEYS;
            let key = self.key(of);
            let own = own(of);
            match self.random.next() % 8 {
                0..5 => {
                    sent.extend_from_slice(format!("get k{key}\r\n").as_bytes());
                    wanted.push(Wanted::Value(key, own.map(|own| self.versions[own])));
                }
                5 => {
                    sent.extend_from_slice(format!("gat 0 k{key}\r\n").as_bytes());
                    wanted.push(Wanted::Value(key, own.map(|own| self.versions[own])));
                }
                6 => {
                    let version = (round * REQUESTS + request) * CLIENTS + self.number + 1;
                    set(&mut sent, key, &value(key, version));
                    wanted.push(Wanted::Line("STORED\r\n"));
                    own.into_iter().for_each(|own| self.versions[own] = version);
                }
                _ => {
                    let filler = 1_000_000 + self.random.next() % 100_000;
                    set(&mut sent, filler, &value(filler, round));
                    wanted.push(Wanted::Line("STORED\r\n"));
                }
            }
        }
        let mut writer = self.stream.get_ref().try_clone().unwrap();
        let sender = thread::spawn(move || writer.write_all(&sent).unwrap());
        wanted.iter().for_each(|wanted| self.expect(wanted));
        sender.join().unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    fn expect(&mut self, wanted: &Wanted) {
        let line = self.line();
        let (key, version) = match *wanted {
            Wanted::Line(wanted) => return assert_eq!(line, wanted),
            // The item was evicted.
            Wanted::Value(..) if line == "END\r\n" => return,
            Wanted::Value(key, version) => (key, version),
        };
        let bytes = line.strip_prefix(&format!("VALUE k{key} 0 ")).map(|rest| rest.trim().parse());
        let Some(Ok(bytes)) = bytes else { panic!("{line:?} for key {key}") };
        let mut got = vec![0; bytes];
        self.stream.read_exact(&mut got).unwrap();
        assert_eq!((self.line(), self.line()), ("\r\n".to_owned(), "END\r\n".to_owned()));
        let shown = u64::from_be_bytes(*got.first_chunk().unwrap());
        assert!(version.is_none_or(|version| version == shown), "key {key}: {version:?}, {shown}");
        assert!(got == value(key, shown), "key {key}: version {shown} is not whole");
    }
}

fn set(sent: &mut Vec<u8>, key: u64, value: &[u8]) {
    sent.extend_from_slice(format!("set k{key} 0 0 {}\r\n", value.len()).as_bytes());
    sent.extend_from_slice(value);
    sent.extend_from_slice(b"\r\n");
}

#[test]
fn values_sent_from_the_log_are_whole_and_in_order() {
    let server = start(Settings { memory_bytes: MEMORY_BYTES, ..settings(2) });
    let address = server.addresses()[0];
    let client = |number| {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (stream, random) = (BufReader::new(stream), Random::new(number));
        let mut client = Client { stream, random, number, versions: [0; OWN_KEYS] };
        // Every key gets a value first, so that a later miss always means an eviction.
        let mut sent = Vec::new();
        (0..KEYS).for_each(|of| set(&mut sent, client.key(of), &value(client.key(of), 0)));
        client.stream.get_mut().write_all(&sent).unwrap();
        (0..KEYS).for_each(|_| assert_eq!(client.line(), "STORED\r\n"));
        (0..ROUNDS).for_each(|round| client.round(round));
    };
    thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    server.stop();
}
