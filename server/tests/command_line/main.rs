//! The built binary as a user sees it: what it prints, refuses, writes and leaves behind.
//!
//! Where: outside of the server; the tests know only its command line, signals and sockets.
//! Invariant: what memcached's users and scripts see is as with memcached, or refused with a word.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod limits;
mod listening;
mod process;
mod refused;
mod running;

use running::{ended, hypostyle, text};

#[test]
fn version_and_help_begin_with_both_versions() {
    let first = concat!("memcached 1.6.45 (hypostyle ", env!("CARGO_PKG_VERSION"), ")");
    for (argument, lines) in [("-V", 1), ("--version", 1), ("-h", 40), ("--help", 40), ("-i", 3)] {
        let output = ended(hypostyle(&[argument]));
        let stdout = text(&output.stdout);
        assert_eq!(stdout.lines().next(), Some(first), "{argument}");
        assert!(stdout.lines().count() >= lines, "{argument}");
        assert_eq!(text(&output.stderr), "", "{argument}");
        assert_eq!(output.status.code(), Some(0), "{argument}");
    }
}
