//! `docs/limits.md`: the worst legal forms of each command and their limits, and every named limit.
//!
//! Where: a test makes the page from the command tables and the files `limits.rs`, and compares the
//! page with the file.
//! Invariant: the page agrees with the source. `HYPOSTYLE_BLESS=1` rewrites the page.

use std::fmt::Write;
use std::path::Path;

use protocol::COMMANDS;

const HEAD: &str = "\
# What may a request cost?

The limits below apply to every transport. They bound the time of a thread, the memory and the
network traffic that a request may use. `cargo test -p hypostyle --test ceilings` checks the limits.
The test sends each command in the forms of the first table: a single time, as many times as fit
into one message, and in floods of datagrams from many senders. The test uses TCP, a Unix socket,
UDP through the kernel, and UDP that bypasses the kernel. The test checks three limits on steps:
`TURN_STEPS_MAX` for each turn, `MESSAGE_STEPS_MAX` for each message, and `LOOP_STEPS_MAX` for each
pass of the event loop. [Limits](#limits) explains these words. The test sends binary commands in
the forms that `protocol/src/binary/opcode.rs` lists. With `HYPOSTYLE_BLESS=1`, the test writes this
page from the source.

## Commands

`{text*N}` stands for N copies of the text. In each copy, `#` stands for the number of the copy.

| command | worst legal forms |
|---|---|
";

const LIMITS: &str = "
## Limits

A column is one pinned thread with its own event loop and its own connections. In each pass of the
loop, a column gives turns to its connections. In a turn, the column reads once, executes the
requests that it has read, and writes once. A message is the content of one UDP datagram, or of
several datagrams that belong together. A message may hold several requests. An errand is a command
that a column executes step by step in many turns. The store's memory is divided into segments. A
chunk is a part of the memory for packets. [ARCHITECTURE.md](../ARCHITECTURE.md#words) explains more
words.

Each limit applies to one column, unless its row says otherwise. The table shows values as they are
in the source: `1 << 13` is 8,192. [limits.rs](../columns/src/limits.rs) also has limits that
depend on `-m`; these are functions, and are not in the table.

| limit | value | what it bounds |
|---|---|---|
";

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for command in COMMANDS {
        let forms: Vec<String> =
            command.worst.iter().map(|form| format!("`{}`", form.escape_default())).collect();
        writeln!(page, "| `{}` | {} |", command.name, forms.join("<br>")).unwrap();
    }
    page.push_str(LIMITS);
    let mut words = String::new();
    let both = ["../columns/src/limits.rs", "src/limits.rs"].map(source).concat();
    for line in both.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            let space = if words.is_empty() { "" } else { " " };
            words = words + space + text;
        } else if let Some(constant) = line.strip_prefix("pub const ") {
            let (name, value) = constant.split_once(": ").unwrap();
            let value = value.split_once(" = ").unwrap().1.trim_end_matches(';');
            writeln!(page, "| `{name}` | {value} | {words} |").unwrap();
            words.clear();
        } else if line != "///" {
            words.clear();
        }
    }
    page
}

#[test]
fn the_page_of_limits_is_what_the_source_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits.md");
    let made = page();
    if std::env::var_os("HYPOSTYLE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/limits.md: run this test once with HYPOSTYLE_BLESS=1");
}
