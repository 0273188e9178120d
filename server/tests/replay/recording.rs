//! Loads a recording: zstd-compressed JSON lines, one exchange a line.
//!
//! Path: none, test data. Invariant: strings are latin-1, so each character is one byte on the
//! wire. Source: `../data/oracle/README.md`.

use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// One request and what memcached did.
pub(crate) struct Exchange {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) state: State,
}

/// What became of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    Closed,
    /// The server waits for more of the body.
    Hang,
}

/// All exchanges of the recording at `path`, in order.
pub(crate) fn load(path: &Path) -> Vec<Exchange> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    text.lines().map(exchange).collect()
}

fn exchange(line: &str) -> Exchange {
    let value: Value = serde_json::from_str(line).unwrap();
    let state = match value["state"].as_str() {
        Some("ok") => State::Ok,
        Some("closed") => State::Closed,
        Some("hang") => State::Hang,
        other => panic!("state {other:?}"),
    };
    Exchange { input: latin1(&value["in"]), output: latin1(&value["out"]), state }
}

fn latin1(value: &Value) -> Vec<u8> {
    value.as_str().unwrap().chars().map(|one| u8::try_from(one).unwrap()).collect()
}
