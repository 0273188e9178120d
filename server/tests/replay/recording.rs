//! Loads a recording: zstd-compressed JSON lines, one exchange per line. A second file may list
//! further correct replies.
//!
//! Where: reads the test data in `../data/oracle`.
//! Invariant: strings are latin-1, one character per byte on the wire. Further replies are compared
//! byte for byte too.
//! Source: `../data/oracle/README.md`.

use crate::binary;
use crate::live::frame::{Frame, VERSION};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(crate) struct Exchange {
    pub(crate) input: Vec<u8>,
    pub(crate) answer: Answer,
    pub(crate) others: Vec<Other>,
    /// The replay puts the last CAS unique of this key into the header of a binary request.
    pub(crate) unique_of: Option<Vec<u8>>,
}

#[derive(PartialEq, Eq)]
pub(crate) struct Answer {
    /// Text or binary frames, in which numbers replace the CAS uniques.
    pub(crate) output: Vec<u8>,
    pub(crate) state: State,
}

pub(crate) struct Other {
    pub(crate) answer: Answer,
    /// Set if this answer is correct only for a request that may arrive in parts.
    pub(crate) in_parts: bool,
}

impl Exchange {
    /// `in_parts` is set if the request may have arrived in parts.
    pub(crate) fn allows(&self, answer: &Answer, in_parts: bool) -> bool {
        let mut others = self.others.iter().filter(|other| in_parts || !other.in_parts);
        *answer == self.answer || others.any(|other| *answer == other.answer)
    }

    /// True if the connection serves the next request after every correct answer.
    pub(crate) fn goes_on(&self) -> bool {
        let mut others = self.others.iter().map(|other| &other.answer);
        self.answer.state == State::Ok && others.all(|answer| answer.state == State::Ok)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ok,
    Closed,
    /// The server waits for more of the body.
    Hang,
}

pub(crate) fn load(path: &Path) -> Vec<Exchange> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_string(&mut text).unwrap();
    let mut exchanges: Vec<Exchange> = text.lines().map(exchange).collect();
    let others = path.with_extension("").with_extension("others.jsonl");
    if let Ok(text) = std::fs::read_to_string(others) {
        text.lines().for_each(|line| add_other(&mut exchanges, line));
    }
    exchanges
}

fn exchange(line: &str) -> Exchange {
    let value: Value = serde_json::from_str(line).unwrap();
    let unique_of = value.get("header_cas").map(|named| {
        let key = latin1(named);
        key.strip_prefix(b"{CAS ").and_then(|key| key.strip_suffix(b"}")).unwrap().to_vec()
    });
    let (input, output) = match &value["out"] {
        Value::Array(frames) => {
            (hex(&value["in"]), frames.iter().flat_map(|one| frame(one).encode()).collect())
        }
        text => (latin1(&value["in"]), latin1(text)),
    };
    let answer = Answer { output, state: state(&value) };
    Exchange { input, answer, others: Vec::new(), unique_of }
}

/// Adds a further correct answer, which `line` contains with the index of its request.
fn add_other(exchanges: &mut [Exchange], line: &str) {
    let value: Value = serde_json::from_str(line).unwrap();
    let index = usize::try_from(value["index"].as_u64().unwrap()).unwrap();
    let exchange = &mut exchanges[index];
    let answer = Answer { output: latin1(&value["out"]), state: state(&value) };
    assert!(exchange.input.starts_with(&latin1(&value["in"])), "#{index} is another request");
    assert!(exchange.answer != answer, "#{index}: the recording has this answer");
    assert!(!value["why"].as_str().unwrap().is_empty(), "#{index} needs a reason");
    exchange.others.push(Other { answer, in_parts: value["parts"].as_bool().unwrap() });
}

fn state(value: &Value) -> State {
    match value["state"].as_str() {
        Some("ok") => State::Ok,
        Some("closed") => State::Closed,
        Some("hang") => State::Hang,
        other => panic!("state {other:?}"),
    }
}

fn latin1(value: &Value) -> Vec<u8> {
    value.as_str().unwrap().chars().map(|one| u8::try_from(one).unwrap()).collect()
}

fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16))
        .collect::<Result<_, _>>()
        .unwrap()
}

fn frame(value: &Value) -> Frame {
    let frame = Frame {
        magic: number(value, "magic"),
        opcode: number(value, "opcode"),
        key_bytes: number(value, "keylen"),
        extras_bytes: number(value, "extlen"),
        datatype: number(value, "datatype"),
        status: number(value, "status"),
        body_bytes: number(value, "bodylen"),
        opaque: number(value, "opaque"),
        cas: match value["cas"].as_str() {
            Some(name) => name.strip_prefix("CAS").unwrap().parse().unwrap(),
            None => number(value, "cas"),
        },
        body: hex(&value["body"]),
    };
    if frame.opcode == VERSION && frame.status == 0 {
        binary::without_version(frame)
    } else {
        frame
    }
}

fn number<T: TryFrom<u64>>(value: &Value, name: &str) -> T {
    let number = value[name].as_u64().and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{name} of {value}"))
}
