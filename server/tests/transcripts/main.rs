//! Runs the transcripts beside this file: what a client sends and, byte for byte, what it gets.
//!
//! Path: client side, over TCP. Invariant: every reply is accounted for, the one after the last
//! too. Source: each transcript was first run against memcached 1.6.45; the second test runs
//! them against the memcached at hand. The format stands in `README.md`.
//!
//! - `TRANSCRIPT=name`: run only the transcripts whose name contains this.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../live/mod.rs"]
mod live;
mod script;

use live::{PATIENCE, SILENCE, Server, Stop, Wire, show};
use script::{Piece, Script, Step, Values};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");

#[test]
fn the_server_answers_as_written() {
    run_all(None, |flags| Some(Server::under_test(flags)));
}

#[test]
fn memcached_answers_as_written() {
    let Some(rival) = Server::memcached(&[]) else { return };
    let version = rival.version();
    run_all(Some(&version), Server::memcached);
}

#[test]
fn a_wrong_transcript_is_found() {
    let wrong = [
        ("> get k\n< EN\n", 2),
        ("> get k\n", 1),
        ("> get k\n< END\n< END\n", 3),
        ("> version\n! closed\n", 2),
        ("> quit\n! waits\n", 2),
        ("> set k 0 0 1\n> x\n< STORED\n> gets k\n< VALUE k 0 1 {cas a}\n< y\n< END\n", 6),
    ];
    let start = |flags: &[&str]| Some(Server::under_test(flags));
    for (text, line) in wrong {
        let script = Script::parse("wrong", text, None);
        let error = run(&script, &start, Duration::from_secs(1)).unwrap_err();
        assert!(error.starts_with(&format!("wrong:{line}: ")), "{text}: {error}");
    }
}

fn run_all(program: Option<&str>, start: impl Fn(&[&str]) -> Option<Server>) {
    let wanted = std::env::var("TRANSCRIPT").unwrap_or_default();
    let mut errors = Vec::new();
    let mut count = 0;
    for path in transcripts() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let script = Script::parse(&name, &std::fs::read_to_string(&path).unwrap(), program);
        if !name.contains(&wanted) || script.steps.is_empty() {
            continue;
        }
        count += 1;
        errors.extend(run(&script, &start, PATIENCE).err());
    }
    assert!(errors.is_empty(), "\n{}", errors.join("\n"));
    assert!(count > 0, "no transcript ran");
}

fn transcripts() -> Vec<PathBuf> {
    let files = Path::new(FOLDER).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "txt")).collect();
    paths.sort();
    paths
}

/// Runs one transcript; the error begins with its name and line.
fn run(
    script: &Script,
    start: &impl Fn(&[&str]) -> Option<Server>,
    patience: Duration,
) -> Result<(), String> {
    let mut play =
        Play { server: None, wires: BTreeMap::new(), values: Values::default(), patience };
    let mut last = 0;
    for (line, step) in &script.steps {
        let place = format!("{}:{line}: ", script.name);
        last = *line;
        match step {
            Step::Start(flags) => {
                play.finish().map_err(|error| place.clone() + &error)?;
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                play.server = start(&flags);
            }
            Step::Send(wire, bytes) => {
                let bytes = play.values.fill(bytes);
                play.wire(*wire).send(&bytes);
            }
            Step::Expect(wire, pieces) => {
                play.expect(*wire, pieces).map_err(|error| place + &error)?;
            }
            Step::Closed(wire) => {
                let mut wire = play.take(*wire);
                let stop = wire.ends(play.patience);
                expect_end(Stop::Closed, stop, &wire.rest()).map_err(|error| place + &error)?;
            }
            Step::Waits(wire) => {
                let mut wire = play.take(*wire);
                let stop = wire.ends(SILENCE);
                expect_end(Stop::Silent, stop, &wire.rest()).map_err(|error| place + &error)?;
            }
            Step::Shut(wire) => play.wire(*wire).shut_sending(),
            Step::Drop(wire) => drop(play.take(*wire)),
        }
    }
    play.finish().map_err(|error| format!("{}:{last}: {error}", script.name))
}

fn expect_end(expected: Stop, got: Stop, rest: &[u8]) -> Result<(), String> {
    if expected == got && rest.is_empty() {
        return Ok(());
    }
    Err(format!("expected {expected:?}, got {got:?} after {}", show(rest)))
}

/// A transcript being run.
struct Play {
    server: Option<Server>,
    wires: BTreeMap<char, Wire>,
    values: Values,
    patience: Duration,
}

impl Play {
    fn wire(&mut self, name: char) -> &mut Wire {
        let server = self.server.as_ref().unwrap();
        let wire = self.wires.entry(name).or_insert_with(|| server.connect());
        wire.patience = self.patience;
        wire
    }

    fn take(&mut self, name: char) -> Wire {
        self.wire(name);
        self.wires.remove(&name).unwrap()
    }

    /// Reads what one `<` line promises.
    fn expect(&mut self, name: char, pieces: &[Piece]) -> Result<(), String> {
        self.wire(name);
        let wire = self.wires.get_mut(&name).unwrap();
        let open = pieces.iter().any(|piece| !matches!(piece, Piece::Bytes(_)));
        if open {
            let got = wire.line().map_err(|stop| format!("{stop:?}: {}", show(&wire.rest())))?;
            return self.values.matches(pieces, &got);
        }
        for expected in self.values.fill(pieces).split_inclusive(|&byte| byte == b'\n') {
            let ends = expected.ends_with(b"\n");
            let got = if ends { wire.line() } else { wire.exactly(expected.len()) };
            let got = got.map_err(|stop| {
                format!("expected {}, got {stop:?} after {}", show(expected), show(&wire.rest()))
            })?;
            if got != expected {
                return Err(format!("expected {}, got {}", show(expected), show(&got)));
            }
        }
        Ok(())
    }

    /// No connection still open may have more to say; each must still answer.
    fn finish(&mut self) -> Result<(), String> {
        for (name, mut wire) in std::mem::take(&mut self.wires) {
            wire.send(b"mn\r\n");
            let got = wire.line();
            if got.as_deref() != Ok(b"MN\r\n") {
                let got = got.map(|line| show(&line));
                return Err(format!("connection {name:?} is not at its end: {got:?}"));
            }
        }
        if let Some(server) = &mut self.server {
            assert!(server.is_alive(), "the server died");
        }
        Ok(())
    }
}
