//! Replays exchanges recorded from memcached 1.6.45, and compares every reply byte for byte.
//!
//! Where: client side, over TCP.
//! Invariant: every line of a recording is sent, in order; one difference fails the test.
//! Source: `../data/oracle/README.md`.
//!
//! - `SERVER=path`: replays to the server program at `path`, for instance memcached itself.
//! - `RECORDING=path`: also replays that recording of text or meta commands (JSON lines, zstd).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod binary;
mod deliver;
mod form;
#[path = "../live/mod.rs"]
mod live;
mod recording;
mod text;

use binary::Binary;
use deliver::{Delivery, Replay, report};
use form::Form;
use recording::{Answer, Exchange, State};
use std::path::Path;
use text::Text;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/oracle");

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
        // Offsets of the status, the opaque, the flags, and a byte of the value.
        7, 12, 27, 28,
    ] {
        exchanges[at].answer.output[wrong] ^= 1;
        assert_found(Binary::new(), &exchanges, at);
        exchanges[at].answer.output[wrong] ^= 1;
    }
    // Plant a wrong status with the right text, then a reply to a request that must get no reply.
    let at = exchanges.iter().position(|one| one.answer.output.get(7) == Some(&5)).unwrap();
    exchanges[at].answer.output[7] = 1;
    assert_found(Binary::new(), &exchanges, at);
    exchanges[at].answer.output[7] = 5;
    let at = exchanges.iter().position(|one| one.answer.output.is_empty()).unwrap();
    exchanges[at].answer.output = exchanges[0].answer.output.clone();
    assert_found(Binary::new(), &exchanges, at);
}

#[test]
fn a_named_reply_differs_as_named_only() {
    let mut named = 0;
    for exchange in load("meta") {
        for other in &exchange.others {
            named += 1;
            let answer = &other.answer;
            assert!(exchange.allows(answer, true));
            assert_eq!(exchange.allows(answer, false), !other.in_parts);
            let mut output = answer.output.clone();
            output.push(b'\n');
            assert!(!exchange.allows(&Answer { output, state: answer.state }, true));
            let output = answer.output.clone();
            assert!(!exchange.allows(&Answer { output, state: State::Hang }, true));
        }
    }
    assert_eq!(named, 22, "the replies that meta.others.jsonl names");
}

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
