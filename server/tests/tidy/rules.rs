//! Rules for code and for the tree: each rule is a function that returns the faults of a file.
//!
//! Where: applied to all files of the tree.
//! Invariant: no rule for code applies to comments or strings.

use crate::source::{Kind, Source};

/// A rule: returns the faults of a file, each as `path:line: why`.
pub(crate) type Rule = fn(&Source) -> Vec<String>;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// Maximum distance of unsafe code from the first line of the SAFETY comment above it.
const PROOF_LINES_MAX: usize = 25;

/// Each crate of this workspace, with the crates of this workspace that it and its tests may use.
const ARROWS: [(&str, &[&str]); 10] = [
    ("memory", &[]),
    ("net", &["memory", "testing"]),
    ("protocol", &["memory"]),
    ("store", &["memory", "testing"]),
    ("columns", &["memory", "net", "protocol", "store", "testing"]),
    // Only the server's benchmarks use the load generator; no shipped crate depends on it.
    ("server", &["memory", "net", "protocol", "store", "columns", "blaster", "testing"]),
    ("simulate", &["store", "testing"]),
    ("blaster", &["net", "protocol", "simulate", "testing"]),
    ("testing", &[]),
    ("fuzz", &["net", "protocol", "columns"]),
];

/// Modules that do I/O. The crates `WITHOUT_IO` must not use these modules.
const IO: [&str; 4] = ["std::net", "std::fs", "rustix::net", "rustix::fs"];
const WITHOUT_IO: [&str; 2] = ["protocol", "store"];

const EMPTY_WORDS: [&str; 7] = ["manager", "helper", "helpers", "util", "utils", "common", "impl"];

/// First words of a comment line that leave the subject of the line unclear.
const RIDDLES: [&str; 5] = ["What", "As", "Of", "Those", "Whether"];

/// Words that refer to a number or an amount without naming it.
const UNNAMED: [&str; 3] = ["so many", "so much", "so long"];

/// The only files that may read the wall clock, which an operator can set: `run.rs` reads the clock
/// at the start, and `watch.rs` reads the clock for the times in its lines.
const WALL_CLOCK_PLACES: [&str; 2] = ["server/src/run.rs", "server/src/shared/watch.rs"];

/// Files and folders that may contain unsafe code.
const UNSAFE_PLACES: [&str; 5] = [
    "memory/",
    "net/",
    "store/tests/",
    "server/src/start/process.rs",
    "testing/src/allocations.rs",
];

/// The files of `store/src` that may contain unsafe code, beside tests. All other files read items
/// by safe functions of these.
const UNSAFE_IN_STORE: [&str; 12] = [
    "column/handle.rs",
    "engine/draft.rs",
    "engine/find.rs",
    "index/found.rs",
    "index/pass.rs",
    "index/probe.rs",
    "item.rs",
    "item/around.rs",
    "item/pieces.rs",
    "item/shape.rs",
    "log/place.rs",
    "stats/audit.rs",
];

fn at(source: &Source, line: usize, why: &str) -> String {
    format!("{}:{}: {why}", source.path, line + 1)
}

pub(crate) fn arrows(source: &Source) -> Vec<String> {
    let Some((_, allowed)) = ARROWS.iter().find(|(folder, _)| *folder == source.folder()) else {
        return Vec::new();
    };
    let ours = ARROWS.iter().map(|(folder, _)| *folder);
    let refused: Vec<&str> =
        ours.filter(|other| *other != source.folder() && !allowed.contains(other)).collect();
    let mut broken = Vec::new();
    if source.path.ends_with("/Cargo.toml") {
        for (line, text) in source.text.lines().enumerate() {
            let name = text.split(['.', ' ', '=']).next().unwrap_or_default();
            if refused.contains(&name.trim_start_matches("hypostyle-")) && text.contains('=') {
                broken.push(at(source, line, "this crate must not depend on that one"));
            }
        }
    }
    for (line, text) in source.code.lines().enumerate() {
        let used = text.trim_start().trim_start_matches("pub ").strip_prefix("use ");
        let used = used.unwrap_or_default().split("::").next().unwrap_or_default();
        if refused.contains(&used) {
            broken.push(at(source, line, "this crate must not use that one"));
        }
        let does_io = IO.iter().any(|io| text.contains(io));
        if does_io && !source.is_test() && WITHOUT_IO.contains(&source.folder()) {
            broken.push(at(source, line, "this crate does no I/O"));
        }
    }
    broken
}

pub(crate) fn opening(source: &Source) -> Vec<String> {
    if source.kind != Kind::Rust || source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![at(source, 0, "a file opens with //! and what it is")]
}

/// Finds comments that open with a word of `RIDDLES` or contain words of `UNNAMED`.
pub(crate) fn riddles(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    if source.kind != Kind::Rust {
        return broken;
    }
    for (line, text) in source.text.lines().enumerate() {
        let Some(comment) = text.trim_start().strip_prefix("//") else { continue };
        let comment = comment.trim_start_matches(['/', '!']).trim_start();
        let first = comment.split(|one: char| !one.is_alphanumeric()).next().unwrap_or_default();
        if RIDDLES.contains(&first) {
            broken.push(at(source, line, &format!("a comment that opens with {first}")));
        }
        let unnamed = UNNAMED.iter().find(|words| comment.to_lowercase().contains(**words));
        if let Some(words) = unnamed {
            broken.push(at(source, line, &format!("a comment with \"{words}\": say the number")));
        }
    }
    broken
}

pub(crate) fn lengths(source: &Source) -> Vec<String> {
    if source.kind != Kind::Rust {
        return Vec::new();
    }
    let mut broken = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        broken.push(at(source, lines, &format!("a file of more than {FILE_LINES_MAX} lines")));
    }
    for (line, text) in source.text.lines().enumerate() {
        if text.chars().count() > COLUMNS_MAX {
            broken.push(at(source, line, &format!("more than {COLUMNS_MAX} columns")));
        }
    }
    for (line, lines) in functions(&source.code) {
        if lines > FUNCTION_LINES_MAX {
            let why = format!("a function of {lines} lines, more than {FUNCTION_LINES_MAX}");
            broken.push(at(source, line, &why));
        }
    }
    broken
}

/// Returns the first line and the number of lines of each function with a body.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut words_at = 0;
    while let Some(next) = code[words_at..].find("fn ") {
        let start = words_at + next;
        words_at = start + 3;
        let in_word = code[..start].ends_with(|one: char| one.is_alphanumeric() || one == '_');
        let named = code[words_at..].starts_with(|one: char| one.is_alphabetic() || one == '_');
        if in_word || !named {
            continue;
        }
        if let Some(bytes) = body(&code[start..]) {
            let line = code[..start].matches('\n').count();
            found.push((line, code[start..start + bytes].matches('\n').count() + 1));
        }
    }
    found
}

/// Returns the length of `code` up to the end of the function's body; `None` if there is no body.
fn body(code: &str) -> Option<usize> {
    let mut depth = 0;
    let mut brackets = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b';' if depth == 0 && brackets == 0 => return None,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

pub(crate) fn names(source: &Source) -> Vec<String> {
    let file = source.path.rsplit('/').next().unwrap_or_default();
    let mut broken = Vec::new();
    if file.split(['.', '_', '-']).any(|word| EMPTY_WORDS.contains(&word)) {
        broken.push(at(source, 0, "a file name that says nothing"));
    }
    for (line, text) in source.code.lines().enumerate() {
        let names = text.split(|one: char| !one.is_alphanumeric() && one != '_');
        for name in names.filter(|name| *name != "impl") {
            if words(name).any(|word| EMPTY_WORDS.contains(&word.as_str())) {
                broken.push(at(source, line, &format!("a name that says nothing: {name}")));
            }
        }
    }
    broken
}

fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    for one in name.chars() {
        if one == '_' || one.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| one != '_') {
            word.extend(one.to_lowercase());
        }
    }
    words.into_iter()
}

pub(crate) fn leftovers(source: &Source) -> Vec<String> {
    let marks = ["TO~DO", "FIX~ME", "X~XX", "HA~CK:"].map(|mark| mark.replace('~', ""));
    let code = ["dbg!(", "todo!(", "unimplemented!(", "#[ignore"];
    let mut broken = Vec::new();
    for (line, text) in source.text.lines().enumerate() {
        if let Some(mark) = marks.iter().find(|mark| text.contains(mark.as_str())) {
            broken.push(at(source, line, &format!("a leftover: {mark}")));
        }
    }
    for (line, text) in source.code.lines().enumerate() {
        if let Some(mark) = code.iter().find(|mark| text.contains(**mark)) {
            broken.push(at(source, line, &format!("a leftover: {mark}")));
        }
        if source.is_test() && text.contains("sleep(") {
            broken.push(at(source, line, "a test that sleeps: wait for what must happen"));
        }
    }
    broken
}

/// Finds code of the server that parses the bytes of a request or contains a literal line end.
pub(crate) fn forms(source: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    let is_served = ["columns/src/", "server/src/"].iter().any(|it| source.path.starts_with(it));
    if !is_served || source.is_test() {
        return broken;
    }
    let texts = source.text.lines().map(str::trim_start);
    for (line, (code, text)) in source.code.lines().zip(texts).enumerate() {
        if ["Form::", "::FORM", "Tag {", "Tag::"].iter().any(|form| code.contains(form)) {
            broken.push(at(source, line, "the executor looks into no form: each protocol does"));
        }
        if !text.starts_with("//") && text.contains("\\r\\n") {
            broken.push(at(source, line, "the words of a protocol stand in protocol"));
        }
    }
    broken
}

/// Finds code of columns that names the kernel's streams, outside the file that makes them a way.
pub(crate) fn ways(source: &Source) -> Vec<String> {
    if !source.path.starts_with("columns/src/") || source.path == "columns/src/stream/kernel.rs" {
        return Vec::new();
    }
    let shipped = source.code.lines().take_while(|line| !line.contains("#[cfg(test)]"));
    let names = shipped.enumerate().filter(|(_, code)| code.contains("net::Stream"));
    names.map(|(line, _)| at(source, line, "a connection knows no kernel: use a way")).collect()
}

/// Finds code of the shipped server that reads the wall clock, on which exptimes must not depend.
pub(crate) fn clocks(source: &Source) -> Vec<String> {
    let shipped =
        ["memory/src/", "net/src/", "protocol/src/", "store/src/", "columns/src/", "server/src/"];
    let is_shipped = shipped.iter().any(|folder| source.path.starts_with(folder));
    if !is_shipped || source.is_test() || WALL_CLOCK_PLACES.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let reads = ["SystemTime", "UNIX_EPOCH", "ClockId::Realtime", "CLOCK_REALTIME", "gettimeofday"];
    let lines = source.code.lines().enumerate();
    let broken = lines.filter(|(_, text)| reads.iter().any(|read| text.contains(read)));
    broken.map(|(line, _)| at(source, line, "no look at the clock on the wall here")).collect()
}

pub(crate) fn unsafe_code(source: &Source) -> Vec<String> {
    let in_store = source.path.strip_prefix("store/src/");
    let allowed = UNSAFE_PLACES.iter().any(|place| source.path.starts_with(place))
        || in_store.is_some_and(|file| UNSAFE_IN_STORE.contains(&file) || file.contains("tests"));
    let texts: Vec<&str> = source.text.lines().collect();
    let mut broken = Vec::new();
    for (line, code) in source.code.lines().enumerate() {
        let mut words = code.split_whitespace().skip_while(|word| *word != "unsafe");
        if words.next().is_none() {
            continue;
        }
        if !allowed {
            broken.push(at(source, line, "no unsafe code here"));
        }
        let is_used = matches!(words.next(), Some("{" | "impl"));
        let near = &texts[line.saturating_sub(PROOF_LINES_MAX)..=line];
        if is_used && !near.iter().any(|text| text.contains("SAFETY:")) {
            broken.push(at(source, line, "unsafe code without its SAFETY: proof"));
        }
    }
    broken
}

pub(crate) fn machines(source: &Source) -> Vec<String> {
    let names = [
        "/ho~me/",
        "/ro~ot/",
        "/wo~rk/",
        "/opt/riv~als",
        "cra~tes.io",
        "py~pi.org",
        "npm~js",
        "proxy.go~lang",
        "static.rust-la~ng",
    ];
    let names = names.map(|name| name.replace('~', ""));
    let mut broken = Vec::new();
    for (line, text) in source.text.lines().enumerate() {
        if let Some(name) = names.iter().find(|name| text.contains(name.as_str())) {
            broken.push(at(source, line, &format!("a place of one machine or host: {name}")));
        }
    }
    broken
}
