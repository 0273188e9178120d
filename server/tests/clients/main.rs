//! Runs real clients, in five languages and all three protocols, against the server. Each client is
//! pinned to a version or to a Debian release. A client's integration tests run too.
//!
//! Where: client side, over TCP.
//! Invariant: each client fails against a proxy that falsifies replies, which shows that the client
//! checks them. The programs that use the clients are in `tests/clients/`; `make peers` installs
//! the clients.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod installed;
mod liar;
mod libmemcached;
#[path = "../live/mod.rs"]
mod live;

use installed::{Verdict, checks, peers, run, text, verdict};
use liar::{Lie, liar};
use live::Server;
use live::running::HYPOSTYLE;
use std::net::SocketAddr;
use std::process::Command;
use testing::Folder;

const LIES: &[Lie] = &[Lie::Stored, Lie::Altered];

#[test]
fn memccapable_passes_all_but_two_as_against_memcached() {
    passes(libmemcached::memccapable, LIES);
}

#[test]
fn memccapable_passes_through_an_honest_proxy() {
    let server = Server::under_test(&[]);
    if let Some(Err(error)) = libmemcached::memccapable(liar(server.address(), Lie::Nothing)) {
        panic!("{error}");
    }
}

// memcaslap sends only sets and gets, which are never refused: `Lie::Stored` has no effect.

#[test]
fn memcaslap_verifies_values_over_text() {
    passes(libmemcached::memcaslap_text, &[Lie::Altered]);
}

#[test]
fn memcaslap_verifies_values_over_binary() {
    passes(libmemcached::memcaslap_binary, &[Lie::Altered]);
}

#[test]
fn pymemcache_passes_over_text() {
    passes(|address| python("pymemcache_suite.py", address, &[]), LIES);
}

// No request of pylibmc's own suite is refused, so only `pylibmc_check.py` notices `Lie::Stored`.

#[test]
fn pylibmc_suite_passes_over_text() {
    passes(|address| python("pylibmc_suite.py", address, &["text"]), &[Lie::Altered]);
}

#[test]
fn pylibmc_suite_passes_over_binary() {
    passes(|address| python("pylibmc_suite.py", address, &["binary"]), &[Lie::Altered]);
}

#[test]
fn pylibmc_passes_over_text() {
    passes(|address| python("pylibmc_check.py", address, &["text"]), LIES);
}

#[test]
fn pylibmc_passes_over_binary() {
    passes(|address| python("pylibmc_check.py", address, &["binary"]), LIES);
}

#[test]
fn meta_memcache_passes_over_meta() {
    passes(|address| python("meta_memcache_check.py", address, &[]), LIES);
}

#[test]
fn gomemcache_passes_over_text() {
    let check = |address: SocketAddr| {
        verdict(Command::new(peers().join("go/check")).arg(address.to_string()))
    };
    passes(check, LIES);
}

/// The suite starts the first `memcached` on `PATH`, which is the file in `folder`. If the suite
/// also passed with `/bin/true` as this file, the suite would have started another file.
#[test]
fn gomemcache_suite_passes_over_text() {
    for (server, passes) in [(HYPOSTYLE, true), ("/bin/true", false)] {
        let folder = Folder::new();
        std::os::unix::fs::symlink(server, folder.path("memcached")).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("env");
        command.arg(format!("PATH={}:{path}", folder.0.display())).arg(peers().join("go/suite"));
        let output = run(command.args(["-test.v", "-test.run", "^TestUnixSocket$"]));
        let Some(output) = output else { return };
        let report = text(&output);
        assert_eq!(report.contains("--- PASS: TestUnixSocket"), passes, "{server}: {report}");
    }
}

#[test]
fn memcached_for_node_suite_passes_over_text() {
    passes(|address| node("memcached_suite.js", address), LIES);
}

#[test]
fn memcached_for_node_passes_over_text() {
    passes(|address| node("memcached.js", address), LIES);
}

#[test]
fn memjs_passes_over_binary() {
    passes(|address| node("memjs.js", address), LIES);
}

#[test]
fn spymemcached_passes_over_text() {
    passes(|address| spymemcached(address, "text"), LIES);
}

#[test]
fn spymemcached_passes_over_binary() {
    passes(|address| spymemcached(address, "binary"), LIES);
}

#[test]
fn dalli_passes_over_meta() {
    passes(|address| dalli(address, "meta"), LIES);
}

#[test]
fn dalli_passes_over_binary() {
    passes(|address| dalli(address, "binary"), LIES);
}

/// Each run has a fresh server, so that only the lie can change the result.
fn passes(check: fn(SocketAddr) -> Verdict, lies: &[Lie]) {
    let server = Server::under_test(&[]);
    match check(server.address()) {
        Some(Ok(())) => {}
        Some(Err(error)) => panic!("{error}"),
        None => return,
    }
    for &lie in lies {
        let server = Server::under_test(&[]);
        let verdict = check(liar(server.address(), lie));
        assert_ne!(verdict, Some(Ok(())), "{lie:?}: the lie was not noticed");
    }
}

fn python(check: &str, address: SocketAddr, arguments: &[&str]) -> Verdict {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = Command::new(peers().join("python/bin/python"));
    command.arg("-B").arg(checks().join("python").join(check));
    verdict(command.args([&host, &port]).args(arguments))
}

fn node(check: &str, address: SocketAddr) -> Verdict {
    let mut command = Command::new("node");
    verdict(command.arg(peers().join("node").join(check)).arg(address.to_string()))
}

fn spymemcached(address: SocketAddr, protocol: &str) -> Verdict {
    let class_path = format!("/usr/share/java/spymemcached.jar:{}", peers().join("java").display());
    let mut command = Command::new("java");
    // With only one compiler tier, Java starts faster.
    command.args(["-XX:TieredStopAtLevel=1", "-cp", &class_path, "Check"]);
    verdict(command.args([&address.to_string(), protocol]))
}

/// Dalli comes from the first Debian release whose Dalli speaks the meta protocol.
fn dalli(address: SocketAddr, protocol: &str) -> Verdict {
    let mut command = Command::new("ruby");
    command.arg("-I").arg(peers().join("ruby/lib")).arg(checks().join("ruby/check.rb"));
    verdict(command.args([&address.to_string(), protocol]))
}
