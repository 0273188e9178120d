//! Tests that keys are distributed over servers in the same way as by libmemcached.
//!
//! Where: tests of `Ring`, without connections. Invariant: each of 10,000 keys gets the server that
//! the installed libmemcached (`make peers`) chooses, and that a recording of libmemcached has.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use blaster::target::{Ketama, Place, Ring, Target};
use md5::{Digest, Md5};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use testing::skip;

const KEYS: usize = 10_000;
/// The exit status of `ketama.py` if libmemcached is missing.
const NO_LIBRARY: i32 = 3;

/// Servers as (host, port, weight). Port 0 means that the host is the path of a Unix socket.
type Servers = &'static [(&'static str, u16, u32)];

/// A recording of Debian's libmemcached 1.1.4, made by `tests/clients/python/ketama.py`. `weighted`
/// and `plain` have the servers of the first 40 keys, and the MD5 sum of all keys' servers.
struct Recording {
    name: &'static str,
    servers: Servers,
    weighted: (&'static str, &'static str),
    plain: (&'static str, &'static str),
}

const RECORDINGS: [Recording; 6] = [
    Recording {
        name: "one server",
        servers: &[("10.0.0.1", 11211, 1)],
        weighted: ("0000000000000000000000000000000000000000", "535d3ba3e09ea0d8bfbb853d705773ca"),
        plain: ("0000000000000000000000000000000000000000", "535d3ba3e09ea0d8bfbb853d705773ca"),
    },
    Recording {
        name: "two servers on memcached's port",
        servers: &[("10.0.0.1", 11211, 1), ("10.0.0.2", 11211, 1)],
        weighted: ("0101010010000101010001101000001010011001", "e7db594472692fe097c73886cf10ba25"),
        plain: ("0000010101010011101001000110110010000101", "35a2d9fb9e0af4825b32c592f84ce9cf"),
    },
    Recording {
        name: "names and other ports",
        servers: &[
            ("localhost", 11211, 1),
            ("localhost", 11212, 1),
            ("cache.example.org", 6379, 1),
            ("192.168.1.20", 65535, 1),
            ("cache.example.org", 6380, 1),
        ],
        weighted: ("3132232410202213002203130213233432310140", "69bacec1f5d2bf8545d23fdc9ce480e1"),
        plain: ("4134431302120120331012344334304210130213", "071a4769030fd86dabca106188a40058"),
    },
    Recording {
        name: "weights, as in libmemcached's own test",
        servers: &[
            ("10.0.1.1", 11211, 600),
            ("10.0.1.2", 11211, 300),
            ("10.0.1.3", 11211, 200),
            ("10.0.1.4", 11211, 350),
            ("10.0.1.5", 11211, 1000),
            ("10.0.1.6", 11211, 800),
            ("10.0.1.7", 11211, 950),
            ("10.0.1.8", 11211, 100),
        ],
        weighted: ("4630445546632405352643030404647167240417", "6973262be62ac437fe995a79e2d3d2e5"),
        plain: ("3603336014476660655330437646465356446624", "1849d907a613ea0bd8057421dfe57cc3"),
    },
    Recording {
        name: "sockets, IPv6, and weights far apart",
        servers: &[
            ("/run/a.sock", 0, 1),
            ("::1", 11211, 3),
            ("fe80::17", 11300, 1_000),
            ("/run/b.sock", 0, 7),
        ],
        weighted: ("2222222222222222222222222222222222222222", "a1e22dde4224e20f1435359bd42caa15"),
        plain: ("2222222222222222222222222222222222222222", "b60f1aaa84e9c6602f6d8eb783827aed"),
    },
    Recording {
        name: "the same server twice",
        servers: &[("10.0.0.1", 11211, 1), ("10.0.0.1", 11211, 1), ("10.0.0.3", 11211, 1)],
        weighted: ("0000022022002020000002200000002222220002", "21e37370c876f9270c79971caaded6f1"),
        plain: ("2000222202200022222002200222220000200022", "283c0a79ec1acba91b6ffb45e6ba9858"),
    },
];

fn keys() -> Vec<String> {
    (0..KEYS).map(|n| format!("{}{n}", "user:".repeat(n % 40))).collect()
}

fn targets(servers: Servers) -> Vec<Target> {
    let target = |(host, port, weight): &(&str, u16, u32)| {
        let place = match port {
            0 => Place::Unix(host.into()),
            _ => Place::Tcp(SocketAddr::from(([127, 0, 0, 1], *port))),
        };
        let host = (*host).to_owned();
        Target { name: host.clone(), place, weight: *weight, host, is_redis: false }
    };
    servers.iter().map(target).collect()
}

fn ours(ketama: Ketama, servers: Servers) -> Vec<usize> {
    let ring = Ring::with(ketama, &targets(servers));
    keys().iter().map(|key| ring.place(key.as_bytes())).collect()
}

/// Returns the server to which libmemcached assigns each key. `None` without libmemcached.
fn theirs(ketama: Ketama, servers: Servers) -> Option<Vec<usize>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients/python/ketama.py");
    let setting = if ketama == Ketama::Plain { "plain" } else { "weighted" };
    let rows = servers.iter().map(|(host, port, weight)| format!("{host}\t{port}\t{weight}"));
    let started = Command::new("python3")
        .arg(script)
        .arg(setting)
        .args(rows)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        skip("no python3 to ask libmemcached with (make peers)");
        return None;
    };
    let mut input = child.stdin.take().unwrap();
    // A second thread writes the keys, because the output has to be read at the same time.
    let writer = std::thread::spawn(move || input.write_all(keys().join("\n").as_bytes()));
    let output = child.wait_with_output().unwrap();
    let written = writer.join().unwrap();
    if output.status.code() == Some(NO_LIBRARY) {
        skip("libmemcached is not installed (make peers)");
        return None;
    }
    assert!(output.status.success() && written.is_ok(), "{:?}", output.status);
    let said = String::from_utf8(output.stdout).unwrap();
    Some(said.lines().map(|line| line.parse().unwrap()).collect())
}

/// Returns the servers of the first forty keys, and the MD5 sum of all keys' servers.
fn summary(places: &[usize]) -> (String, String) {
    let first: Vec<String> = places[..40].iter().map(usize::to_string).collect();
    let all: Vec<String> = places.iter().map(|place| format!("{place}\n")).collect();
    let sum = Md5::digest(all.concat().as_bytes());
    (first.concat(), sum.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
fn keys_are_placed_as_libmemcached_said() {
    for recording in &RECORDINGS {
        for (ketama, expected) in
            [(Ketama::Weighted, recording.weighted), (Ketama::Plain, recording.plain)]
        {
            let (first, sum) = summary(&ours(ketama, recording.servers));
            assert_eq!((first.as_str(), sum.as_str()), expected, "{}, {ketama:?}", recording.name);
        }
    }
}

#[test]
fn keys_are_placed_as_libmemcached_places_them() {
    for recording in &RECORDINGS {
        for ketama in [Ketama::Weighted, Ketama::Plain] {
            let Some(theirs) = theirs(ketama, recording.servers) else { return };
            assert_eq!(theirs.len(), KEYS);
            let ours = ours(ketama, recording.servers);
            let differ = (0..KEYS).filter(|n| ours[*n] != theirs[*n]).count();
            assert_eq!(
                differ, 0,
                "{}, {ketama:?}: number of keys, of {KEYS}, with another server",
                recording.name
            );
        }
    }
}

#[test]
fn weights_share_the_keys_out() {
    let weights = [600, 300, 200, 350, 1000, 800, 950, 100];
    let all: u32 = weights.iter().sum();
    let mut counts = [0_u32; 8];
    ours(Ketama::Weighted, RECORDINGS[3].servers).into_iter().for_each(|place| counts[place] += 1);
    for (count, weight) in counts.iter().zip(weights) {
        let expected = f64::from(weight) / f64::from(all);
        let share = f64::from(*count) / KEYS as f64;
        // A server has few points on the circle, so its share of the keys is only roughly its
        // weight.
        assert!((0.5..2.0).contains(&(share / expected)), "{counts:?}");
    }
    let none = Ring::new(&[]);
    assert_eq!(none.place(b"key"), 0);
}
