//! Replays recorded exchanges with memcached 1.6.45 and compares every reply, byte for byte.
//!
//! Path: client side, over TCP. Invariant: every line of a recording is sent, in order, and every
//! difference is reported; one is enough to fail. Source: `../data/oracle/README.md`.
//!
//! - `SERVER=path`: replay to that server, for instance memcached itself.
//! - `RECORDING=path`: replay that recording of text or meta commands too (JSON lines, zstd).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod binary;
mod form;
#[path = "../live/mod.rs"]
mod live;
mod recording;
mod text;

use binary::Binary;
use form::Form;
use live::{SILENCE, Server, Stop, Wire};
use recording::{Answer, Exchange, State};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use text::Text;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/oracle");

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
    replay(Text::new(), "text", &["-m", "64"], Delivery::Whole);
}

#[test]
fn text_in_pieces() {
    replay(Text::new(), "text", &["-m", "64"], Delivery::Pieces);
}

#[test]
fn text_pipelined() {
    replay(Text::new(), "text", &["-m", "64", "-R", "3"], Delivery::Pipelined);
}

#[test]
fn text_in_eight_megabytes() {
    replay(Text::new(), "text", &["-m", "8", "-t", "1"], Delivery::Pipelined);
}

#[test]
fn meta_one_by_one() {
    replay(Text::new(), "meta", &["-m", "64"], Delivery::Whole);
}

#[test]
fn meta_in_pieces() {
    replay(Text::new(), "meta", &["-m", "64"], Delivery::Pieces);
}

#[test]
fn meta_pipelined() {
    replay(Text::new(), "meta", &["-m", "64", "-R", "3"], Delivery::Pipelined);
}

#[test]
fn binary_one_by_one() {
    replay(Binary::new(), "binary", &["-m", "64"], Delivery::Whole);
}

#[test]
fn binary_in_pieces() {
    replay(Binary::new(), "binary", &["-m", "64"], Delivery::Pieces);
}

#[test]
fn binary_pipelined() {
    replay(Binary::new(), "binary", &["-m", "64", "-R", "3"], Delivery::Pipelined);
}

#[test]
fn a_recording_named_by_hand() {
    if let Some(path) = std::env::var_os("RECORDING") {
        let exchanges = recording::load(Path::new(&path));
        replay_all(Text::new(), &exchanges, &["-m", "64"], Delivery::Whole);
    }
}

#[test]
fn a_wrong_text_recording_is_found() {
    let mut exchanges = beginning("text");
    let at = exchanges.iter().position(|one| one.answer.output.starts_with(b"VALUE")).unwrap();
    let wrong = exchanges[at].answer.output.len() - 8;
    exchanges[at].answer.output[wrong] ^= 1;
    assert_found(Text::new(), &exchanges, at);
}

#[test]
fn a_wrong_binary_recording_is_found() {
    let mut exchanges = beginning("binary");
    let is_hit =
        |one: &Exchange| one.answer.output.first_chunk() == Some(&[0x81, 0, 0, 0, 4, 0, 0, 0]);
    let at = exchanges.iter().position(|one| is_hit(one) && one.answer.output.len() > 28).unwrap();
    for wrong in [
        // The status, the opaque, the flags, a byte of the value.
        7, 12, 27, 28,
    ] {
        exchanges[at].answer.output[wrong] ^= 1;
        assert_found(Binary::new(), &exchanges, at);
        exchanges[at].answer.output[wrong] ^= 1;
    }
    // A status taken for another, its text unchanged; a reply where there is none.
    let at = exchanges.iter().position(|one| one.answer.output.get(7) == Some(&5)).unwrap();
    exchanges[at].answer.output[7] = 1;
    assert_found(Binary::new(), &exchanges, at);
    exchanges[at].answer.output[7] = 5;
    let at = exchanges.iter().position(|one| one.answer.output.is_empty()).unwrap();
    exchanges[at].answer.output = exchanges[0].answer.output.clone();
    assert_found(Binary::new(), &exchanges, at);
}

/// The first exchanges of a recording: enough of them to plant a fault in.
fn beginning(name: &str) -> Vec<Exchange> {
    let mut exchanges = load(name);
    exchanges.truncate(300);
    exchanges
}

fn assert_found<F: Form>(form: F, exchanges: &[Exchange], at: usize) {
    let differences = Replay::new(form, &["-m", "64"]).run(exchanges, Delivery::Whole);
    let found: Vec<usize> = differences.iter().map(|one| one.index).collect();
    assert_eq!(found, [at], "{}", report::<F>(&differences, exchanges));
}

fn load(name: &str) -> Vec<Exchange> {
    recording::load(&Path::new(FOLDER).join(format!("{name}.jsonl.zst")))
}

fn replay<F: Form>(form: F, name: &str, flags: &[&str], delivery: Delivery) {
    replay_all(form, &load(name), flags, delivery);
}

fn replay_all<F: Form>(form: F, exchanges: &[Exchange], flags: &[&str], delivery: Delivery) {
    let differences = Replay::new(form, flags).run(exchanges, delivery);
    assert!(differences.is_empty(), "{}", report::<F>(&differences, exchanges));
}

struct Difference {
    index: usize,
    sent: Vec<u8>,
    got: Answer,
}

fn report<F: Form>(differences: &[Difference], exchanges: &[Exchange]) -> String {
    let mut text = format!("{} of {} replies differ\n", differences.len(), exchanges.len());
    for difference in differences {
        let expected = &exchanges[difference.index];
        let _ = writeln!(
            text,
            "#{}\n  in:       {}\n  expected: {} [{:?}]\n  got:      {} [{:?}]",
            difference.index,
            live::show(&difference.sent),
            F::show(&expected.answer.output),
            expected.answer.state,
            F::show(&difference.got.output),
            difference.got.state,
        );
    }
    text
}

struct Replay<F> {
    server: Server,
    wire: Wire,
    form: F,
    differences: Vec<Difference>,
}

impl<F: Form> Replay<F> {
    fn new(form: F, flags: &[&str]) -> Replay<F> {
        let server = Server::under_test(flags);
        let wire = server.connect();
        Replay { server, wire, form, differences: Vec::new() }
    }

    fn run(mut self, exchanges: &[Exchange], delivery: Delivery) -> Vec<Difference> {
        let mut done = 0;
        while done < exchanges.len() {
            let together = together::<F>(&exchanges[done..], delivery);
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
            let request = self.form.request(exchange);
            stream.extend_from_slice(&request);
            stream.extend_from_slice(&F::fence());
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
        let (reply, state) = self.reply(&expected.answer);
        let got = Answer { output: self.form.reply(&sent, &reply), state };
        if !expected.allows(&got, delivery != Delivery::Whole) {
            self.differences.push(Difference { index, sent, got });
        }
        if state != State::Ok {
            self.wire = self.server.connect();
        }
    }

    /// One request's reply, and how it ended.
    fn reply(&mut self, expected: &Answer) -> (Vec<u8>, State) {
        let mut reply = Vec::new();
        let read = match expected.state {
            State::Ok | State::Closed => F::read(&mut self.wire, &mut reply),
            // After what the request led to no reply is the right one: whatever comes within a
            // short while is wrong.
            State::Hang => self.wire.exactly(expected.output.len()).and_then(|bytes| {
                reply = bytes;
                Err(self.wire.ends(SILENCE))
            }),
        };
        let state = match read {
            Ok(()) => return (reply, State::Ok),
            Err(Stop::Closed) => State::Closed,
            Err(Stop::Silent) => State::Hang,
        };
        reply.extend(self.wire.rest());
        (reply, state)
    }
}

/// How many of the next requests can be sent at once: a request that quotes a CAS unique starts a
/// new group, since the reply before it may bring one; one that is not answered ends its group.
fn together<F: Form>(exchanges: &[Exchange], delivery: Delivery) -> usize {
    if delivery != Delivery::Pipelined {
        return 1;
    }
    let mut count = 1;
    while count < exchanges.len().min(PIPELINE_REQUESTS_MAX)
        && exchanges[count - 1].goes_on()
        && !F::quotes_unique(&exchanges[count])
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
