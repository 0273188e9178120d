//! Random, well-formed commands of the classic text protocol.
//!
//! Where: generates the commands that the client side sends.
//! Invariant: the meaning of a command does not depend on the time at which it is sent.
//! Source: memcached's `doc/protocol.txt`.

use crate::command::{Command, Protocol, Unique};
use crate::meta::base64;
use crate::values::{KEYS, TEXT_KEYS, Values};

/// The verb and the relative frequency of each classic command.
pub(crate) const SHARES: [(&str, u64); 19] = [
    ("get", 170),
    ("gets", 110),
    ("gat", 30),
    ("gats", 30),
    ("set", 180),
    ("add", 60),
    ("replace", 60),
    ("append", 55),
    ("prepend", 45),
    ("cas", 90),
    ("delete", 40),
    ("incr", 45),
    ("decr", 45),
    ("touch", 36),
    ("flush_all", 2),
    ("verbosity", 2),
    ("version", 2),
    ("stats", 2),
    ("quit", 2),
];

pub(crate) struct Line {
    pub(crate) verb: &'static str,
    pub(crate) keys: Vec<usize>,
    pub(crate) words: Vec<Word>,
    pub(crate) value: Option<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) enum Word {
    Text(Vec<u8>),
    Unique(Unique),
}

fn word(text: impl ToString) -> Word {
    Word::Text(text.to_string().into_bytes())
}

impl Line {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(Protocol::Text, self.verb);
        command.push(self.verb.as_bytes());
        for word in &self.words {
            command.push(b" ");
            match word {
                Word::Text(text) => command.push(text),
                Word::Unique(unique) => command.push_decimal(*unique),
            }
        }
        command.push(b"\r\n");
        if let Some(value) = &self.value {
            command.push(value);
            command.push(b"\r\n");
        }
        command.keys = self.keys.iter().map(|&key| KEYS[key]).collect();
        command.fetches = matches!(self.verb, "get" | "gets" | "gat" | "gats");
        command.counts = matches!(self.verb, "incr" | "decr");
        command.closes = self.verb == "quit";
        command
    }
}

pub(crate) fn line(values: &mut Values, verb: &'static str) -> Line {
    let key = values.random.index(TEXT_KEYS);
    let mut line = Line { verb, keys: vec![key], words: Vec::new(), value: None };
    let exptime = word(values.exptime());
    match verb {
        "get" | "gets" | "gat" | "gats" => {
            if values.random.one_in(3) {
                let more = values.random.index(20);
                line.keys.extend((0..more).map(|_| values.random.index(TEXT_KEYS)));
            }
            if verb.starts_with("ga") {
                line.words.push(exptime);
            }
            line.words.extend(line.keys.iter().map(|&key| Word::Text(KEYS[key].to_vec())));
            return line;
        }
        "verbosity" | "version" | "stats" | "quit" => {
            line.keys.clear();
            match verb {
                "verbosity" => line.words.push(word(0)),
                "stats" => line.words.push(word("reset")),
                _ => return line,
            }
            if verb == "stats" {
                return line;
            }
        }
        _ => line.words.push(Word::Text(KEYS[key].to_vec())),
    }
    match verb {
        "set" | "add" | "replace" | "cas" | "append" | "prepend" => {
            let whole = !verb.ends_with("end");
            let value = if whole { values.value(key) } else { values.piece(key) };
            line.words.extend([word(values.client_flags()), exptime, word(value.len())]);
            if verb == "cas" {
                line.words.push(Word::Unique(values.unique()));
            }
            line.value = Some(value);
        }
        "incr" | "decr" => line.words.push(word(values.delta())),
        "touch" => line.words.push(exptime),
        _ => {}
    }
    if values.random.one_in(12) {
        line.words.push(word("noreply"));
    }
    line
}

/// If a client chose an item's CAS unique, the effect of a flush on the item depends on the second
/// in which the item was stored. With `whole`, the command therefore deletes all keys afterwards.
pub(crate) fn flush(values: &mut Values, whole: bool) -> Command {
    let mut command = Command::new(Protocol::Text, "flush_all");
    command.touches_all = true;
    let forms: &[&[u8]] = if whole {
        &[b"flush_all", b"flush_all 0", b"flush_all 100000", b"flush_all noreply", b"flush_all -1"]
    } else {
        &[b"flush_all", b"flush_all 0", b"flush_all noreply"]
    };
    command.push(values.random.pick(forms));
    command.push(b"\r\n");
    if whole {
        for key in &KEYS[..TEXT_KEYS] {
            command.push(&[b"delete ", *key, b" noreply\r\n"].concat());
        }
        let key = base64(KEYS[TEXT_KEYS]);
        command.push(&[b"ms ", &key[..], b" 0 b q\r\n\r\nmd ", &key, b" b q\r\n"].concat());
    }
    command
}
