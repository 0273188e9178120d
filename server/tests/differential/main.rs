//! Sends the same random, well-formed commands to this server and to a memcached, and compares
//! reply by reply; what differs is shrunk to a short sequence.
//!
//! Path: client side, over TCP. Invariant: a difference is reported with its seed and a sequence
//! that shows it on freshly started servers. Source: memcached's `doc/protocol.txt`; the memcached
//! that `MEMCACHED` names decides.
//!
//! - `DIFFERENTIAL_SEED=n`, `DIFFERENTIAL_COMMANDS=n`: another seed, another length.
//! - `SERVER=path`, `SERVER_FLAGS="…"`: compare that server, started with these flags as well.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod commands;
#[path = "../live/mod.rs"]
mod live;
mod peer;
mod shrink;

use commands::{Command, Generator};
use live::Server;
use peer::{Mutant, Peer};
use std::fmt::Write as _;

/// Keeps memcached from holding an item while its background threads look at it: such an item is
/// copied where another is changed in place, and only then does a decrement shorten its text.
const RIVAL_FLAGS: [&str; 4] = ["-o", "no_lru_maintainer,no_lru_crawler", "-m", "256"];

#[test]
fn as_memcached() {
    compare_with_memcached(&[], &[], Features { commands: 100_000, ..Features::default() });
}

#[test]
fn as_memcached_in_eight_megabytes() {
    let flags = ["-m", "8"];
    compare_with_memcached(&flags, &[], Features { seed: 2, ..Features::default() });
}

#[test]
fn as_memcached_without_cas() {
    // memcached -C spares items of the second in which they are flushed.
    let features = Features { seed: 3, flushes: false, ..Features::default() };
    compare_with_memcached(&["-C"], &["-C"], features);
}

/// A wrong reply in rare circumstances is found, and shown in few commands.
#[test]
fn a_planted_difference_is_found_and_shrunk() {
    let pair = || {
        let mutant = Peer::mutant(Server::under_test(&[]), Mutant::FlagsAfterTouch);
        [mutant, Peer::new(Server::under_test(&[]))]
    };
    let features = Features { commands: 20_000, ..Features::default() };
    let found = find(features, &pair).unwrap();
    let verbs: Vec<&str> = found.commands.iter().map(|command| command.verb.name()).collect();
    assert!(verbs.len() <= 4 && verbs.contains(&"touch"), "{verbs:?}");
    let last = verbs.last().unwrap();
    assert!(last.starts_with('g'), "{verbs:?}");
}

/// Which commands to send.
#[derive(Clone, Copy)]
struct Features {
    seed: u64,
    commands: usize,
    flushes: bool,
}

impl Default for Features {
    fn default() -> Features {
        Features { seed: 1, commands: 30_000, flushes: true }
    }
}

/// A sequence whose last reply differs.
#[derive(Clone)]
struct Difference {
    commands: Vec<Command>,
    replies: [Vec<u8>; 2],
}

fn compare_with_memcached(flags: &[&str], rival_flags: &[&str], mut features: Features) {
    features.seed = number("DIFFERENTIAL_SEED").unwrap_or(features.seed);
    let wanted = number("DIFFERENTIAL_COMMANDS").and_then(|count| usize::try_from(count).ok());
    features.commands = wanted.unwrap_or(features.commands);
    let more = std::env::var("SERVER_FLAGS").unwrap_or_default();
    let flags: Vec<&str> = flags.iter().copied().chain(more.split_whitespace()).collect();
    let rival_flags = [&RIVAL_FLAGS, rival_flags].concat();
    if Server::memcached(&rival_flags).is_none() {
        return;
    }
    let pair = || {
        let rival = Server::memcached(&rival_flags).unwrap();
        [Peer::new(Server::under_test(&flags)), Peer::new(rival)]
    };
    if let Some(difference) = find(features, &pair) {
        panic!("{}", report(&difference, &pair(), features.seed));
    }
}

/// Runs the commands; the first difference, shrunk.
fn find(features: Features, pair: &dyn Fn() -> [Peer; 2]) -> Option<Difference> {
    let mut generator = Generator::new(features.seed, features.flushes);
    let mut history: Vec<Command> = Vec::new();
    let mut peers = pair();
    while history.len() < features.commands {
        let batch = generator.batch();
        let Some((index, replies)) = peer::run_batch(&mut peers, &batch) else {
            history.extend(batch);
            continue;
        };
        history.extend_from_slice(&batch[..=index]);
        return Some(shrink::shrink(Difference { commands: history, replies }, pair));
    }
    None
}

fn report(difference: &Difference, peers: &[Peer; 2], seed: u64) -> String {
    let mut text = format!("seed {seed}; the last of these commands is answered differently:\n");
    for command in &difference.commands {
        let _ = writeln!(text, "  batch {:5}: {}", command.batch, command.show());
    }
    for (peer, reply) in peers.iter().zip(&difference.replies) {
        let _ = writeln!(text, "{}:\n  {}", peer.name(), live::show(reply));
    }
    text
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
