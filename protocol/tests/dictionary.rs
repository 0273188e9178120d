//! Makes the fuzzer's dictionaries from the command tables.
//!
//! Where: writes and checks `fuzz/text.dict` and `fuzz/binary.dict`.
//! Invariant: the dictionaries have every command of the tables.
//! Source: the tables, `protocol/src/command.rs` and `protocol/src/binary/opcode.rs`.

use std::path::Path;

use protocol::COMMANDS;
use protocol::binary::opcode::{OPCODES, Shape};
use protocol::binary::{Header, MAGIC_REQUEST};

/// Words that occur in lines, besides the names of commands.
const WORDS: [&str; 19] = [
    "noreply",
    " 0 0 5\\x0d\\x0ahello\\x0d\\x0a",
    "\\x0d\\x0a",
    "\\x0a",
    "HTTP/1.1",
    " b k v t f c s h l O1 q",
    " N30 R30 T30",
    " C1 E2 I x F3",
    " MA",
    " MI D2 J3",
    "Zm9v",
    "-1",
    "2147483647",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "VALUE k 0 5\\x0d\\x0ahello\\x0d\\x0aEND\\x0d\\x0a",
    "VA 2 s2\\x0d\\x0ahi\\x0d\\x0a",
    "STAT a b\\x0d\\x0a",
];

const FIRST_LINE: &str = "# Made by protocol/tests/dictionary.rs with HYPOSTYLE_BLESS=1.\n";

fn text_dictionary() -> String {
    let mut text = String::from(FIRST_LINE);
    for command in COMMANDS {
        text.push_str(&quoted(command.name));
    }
    for word in WORDS {
        text.push_str(&quoted(word));
    }
    text
}

/// Makes a frame of each command, with extras, a key and a value of the right lengths.
fn binary_dictionary() -> String {
    let mut text = String::from(FIRST_LINE);
    for opcode in OPCODES {
        let (extras_bytes, key_bytes, value_bytes) = match opcode.shape {
            Shape::Get { .. } | Shape::Delete | Shape::Stat => (0, 1, 0),
            Shape::GetAndTouch { .. } | Shape::Touch => (4, 1, 0),
            Shape::Store(_) => (8, 1, 2),
            Shape::Extend(_) | Shape::Sasl => (0, 1, 2),
            Shape::Delta { .. } => (20, 1, 0),
            Shape::Flush => (4, 0, 0),
            Shape::Noop | Shape::Version | Shape::Quit | Shape::SaslList => (0, 0, 0),
        };
        let header = Header {
            magic: MAGIC_REQUEST,
            opcode: opcode.code,
            extras_bytes,
            key_bytes,
            body_bytes: u32::from(extras_bytes) + u32::from(key_bytes) + value_bytes,
            ..Header::default()
        };
        let body = vec![b'k'; header.body_bytes as usize];
        let frame = [&header.to_bytes()[..], &body].concat();
        let escaped: String = frame.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        text.push_str(&quoted(&escaped));
    }
    text
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"\n")
}

#[test]
fn the_dictionaries_are_up_to_date() {
    for (name, made) in [("text", text_dictionary()), ("binary", binary_dictionary())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fuzz/{name}.dict"));
        if std::env::var_os("HYPOSTYLE_BLESS").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept == made, "{name}.dict: run this test once with HYPOSTYLE_BLESS=1");
    }
}
