//! Real clients against the server, each pinned to a version: pymemcache's own integration suite,
//! libmemcached's memccapable, gomemcache, npm's memcached.
//!
//! Path: client side, over TCP. Invariant: each client also fails against a server that lies, so
//! that passing says something. What the clients run stands in `tests/clients/`; `make peers`
//! installs them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod live;

use live::{Server, skip};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The longest that one client may take.
const CLIENT_SECONDS_MAX: &str = "300";

/// What `memccapable -a` of libmemcached 1.1.4 tests, in its order, and whether 1.6.45's words
/// pass: the two that do not expect an older wording of an error.
const CAPABILITIES: [(&str, bool); 27] = [
    ("ascii version", true),
    ("ascii quit", true),
    ("ascii verbosity", true),
    ("ascii set", true),
    ("ascii set noreply", true),
    ("ascii get", true),
    ("ascii gets", true),
    ("ascii mget", true),
    ("ascii flush", true),
    ("ascii flush noreply", true),
    ("ascii add", true),
    ("ascii add noreply", true),
    ("ascii replace", true),
    ("ascii replace noreply", true),
    ("ascii cas", true),
    ("ascii cas noreply", true),
    ("ascii delete", false),
    ("ascii delete noreply", false),
    ("ascii incr", true),
    ("ascii incr noreply", true),
    ("ascii decr", true),
    ("ascii decr noreply", true),
    ("ascii append", true),
    ("ascii append noreply", true),
    ("ascii prepend", true),
    ("ascii prepend noreply", true),
    ("ascii stat", true),
];

/// A client's checks against the server at an address; none where the client is not installed.
type Checks = fn(SocketAddr) -> Option<Result<(), String>>;

#[test]
fn memccapable_passes() {
    passes(memccapable);
}

#[test]
fn pymemcache_passes() {
    passes(pymemcache);
}

#[test]
fn gomemcache_passes() {
    passes(gomemcache);
}

#[test]
fn memcached_for_node_passes() {
    passes(memcached_for_node);
}

fn passes(checks: Checks) {
    let server = Server::under_test(&[]);
    if let Some(Err(error)) = checks(server.address()) {
        panic!("{error}");
    }
    // Each client must find that a cas which came too late is reported as stored.
    let liar = liar(server.address());
    assert_ne!(checks(liar), Some(Ok(())), "a lie was not noticed");
}

fn memccapable(address: SocketAddr) -> Option<Result<(), String>> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let output = run(Command::new("memccapable").args(["-a", "-h", &host, "-p", &port]))?;
    let text = text(&output);
    // Only the name and "[pass]" go to its standard output.
    let passed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, expected) in CAPABILITIES {
        if !passed.contains(&format!("{name:<40}")) {
            return Some(Err(format!("memccapable did not test {name:?}:\n{text}")));
        }
        if passed.contains(&format!("{name:<40}[pass]")) != expected {
            return Some(Err(format!("memccapable: {name:?} is not {expected}:\n{text}")));
        }
    }
    let all = text.contains("2 of 27 tests failed");
    Some(if all { Ok(()) } else { Err(format!("memccapable: other tests:\n{text}")) })
}

fn pymemcache(address: SocketAddr) -> Option<Result<(), String>> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let check = root().join("tests/clients/python/check.py");
    let mut command = Command::new(root().join("tests/.peers/python/bin/python"));
    command.arg("-B").arg(check).args([&host, &port]);
    Some(succeeds(&run(&mut command)?))
}

fn gomemcache(address: SocketAddr) -> Option<Result<(), String>> {
    let mut command = Command::new(root().join("tests/.peers/go/check"));
    Some(succeeds(&run(command.arg(address.to_string()))?))
}

fn memcached_for_node(address: SocketAddr) -> Option<Result<(), String>> {
    let check = root().join("tests/.peers/node/check.js");
    if !check.exists() {
        skip("npm's memcached is not installed (make peers)");
        return None;
    }
    let output = run(Command::new("node").arg(check).arg(address.to_string()))?;
    Some(succeeds(&output))
}

/// Runs a client, for a limited time; none where there is no such program.
fn run(client: &mut Command) -> Option<Output> {
    let program = PathBuf::from(client.get_program());
    let by_name = program.components().count() == 1;
    let found = if by_name { is_on_path(&program) } else { program.exists() };
    if !found {
        skip(&format!("{} is not installed (make peers)", program.display()));
        return None;
    }
    let mut limited = Command::new("timeout");
    limited.args(["-k", "5", CLIENT_SECONDS_MAX]).arg(&program).args(client.get_args());
    Some(limited.output().unwrap())
}

fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn succeeds(output: &Output) -> Result<(), String> {
    if output.status.success() { Ok(()) } else { Err(text(output)) }
}

fn text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|one| String::from_utf8_lossy(one));
    format!("{}\n{out}{error}", output.status)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A server that passes everything on, but says `STORED` where it should say `EXISTS`. Its threads
/// end with their connections; the one that accepts, with the test.
fn liar(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let (requests, replies) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            std::thread::spawn(move || pass_on(requests, upstream, <[u8]>::to_vec));
            std::thread::spawn(move || pass_on(replies, client, lie));
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, change: fn(&[u8]) -> Vec<u8>) {
    let mut copy = || -> io::Result<()> {
        let mut chunk = [0; 64 << 10];
        loop {
            let bytes = from.read(&mut chunk)?;
            if bytes == 0 {
                return Ok(());
            }
            to.write_all(&change(&chunk[..bytes]))?;
        }
    };
    // An end, or a connection reset: either way there is no more to pass on.
    let _ = copy();
    let _ = to.shutdown(Shutdown::Write);
}

fn lie(reply: &[u8]) -> Vec<u8> {
    let mut reply = reply.to_vec();
    while let Some(at) = reply.windows(8).position(|window| window == b"EXISTS\r\n") {
        reply[at..at + 6].copy_from_slice(b"STORED");
    }
    reply
}
