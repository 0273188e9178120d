//! The built binary as a user sees it: what it prints, refuses, writes and leaves behind.
//!
//! Where: outside the server; the tests use only its command line, signals and sockets.
//! Invariant: memcached's users and scripts see memcached's behaviour, or an explicit refusal.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod documents;
mod limits;
mod listening;
mod process;
mod refused;
#[path = "../running/mod.rs"]
mod running;
mod service;

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

/// `docs/versions.md` promises the texts that this test expects.
#[test]
fn a_fleet_tells_hypostyle_from_memcached_and_the_policy_says_how() {
    let policy = include_str!("../../../docs/versions.md");
    let own = env!("CARGO_PKG_VERSION");
    let running = running::Running::on_loopback(&[]);
    assert_eq!(running.ask("version\r\n"), running::VERSION_REPLY);
    let claimed = running::VERSION_REPLY.trim().trim_start_matches("VERSION ");
    assert!(policy.contains(&format!("version of memcached, `{claimed}`")));
    let row = format!("STAT hypostyle_version {own}");
    assert!(running.ask("stats store\r\n").contains(&format!("{row}\r\n")));
    assert!(policy.contains(&row), "{row}");
}

#[test]
fn the_manual_page_and_completions_are_printed() {
    let printed = |words: &[&str]| {
        let output = ended(hypostyle(words));
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""), "{words:?}");
        text(&output.stdout)
    };
    assert!(printed(&["man"]).contains(".TH hypostyle 1"));
    assert!(printed(&["completions", "bash"]).contains("complete -F _hypostyle"));
    let output = ended(hypostyle(&["mna"]));
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("unexpected word 'mna'"), "{stderr}");
}
