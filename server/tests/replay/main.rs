//! Replays recorded exchanges with memcached 1.6.45 and compares every reply, byte for byte.
//!
//! Path: client side, over TCP. Invariant: every line of a recording is sent, in order, and every
//! difference is reported; one is enough to fail. Source: `../data/oracle/README.md`.
//!
//! - `SERVER=path`: replay to that server, for instance memcached itself.
//! - `RECORDING=path`: replay that recording too (JSON lines of text or meta commands, zstd).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../live/mod.rs"]
mod live;
mod recording;
mod text;

use live::{SILENCE, Server, Stop, Wire, show};
use recording::{Exchange, State};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/oracle/text.jsonl.zst");

/// What follows each request, and its reply: the end of what the request led to.
const FENCE: &[u8] = b"mn\r\n";
const FENCE_REPLY: &[u8] = b"MN\r\n";

/// The most requests sent before their replies are read.
const PIPELINE_REQUESTS_MAX: usize = 64;

/// How a replay cuts the stream of requests into writes.
#[derive(Clone, Copy, PartialEq)]
enum Delivery {
    /// Each request, its fence included, in one write.
    Whole,
    /// Each request in pieces of 1 to 20 bytes, large values in pieces of up to 8 KiB.
    Pieces,
    /// Up to `PIPELINE_REQUESTS_MAX` requests in one write, as long as none needs an answer first.
    Pipelined,
}

#[test]
fn text_one_by_one() {
    replay(Path::new(TEXT), &["-m", "64"], Delivery::Whole);
}

#[test]
fn text_in_pieces() {
    replay(Path::new(TEXT), &["-m", "64"], Delivery::Pieces);
}

#[test]
fn text_pipelined() {
    replay(Path::new(TEXT), &["-m", "64", "-R", "3"], Delivery::Pipelined);
}

#[test]
fn text_in_eight_megabytes() {
    replay(Path::new(TEXT), &["-m", "8", "-t", "1"], Delivery::Pipelined);
}

#[test]
fn a_recording_named_by_hand() {
    if let Some(path) = std::env::var_os("RECORDING") {
        replay(Path::new(&path), &["-m", "64"], Delivery::Whole);
    }
}

#[test]
fn a_wrong_recording_is_found() {
    let mut exchanges = recording::load(Path::new(TEXT));
    exchanges.truncate(300);
    let at = exchanges.iter().position(|one| one.output.starts_with(b"VALUE")).unwrap();
    let wrong = exchanges[at].output.len() - 8;
    exchanges[at].output[wrong] ^= 1;
    let differences = Replay::new(&["-m", "64"]).run(&exchanges, Delivery::Whole);
    let found: Vec<usize> = differences.iter().map(|one| one.index).collect();
    assert_eq!(found, [at], "{}", report(&differences, &exchanges));
}

fn replay(path: &Path, flags: &[&str], delivery: Delivery) {
    let exchanges = recording::load(path);
    let differences = Replay::new(flags).run(&exchanges, delivery);
    assert!(differences.is_empty(), "{}", report(&differences, &exchanges));
}

struct Difference {
    index: usize,
    sent: Vec<u8>,
    got: Vec<u8>,
    state: State,
}

fn report(differences: &[Difference], exchanges: &[Exchange]) -> String {
    let mut text = format!("{} of {} replies differ\n", differences.len(), exchanges.len());
    for difference in differences {
        let expected = &exchanges[difference.index];
        let _ = writeln!(
            text,
            "#{}\n  in:       {}\n  expected: {} [{:?}]\n  got:      {} [{:?}]",
            difference.index,
            show(&difference.sent),
            show(&expected.output),
            expected.state,
            show(&difference.got),
            difference.state,
        );
    }
    text
}

struct Replay {
    server: Server,
    wire: Wire,
    names: text::Names,
    differences: Vec<Difference>,
}

impl Replay {
    fn new(flags: &[&str]) -> Replay {
        let server = Server::under_test(flags);
        let wire = server.connect();
        Replay { server, wire, names: text::Names::new(), differences: Vec::new() }
    }

    fn run(mut self, exchanges: &[Exchange], delivery: Delivery) -> Vec<Difference> {
        let mut done = 0;
        while done < exchanges.len() {
            let together = together(&exchanges[done..], delivery);
            self.exchange(exchanges, done..done + together, delivery);
            done += together;
        }
        assert!(self.server.is_alive(), "the server died");
        self.differences
    }

    /// Sends some requests at once, then reads and compares the reply of each.
    fn exchange(&mut self, exchanges: &[Exchange], range: Range<usize>, delivery: Delivery) {
        let mut sent = VecDeque::new();
        let mut stream = Vec::new();
        for exchange in &exchanges[range.clone()] {
            let request = self.names.request(&exchange.input);
            stream.extend_from_slice(&request);
            stream.extend_from_slice(FENCE);
            sent.push_back(request);
        }
        match delivery {
            Delivery::Pieces => send_in_pieces(&mut self.wire, &stream),
            Delivery::Whole | Delivery::Pipelined => self.wire.send(&stream),
        }
        for index in range {
            let sent = sent.pop_front().unwrap_or_default();
            self.compare(index, sent, &exchanges[index], delivery);
        }
    }

    fn compare(&mut self, index: usize, sent: Vec<u8>, expected: &Exchange, delivery: Delivery) {
        let (reply, state) = self.reply(expected, delivery);
        let got = self.names.reply(&sent, &reply);
        if got != expected.output || state != expected.state {
            self.differences.push(Difference { index, sent, got, state });
        }
        if state != State::Ok {
            self.wire = self.server.connect();
        }
    }

    /// One request's reply, and how it ended.
    fn reply(&mut self, expected: &Exchange, delivery: Delivery) -> (Vec<u8>, State) {
        if expected.state == State::Hang {
            // No reply is the right one: whatever comes within a short while is wrong, or what
            // the request led to before the server began to wait.
            return match self.wire.ends(SILENCE) {
                Stop::Silent => (self.wire.rest(), State::Hang),
                Stop::Closed => (self.wire.rest(), State::Closed),
            };
        }
        let reply = match delivery {
            Delivery::Pipelined => self.reply_in_stream(),
            Delivery::Whole | Delivery::Pieces => self.wire.until(FENCE_REPLY),
        };
        match reply {
            Ok(reply) => (reply, State::Ok),
            Err(Stop::Closed) => (self.wire.rest(), State::Closed),
            Err(Stop::Silent) => (self.wire.rest(), State::Hang),
        }
    }

    /// A reply up to its fence, with more replies behind it.
    fn reply_in_stream(&mut self) -> Result<Vec<u8>, Stop> {
        let mut reply = Vec::new();
        loop {
            let line = self.wire.line()?;
            if line == FENCE_REPLY {
                return Ok(reply);
            }
            reply.extend_from_slice(&line);
        }
    }
}

/// How many of the next requests can be sent at once: a request that quotes a CAS unique starts a
/// new group, since the reply before it may bring one; one that is not answered ends its group.
fn together(exchanges: &[Exchange], delivery: Delivery) -> usize {
    if delivery != Delivery::Pipelined {
        return 1;
    }
    let mut count = 1;
    while count < exchanges.len().min(PIPELINE_REQUESTS_MAX)
        && exchanges[count - 1].state == State::Ok
        && !text::quotes_cas(&exchanges[count].input)
    {
        count += 1;
    }
    count
}

fn send_in_pieces(wire: &mut Wire, stream: &[u8]) {
    let bytes_max = if stream.len() > 2000 { 8 << 10 } else { 20 };
    let mut rest = stream;
    let mut seed = stream.len();
    while !rest.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let piece = ((seed >> 33) % bytes_max + 1).min(rest.len());
        wire.send(&rest[..piece]);
        rest = &rest[piece..];
    }
}
