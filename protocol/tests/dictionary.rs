//! The fuzzer's dictionary is made from the command table.
//!
//! Where: writes and checks `fuzz/text.dict`.
//! Invariant: every command of the table is in it.
//! Source: the table, `protocol/src/command.rs`.

use std::path::Path;

use protocol::COMMANDS;

/// What stands on lines beside the commands' names.
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

fn dictionary() -> String {
    let mut text = String::from("# Made by protocol/tests/dictionary.rs with HYPOSTYLE_BLESS=1.\n");
    for command in COMMANDS {
        text.push_str(&quoted(command.name));
    }
    for word in WORDS {
        text.push_str(&quoted(word));
    }
    text
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"\n")
}

#[test]
fn the_dictionary_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/text.dict");
    if std::env::var_os("HYPOSTYLE_BLESS").is_some() {
        std::fs::write(&path, dictionary()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == dictionary(), "run this test once with HYPOSTYLE_BLESS=1");
}
