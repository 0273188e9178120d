//! Runs libmemcached's own programs: memccapable tries each command, memcaslap verifies values.
//!
//! Where: client side, over TCP.
//! Source: libmemcached 1.1.4, as Debian packages it.

use crate::installed::{Verdict, run, text};
use std::net::SocketAddr;
use std::process::Command;

/// The names of `memccapable`'s tests in their order. The tests of the text protocol come first.
const CAPABILITIES: [&str; 54] = [
    "ascii version",
    "ascii quit",
    "ascii verbosity",
    "ascii set",
    "ascii set noreply",
    "ascii get",
    "ascii gets",
    "ascii mget",
    "ascii flush",
    "ascii flush noreply",
    "ascii add",
    "ascii add noreply",
    "ascii replace",
    "ascii replace noreply",
    "ascii cas",
    "ascii cas noreply",
    "ascii delete",
    "ascii delete noreply",
    "ascii incr",
    "ascii incr noreply",
    "ascii decr",
    "ascii decr noreply",
    "ascii append",
    "ascii append noreply",
    "ascii prepend",
    "ascii prepend noreply",
    "ascii stat",
    "binary noop",
    "binary quit",
    "binary quitq",
    "binary set",
    "binary setq",
    "binary flush",
    "binary flushq",
    "binary add",
    "binary addq",
    "binary replace",
    "binary replaceq",
    "binary delete",
    "binary deleteq",
    "binary get",
    "binary getq",
    "binary getk",
    "binary getkq",
    "binary incr",
    "binary incrq",
    "binary decr",
    "binary decrq",
    "binary version",
    "binary append",
    "binary appendq",
    "binary prepend",
    "binary prependq",
    "binary stat",
];

/// Two tests of `memccapable` that expect an older error text. memcached 1.6.45 fails them too.
const OUTDATED: [&str; 2] = ["ascii delete", "ascii delete noreply"];

pub(crate) fn memccapable(address: SocketAddr) -> Verdict {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let output = run(Command::new("memccapable").args(["-t", "60", "-h", &host, "-p", &port]))?;
    // `memccapable` writes each test's name to standard output, and after a test that passed also
    // "[pass]" and a line end.
    let expected: String = CAPABILITIES
        .iter()
        .map(|name| format!("{name:<40}{}", if OUTDATED.contains(name) { "" } else { "[pass]\n" }))
        .collect();
    let passed = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    let is_as_expected = passed.trim_start_matches('\n').starts_with(&expected)
        && (passed.to_string() + &failed).contains("2 of 54 tests failed");
    Some(if is_as_expected { Ok(()) } else { Err(text(&output)) })
}

/// Number of memcaslap's requests. A tenth of the requests are SETs. Their values of up to 64 KiB
/// all fit in 64 MiB, because memcaslap could not verify an evicted value.
const OPERATIONS: u64 = 5_000;
const SETS: u64 = OPERATIONS / 10;

pub(crate) fn memcaslap_text(address: SocketAddr) -> Verdict {
    memcaslap(address, &[])
}

pub(crate) fn memcaslap_binary(address: SocketAddr) -> Verdict {
    memcaslap(address, &["-B"])
}

/// Runs memcaslap with small values, with ten keys per GET, and with values of 64 KiB.
fn memcaslap(address: SocketAddr, protocol: &[&str]) -> Verdict {
    for workload in [&[][..], &["-d", "10"], &["-X", "65536"]] {
        let verdict = memcaslap_once(address, &[protocol, workload].concat())?;
        if verdict.is_err() {
            return Some(verdict);
        }
    }
    Some(Ok(()))
}

fn memcaslap_once(address: SocketAddr, options: &[&str]) -> Verdict {
    let mut command = Command::new("memcaslap");
    command.args(["-s", &address.to_string(), "-x", &OPERATIONS.to_string()]);
    command.args(["-v", "1.0", "-c", "1", "-T", "1"]).args(options);
    let output = run(&mut command)?;
    let report = text(&output);
    let counts = [
        ("cmd_get", OPERATIONS - SETS),
        ("cmd_set", SETS),
        ("get_misses", 0),
        ("verify_misses", 0),
        ("verify_failed", 0),
    ];
    let lacking =
        counts.iter().find(|(name, count)| !report.contains(&format!("\n{name}: {count}\n")));
    Some(match lacking {
        Some((name, count)) => Err(format!("memcaslap: {name} is not {count}:\n{report}")),
        None if !output.status.success() => Err(report),
        None => Ok(()),
    })
}
