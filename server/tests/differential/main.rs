//! Sends the same random commands, some malformed, in all three protocols to this server and to a
//! memcached, and compares the replies. A sequence whose replies differ is shrunk to a short one.
//!
//! Where: client side, over TCP.
//! Invariant: a difference is reported with its seed and with commands that show it on new servers.
//! Source: memcached's `doc/protocol.txt` and `protocol_binary.h`; where they are silent, the
//! answers of `MEMCACHED`.
//!
//! - `DIFFERENTIAL_SEED=n` sets the seed, `DIFFERENTIAL_COMMANDS=n` the number of commands.
//! - `SERVER=path` sets the server to test, `SERVER_FLAGS="…"` further flags of this server.
//! - `MEMCACHED=path`: the memcached to compare with. Version 1.6.45 gets all commands; any other
//!   version gets only well-formed commands whose meaning has not changed since 1.6.18.
//!
//! The test does not send some commands, because memcached's answer depends on chance, or this
//! server's answer differs on purpose:
//! - `incr` and `ma` after a fetch of the same key whose reply may be unsent: memcached then copies
//!   the number instead of changing it in place, which shows in the number's length. memcached
//!   also copies an item that its LRU thread holds, and therefore runs without this thread.
//! - `incr` of numbers in very long texts, which this server does not accept as numbers.
//! - The commands that `malformed` and `meta` name.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod binary;
mod command;
mod coverage;
mod generator;
mod lies;
#[path = "../live/mod.rs"]
mod live;
mod malformed;
mod meta;
mod peer;
mod replies;
mod shrink;
mod text;
mod values;

use command::{Command, Protocol};
use coverage::Coverage;
use generator::Generator;
use lies::{Liar, Lie};
use live::Server;
use peer::Peer;
use replies::Reply;
use std::fmt::Write as _;
use std::io::Write as _;

/// These flags keep memcached's background threads from holding an item. memcached copies a held
/// item instead of changing it in place, and a decrement shortens only the text of a copy.
const RIVAL_FLAGS: [&str; 6] = ["-t", "1", "-o", "no_lru_maintainer,no_lru_crawler", "-m", "256"];

/// The memcached version that gets all commands.
const WHOLE_VERSION: &str = "1.6.45";

#[test]
fn as_memcached() {
    compare_with_memcached(&[], &[], Features { commands: 100_000, ..Features::default() });
}

#[test]
fn as_memcached_in_eight_megabytes() {
    let flags = ["-m", "8", "-t", "1"];
    let features = Features { seed: 2, flushes: true, ordered: true, ..Features::default() };
    compare_with_memcached(&flags, &[], features);
}

#[test]
fn as_memcached_without_cas() {
    compare_with_memcached(
        &["-C"],
        &["-C"],
        Features { seed: 3, cas: false, ..Features::default() },
    );
}

#[test]
fn planted_differences_are_found_and_shrunk() {
    let lies: [(Lie, &str, usize); 11] = [
        (Lie::FlagsAfterTouch, "touch", 4),
        (Lie::NumberOffByOne, "incr", 4),
        (Lie::LongTtlIsNone, "m", 4),
        (Lie::StatusSwapped, "ADD", 4),
        (Lie::OpaqueWrong, "GATK", 4),
        (Lie::NotQuiet, "ms", 4),
        (Lie::MarksSwapped, "mg", 5),
        (Lie::UniqueKept, "append", 5),
        (Lie::HitForgotten, "mg", 5),
        (Lie::BodyWrong, "INCREMENT", 4),
        (Lie::ErrorSwapped, "append", 4),
    ];
    let mut tried = 0;
    for (lie, name, commands_max) in lies {
        let pair = || {
            let liar = Peer::lying(Server::under_test(&[]), Liar::new(lie));
            [liar, Peer::new(Server::under_test(&[]))]
        };
        let features = Features { commands: 30_000, malformed: true, ..Features::default() };
        let mut coverage = Coverage::default();
        let found = find(features, &pair, &mut coverage).unwrap_or_else(|| panic!("{lie:?}"));
        let names: Vec<&str> = found.commands.iter().map(|command| command.name).collect();
        // More than one meta command can show the lie about the `t` flag.
        let is_named = names.iter().any(|shown| shown.starts_with(name));
        let shown = names.len() <= commands_max && is_named;
        assert!(shown, "{lie:?}\n{}", report(&found, &pair(), features.seed));
        tried += 1;
    }
    assert_eq!(tried, lies.len());
}

#[derive(Clone, Copy)]
struct Features {
    seed: u64,
    commands: usize,
    /// Compares the items that remain after a `flush_all`. No command then chooses a CAS unique:
    /// in memcached an item with a chosen unique survives a flush for the rest of the second.
    flushes: bool,
    /// Set if the servers keep CAS uniques. Without CAS uniques, versions of memcached before
    /// 1.6.45 also lose items stored in the second of a flush.
    cas: bool,
    /// Sends malformed commands, and also commands that only 1.6.45 answers like this server.
    malformed: bool,
    /// Sends CAS uniques that a key had before its deletion: see `meta::Dialect`.
    ordered: bool,
    protocols: [(Protocol, u64); 3],
}

impl Default for Features {
    fn default() -> Features {
        let protocols = [(Protocol::Text, 35), (Protocol::Meta, 35), (Protocol::Binary, 30)];
        Features {
            seed: 1,
            commands: 30_000,
            flushes: false,
            cas: true,
            malformed: false,
            ordered: false,
            protocols,
        }
    }
}

#[derive(Clone)]
struct Difference {
    commands: Vec<Command>,
    replies: [Reply; 2],
    again: bool,
}

fn compare_with_memcached(flags: &[&str], rival_flags: &[&str], mut features: Features) {
    features.seed = number("DIFFERENTIAL_SEED").unwrap_or(features.seed);
    let wanted = number("DIFFERENTIAL_COMMANDS").and_then(|count| usize::try_from(count).ok());
    let by_default = features.commands;
    features.commands = wanted.unwrap_or(by_default);
    let more = std::env::var("SERVER_FLAGS").unwrap_or_default();
    let flags: Vec<&str> = flags.iter().copied().chain(more.split_whitespace()).collect();
    let rival_flags = [&RIVAL_FLAGS, rival_flags].concat();
    let Some(rival) = Server::memcached(&rival_flags) else { return };
    features.malformed = rival.version() == WHOLE_VERSION;
    drop(rival);
    let pair = || {
        let rival = Server::memcached(&rival_flags).unwrap();
        [Peer::new(Server::under_test(&flags)), Peer::new(rival)]
    };
    let mut coverage = Coverage::default();
    if let Some(difference) = find(features, &pair, &mut coverage) {
        panic!("{}", report(&difference, &pair(), features.seed));
    }
    // The test harness captures `print!`, but not a direct write to stderr.
    let _ = write!(std::io::stderr(), "{}", coverage.report());
    if by_default >= 100_000 && features.commands >= by_default {
        let missed = coverage.missed(features.malformed);
        assert!(missed.is_empty(), "reached too rarely: {missed:#?}");
    }
}

fn find(
    features: Features,
    pair: &dyn Fn() -> [Peer; 2],
    coverage: &mut Coverage,
) -> Option<Difference> {
    let mut generator = Generator::new(features);
    let mut history: Vec<Command> = Vec::new();
    let mut peers = pair();
    while history.len() < features.commands {
        let batch = generator.batch();
        match peer::run_batch(&mut peers, &batch) {
            Ok(replies) => {
                for (command, reply) in batch.iter().zip(&replies) {
                    coverage.note(command, reply);
                }
                history.extend(batch);
            }
            Err(found) => {
                let (index, replies) = *found;
                history.extend_from_slice(&batch[..=index]);
                let found = Difference { commands: history, replies, again: false };
                return Some(shrink::shrink(found, pair));
            }
        }
    }
    None
}

fn report(difference: &Difference, peers: &[Peer; 2], seed: u64) -> String {
    let mut text = format!("seed {seed}; the last of these commands is answered differently");
    text += if difference.again { ":\n" } else { ", but not on fresh servers:\n" };
    for command in &difference.commands {
        let _ = writeln!(text, "  batch {:5}: {}", command.batch, command.show());
    }
    for (peer, reply) in peers.iter().zip(&difference.replies) {
        let _ = writeln!(text, "{}:\n  {}", peer.name(), reply.show());
    }
    text
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
